"""DAG-RNN: a network over a directed acyclic graph as a recursive function over predecessors.

    h_v = tanh(U·x_v + W·Σ h_u + b), the sum over the predecessors u of v

Nodes that several others need are computed for each of them by the recursion as it is written; the
paths to the last node of a grid of R × C are C(R + C − 2, R − 1).
graph    "grid": rows × columns nodes, edges to the right and down, the root is the last node
         "random": length nodes in any order, up to three predecessors each; all sinks are roots
         "diamond": length nodes, each needs the one before it twice; the root is the last node
form     "recursive": predecessors in CSR form, a Loop over them with the call inside
         "fixed": an array for each of two predecessors, −1 where there is none, and a branch for each
         "levels": the same written without recursion, see models/levels.py
         or one of models/words.py: "expert" and "naive" as "fixed", "exporter" as "recursive"
batch    graphs, all in one numbering
length   nodes of a random graph or of a diamond
"""
import numpy as np

from . import levels
from .common import F, Graph, I, narrow, normal, uniform, wide
from .words import FORMS as WAYS
from .trees import structures

CASES = {
    "dagrnn": dict(graph="grid"),
    "dagrnn_fixed": dict(graph="grid", form="fixed"),
    "dagrnn_random": dict(graph="random"),
    "dagrnn_diamond": dict(graph="diamond", form="fixed"),
    "dagrnn_levels": dict(graph="grid", form="levels"),
}
LIKE = dict(zip(WAYS, ("fixed", "recursive", "fixed")))
ARRAYS = {"recursive": ("child_begin", "child"), "fixed": ("first", "second"),
          "levels": ("predecessors", "begin")}
FORMS = {"dagrnn": {form: dict(graph="grid", form=form) for form in WAYS}}
SMALL = dict(batch=2, rows=3, columns=4, length=10, hidden=8)
MOST = {"grid": 2, "random": 3, "diamond": 2}  # predecessors of a node


def random(length, rng):
    """Nodes in any order, so that their numbers say nothing; up to three predecessors each."""
    name = rng.permutation(length).tolist()
    found = [[] for _ in name]
    for at in range(1, length):
        some = rng.choice(at, int(rng.integers(0, min(3, at) + 1)), replace=False)
        found[name[at]] = [name[u] for u in some]
    return structures.from_children(found)


def graphs(graph, rows, columns, batch, length, seed):
    """All graphs; the children of a node are its predecessors."""
    rng = np.random.default_rng(seed + 1)
    makers = {"grid": lambda: structures.grid(rows, columns),
              "random": lambda: random(length, rng),
              "diamond": lambda: structures.from_children([[]] + [[v, v] for v in range(length - 1)])}
    if graph not in makers:
        raise ValueError(f"no graph {graph}; there are {', '.join(makers)}")
    return structures.concatenate([makers[graph]() for _ in range(batch)])


def weights(hidden, seed, **_):
    r = np.random.default_rng(seed)
    return {"U": uniform(r, hidden, hidden), "W": uniform(r, hidden, hidden),
            "b": uniform(r, hidden)}


def inputs(graph, rows, columns, batch, length, hidden, form, seed, **_):
    nodes = graphs(graph, rows, columns, batch, length, seed)
    x, children = normal(np.random.default_rng(seed + 2), len(nodes), hidden), nodes.children()
    form = LIKE.get(form, form)
    if form == "recursive":
        return {"x": x, **nodes.csr()}
    if form == "fixed":
        if graph == "random":
            raise ValueError("the form fixed is for graphs with two predecessors at most")
        first, second = np.asarray([us + [-1] * (2 - len(us)) for us in children], np.int64).T.copy()
        return {"x": x, "first": first, "second": second, "roots": nodes.roots}
    order, place, sources, begin = levels.number(nodes)
    padded = np.zeros((len(x) - sources, MOST[graph]), np.int64)
    for row, v in zip(padded, order[sources:]):
        row[:len(children[v])] = 1 + place[children[v]]
    return {"x": x[order], "predecessors": padded, "begin": begin, "roots": 1 + place[nodes.roots]}


