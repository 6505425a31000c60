"""Networks over binary trees as recursive functions.

    f(n) = leaf(n) if is_leaf[n] else inner(n, f(left[n]), f(right[n]))

f is a function of the model that calls itself by the operator Invoke of domain ai.braid. A function
sees only its arguments, so the weights and the arrays of the structure are passed down. A batch is
a forest, and a Loop runs over its roots.
length  nodes of a tree
tree    the kind of tree, see trees.make
words   "leaves", or "all": inner nodes also have a word (child-sum cells)
"""
import sys

import numpy as np

from . import trees
from .common import B, F, Graph, I, narrow, normal, relu, sigmoid, uniform, wide

CASES = {
    "rae": dict(cell="rae", hidden=512, length=127),
    "treernn": dict(cell="treernn"),
    "treefc": dict(cell="treefc", tree="perfect", length=255),
    "treelstm": dict(cell="treelstm"),
    "treelstm_words": dict(cell="treelstm", words="all"),
    "treegru": dict(cell="treegru"),
    "simpletreegru": dict(cell="simpletreegru"),
    "mvrnn": dict(cell="mvrnn", hidden=64, vocabulary=100),
}
SMALL = dict(batch=2, length=15, hidden=8, vocabulary=20)
STRUCTURE = ("left", "right", "is_leaf")


def word_of(a, n):
    return a["embedding"][a["word"][n]][None]


class Rae:
    """h = tanh(W·[h_l; h_r] + b); leaves are vectors of the input."""
    arrays = ("inp",)

    @staticmethod
    def types(hidden):
        return {"h": F(1, hidden)}

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {"W": uniform(r, 2 * hidden, hidden, fan=2 * hidden), "b": uniform(r, hidden)}

    @staticmethod
    def leaf(g, a, n):
        return [g.Gather(a["inp"], g.Unsqueeze(n, [0]), axis=0)]

    @staticmethod
    def inner(g, a, n, left, right):
        both = g.Concat(left[0], right[0], axis=1)
        return [g.Tanh(g.Add(g.MatMul(both, a["W"]), a["b"]))]

    @staticmethod
    def leaf_reference(a, n):
        return [a["inp"][n][None]]

    @staticmethod
    def inner_reference(a, n, left, right):
        return [np.tanh(np.concatenate([left[0], right[0]], 1) @ a["W"] + a["b"])]


def embedded(g, a, n):
    """The embedding of the word of node n, a row."""
    word = g.Gather(a["word"], g.Unsqueeze(n, [0]), axis=0)
    return g.Gather(a["embedding"], word, axis=0)


class TreeRnn:
    """h = tanh(h_l + h_r)."""
    arrays = ("word",)
    types = Rae.types

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {"embedding": normal(r, vocabulary, hidden, scale=0.5)}

    @staticmethod
    def leaf(g, a, n):
        return [embedded(g, a, n)]

    @staticmethod
    def inner(g, a, n, left, right):
        return [g.Tanh(g.Add(left[0], right[0]))]

    @staticmethod
    def leaf_reference(a, n):
        return [word_of(a, n)]

    @staticmethod
    def inner_reference(a, n, left, right):
        return [np.tanh(left[0] + right[0])]


class TreeFc(TreeRnn):
    """h = relu(W·[h_l; h_r] + b)."""

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {**TreeRnn.weights(r, hidden, vocabulary),
                "W": normal(r, 2 * hidden, hidden, scale=1 / np.sqrt(hidden)),
                "b": uniform(r, hidden)}

    @staticmethod
    def inner(g, a, n, left, right):
        both = g.Concat(left[0], right[0], axis=1)
        return [g.Relu(g.Add(g.MatMul(both, a["W"]), a["b"]))]

    @staticmethod
    def inner_reference(a, n, left, right):
        return [relu(np.concatenate([left[0], right[0]], 1) @ a["W"] + a["b"])]


