"""The cells of the networks over trees: what a leaf is, and what an inner node makes of its children.

    arrays                          inputs of the model with an entry or a row for each node
    types(hidden)                   {name: type} of the state of a node
    weights(r, hidden, vocabulary)  {name: array}
    own(g, a, at)                   what belongs to the nodes at, int64 [nodes], alone: vectors in rows.
                                    a: {input or weight: value}
    leaf(g, a, x)                   the state of leaves from what is theirs
    inner(g, a, left, right)        the state of inner nodes from the states of their children
    reference(a, n, children)       the state of one node in numpy
Except for MvRnn they compute any number of nodes, in rows: one in the recursion, a level of it in level batches.

A cell of sums takes any number of children, and inner nodes may have words:
    of_node, of_children            weights that words are multiplied with, for the node and for each child
    products(g, a, x, weights)      {weight: product} of the words x; called own below, None without words
    term(g, a, child, own)          what a child adds to each of the sums
    node(g, a, sums, own)           the state from the sums over the children
    reference(a, x, children)
"""
import numpy as np

from .common import F, normal, relu, sigmoid, uniform


def embedded(g, a, at):
    """The embeddings of the words of the nodes at, int64 [nodes], in rows."""
    return g.Gather(a["embedding"], g.Gather(a["word"], at, axis=0), axis=0)


def word_of(a, n):
    return a["embedding"][a["word"][n]][None]


class Cell:
    """A cell whose leaves are embeddings."""
    arrays = ("word",)
    own = staticmethod(embedded)

    @staticmethod
    def types(hidden):
        return {"h": F(1, hidden)}

    @staticmethod
    def leaf(g, a, x):
        return [x]


class Rae(Cell):
    """h = tanh(W·[h_l; h_r] + b); leaves are vectors of the input."""
    arrays = ("inp",)

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {"W": uniform(r, 2 * hidden, hidden, fan=2 * hidden), "b": uniform(r, hidden)}

    @staticmethod
    def own(g, a, at):
        return g.Gather(a["inp"], at, axis=0)

    @staticmethod
    def inner(g, a, left, right):
        both = g.Concat(left[0], right[0], axis=1)
        return g.form.gates(g, [(both, a["W"]), a["b"]], act="Tanh")

    @staticmethod
    def reference(a, n, children):
        if not children:
            return [a["inp"][n][None]]
        (left,), (right,) = children
        return [np.tanh(np.concatenate([left, right], 1) @ a["W"] + a["b"])]


class TreeRnn(Cell):
    """h = tanh(h_l + h_r)."""

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {"embedding": normal(r, vocabulary, hidden, scale=0.5)}

    @staticmethod
    def inner(g, a, left, right):
        return [g.Tanh(g.Add(left[0], right[0]))]

    @staticmethod
    def reference(a, n, children):
        return [np.tanh(children[0][0] + children[1][0]) if children else word_of(a, n)]


class TreeFc(Cell):
    """h = relu(W·[h_l; h_r] + b)."""

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {**TreeRnn.weights(r, hidden, vocabulary),
                "W": normal(r, 2 * hidden, hidden, scale=1 / np.sqrt(hidden)),
                "b": uniform(r, hidden)}

    @staticmethod
    def inner(g, a, left, right):
        both = g.Concat(left[0], right[0], axis=1)
        return g.form.gates(g, [(both, a["W"]), a["b"]], act="Relu")

    @staticmethod
    def reference(a, n, children):
        if not children:
            return [word_of(a, n)]
        (left,), (right,) = children
        return [relu(np.concatenate([left, right], 1) @ a["W"] + a["b"])]


