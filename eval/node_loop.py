"""A network over trees as a loop over its nodes, for runtimes without recursion.

It has the same inputs, outputs and cells as the recursive model of models/recursion.py. Children
have larger numbers than their parents, so the loop begins with the last node. A buffer holds the
states, with a row for each node.
"""
import numpy as np

from models.cells import CELLS
from models.common import F, Graph, I, B
from models.recursion import STRUCTURE


def export(weights, inputs, batch, hidden, cell, words, **_):
    kind, count = CELLS[cell], len(inputs["left"])
    g = Graph(f"{cell}_nodes")
    types = {"inp": F(count, hidden), "is_leaf": B(count), "roots": I(batch)}
    names = (*kind.arrays, *STRUCTURE, "roots")
    a = {k: g.input(k, types.get(k, I(count))) for k in names}
    a.update(g.weights(weights))
    dims = {k: [d.dim_value for d in t.tensor_type.shape.dim]
            for k, t in kind.types(hidden).items()}
    dims = {k: d if d[0] == 1 else [1, *d] for k, d in dims.items()}  # a row of the buffer
    buffers = {k: (g.const(np.zeros((count, *d[1:]), np.float32)), F(count, *d[1:]))
               for k, d in dims.items()}

    def step(g, i, *states):
        n = g.Sub(count - 1, i)
        at = g.Unsqueeze(n, [0])

        def inner(g):
            children = []
            for side in ("left", "right"):
                child = g.Gather(a[side], at if cell != "mvrnn" else n, axis=0)
                child = [g.Gather(s, child, axis=0) for s in states]
                if cell == "mvrnn":
                    child[0] = g.Unsqueeze(child[0], [0])
                children.append(child)
            own = []
            if words == "all":
                own = [kind.products(g, a, kind.own(g, a, at), kind.of_node + kind.of_children)]
            return shaped(g, kind.inner(g, a, *children, *own))

        def shaped(g, values):
            return [g.Unsqueeze(v, [0]) if len(d) == 3 else v
                    for v, d in zip(values, dims.values())]

        values = g.branch(g.Gather(a["is_leaf"], n, axis=0),
                          lambda g: shaped(g, kind.leaf(g, a, kind.own(g, a, at))), inner, name="node")
        where = g.Reshape(n, [1, 1])
        return [g.ScatterND(s, where, v) for s, v in zip(states, values)], []

    states = g.loop(count, buffers, step, name="nodes")
    for s, (name, d) in zip(states, dims.items()):
        rows = g.Gather(s, a["roots"], axis=0)
        if batch > 1 and len(d) == 2:
            rows = g.Unsqueeze(rows, [1])
        elif batch == 1 and len(d) == 3:
            rows = g.Squeeze(rows, [0])
        shape = ([batch] if batch > 1 else []) + (d if len(d) == 2 else d[1:])
        g.output(g.Identity(rows, out=name), F(*shape))
    return g.model()
