"""An encoder of programs: recursive functions over syntax trees with weights of their own for each kind of node.

    expression(n)   leaf:         embedding[symbol]
                    unary:        tanh(h_0·U + operator[symbol])
                    binary:       tanh(h_0·L + h_1·R + operator[symbol])
                    conditional:  p = σ(h_0·P); tanh((p·h_1 + (1 − p)·h_2)·C + b_c)
                    lambda:       tanh(s_0·K + b_l), s_0 a statement (programs only)
    statement(n)    assignment:   tanh(embedding[symbol]·N + h_0·E + b_a), h_0 an expression
                    sequence:     tanh(s_0·S + s_1·T + b_s)
                    branch:       tanh(h_0·B + s_1·S + s_2·T + b_b), h_0 an expression
with nested Ifs by the kind of the node; h_k and s_k are the states of its children child[n, k].
program  False: trees of expressions. True: statements, which call expressions, which call statements
shared   equal trees are one node, so that there are fewer (a DAG)
form     in whose words, see models/words.py
length   nodes of a tree, shared ones counted as often as they occur; of a program at least 2
"""
import numpy as np

from .common import F, Graph, I, narrow, normal, sigmoid, uniform, wide
from .words import FORMS as WAYS
from .trees import structures

LEAF, UNARY, BINARY, CONDITIONAL, LAMBDA, ASSIGNMENT, SEQUENCE, BRANCH = range(8)
OPERATORS = 8
CASES = {"syntax": dict(), "syntax_program": dict(program=True)}
FORMS = {name: {form: dict(CASES[name], form=form) for form in WAYS} for name in CASES}
SMALL = dict(batch=2, length=15, hidden=8, vocabulary=5)


def parts(rng, n, least):
    """Random numbers of at least those of `least` whose sum is n."""
    cuts = np.sort(rng.integers(0, n - sum(least) + 1, len(least) - 1))
    return np.diff([0, *cuts, n - sum(least)]) + least


# Of each kind: the nodes that each child has at least, and which children are statements.
CHILDREN = {LEAF: (), UNARY: (1,), BINARY: (1, 1), CONDITIONAL: (1, 1, 1), LAMBDA: (2,),
            ASSIGNMENT: (1,), SEQUENCE: (2, 2), BRANCH: (1, 2, 2)}
STATEMENTS = {LAMBDA: (0,), SEQUENCE: (0, 1), BRANCH: (1, 2)}


def grow(nodes, length, program, vocabulary, rng):
    """Appends a tree to nodes, [kind, symbol, children] each; parents come before their children."""
    kinds = {False: (UNARY, BINARY, CONDITIONAL) + (LAMBDA,) * program, True: (ASSIGNMENT, SEQUENCE, BRANCH)}
    open_ = [(None, length, program)]  # (the list that gets the number of the node, nodes, is a statement)
    while open_:
        siblings, n, statement = open_.pop()
        fit = [k for k in kinds[statement] if 1 + sum(CHILDREN[k]) <= n] if n > 1 else [LEAF]
        kind = int(rng.choice(fit))
        if siblings is not None:
            siblings.append(len(nodes))
        nodes.append([kind, int(rng.integers(vocabulary if kind in (LEAF, ASSIGNMENT) else OPERATORS)), []])
        own = nodes[-1][2]
        if kind != LEAF:
            sizes = parts(rng, n - 1, CHILDREN[kind])
            open_ += [(own, int(size), k in STATEMENTS.get(kind, ()))
                      for k, size in reversed(list(enumerate(sizes)))]


def merged(nodes, roots):
    """The same with equal trees as one node."""
    seen, place = {}, {}
    for n in reversed(range(len(nodes))):
        kind, symbol, children = nodes[n]
        key = kind, symbol if kind in (LEAF, UNARY, BINARY, ASSIGNMENT) else 0, tuple(place[c] for c in children)
        place[n] = seen.setdefault(key, len(seen))
    return [[kind, symbol, list(children)] for kind, symbol, children in seen], [place[n] for n in roots]


def forest(batch, length, program, shared, vocabulary, seed):
    """(nodes of all trees, roots)"""
    rng = np.random.default_rng(seed + 1)
    nodes, roots = [], []
    for _ in range(batch):
        roots.append(len(nodes))
        grow(nodes, length, program, vocabulary, rng)
    return merged(nodes, roots) if shared else (nodes, roots)


def weights(hidden, program, vocabulary, seed, **_):
    r = np.random.default_rng(seed)

    def square():
        return uniform(r, hidden, hidden)

    def bias():
        return uniform(r, hidden)

    w = {"embedding": normal(r, vocabulary, hidden), "operator": normal(r, OPERATORS, hidden, scale=0.1),
         "U": square(), "L": square(), "R": square(), "P": uniform(r, hidden, 1, fan=hidden), "C": square(),
         "b_c": bias()}
    if program:
        w |= {"K": square(), "b_l": bias(), "N": square(), "E": square(), "b_a": bias(), "S": square(),
              "T": square(), "b_s": bias(), "B": square(), "b_b": bias()}
    return w


def inputs(batch, length, program, shared, vocabulary, seed, **_):
    nodes, roots = forest(batch, length, program, shared, vocabulary, seed)
    return {"kind": np.asarray([n[0] for n in nodes], np.int64), "symbol": np.asarray([n[1] for n in nodes], np.int64),
            "child": np.asarray([n[2] + [0] * (3 - len(n[2])) for n in nodes], np.int64),
            "roots": np.asarray(roots, np.int64)}