class BinaryTreeLstm(Cell):
    """TreeLSTM that tells its children apart: gates = h_l·U_l + h_r·U_r + b, in order i, o, u, f_l, f_r, and
    c = σ(i)·tanh(u) + σ(f_l)·c_l + σ(f_r)·c_r. Leaves have the gates i, o, u of their words."""

    @staticmethod
    def types(hidden):
        return {"h": F(1, hidden), "c": F(1, hidden)}

    @staticmethod
    def weights(r, hidden, vocabulary):
        return {
            "embedding": normal(r, vocabulary, hidden),
            "W": uniform(r, hidden, 3 * hidden, fan=hidden),
            "b_leaf": uniform(r, 3 * hidden, fan=hidden),
            "U_l": uniform(r, hidden, 5 * hidden, fan=hidden),
            "U_r": uniform(r, hidden, 5 * hidden, fan=hidden),
            "b": uniform(r, 5 * hidden, fan=hidden),
        }

    @staticmethod
    def state(g, i, o, u, kept=None):
        c = g.Mul(g.form.act(g, "Sigmoid", i), g.Tanh(u))
        if kept:
            c = g.Add(c, kept)
        return [g.Mul(g.form.act(g, "Sigmoid", o), g.Tanh(c)), c]

    @classmethod
    def leaf(cls, g, a, x):
        return cls.state(g, *g.form.gates(g, [(x, a["W"]), a["b_leaf"]], 3))

    @classmethod
    def inner(cls, g, a, left, right):
        gates = g.form.gates(g, [(left[0], a["U_l"]), (right[0], a["U_r"]), a["b"]], 5)
        kept = [g.Mul(g.form.act(g, "Sigmoid", f), c) for f, c in zip(gates[3:], (left[1], right[1]))]
        return cls.state(g, *gates[:3], g.Add(*kept))

    @staticmethod
    def reference(a, n, children):
        if not children:
            i, o, u = np.split(word_of(a, n) @ a["W"] + a["b_leaf"], 3, 1)
            c = sigmoid(i) * np.tanh(u)
        else:
            (h_l, c_l), (h_r, c_r) = children
            i, o, u, f_l, f_r = np.split(h_l @ a["U_l"] + h_r @ a["U_r"] + a["b"], 5, 1)
            c = sigmoid(i) * np.tanh(u) + sigmoid(f_l) * c_l + sigmoid(f_r) * c_r
        return [sigmoid(o) * np.tanh(c), c]


class SumCell(Cell):
    """A cell that sees its children by sums over them only."""

    of_children = ()

    @staticmethod
    def products(g, a, x, weights):
        return {k: g.MatMul(x, a[k]) for k in weights}

    @classmethod
    def leaf(cls, g, a, x):
        return cls.node(g, a, None, cls.products(g, a, x, cls.of_node))

    @classmethod
    def inner(cls, g, a, left, right, own=None):
        terms = [cls.term(g, a, child, own) for child in (left, right)]
        return cls.node(g, a, [g.Add(*both) for both in zip(*terms)], own)

    @staticmethod
    def gates(g, a, own, W, h, U, b, n=1, act=None):
        """The n parts of x·W + h·U + b, after act; one of the products may be missing."""
        terms = ([(h, a[U])] if h else []) + ([own[W]] if own else [])
        return g.form.gates(g, [terms[0], a[b], *terms[1:]], n, act)


class TreeLstm(SumCell):
    """Child-sum TreeLSTM: h̃ = Σ h_k; gates = x·W + h̃·U + b, in order i, o, u; f_k = σ(x·W_f + h_k·U_f + b_f);
    c = σ(i)·tanh(u) + Σ f_k·c_k."""
    of_node, of_children = ("W",), ("W_f",)
    types = BinaryTreeLstm.types

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

    @classmethod
    def term(cls, g, a, child, own):
        h, c = child
        f, = cls.gates(g, a, own, "W_f", h, "U_f", "b_f", act="Sigmoid")
        return [h, g.Mul(f, c)]

    @classmethod
    def node(cls, g, a, sums, own):
        h, kept = sums or (None, None)
        return BinaryTreeLstm.state(g, *cls.gates(g, a, own, "W", h, "U", "b", 3), kept)

    @staticmethod
    def reference(a, x, children):
        h = sum(child[0] for child in children) if children else np.zeros_like(a["b_f"])[None]
        i, o, u = np.split(x @ a["W"] + h @ a["U"] + a["b"], 3, 1)
        c = sigmoid(i) * np.tanh(u)
        for h_k, c_k in children:
            c = c + sigmoid(x @ a["W_f"] + h_k @ a["U_f"] + a["b_f"]) * c_k
        return [sigmoid(o) * np.tanh(c), c]


