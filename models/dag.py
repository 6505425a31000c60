"""DAG-RNN: a network over a directed acyclic graph as a recursive function over predecessors.

    h_v = tanh(U·x_v + W·Σ h_u + b), the sum over the predecessors u of v

Nodes that several others need are computed for each of them by the recursion as it is written; the
paths to the last node of a grid of R × C are C(R + C − 2, R − 1).
graph    "grid": rows × columns nodes, edges to the right and down, the root is the last node
         "random": length nodes in any order, up to three predecessors each; all sinks are roots
         "diamond": length nodes, each needs the one before it twice; the root is the last node
form     "recursive": predecessors in CSR form, a Loop over them with the call inside
         "fixed": an array for each of two predecessors, −1 where there is none, and a branch for each
batch    graphs, all in one numbering
length   nodes of a random graph or of a diamond
"""
import numpy as np

from .common import F, Graph, I, narrow, normal, uniform, wide

CASES = {
    "dagrnn": dict(graph="grid"),
    "dagrnn_fixed": dict(graph="grid", form="fixed"),
    "dagrnn_random": dict(graph="random"),
    "dagrnn_diamond": dict(graph="diamond", form="fixed"),
}
SMALL = dict(batch=2, rows=3, columns=4, length=10, hidden=8)
PREDECESSORS = {"recursive": ("begin", "predecessor"), "fixed": ("first", "second")}


def predecessors(graph, rows, columns, length, rng):
    """The predecessors of each node of a graph."""
    if graph == "grid":
        return [[v - columns] * (v >= columns) + [v - 1] * (v % columns > 0)
                for v in range(rows * columns)]
    if graph == "diamond":
        return [[v - 1] * 2 if v else [] for v in range(length)]
    if graph != "random":
        raise ValueError(f"no graph {graph}; there are grid, random, diamond")
    name = rng.permutation(length)  # so that numbers say nothing about the order
    found = [[] for _ in name]
    for at in range(1, length):
        some = rng.choice(at, int(rng.integers(0, min(3, at) + 1)), replace=False)
        found[name[at]] = [int(name[u]) for u in some]
    return found


def graphs(graph, rows, columns, batch, length, seed):
    """The predecessors of the nodes of all graphs, and the roots."""
    rng = np.random.default_rng(seed + 1)
    nodes, roots = [], []
    for _ in range(batch):
        first = len(nodes)
        found = predecessors(graph, rows, columns, length, rng)
        nodes += [[first + u for u in us] for us in found]
        needed = {u for us in found for u in us}
        roots += [first + v for v in range(len(found)) if v not in needed]
    return nodes, np.asarray(roots, np.int64)


def weights(hidden, seed, **_):
    r = np.random.default_rng(seed)
    return {"U": uniform(r, hidden, hidden), "W": uniform(r, hidden, hidden),
            "b": uniform(r, hidden)}


def inputs(graph, rows, columns, batch, length, hidden, form, seed, **_):
    nodes, roots = graphs(graph, rows, columns, batch, length, seed)
    x = {"x": normal(np.random.default_rng(seed + 2), len(nodes), hidden)}
    if form == "recursive":
        counts = [len(us) for us in nodes]
        x["begin"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        x["predecessor"] = np.asarray([u for us in nodes for u in us], np.int64)
    elif max(map(len, nodes)) <= 2:
        padded = np.asarray([us + [-1] * (2 - len(us)) for us in nodes], np.int64)
        x["first"], x["second"] = (np.ascontiguousarray(a) for a in padded.T)
    else:
        raise ValueError(f"the form {form} is for graphs with two predecessors at most")
    x["roots"] = roots
    return x


def reference(x, w, graph, rows, columns, batch, length, hidden, seed, **_):
    """Each node once, by a list of the open ones: graphs may be deep."""
    a = wide({**w, **x})
    nodes, roots = graphs(graph, rows, columns, batch, length, seed)
    done = {}
    for root in roots:
        open_ = [root]
        while open_:
            v = open_[-1]
            missing = [u for u in nodes[v] if u not in done]
            if missing:
                open_ += missing
                continue
            total = sum((done[u] for u in nodes[v]), np.zeros((1, hidden)))
            done[v] = np.tanh(a["x"][v][None] @ a["U"] + total @ a["W"] + a["b"])
            open_.pop()
    results = [done[root] for root in roots]
    return narrow(results[0] if batch == 1 and graph != "random" else np.stack(results))


def export(batch=1, length=100, rows=10, columns=10, hidden=256, graph="grid", form="recursive",
           seed=0):
    if form not in PREDECESSORS:
        raise ValueError(f"no form {form}; there are {', '.join(PREDECESSORS)}")
    g = Graph("dagrnn")
    row = F(1, hidden)
    types = {"begin": I("nodes_and_one"), "predecessor": I("edges"), "roots": I("roots")}
    names = [g.input("x", F("nodes", hidden))]
    names += [g.input(k, types.get(k, I("nodes"))) for k in PREDECESSORS[form]]
    roots = g.input("roots", types["roots"])
    names += g.weights(weights(hidden, seed))

    def total(g, v, a, of):
        """The sum over predecessors; of(g, u) is the state of one."""
        zero = g.const(np.zeros((1, hidden), np.float32))
        if form == "fixed":
            u = [g.Gather(a[k], v, axis=0) for k in ("first", "second")]
            return g.Add(*(g.branch(g.Less(one, 0), lambda g: [zero], lambda g, one=one: [of(g, one)],
                                    name="predecessor")[0] for one in u))
        first = g.Gather(a["begin"], v, axis=0)
        count = g.Sub(g.Gather(a["begin"], g.Add(v, 1), axis=0), first)

        def step(g, i, so_far):
            u = g.Gather(a["predecessor"], g.Add(first, i), axis=0)
            return [g.Add(so_far, of(g, u))], []

        return g.loop(count, {"total": (zero, row)}, step, name="predecessors")[0]

    def body(g, v, *rest):
        a = dict(zip(names, rest))
        own = g.MatMul(g.Gather(a["x"], g.Unsqueeze(v, [0]), axis=0), a["U"])
        others = total(g, v, a, lambda g, u: g.invoke("dagrnn", u, *rest))
        return [g.Tanh(g.Add(g.Add(own, g.MatMul(others, a["W"])), a["b"]))]

    g.function("dagrnn", ["v", *names], body)

    def call(g, at):
        return g.invoke("dagrnn", g.Gather(roots, at, axis=0), *names)

    if batch == 1 and graph != "random":
        g.output(g.Identity(call(g, 0), out="h"), row)
    else:
        h, = g.loop(g.Size(roots), {}, lambda g, i: ([], [call(g, i)]), name="roots")
        g.output(g.Identity(h, out="h"), F("roots", 1, hidden))
    return g.model()