def reference(x, w, graph, rows, columns, batch, length, hidden, seed, **_):
    nodes = graphs(graph, rows, columns, batch, length, seed)
    a = wide({**w, "x": normal(np.random.default_rng(seed + 2), len(nodes), hidden)})
    h, children = np.zeros((len(nodes), hidden)), nodes.children()
    for v in structures.levels(nodes).order:
        h[v] = np.tanh(a["x"][v] @ a["U"] + h[children[v]].sum(0) @ a["W"] + a["b"])
    results = h[nodes.roots][:, None]
    return narrow(results[0] if batch == 1 and graph != "random" else results)


def export(batch=1, length=100, rows=10, columns=10, hidden=256, graph="grid", form="recursive",
           seed=0):
    g = Graph("dagrnn", form=form)
    form = LIKE.get(form, form)
    if form not in ARRAYS:
        raise ValueError(f"no form {form}; there are {', '.join((*ARRAYS, *LIKE))}")
    one_root = batch == 1 and graph != "random"
    row, values = F(1, hidden), weights(hidden, seed)
    if form == "levels":
        return export_levels(g, graph, hidden, one_root, values)
    types = {"child_begin": I("nodes_and_one"), "child": I("edges")}
    names = [g.input("x", F("nodes", hidden))]
    names += [g.input(k, types.get(k, I("nodes"))) for k in ARRAYS[form]]
    roots = g.input("roots", I(1 if one_root else "roots"))
    names += g.weights(values)

    def total(g, v, a, of):
        """The sum over predecessors; of(g, u) is the state of one."""
        zero = g.const(np.zeros((1, hidden), np.float32))
        if form == "fixed":
            u = [g.Gather(a[k], v, axis=0) for k in ("first", "second")]
            return g.Add(*(g.branch(g.Less(one, 0), lambda g: [zero], lambda g, one=one: [of(g, one)],
                                    name="predecessor")[0] for one in u))
        first = g.Gather(a["child_begin"], v, axis=0)
        count = g.Sub(g.Gather(a["child_begin"], g.Add(v, 1), axis=0), first)

        def step(g, i, so_far):
            u = g.Gather(a["child"], g.Add(first, i), axis=0)
            return [g.Add(so_far, of(g, u))], []

        return g.loop(count, {"total": (zero, row)}, step, name="predecessors")[0]

    def body(g, v, *rest):
        a = dict(zip(names, rest))
        own = g.Gather(a["x"], g.Unsqueeze(v, [0]), axis=0)
        others = total(g, v, a, lambda g, u: g.invoke("dagrnn", u, *rest))
        return g.form.gates(g, [(own, a["U"]), (others, a["W"]), a["b"]], act="Tanh")

    g.function("dagrnn", ["v", *names], body)

    def call(g, at):
        return g.invoke("dagrnn", g.Gather(roots, at, axis=0), *names)

    if one_root:
        g.output(g.Identity(call(g, 0), out="h"), row)
    else:
        h, = g.loop(g.Size(roots), {}, lambda g, i: ([], [call(g, i)]), name="roots")
        g.output(g.Identity(h, out="h"), F("roots", 1, hidden))
    return g.model()


def export_levels(g, graph, hidden, one_root, values):
    """Row 0 of the states is zero and stands for predecessors that are not there."""
    x = g.input("x", F("nodes", hidden))
    predecessors = g.input("predecessors", I("inner", MOST[graph]))
    begin = levels.begin_input(g)
    roots = g.input("roots", I(1 if one_root else "roots"))
    w = g.weights(values)
    own = g.Add(g.MatMul(x, w["U"]), w["b"])
    nodes = g.Shape(own, end=1)
    sources = g.Sub(nodes, g.Shape(predecessors, end=1))
    first = g.Concat(g.const(np.zeros((1, hidden), np.float32)), g.Tanh(g.Slice(own, [0], sources, [0])), axis=0)
    own = g.Slice(own, sources, nodes, [0])
    columns = [g.Gather(predecessors, k, axis=1) for k in range(MOST[graph])]

    def step(g, of_level, h):
        total, *others = (g.Gather(h, of_level(u), axis=0) for u in columns)
        for rows in others:
            total = g.Add(total, rows)
        return [g.Tanh(g.Add(of_level(own), g.MatMul(total, w["W"])))]

    h, = levels.loop(g, begin, {"h": first}, hidden, step)
    h = g.Gather(h, roots, axis=0)
    g.output(g.Identity(h if one_root else g.Unsqueeze(h, [1]), out="h"),
             F(1, hidden) if one_root else F("roots", 1, hidden))
    return g.model()