def reference(x, w, batch, **_):
    a, h = wide(w), {}
    children = [row[:len(CHILDREN[kind])] for kind, row in zip(x["kind"].tolist(), x["child"].tolist())]
    cells = {
        LEAF: lambda s: a["embedding"][s][None],
        UNARY: lambda s, x: np.tanh(x @ a["U"] + a["operator"][s]),
        BINARY: lambda s, x, y: np.tanh(x @ a["L"] + y @ a["R"] + a["operator"][s]),
        CONDITIONAL: lambda s, x, y, z: np.tanh((sigmoid(x @ a["P"]) * (y - z) + z) @ a["C"] + a["b_c"]),
        LAMBDA: lambda s, x: np.tanh(x @ a["K"] + a["b_l"]),
        ASSIGNMENT: lambda s, x: np.tanh(a["embedding"][s] @ a["N"] + x @ a["E"] + a["b_a"]),
        SEQUENCE: lambda s, x, y: np.tanh(x @ a["S"] + y @ a["T"] + a["b_s"]),
        BRANCH: lambda s, x, y, z: np.tanh(x @ a["B"] + y @ a["S"] + z @ a["T"] + a["b_b"]),
    }
    for n in structures.levels(structures.from_children(children)).order.tolist():
        h[n] = cells[int(x["kind"][n])](x["symbol"][n], *(h[c] for c in children[n]))
    results = [h[root] for root in x["roots"].tolist()]
    return narrow(results[0] if batch == 1 else np.stack(results))


def by_kind(g, kind, arms):
    """Nested Ifs: the value of the arm of this kind, {kind: f(graph) -> value}; the last is for all others."""
    (k, arm), *others = arms.items()
    if not others:
        return arm(g)
    return g.branch(g.Equal(kind, k), lambda g: [arm(g)], lambda g: [by_kind(g, kind, dict(others))], name="kind")[0]


def export(batch=1, length=63, hidden=256, program=False, shared=False, vocabulary=1000, form="plain", seed=0):
    g = Graph("syntax", form=form)
    names = [g.input("kind", I("nodes")), g.input("symbol", I("nodes")), g.input("child", I("nodes", 3))]
    roots = g.input("roots", I(batch))
    names += g.weights(weights(hidden, program, vocabulary, seed))

    def affine(g, bias, *products):
        return g.form.gates(g, [*products, bias], act="Tanh")[0]

    def expression(g, n, *rest):
        a = dict(zip(names, rest))

        def row(g, table):
            return g.Gather(a[table], g.Unsqueeze(g.Gather(a["symbol"], n, axis=0), [0]), axis=0)

        def of(g, k, function="expression"):
            return g.invoke(function, g.Gather(g.Gather(a["child"], n, axis=0), k, axis=0), *rest)

        def conditional(g):
            test, yes, no = (of(g, k) for k in range(3))
            p, = g.form.gates(g, [(test, a["P"])], act="Sigmoid")
            mixed = g.Add(g.Mul(p, yes), g.Mul(g.Sub(1.0, p), no))
            return affine(g, a["b_c"], (mixed, a["C"]))

        arms = {
            LEAF: lambda g: row(g, "embedding"),
            UNARY: lambda g: affine(g, row(g, "operator"), (of(g, 0), a["U"])),
            BINARY: lambda g: affine(g, row(g, "operator"), (of(g, 0), a["L"]), (of(g, 1), a["R"])),
            CONDITIONAL: conditional,
        }
        if program:
            arms[LAMBDA] = lambda g: affine(g, a["b_l"], (of(g, 0, "statement"), a["K"]))
        return [by_kind(g, g.Gather(a["kind"], n, axis=0), arms)]

    def statement(g, n, *rest):
        a = dict(zip(names, rest))

        def of(g, k, function="statement"):
            return g.invoke(function, g.Gather(g.Gather(a["child"], n, axis=0), k, axis=0), *rest)

        def assignment(g):
            target = g.Gather(a["embedding"], g.Unsqueeze(g.Gather(a["symbol"], n, axis=0), [0]), axis=0)
            return affine(g, a["b_a"], (target, a["N"]), (of(g, 0, "expression"), a["E"]))

        return [by_kind(g, g.Gather(a["kind"], n, axis=0), {
            ASSIGNMENT: assignment,
            SEQUENCE: lambda g: affine(g, a["b_s"], (of(g, 0), a["S"]), (of(g, 1), a["T"])),
            BRANCH: lambda g: affine(g, a["b_b"], (of(g, 0, "expression"), a["B"]), (of(g, 1), a["S"]),
                                     (of(g, 2), a["T"])),
        })]

    g.function("expression", ["n", *names], expression)
    if program:
        g.function("statement", ["n", *names], statement)

    def call(g, at):
        return g.invoke("statement" if program else "expression", g.Gather(roots, at, axis=0), *names)

    if batch == 1:
        g.output(g.Identity(call(g, 0), out="h"), F(1, hidden))
    else:
        h, = g.loop(batch, {}, lambda g, i: ([], [call(g, i)]), name="trees")
        g.output(g.Identity(h, out="h"), F(batch, 1, hidden))
    return g.model()