class TreeLstm:
    """Child-sum TreeLSTM. Gates in order i, o, u; the children's forget gates are separate."""
    arrays = ("word",)

    @staticmethod
    def types(hidden):
        return {"h": F(1, hidden), "c": F(1, hidden)}

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {
            "embedding": normal(r, vocabulary, hidden),
            "W": uniform(r, hidden, 3 * hidden, fan=hidden),
            "U": uniform(r, hidden, 3 * hidden, fan=hidden),
            "b": uniform(r, 3 * hidden, fan=hidden),
            "W_f": uniform(r, hidden, hidden),
            "U_f": uniform(r, hidden, hidden),
            "b_f": uniform(r, hidden),
        }

    @staticmethod
    def state(g, gates, kept=None):
        i, o, u = g.Split(gates, axis=1, num_outputs=3, outputs=3)
        c = g.Mul(g.Sigmoid(i), g.Tanh(u))
        if kept:
            c = g.Add(c, kept)
        return [g.Mul(g.Sigmoid(o), g.Tanh(c)), c]

    @staticmethod
    def leaf(g, a, n):
        return TreeLstm.state(g, g.Add(g.MatMul(embedded(g, a, n), a["W"]), a["b"]))

    @staticmethod
    def inner(g, a, n, left, right, x=None):
        gates = g.Add(g.MatMul(g.Add(left[0], right[0]), a["U"]), a["b"])
        of_word = g.Add(g.MatMul(x, a["W_f"]), a["b_f"]) if x else a["b_f"]
        if x:
            gates = g.Add(gates, g.MatMul(x, a["W"]))
        kept = [g.Mul(g.Sigmoid(g.Add(g.MatMul(h, a["U_f"]), of_word)), c)
                for h, c in (left, right)]
        return TreeLstm.state(g, gates, g.Add(*kept))

    @staticmethod
    def reference(a, x, children):
        h = sum(child[0] for child in children) if children else np.zeros_like(a["b_f"])[None]
        i, o, u = np.split(x @ a["W"] + h @ a["U"] + a["b"], 3, 1)
        c = sigmoid(i) * np.tanh(u)
        for h_k, c_k in children:
            c = c + sigmoid(x @ a["W_f"] + h_k @ a["U_f"] + a["b_f"]) * c_k
        return [sigmoid(o) * np.tanh(c), c]


class TreeGru:
    """Child-sum TreeGRU. Gates in order r, z; the candidate is separate."""
    arrays = ("word",)
    types = Rae.types
    keeps = True

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {
            "embedding": normal(r, vocabulary, hidden),
            "W": uniform(r, hidden, 2 * hidden, fan=hidden),
            "U": uniform(r, hidden, 2 * hidden, fan=hidden),
            "b": uniform(r, 2 * hidden, fan=hidden),
            "W_h": uniform(r, hidden, hidden),
            "U_h": uniform(r, hidden, hidden),
            "b_h": uniform(r, hidden),
        }

    @classmethod
    def leaf(cls, g, a, n):
        x = embedded(g, a, n)
        _, z = g.Split(g.Add(g.MatMul(x, a["W"]), a["b"]), axis=1, num_outputs=2, outputs=2)
        new = g.Tanh(g.Add(g.MatMul(x, a["W_h"]), a["b_h"]))
        return [g.Mul(g.Sub(1.0, g.Sigmoid(z)), new)]

    @classmethod
    def inner(cls, g, a, n, left, right, x=None):
        h = g.Add(left[0], right[0])
        gates = g.Add(g.MatMul(h, a["U"]), a["b"])
        if x:
            gates = g.Add(gates, g.MatMul(x, a["W"]))
        r, z = g.Split(g.Sigmoid(gates), axis=1, num_outputs=2, outputs=2)
        new = g.Add(g.MatMul(g.Mul(r, h), a["U_h"]), a["b_h"])
        if x:
            new = g.Add(new, g.MatMul(x, a["W_h"]))
        new = g.Mul(g.Sub(1.0, z), g.Tanh(new))
        return [g.Add(g.Mul(z, h), new) if cls.keeps else new]

    @classmethod
    def reference(cls, a, x, children):
        h = sum(child[0] for child in children) if children else np.zeros_like(a["b_h"])[None]
        r, z = np.split(sigmoid(x @ a["W"] + h @ a["U"] + a["b"]), 2, 1)
        new = np.tanh(x @ a["W_h"] + (r * h) @ a["U_h"] + a["b_h"])
        return [cls.keeps * z * h + (1 - z) * new]


class SimpleTreeGru(TreeGru):
    """TreeGRU without the old h: h = (1 − z)·h'."""
    keeps = False


