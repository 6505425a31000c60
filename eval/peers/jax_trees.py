"""Networks over trees in JAX: a loop over the nodes, children first, and level batches.

How many rows a level has is only known at run time, but a program has fixed shapes. So "levels" is a loop
over the levels that computes each in the next larger power of two of rows: nodes are numbered by height,
and the rows that are too many belong to later levels, which overwrite them. "levels of this forest" is a
program for the sizes of these very trees; it must be compiled again, in seconds, for any others.
The numbering is not timed, as in pytorch_trees.py.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from . import tree_levels

FORMS = {"jit, a loop over nodes": "nodes", "jit, levels": "levels",
         "jit, levels of this forest": "sizes"}


def tree(work, form):
    o, w = work.options, work.weights
    cell, n, everywhere = o["cell"], o["hidden"], o["words"] == "all"
    if cell == "treelstm":
        product, bias = np.concatenate([w["W"], w["W_f"]], 1), np.concatenate([w["b"], w["b_f"]])
        weights = dict(U=w["U"], U_f=w["U_f"])
    elif cell in ("treegru", "simpletreegru"):
        product, bias = np.concatenate([w["W"], w["W_h"]], 1), np.concatenate([w["b"], w["b_h"]])
        weights = dict(U=w["U"], U_h=w["U_h"])
    else:
        product = bias = None
        weights = {k: v for k, v in w.items() if k != "embedding"}
    if "embedding" in w:
        weights["table"] = w["embedding"] if product is None else w["embedding"] @ product + bias
    weights["plain"] = np.zeros(1, np.float32) if bias is None else bias

    def cell_leaf(w, x, word):
        if cell == "treelstm":
            c = nn.sigmoid(x[:n]) * jnp.tanh(x[2 * n:3 * n])
            return nn.sigmoid(x[n:2 * n]) * jnp.tanh(c), c
        if cell in ("treegru", "simpletreegru"):
            return ((1 - nn.sigmoid(x[n:2 * n])) * jnp.tanh(x[2 * n:]),)
        return (x, w["matrices"][word]) if cell == "mvrnn" else (x,)

    def cell_inner(w, x, l, r):
        if cell == "rae":
            return (jnp.tanh(jnp.concatenate([l[0], r[0]]) @ w["W"] + w["b"]),)
        if cell == "treernn":
            return (jnp.tanh(l[0] + r[0]),)
        if cell == "treefc":
            return (nn.relu(jnp.concatenate([l[0], r[0]]) @ w["W"] + w["b"]),)
        if cell == "treelstm":
            a = (l[0] + r[0]) @ w["U"] + x[:3 * n]
            f = nn.sigmoid(jnp.stack([l[0], r[0]]) @ w["U_f"] + x[3 * n:])
            c = nn.sigmoid(a[:n]) * jnp.tanh(a[2 * n:]) + f[0] * l[1] + f[1] * r[1]
            return nn.sigmoid(a[n:2 * n]) * jnp.tanh(c), c
        if cell == "mvrnn":
            both = jnp.concatenate([r[1] @ l[0], l[1] @ r[0]])
            m = jnp.concatenate([l[1], r[1]], 1) @ w["W_m"] + w["b_m"]
            return jnp.tanh(both @ w["W_v"] + w["b_v"]), m
        h = l[0] + r[0]
        rz = nn.sigmoid(h @ w["U"] + x[:2 * n])
        new = (1 - rz[n:]) * jnp.tanh((rz[:n] * h) @ w["U_h"] + x[2 * n:])
        return (new if cell == "simpletreegru" else new + rz[n:] * h,)

    sizes = [(n,)] * (2 if cell == "treelstm" else 1) + [(n, n)] * (cell == "mvrnn")

    def row(w, first, at):
        return first[at] if cell == "rae" else w["table"][first[at]]

    def results(states, ends):
        out = [s[ends] for s in states]
        if len(ends) == 1:
            return tuple(v[0] if v.ndim == 3 else v for v in out)
        return tuple(v if v.ndim == 3 else v[:, None] for v in out)

    def nodes(w, first, left, right, is_leaf, roots):
        count = len(left)
        states = tuple(jnp.zeros((count, *s), jnp.float32) for s in sizes)

        def step(i, states):
            at = count - 1 - i

            def inner(states):
                l, r = ([s[k[at]] for s in states] for k in (left, right))
                return cell_inner(w, row(w, first, at) if everywhere else w["plain"], l, r)
            new = lax.cond(is_leaf[at], lambda s: cell_leaf(w, row(w, first, at), first[at]), inner,
                           states)
            return tuple(lax.dynamic_update_index_in_dim(s, v, at, 0) for s, v in zip(states, new))
        return results(lax.fori_loop(0, count, step, states), roots)

    if form == "nodes":
        return nodes, weights

    order, place = tree_levels.number(*(work.inputs[k] for k in ("left", "right", "is_leaf")))
    begin = np.cumsum([len(at) for at in order])  # of each level of inner nodes, and the end
    widths = [1 << k for k in range(int(max(map(len, order[1:])) - 1).bit_length() + 1)]
    at = np.concatenate(order)
    weights["order"], weights["left"], weights["right"] = (
        np.pad(v, (0, widths[-1])) for v in (at, *(place[work.inputs[k][at]] for k in ("left", "right"))))
    weights["begin"], weights["ends"] = begin[:-1], place[work.inputs["roots"]]
    weights["width"] = np.searchsorted(widths, np.diff(begin))

    def level(w, first, begin, width, states):
        """The states with those of `width` nodes from `begin` on."""
        at, left, right = (lax.dynamic_slice_in_dim(w[k], begin, width)
                           for k in ("order", "left", "right"))
        x = row(w, first, at) if everywhere else w["plain"]
        inner = jax.vmap(lambda x, l, r: cell_inner(w, x, l, r), (0 if everywhere else None, 0, 0))
        new = inner(x, *([s[k] for s in states] for k in (left, right)))
        return tuple(lax.dynamic_update_slice_in_dim(s, v, begin, 0) for s, v in zip(states, new))

    def levels(w, first, left, right, is_leaf, roots):
        leaves = w["order"][:begin[0]]
        states = jax.vmap(lambda x, word: cell_leaf(w, x, word))(row(w, first, leaves), first[leaves])
        rows = [(0, begin[-1] - begin[0] + widths[-1])]
        states = tuple(jnp.pad(s, rows + [(0, 0)] * (s.ndim - 1)) for s in states)
        if form == "sizes":
            for k, size in enumerate(np.diff(begin).tolist()):
                states = level(w, first, int(begin[k]), size, states)
        else:
            arms = [lambda begin, states, width=width: level(w, first, begin, width, states)
                    for width in widths]
            states = lax.fori_loop(
                0, w["begin"].shape[0],
                lambda k, states: lax.switch(w["width"][k], arms, w["begin"][k], states), states)
        return results(states, w["ends"])
    return levels, weights
