"""Structures that random recursive functions walk over: nodes with children, grids, numbers.

A structure says what the control parameters of a function are (names), and, of an activation whose parameters have
the values c, whether it is a leaf, which parameters its children have, which row of the features is its own, and what a
branch may decide by. m is the model under construction (recursive_model.Maker).
"""
import numpy as np


def shape_of_tree(r, kind, nodes, arity):
    """kids[n], parents before children and node 0 the root; arity: children of each inner node, None for any number."""
    if kind == "single":
        return [[]]
    if kind == "diamond":    # two nodes a layer, each with both of the next one
        layers = max(2, nodes // 2)
        both = [[2 * k + 1, 2 * k + 2] for k in range(layers)]
        kids = [both[0]] + [both[k + 1] for k in range(layers - 1) for _ in range(2)] + [[], []]
        return [(k * arity)[:arity] if k and arity else k for k in kids]
    if kind == "dag":
        kids = []
        for n in range(nodes):
            after = np.arange(n + 1, min(nodes, n + 2 + nodes // 3))
            some = arity or int(r.integers(0, 4))
            leaf = n > 0 and r.random() < .3 or not len(after)
            kids.append([] if leaf else [int(k) for k in r.choice(after, some)])
        return kids
    kids, open_ = [[]], [0]
    while len(kids) < nodes:
        at = open_.pop({"chain": -1, "perfect": 0}.get(kind, int(r.integers(0, len(open_)))))
        for _ in range(arity or int(r.integers(1, 5))):
            kids[at].append(len(kids))
            open_.append(len(kids))
            kids.append([])
        if not open_:
            break
        if kind == "chain":    # on with one of the children
            open_ = [int(r.choice(open_[-len(kids[at]):]))]
    return kids


class Nodes:
    """Nodes of trees or DAGs; their children in two arrays ("pair"), a matrix ("matrix"), or a list with starts ("list")."""
    names = ["n"]

    def __init__(self, m, large):
        r = m.r
        self.form = m.pick("pair", "pair", "pair", "matrix", "list", "list", "list")
        self.arity = {"pair": 2, "matrix": int(r.integers(1, 4)), "list": None}[self.form]
        kinds = ["tree", "tree", "chain", "perfect", "single", "dag", "dag", "diamond"]
        self.kind = "diamond" if large else kinds[int(r.integers(0, len(kinds)))]
        kids, self.roots, roots = [], [], int(r.integers(1, 5))
        for _ in range(1 if large else roots):
            nodes = 2 * int(r.integers(20, 50)) if large else int(r.integers(2, 14 if roots > 1 else 40))
            nodes = min(nodes, 12) if self.kind in ("dag", "diamond") and not large else nodes
            more = shape_of_tree(r, self.kind, nodes, self.arity)
            self.roots.append(len(kids))
            kids += [[k + self.roots[-1] for k in some] for some in more]
        if r.random() < .4:    # numbered in another order
            place = r.permutation(len(kids))
            moved = [None] * len(kids)
            for n, some in enumerate(kids):
                moved[place[n]] = [int(place[k]) for k in some]
            kids, self.roots = moved, [int(place[n]) for n in self.roots]
        self.kids, self.rows = kids, len(kids)
        m.tag(self.form, "structure " + self.kind)
        self.arrays(m)

    def arrays(self, m):
        kids, n = self.kids, len(self.kids)
        inner = np.array([len(k) > 0 for k in kids])
        self.leaf_by = m.pick("flag", "kind", "sign", "count") if self.form != "list" else m.pick("count", "flag")
        none = -1 if self.leaf_by == "sign" else 0
        m.array("leaf", ~inner)
        self.classes = int(m.r.integers(2, 6))
        kind = np.where(inner, m.r.integers(1, self.classes + 1, n), 0)
        self.kind_type = m.pick(np.uint8, np.int64, np.int32)
        m.array("kind", kind.astype(self.kind_type))
        m.array("count", np.array([len(k) for k in kids], m.stored))
        if self.form == "pair":
            for k, name in enumerate(("left", "right")):
                m.array(name, np.array([some[k] if some else none for some in kids], m.stored))
        elif self.form == "matrix":
            m.array("kids", np.array([some or [none] * self.arity for some in kids], m.stored))
        else:
            m.array("start", np.cumsum([0] + [len(k) for k in kids]).astype(m.stored))
            m.array("kids", np.array([k for some in kids for k in some], m.stored))

    def leaf(self, m, g, c):
        if self.leaf_by == "flag":
            return g.Gather(m.ref(g, "leaf"), c[0])
        if self.leaf_by == "kind":
            return g.Equal(g.Gather(m.ref(g, "kind"), c[0]), m.const(g, 0, self.kind_type))
        if self.leaf_by == "sign":
            return g.Less(self.child(m, g, c, 0)[0], m.int(g, 0))
        if self.form == "list":
            return g.Equal(self.count(m, g, c), m.int(g, 0))
        return g.Equal(m.get(g, "count", c[0]), m.int(g, 0))

    def child(self, m, g, c, k):
        if self.form == "pair":
            return [m.get(g, ("left", "right")[k], c[0])]
        if self.form == "list":
            return [self.listed(m, g, self.begin(m, g, c))]
        at = g.Gather(g.Gather(m.ref(g, "kids"), c[0], axis=0), m.const(g, k, np.int64), axis=-1)
        return [m.as_index(g, at)]

    def begin(self, m, g, c):
        return m.get(g, "start", c[0])

    def count(self, m, g, c):
        return g.Sub(m.get(g, "start", g.Add(c[0], m.int(g, 1))), self.begin(m, g, c))

    def listed(self, m, g, at):
        return m.get(g, "kids", at)

    def row(self, m, g, c):
        return c[0]

    def arms(self, m, g, c):
        """(None or what decides, children) of the arms of inner nodes."""
        return [(None, range(self.arity or 1))]

    def conditions(self, m, c):
        """What a branch may decide by: functions of a graph."""
        def kind(g):
            k = m.const(g, int(m.r.integers(1, self.classes + 1)), self.kind_type)
            return getattr(g, m.pick("Equal", "Less", "Greater"))(g.Gather(m.ref(g, "kind"), c[0]), k)

        def parity(g):
            return g.Equal(g.Mod(c[0], m.int(g, 2)), m.int(g, int(m.r.integers(0, 2))))

        def of_child(g):
            n = self.child(m, g, c, 0)[0]
            return g.Equal(g.Gather(m.ref(g, "kind"), n), m.const(g, 0, self.kind_type))

        def compare(g):
            return g.Less(self.child(m, g, c, 0)[0], self.child(m, g, c, 1)[0])
        return [kind, kind, parity, of_child] + ([compare] if self.form == "pair" else [])

    def child_conditions(self, m, child):
        return self.conditions(m, [child])[:3]

    def root(self, m, k):
        return [self.roots[k % len(self.roots)]]


class Grid:
    """Cells (i, j) that need those above, to the left, and above to the left."""
    names = ["i", "j"]
    form = "grid"

    def __init__(self, m, large):
        self.h, self.w = (10, 10) if large else (int(k) for k in m.r.integers(1, 5, 2))
        self.rows, self.arity = self.h * self.w, int(m.r.integers(2, 4))
        self.edges = m.chance(.5)    # cells at an edge need one other
        m.tag("grid")

    def first(self, m, g, k):
        return g.Equal(k, m.int(g, 0))

    def leaf(self, m, g, c):
        return getattr(g, "And" if self.edges else "Or")(self.first(m, g, c[0]), self.first(m, g, c[1]))

    def child(self, m, g, c, k):
        i, j = c
        return [g.Sub(i, m.int(g, 1)) if k != 1 else i, g.Sub(j, m.int(g, 1)) if k != 0 else j]

    def row(self, m, g, c):
        return g.Add(g.Mul(c[0], m.int(g, self.w)), c[1])

    def arms(self, m, g, c):
        every = range(self.arity)
        if not self.edges:
            return [(None, every)]
        return [(lambda g: self.first(m, g, c[0]), [1]), (lambda g: self.first(m, g, c[1]), [0]), (None, every)]

    def conditions(self, m, c):
        return [lambda g: g.Less(c[0], c[1]), lambda g: g.Equal(g.Mod(g.Add(*c), m.int(g, 2)), m.int(g, 0)),
                lambda g: g.Greater(c[m.pick(0, 1)], m.int(g, 2))]

    def root(self, m, k):
        return [self.h - 1, self.w - 1] if k == 0 else [int(m.r.integers(0, self.h)), int(m.r.integers(0, self.w))]


class Numbers:
    """n needs n - 1, n - 2 and a half of n."""
    names = ["n"]
    form = "numbers"

    def __init__(self, m, large):
        self.top = 60 if large else int(m.r.integers(0, 9))
        self.rows, self.arity = self.top + 1, int(m.r.integers(2, 4))
        m.tag("numbers")

    def leaf(self, m, g, c):
        return g.Less(c[0], m.int(g, 2))

    def child(self, m, g, c, k):
        return [g.Div(c[0], m.int(g, 2)) if k == 2 else g.Sub(c[0], m.int(g, k + 1))]

    def row(self, m, g, c):
        return c[0]

    def arms(self, m, g, c):
        return [(None, range(self.arity))]

    def conditions(self, m, c):
        return [lambda g: g.Equal(g.Mod(c[0], m.int(g, m.pick(2, 3))), m.int(g, 0)), lambda g: g.Greater(c[0], m.int(g, 4))]

    def root(self, m, k):
        return [self.top] if k == 0 else [int(m.r.integers(0, self.top + 1))]