class MvRnn:
    """Each node has a vector and a matrix: v = tanh(W_v·[M_r·v_l; M_l·v_r] + b_v),
    M = [M_l | M_r]·W_mᵀ + b_m."""
    arrays = ("word",)

    @staticmethod
    def types(hidden):
        return {"v": F(1, hidden), "M": F(hidden, hidden)}

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {
            "embedding": normal(r, vocabulary, hidden),
            "matrices": np.eye(hidden, dtype=np.float32)
            + normal(r, vocabulary, hidden, hidden, scale=0.1 / np.sqrt(hidden)),
            "W_v": uniform(r, 2 * hidden, hidden, fan=2 * hidden),
            "b_v": uniform(r, hidden),
            "W_m": uniform(r, 2 * hidden, hidden, fan=2 * hidden),
            "b_m": uniform(r, hidden),
        }

    @staticmethod
    def leaf(g, a, n):
        word = g.Gather(a["word"], n, axis=0)
        v = g.Gather(a["embedding"], g.Unsqueeze(word, [0]), axis=0)
        return [v, g.Gather(a["matrices"], word, axis=0)]

    @staticmethod
    def inner(g, a, n, left, right):
        # Vectors are rows, so M·v is v·Mᵀ.
        crossed = [g.MatMul(v, g.Transpose(m, perm=[1, 0]))
                   for v, m in ((left[0], right[1]), (right[0], left[1]))]
        v = g.Tanh(g.Add(g.MatMul(g.Concat(*crossed, axis=1), a["W_v"]), a["b_v"]))
        m = g.Concat(left[1], right[1], axis=1)
        return [v, g.Add(g.MatMul(m, a["W_m"]), a["b_m"])]

    @staticmethod
    def leaf_reference(a, n):
        return [word_of(a, n), a["matrices"][a["word"][n]]]

    @staticmethod
    def inner_reference(a, n, left, right):
        crossed = np.concatenate([left[0] @ right[1].T, right[0] @ left[1].T], 1)
        m = np.concatenate([left[1], right[1]], 1)
        return [np.tanh(crossed @ a["W_v"] + a["b_v"]), m @ a["W_m"] + a["b_m"]]


CELLS = {"rae": Rae, "treernn": TreeRnn, "treefc": TreeFc, "treelstm": TreeLstm,
         "treegru": TreeGru, "simpletreegru": SimpleTreeGru, "mvrnn": MvRnn}


def weights(cell, hidden, vocabulary, tree, batch, length, seed, **_):
    words = trees.make(tree, batch, length, np.random.default_rng(seed + 1), vocabulary)[1]
    return CELLS[cell].weights(np.random.default_rng(seed), hidden, words)


def inputs(cell, hidden, vocabulary, tree, batch, length, seed, **_):
    r = np.random.default_rng(seed + 1)
    a, _ = trees.make(tree, batch, length, r, vocabulary)
    a["inp"] = normal(r, len(a["left"]), hidden)
    return {k: a[k] for k in (*CELLS[cell].arrays, *STRUCTURE, "roots")}


def reference(x, w, cell, words, **_):
    cell = CELLS[cell]
    a = {**wide(w), **wide(x)}
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2 * len(x["left"]) + 1000))

    def f(n):
        children = [] if a["is_leaf"][n] else [f(a["left"][n]), f(a["right"][n])]
        if hasattr(cell, "reference"):
            has_word = words == "all" or not children
            return cell.reference(a, word_of(a, n) * has_word, children)
        return cell.inner_reference(a, n, *children) if children else cell.leaf_reference(a, n)

    results = [f(root) for root in x["roots"]]
    if len(results) == 1:
        return narrow(*results[0])
    return narrow(*(np.stack(v) for v in zip(*results)))


def export(batch=1, length=37, hidden=256, cell="treelstm", tree="random", words="leaves",
           vocabulary=1000, seed=0):
    g = Graph(cell)
    kind = CELLS[cell]
    values = weights(cell, hidden, vocabulary, tree, batch, length, seed)
    types = {"inp": F("nodes", hidden), "is_leaf": B("nodes"), "roots": I(batch)}
    names = [g.input(k, types.get(k, I("nodes"))) for k in (*kind.arrays, *STRUCTURE)]
    roots = g.input("roots", types["roots"])
    names += g.weights(values)
    results = kind.types(hidden)

    def body(g, n, *rest):
        a = dict(zip(names, rest))

        def inner(g):
            children = [g.invoke(cell, g.Gather(a[side], n, axis=0), *rest, outputs=len(results))
                        for side in ("left", "right")]
            children = [c if isinstance(c, list) else [c] for c in children]
            if words == "all":
                return kind.inner(g, a, n, *children, x=embedded(g, a, n))
            return kind.inner(g, a, n, *children)

        leaf = g.Gather(a["is_leaf"], n, axis=0)
        return g.branch(leaf, lambda g: kind.leaf(g, a, n), inner, name="node")

    g.function(cell, ["n", *names], body)

    def call(g, at):
        r = g.invoke(cell, g.Gather(roots, at, axis=0), *names, outputs=len(results))
        return r if isinstance(r, list) else [r]

    if batch == 1:
        values = call(g, 0)
    else:
        values = g.loop(batch, {}, lambda g, i: ([], call(g, i)), name="trees")
    for v, (name, type_) in zip(values, results.items()):
        if batch > 1:
            dims = [batch, *(d.dim_value for d in type_.tensor_type.shape.dim)]
            type_ = F(*dims)
        g.output(g.Identity(v, out=name), type_)
    return g.model()