class TreeGru(SumCell):
    """Child-sum TreeGRU: h̃ = Σ h_k; gates = σ(x·W + h̃·U + b), in order r, z;
    h = z·h̃ + (1 − z)·tanh(x·W_h + (r·h̃)·U_h + b_h)."""
    of_node = ("W", "W_h")
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

    @staticmethod
    def term(g, a, child, own):
        return child

    @classmethod
    def node(cls, g, a, sums, own):
        h, = sums or (None,)
        r, z = cls.gates(g, a, own, "W", h, "U", "b", 2, act="Sigmoid")
        new, = cls.gates(g, a, own, "W_h", g.Mul(r, h) if h else None, "U_h", "b_h", act="Tanh")
        new = g.Mul(g.Sub(1.0, z), new)
        return [g.Add(g.Mul(z, h), new) if cls.keeps and h else new]

    @classmethod
    def reference(cls, a, x, children):
        h = sum(child[0] for child in children) if children else np.zeros_like(a["b_h"])[None]
        r, z = np.split(sigmoid(x @ a["W"] + h @ a["U"] + a["b"]), 2, 1)
        new = np.tanh(x @ a["W_h"] + (r * h) @ a["U_h"] + a["b_h"])
        return [cls.keeps * z * h + (1 - z) * new]


class SimpleTreeGru(TreeGru):
    """TreeGRU without the old h: h = (1 − z)·tanh(…)."""
    keeps = False


class MvRnn(Cell):
    """Each node has a vector and a matrix: v = tanh(W_v·[M_r·v_l; M_l·v_r] + b_v),
    M = [M_l | M_r]·W_mᵀ + b_m. One node at a time."""

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
    def own(g, a, at):
        return g.Gather(a["word"], at, axis=0)

    @staticmethod
    def leaf(g, a, word):
        return [g.Gather(a["embedding"], word, axis=0),
                g.Gather(a["matrices"], g.Squeeze(word, [0]), axis=0)]

    @staticmethod
    def inner(g, a, left, right):
        # Vectors are rows, so M·v is v·Mᵀ.
        crossed = [g.MatMul(v, g.Transpose(m, perm=[1, 0]))
                   for v, m in ((left[0], right[1]), (right[0], left[1]))]
        v = g.Tanh(g.Add(g.MatMul(g.Concat(*crossed, axis=1), a["W_v"]), a["b_v"]))
        m = g.Concat(left[1], right[1], axis=1)
        return [v, g.Add(g.MatMul(m, a["W_m"]), a["b_m"])]

    @staticmethod
    def reference(a, n, children):
        if not children:
            return [word_of(a, n), a["matrices"][a["word"][n]]]
        (v_l, m_l), (v_r, m_r) = children
        crossed = np.concatenate([v_l @ m_r.T, v_r @ m_l.T], 1)
        m = np.concatenate([m_l, m_r], 1)
        return [np.tanh(crossed @ a["W_v"] + a["b_v"]), m @ a["W_m"] + a["b_m"]]


CELLS = {"rae": Rae, "treernn": TreeRnn, "treefc": TreeFc, "treelstm": TreeLstm,
         "treelstm_binary": BinaryTreeLstm, "treegru": TreeGru, "simpletreegru": SimpleTreeGru,
         "mvrnn": MvRnn}
