"""Level batches written by hand: the network over a tree or a DAG as it is written without recursion.

Nodes are numbered by height, those without children first. `begin` says where the rows of each
further height begin, and where the last ends, counted from the first node that has children; arrays
about children have rows for these nodes only. A Loop over heights computes a level in one product,
from rows of the states of all lower nodes, and appends its rows to them.
"""
import numpy as np

from .common import F, I


def postorder(children, roots):
    """The nodes under roots, each once, children before their parents; children: a list for each node."""
    done = set()
    for root in roots:
        open_ = [root]
        while open_:
            n = open_[-1]
            missing = [c for c in children[n] if c not in done]
            open_ += missing
            if not missing:
                open_.pop()
                if n not in done:
                    done.add(n)
                    yield n


def number(children):
    """order: the nodes by height; number: the place in it of each node; leaves: how many have no children;
    begin: where further heights begin after these."""
    height = np.zeros(len(children), np.int64)
    for n in postorder(children, range(len(children))):
        height[n] = max((height[c] + 1 for c in children[n]), default=0)
    order = np.argsort(height, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    begin = np.searchsorted(height[order], np.arange(1, height.max(initial=0) + 2))
    return order, place, int(begin[0]), begin - begin[0]


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
