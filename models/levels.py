"""Level batches written by hand: the network over a tree or a DAG as it is written without recursion.

Nodes are numbered by height, those without children first. `begin` says where the rows of each
further height begin, and where the last ends, counted from the first node that has children; arrays
about children have rows for these nodes only. A Loop over heights computes a level in one product,
from rows of the states of all lower nodes, and appends its rows to them.
"""
from .common import F, I
from .trees import structures


def number(forest):
    """order: the nodes by height; place: where each stands in it; leaves: how many have no children; begin."""
    order, begin, place, _ = structures.levels(forest)
    return order, place, int(begin[1]), begin[1:] - begin[1]


def begin_input(g):
    return g.input("begin", I("levels_and_one"))


def loop(g, begin, first, hidden, step):
    """The states of all nodes from those of the nodes without children.

    first   {name: rows [leaves, hidden]}
    step    step(g, of_level, *states) -> the rows of a level; of_level(v) are those of v, an array
            over the nodes with children; states are the rows of all nodes below
    """
    def level(g, k, *states):
        at = g.Unsqueeze(k, [0])
        bounds = [g.Gather(begin, v, axis=0) for v in (at, g.Add(at, 1))]
        rows = step(g, lambda v: g.Slice(v, *bounds, [0]), *states)
        return [g.Concat(v, new, axis=0) for v, new in zip(states, rows, strict=True)], []

    state = {k: (v, F(None, hidden)) for k, v in first.items()}
    return g.loop(g.Sub(g.Size(begin), 1), state, level, name="levels")
