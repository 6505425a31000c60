"""Networks over trees in PyTorch: by recursion in Python, node by node in a script, level by level."""
from typing import List, Tuple

import numpy as np
import torch
from torch import Tensor

from . import tree_levels
from .pytorch_loops import compiled, tensor

# Cells work on rows: leaf(x, weights) takes the rows that leaves begin with, and inner(x, left, right,
# weights) those of inner nodes and their children's states. A state is two tensors; only two cells use
# the second one.
State = Tuple[Tensor, Tensor]


def rae_leaf(x: Tensor, w: List[Tensor]) -> State:
    return x, x


def rae_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    h = torch.tanh(torch.addmm(w[1], torch.cat([l[0], r[0]], 1), w[0]))
    return h, h


def treernn_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    h = torch.tanh(l[0] + r[0])
    return h, h


def treefc_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    h = torch.relu(torch.addmm(w[1], torch.cat([l[0], r[0]], 1), w[0]))
    return h, h


def treelstm_leaf(x: Tensor, w: List[Tensor]) -> State:
    """x is a row of the embedding table, to which the input products have been applied."""
    n = w[4].shape[0]
    io = torch.sigmoid(x[:, :2 * n])
    c = io[:, :n] * torch.tanh(x[:, 2 * n:3 * n])
    return io[:, n:] * torch.tanh(c), c


def treelstm_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    """One product of both children with [U | U_f]."""
    n = w[4].shape[0]
    a = torch.cat([l[0], r[0]]) @ w[2]
    k = a.shape[0] // 2
    gates = a[:k, :3 * n] + a[k:, :3 * n] + x[:, :3 * n]
    f = torch.sigmoid(a[:, 3 * n:].view(2, k, n) + x[:, 3 * n:])
    io = torch.sigmoid(gates[:, :2 * n])
    c = io[:, :n] * torch.tanh(gates[:, 2 * n:]) + f[0] * l[1] + f[1] * r[1]
    return io[:, n:] * torch.tanh(c), c


def treegru_leaf(x: Tensor, w: List[Tensor]) -> State:
    n = w[3].shape[0]
    h = (1 - torch.sigmoid(x[:, n:2 * n])) * torch.tanh(x[:, 2 * n:])
    return h, h


def treegru_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    n = w[3].shape[0]
    h = l[0] + r[0]
    rz = torch.sigmoid(torch.addmm(x[:, :2 * n], h, w[2]))
    new = torch.tanh(torch.addmm(x[:, 2 * n:], rz[:, :n] * h, w[3]))
    h = torch.lerp(new, h, rz[:, n:])
    return h, h


def simpletreegru_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    n = w[3].shape[0]
    h = l[0] + r[0]
    rz = torch.sigmoid(torch.addmm(x[:, :2 * n], h, w[2]))
    new = torch.tanh(torch.addmm(x[:, 2 * n:], rz[:, :n] * h, w[3]))
    h = (1 - rz[:, n:]) * new
    return h, h


def mvrnn_leaf(x: Tensor, w: List[Tensor]) -> State:
    n = w[1].shape[0]
    return x[:, :n], x[:, n:].view(-1, n, n)


def mvrnn_inner(x: Tensor, l: State, r: State, w: List[Tensor]) -> State:
    a = torch.bmm(r[1], l[0].unsqueeze(2)).squeeze(2)
    b = torch.bmm(l[1], r[0].unsqueeze(2)).squeeze(2)
    v = torch.tanh(torch.addmm(w[1], torch.cat([a, b], 1), w[0]))
    return v, torch.cat([l[1], r[1]], 2) @ w[2] + w[3]


CELLS = {"rae": (rae_leaf, rae_inner), "treernn": (rae_leaf, treernn_inner),
         "treefc": (rae_leaf, treefc_inner), "treelstm": (treelstm_leaf, treelstm_inner),
         "treegru": (treegru_leaf, treegru_inner),
         "simpletreegru": (treegru_leaf, simpletreegru_inner), "mvrnn": (mvrnn_leaf, mvrnn_inner)}
ORDER = {"rae": ("W", "b"), "treefc": ("W", "b"), "treernn": (),
         "mvrnn": ("W_v", "b_v", "W_m", "b_m")}


