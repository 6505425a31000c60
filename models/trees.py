"""Forests of binary trees as arrays: generated, or read from a treebank."""
import numpy as np


class Forest:
    """Nodes of all trees in one numbering: left, right (of a leaf: 0), is_leaf, word; roots."""

    def __init__(self):
        self.left, self.right, self.word, self.roots = [], [], [], []

    def node(self):
        self.left.append(0)
        self.right.append(0)
        self.word.append(0)
        return len(self.left) - 1

    def arrays(self):
        a = {k: np.asarray(getattr(self, k), np.int64) for k in ("left", "right", "word", "roots")}
        a["is_leaf"] = a["left"] == 0  # node 0 is a root
        return a


def grow(forest, leaves, split):
    """A tree. A node over n leaves gives split(n) of them to its left child."""
    root = forest.node()
    forest.roots.append(root)
    pending = [(root, leaves)]
    while pending:
        at, n = pending.pop()
        if n == 1:
            continue
        k = split(n)
        left = forest.left[at] = forest.node()
        right = forest.right[at] = forest.node()
        pending += [(right, n - k), (left, k)]


def read(forest, line, vocabulary):
    """Reads a tree in the treebank's notation, (label word) or (label left right). Splits only at the
    ASCII space, because words may contain other spaces. Adds new words to vocabulary {word: number}."""
    open_, last = [], None
    for token in line.strip("\n").split(" "):
        if token.startswith("("):
            last = forest.node()
            if not open_:
                forest.roots.append(last)
            elif forest.left[open_[-1]] == 0:
                forest.left[open_[-1]] = last
            else:
                forest.right[open_[-1]] = last
            open_.append(last)
        else:
            word = token.rstrip(")")
            forest.word[last] = vocabulary.setdefault(word, len(vocabulary))
            for _ in range(len(token) - len(word)):
                open_.pop()


def make(kind, batch, nodes, rng, vocabulary):
    """The arrays of a forest and its number of words.

    kind    "random", "perfect", "chain" (each right child is a leaf), or the path of a treebank,
            from which the first trees are taken
    nodes   nodes of a generated tree, odd; its words are random numbers below vocabulary
    """
    forest = Forest()
    splits = {"random": lambda n: int(rng.integers(1, n)), "perfect": lambda n: n // 2,
              "chain": lambda n: n - 1}
    if kind in splits:
        for _ in range(batch):
            grow(forest, (nodes + 1) // 2, splits[kind])
        a = forest.arrays()
        a["word"] = rng.integers(0, vocabulary, len(a["left"]))
        return a, vocabulary
    words = {}
    with open(kind, encoding="utf-8", newline="\n") as f:
        for _, line in zip(range(batch), f):
            read(forest, line, words)
    if len(forest.roots) < batch:
        raise ValueError(f"{kind} has only {len(forest.roots)} trees")
    return forest.arrays(), len(words)


def dependencies(a, rng):
    """The trees over the words alone that binary trees stand for: of the two parts of an inner node one, chosen
    at random, has the head, and the head of the other part is a child of it. Any number of children in CSR
    form: child[begin[n]:begin[n + 1]] are those of n; parents have smaller numbers than their children."""
    inner = np.flatnonzero(~a["is_leaf"])
    chosen = dict(zip(inner.tolist(), rng.integers(0, 2, len(inner)).tolist()))
    head = np.arange(len(a["left"]))
    for n in inner[::-1]:  # children have larger numbers
        head[n] = head[a[("left", "right")[chosen[int(n)]]][n]]
    children = {int(n): [] for n in np.flatnonzero(a["is_leaf"])}
    for n in inner.tolist():
        children[int(head[n])].append(int(head[a[("right", "left")[chosen[n]]][n]]))
    order = [int(head[root]) for root in a["roots"]]
    for n in order:
        order += children[n]
    place = {n: i for i, n in enumerate(order)}
    counts = [len(children[n]) for n in order]
    return {"word": a["word"][order], "roots": np.arange(len(a["roots"])),
            "begin": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "child": np.asarray([place[c] for n in order for c in children[n]], np.int64)}
