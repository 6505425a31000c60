"""Forests as arrays for the models: generated, or read from a treebank.

`structures` is the module braid.trees (shim/braid/trees.py), loaded by its path: it needs numpy alone, so models/ and what
imports models/ can use it where the package is not installed.
"""
import importlib.util
import itertools
import os
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def load():
    name = "braid_trees"
    spec = importlib.util.spec_from_file_location(name, os.path.join(ROOT, "shim", "braid", "trees.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


structures = load()


def grow(parent, leaves, split):
    """Appends the parents of a tree's nodes. A node over n leaves gives split(n) of them to its left child."""
    pending = [(len(parent), leaves)]
    parent.append(-1)
    while pending:
        at, n = pending.pop()
        if n == 1:
            continue
        k, left = split(n), len(parent)
        parent += [at, at]
        pending += [(left + 1, n - k), (left, k)]


def make(kind, batch, nodes, rng, vocabulary):
    """The arrays of a forest of binary trees (left, right, is_leaf, roots, word) and its number of words.

    kind    "random", "perfect", "chain" (each right child is a leaf), or the path of a treebank,
            from which the first trees are taken
    nodes   nodes of a generated tree, odd; its words are random numbers below vocabulary
    """
    splits = {"random": lambda n: int(rng.integers(1, n)), "perfect": lambda n: n // 2,
              "chain": lambda n: n - 1}
    if kind in splits:
        parent = []
        for _ in range(batch):
            grow(parent, (nodes + 1) // 2, splits[kind])
        a = structures.from_parents(parent).binary()
        a["word"] = rng.integers(0, vocabulary, len(parent))
        return a, vocabulary
    with open(kind, encoding="utf-8", newline="\n") as f:
        forest = structures.from_text("".join(itertools.islice(f, batch)))
    if len(forest.roots) < batch:
        raise ValueError(f"{kind} has only {len(forest.roots)} trees")
    words = {}
    return {**forest.binary(), "word": forest.numbers(words)}, len(words)


def dependencies(a, rng):
    """The trees over the words alone that binary trees stand for, child_begin, child, roots and word: of the two
    parts of an inner node one, chosen at random, has the head, and the head of the other part is a child of it."""
    order = structures.levels(structures.from_binary(*(a[k] for k in ("left", "right", "is_leaf", "roots")))).order
    words = np.flatnonzero(a["is_leaf"])
    head = np.zeros(len(a["is_leaf"]), np.int64)
    head[words] = np.arange(len(words))
    children = [[] for _ in words]
    inner = order[len(words):]
    for n, side in zip(inner, rng.integers(0, 2, len(inner))):
        both = head[[a["left"][n], a["right"][n]]]
        head[n] = both[side]
        children[both[side]].append(int(both[1 - side]))
    return {**structures.from_children(children, head[a["roots"]]).csr(), "word": a["word"][words]}