class Tree:
    """Weights, tables and functions of the cell, and the rows that the nodes begin with."""

    def __init__(self, work):
        o, w = work.options, work.weights
        self.cell, self.hidden = o["cell"], o["hidden"]
        self.leaf, self.inner = CELLS[self.cell]
        self.outputs = 2 if self.cell in ("treelstm", "mvrnn") else 1
        self.words_everywhere = o["words"] == "all"
        if self.cell == "treelstm":
            self.w = [w["W"], w["W_f"], np.concatenate([w["U"], w["U_f"]], 1), w["U"], w["b_f"]]
            product = np.concatenate([w["W"], w["W_f"]], 1)
            bias = np.concatenate([w["b"], w["b_f"]])
        elif self.cell in ("treegru", "simpletreegru"):
            self.w = [w["W"], w["W_h"], w["U"], w["U_h"]]
            product = np.concatenate([w["W"], w["W_h"]], 1)
            bias = np.concatenate([w["b"], w["b_h"]])
        else:
            self.w = [w[k] for k in ORDER[self.cell]]
            product = bias = None
        self.table = w.get("embedding")
        if self.cell == "mvrnn":
            self.table = np.concatenate([self.table, w["matrices"].reshape(len(self.table), -1)], 1)
        if product is not None:  # words go through their product beforehand
            self.table = self.table @ product + bias
        # What an inner node without a word begins with.
        self.plain = tensor(np.zeros((1, 1), np.float32) if bias is None else bias[None])
        self.table = None if self.table is None else tensor(self.table)
        self.w = [tensor(v) for v in self.w]

    def rows(self, first, at):
        """The rows that nodes `at` begin with."""
        return first[at] if self.table is None else self.table[first[at]]

    def inner_rows(self, first, at):
        return self.rows(first, at) if self.words_everywhere else self.plain


def finish(tree, states, batch):
    """The roots' states, as the model's outputs."""
    out = []
    for n in range(tree.outputs):
        v = torch.cat([s[n] for s in states])
        if tree.cell == "mvrnn" and n == 1:
            out.append(v if batch > 1 else v[0])
        else:
            out.append(v.unsqueeze(1) if batch > 1 else v)
    return out


def recursive(wrap):
    def build(work):
        tree = Tree(work)
        leaf, inner, w = wrap(tree.leaf), wrap(tree.inner), tree.w

        def forward(first, left, right, is_leaf, roots):
            left, right, is_leaf = left.tolist(), right.tolist(), is_leaf.tolist()
            table = first if tree.table is None else tree.table[first]
            rows = table.split(1)
            plain, everywhere = tree.plain, tree.words_everywhere

            def f(n):
                if is_leaf[n]:
                    return leaf(rows[n], w)
                return inner(rows[n] if everywhere else plain, f(left[n]), f(right[n]), w)
            return finish(tree, [f(n) for n in roots.tolist()], len(roots))
        return forward
    return build


def scripted(work):
    """A loop over the nodes, children first, because TorchScript has no recursion."""
    tree = Tree(work)

    def walk(rows: List[Tensor], plain: Tensor, everywhere: bool, left: List[int],
             right: List[int], is_leaf: List[bool], w: List[Tensor]) -> List[State]:
        count = len(left)
        states: List[State] = [(plain, plain)] * count
        for i in range(count):
            n = count - 1 - i  # children have larger numbers
            if is_leaf[n]:
                states[n] = leaf(rows[n], w)
            else:
                states[n] = inner(rows[n] if everywhere else plain, states[left[n]],
                                  states[right[n]], w)
        return states

    leaf, inner = torch.jit.script(tree.leaf), torch.jit.script(tree.inner)
    walk = torch.jit.script(walk)

    def forward(first, left, right, is_leaf, roots):
        table = first if tree.table is None else tree.table[first]
        states = walk(table.split(1), tree.plain, tree.words_everywhere, left.tolist(),
                      right.tolist(), is_leaf.tolist(), tree.w)
        return finish(tree, [states[n] for n in roots.tolist()], len(roots))
    return forward


def by_levels(wrap):
    """All nodes of a height together. The levels are found once and not timed, because the caller of a
    library for trees has them ready."""
    def build(work):
        tree = Tree(work)
        leaf, inner = wrap(tree.leaf), wrap(tree.inner)
        left, right, is_leaf = (work.inputs[k] for k in ("left", "right", "is_leaf"))
        order, place = tree_levels.number(left, right, is_leaf)
        levels = [(tensor(at), tensor(place[left[at]]), tensor(place[right[at]]))
                  for at in order[1:]]
        leaves, ends = tensor(order[0]), tensor(place[work.inputs["roots"]])
        count = len(left)

        def forward(first, left, right, is_leaf, roots):
            s = leaf(tree.rows(first, leaves), tree.w)
            h, c = (torch.empty(count, *v.shape[1:], device=v.device) for v in s)
            at = len(leaves)
            h[:at] = s[0]
            two = tree.outputs == 2
            if two:
                c[:at] = s[1]
            for nodes, l, r in levels:
                x = tree.inner_rows(first, nodes)
                s = inner(x, (h[l], c[l] if two else h), (h[r], c[r] if two else h), tree.w)
                h[at:at + len(nodes)] = s[0]
                if two:
                    c[at:at + len(nodes)] = s[1]
                at += len(nodes)
            return finish(tree, [(h[ends], c[ends])], len(roots))
        return forward
    return build


FORMS = {"tree": {
    "recursive": recursive(lambda f: f),
    "recursive, torch.compile": recursive(compiled),
    "jit.script, a loop over nodes": scripted,
    "levels": by_levels(lambda f: f),
    "levels, jit.script": by_levels(torch.jit.script),
}}
NODE_BY_NODE = ("recursive", "recursive, torch.compile", "jit.script, a loop over nodes")
