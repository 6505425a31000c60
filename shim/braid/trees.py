"""Trees and DAGs: from what people have to the arrays of a model, and back.

A Forest holds the nodes of all trees in one numbering. Every node has an ordered list of children, which may be empty; where
several nodes have the same child, the forest is a DAG. Made by

    from_parents    parent pointers, -1 for roots
    from_children   lists of children
    from_nested     nested tuples and lists, whose other objects are leaves
    from_text       bracketed treebank text, "(3 (2 It) (4 works))"
    from_edges      pairs u → v of a DAG: u is a child of v, because v is computed from u
    from_binary     the arrays left, right, is_leaf
    grid            a DAG of rows × columns, with edges to the right and down
    Forest(…)       children in CSR form
    concatenate     several forests as one

it gives all of these back (parents(), children(), nested(), text(), edges()) and what models take: binary(), csr(), numbers().
levels() is the order for batches by hand. Arrays of nodes are int64. What is wrong (a cycle, an index out of range, two parents
in a tree, an inner node without two children, a bracket) is a ValueError that names the node or the place. Nothing recurses, so
depth has no limit, and but for NumPy's sort all takes linear time. The module needs NumPy alone, not the package's extension:
it can be loaded by its path.

    >>> from braid import trees
    >>> forest = trees.from_text("(3 (2 It) (4 works)) (2 Fine)")
    >>> forest
    <Forest of 2 trees, 4 nodes>
    >>> {name: a.tolist() for name, a in forest.binary().items()}
    {'left': [1, 0, 0, 0], 'right': [2, 0, 0, 0], 'is_leaf': [False, True, True, True], 'roots': [0, 3]}
    >>> forest.numbers({"It": 1, "works": 2}, unknown=0).tolist()
    [0, 1, 2, 0]
    >>> forest.nested()
    [('It', 'works'), 'Fine']
"""
from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Forest", "Levels", "concatenate", "from_binary", "from_children", "from_edges", "from_nested", "from_parents",
           "from_text", "grid", "levels"]

_TOKEN = re.compile(r"[()]|[^() \t\r\n]+")  # words may contain spaces that are not ASCII
_LEAVE = -2                                 # in place of a parent: no node
_WIDE = 64                                  # nodes of a level from which on numpy is faster than a loop


class Levels(NamedTuple):
    """The nodes by height: those of height k are order[batch_begin[k]:batch_begin[k + 1]], in the order of their numbers."""
    order: np.ndarray        # int64[nodes]
    batch_begin: np.ndarray  # int64[heights + 1]
    place: np.ndarray        # int64[nodes]: where each node stands in order
    height: np.ndarray       # int64[nodes]: of a leaf 0, else one more than the highest child's


class Forest:
    """Trees or a DAG, see the module. Its arrays are its own and read-only; methods return new ones, the caller's.

    child_begin, child  the children of node n are child[child_begin[n]:child_begin[n + 1]], int64[nodes + 1] and int64[edges]
    roots               int64[roots], in the order of the trees. If not given: the nodes that are no node's child (of a DAG: its
                        sinks)
    word, label         lists of an object for each node, None where it has none; or None
    node_begin          int64[parts + 1]: part k has the nodes from node_begin[k] to before node_begin[k + 1]; the parts are
                        the trees of from_text and from_nested, what concatenate() joined, else the whole
    root_begin          int64[parts + 1]: the same of roots
    """
    __slots__ = ("child_begin", "child", "roots", "word", "label", "node_begin", "root_begin", "_height")

    def __init__(self, child_begin: ArrayLike, child: ArrayLike, roots: ArrayLike | None = None, *,
                 word: Iterable[Any] | None = None, label: Iterable[Any] | None = None):
        begin, child = _integers("child_begin", child_begin), _integers("child", child)
        if not len(begin) or begin[0] or begin[-1] != len(child) or (np.diff(begin) < 0).any():
            raise ValueError(f"child_begin must rise from 0 to {len(child)}, the length of child")
        n = len(begin) - 1
        owner = np.repeat(np.arange(n), np.diff(begin))
        _inside(child, 0, n, lambda i: f"a child of node {owner[i]}")
        if roots is None:
            roots = np.flatnonzero(np.bincount(child, minlength=n) == 0)
        roots = _integers("roots", roots)
        _inside(roots, 0, n, lambda i: f"root {i}")
        self.child_begin, self.child, self.roots = begin, child, roots
        self.word, self.label = _objects("word", word, n), _objects("label", label, n)
        self._height: np.ndarray | None = None
        if not ((child > owner).all() or (child < owner).all()):
            self._height = _heights(begin, child)  # which finds cycles; such numbers have none
        self._parts([0, n], [0, len(roots)])
        for a in (begin, child, roots):
            a.flags.writeable = False

    def _parts(self, nodes: ArrayLike, roots: ArrayLike) -> Forest:
        self.node_begin, self.root_begin = _integers("node_begin", nodes), _integers("root_begin", roots)
        self.node_begin.flags.writeable = self.root_begin.flags.writeable = False
        return self

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self.child_begin) - 1

    def __repr__(self) -> str:
        return f"<Forest of {_many(len(self.roots), 'tree')}, {_many(len(self), 'node')}>"

    # ---- to models

    def binary(self) -> dict[str, np.ndarray]:
        """The arrays of a model over binary trees: left, right (int64[nodes], of a leaf 0), is_leaf (bool[nodes]), roots.
        ValueError: a node has another number of children than none or two."""
        count = np.diff(self.child_begin)
        wrong = np.flatnonzero((count != 0) & (count != 2))
        if len(wrong):
            n = wrong[0]
            raise ValueError(f"node {n} has {_many(count[n], 'child', 'children')}; in a binary tree it has two or none")
        left, right = np.zeros((2, len(self)), np.int64)
        inner = count == 2
        left[inner], right[inner] = self.child[::2], self.child[1::2]
        return {"left": left, "right": right, "is_leaf": ~inner, "roots": self.roots.copy()}

    def csr(self) -> dict[str, np.ndarray]:
        """The arrays of a model over any number of children: child_begin, child, roots. Of a DAG that from_edges or grid made
        these are the predecessors and the sinks."""
        return {"child_begin": self.child_begin.copy(), "child": self.child.copy(), "roots": self.roots.copy()}

    def numbers(self, vocabulary: MutableMapping[Any, int], unknown: int | None = None) -> np.ndarray:
        """int64[nodes]: the number of each node's word, of a node without a word 0. A word that vocabulary lacks has the number
        `unknown`; if that is None, it is added to vocabulary with the number len(vocabulary)."""
        found = np.zeros(len(self), np.int64)
        for n, word in enumerate(self.word or ()):
            if word is not None:
                found[n] = (vocabulary.setdefault(word, len(vocabulary)) if unknown is None
                            else vocabulary.get(word, unknown))
        return found

    # ---- back to people

    def parents(self) -> np.ndarray:
        """int64[nodes]: the parent of each node, -1 of a root. ValueError: these are no trees."""
        self._trees()
        parent = np.full(len(self), -1)
        parent[self.child] = _owners(self.child_begin)
        return parent

    def children(self) -> list[list[int]]:
        """The list of children of each node."""
        begin, child = self.child_begin.tolist(), self.child.tolist()
        return [child[a:b] for a, b in zip(begin, begin[1:])]

    def edges(self) -> np.ndarray:
        """int64[edges, 2]: pairs u, v, where u is a child of v."""
        return np.stack([self.child, _owners(self.child_begin)], 1)

    def nested(self) -> list[Any]:
        """Each tree as nested tuples: a leaf is its word, an inner node the tuple of its children. Labels, and words of inner
        nodes, are not in there. ValueError: these are no trees."""
        self._trees()
        made = list(self.word or [None] * len(self))
        children = self.children()
        for n in levels(self).order.tolist():  # children first
            if children[n]:
                made[n] = tuple([made[c] for c in children[n]])
        return [made[r] for r in self.roots.tolist()]

    def text(self, labels: bool = True) -> str:
        """Bracketed text, a line for each tree, that from_text reads. ValueError: these are no trees, or a node's label or word
        cannot be written."""
        self._trees()
        children = self.children()
        lines = []
        for root in self.roots.tolist():
            parts: list[str] = []
            pending: list[Any] = [root]
            while pending:
                n = pending.pop()
                if isinstance(n, str):
                    parts.append(n)
                    continue
                if parts and not (parts[-1].endswith("(")):
                    parts.append(" ")
                if not labels and not children[n]:
                    parts.append(self._written(n, labels)[0])
                else:
                    parts.append("(" + " ".join(self._written(n, labels)))
                    pending.append(")")
                    pending += reversed(children[n])
            lines.append("".join(parts) + "\n")
        return "".join(lines)

    # ---- parts

    def split(self) -> list[Forest]:
        """The parts, each with a numbering of its own: what concatenate() takes."""
        forests = []
        for a, b, ra, rb in zip(self.node_begin, self.node_begin[1:], self.root_begin, self.root_begin[1:]):
            begin = self.child_begin[a:b + 1]
            forests.append(Forest(begin - begin[0], self.child[begin[0]:begin[-1]] - a, self.roots[ra:rb] - a,
                                  word=self.word and self.word[a:b], label=self.label and self.label[a:b]))
        return forests

    def split_nodes(self, values: Any) -> list[Any]:
        """Rows of `values`, one for each node, by parts (views of an array)."""
        return _split("node", values, self.node_begin)

    def split_roots(self, values: Any) -> list[Any]:
        """Rows of `values`, one for each root, such as a model's results, by parts (views of an array)."""
        return _split("root", values, self.root_begin)

    # ---- inside

    def _trees(self) -> None:
        """ValueError, if a node has several parents, or the roots are not the nodes without one."""
        count = np.bincount(self.child, minlength=len(self))
        if (count > 1).any():
            n = int(np.argmax(count > 1))
            u, v = _owners(self.child_begin)[self.child == n][:2]
            raise ValueError(f"node {n} has several parents, {u} and {v}: this is a DAG, not a tree")
        count[:] = np.bincount(self.roots, minlength=len(self)) - (count == 0)
        if count.any():
            n = int(np.flatnonzero(count)[0])
            raise ValueError(f"node {n} has no parent and is not among the roots" if count[n] < 0 else
                             f"root {n} has a parent, or is twice among the roots")

    def _written(self, n: int, labels: bool) -> list[str]:
        """What stands in the text for a node, before its children."""
        word = self.word[n] if self.word else None
        label = self.label[n] if self.label and labels else None
        inner = self.child_begin[n] < self.child_begin[n + 1]
        if inner and word is not None and label is None:
            raise ValueError(f"node {n} has children and a word, but no label to stand before it")
        if not inner and word is None and (label is not None or not labels):
            raise ValueError(f"node {n} has neither children nor a word")
        found = [str(v) for v in (label, word) if v is not None]
        for v in found:
            if not _TOKEN.fullmatch(v) or v in "()":
                raise ValueError(f"node {n}: {v!r} cannot be written: it is empty, or has a space or a bracket inside")
        return found


# ---- from people

def from_parents(parent: ArrayLike, *, word: Iterable[Any] | None = None, label: Iterable[Any] | None = None) -> Forest:
    """Trees by parent pointers, -1 for a root. A node's children have the order of their numbers.

    >>> from_parents([-1, 0, 0, 1]).children()
    [[1, 2], [3], [], []]
    """
    parent = _integers("parent", parent)
    _inside(parent, -1, len(parent), lambda i: f"the parent of node {i}")
    begin, order = _grouped(parent + 1, len(parent) + 1)  # the roots, then the nodes' children
    return Forest(begin[1:] - begin[1], order[begin[1]:], order[:begin[1]], word=word, label=label)


def from_children(children: Iterable[Sequence[int]], roots: ArrayLike | None = None, *, word: Iterable[Any] | None = None,
                  label: Iterable[Any] | None = None) -> Forest:
    """Trees or a DAG by the list of children of each node.

    >>> from_children([[1, 2], [3], [3], []])
    <Forest of 1 tree, 4 nodes>
    """
    lists = list(children)
    begin = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(c) for c in lists], out=begin[1:])
    return Forest(begin, [c for some in lists for c in some], roots, word=word, label=label)


def from_edges(edges: ArrayLike, nodes: int) -> Forest:
    """A DAG of `nodes` nodes by its edges, an array [edges, 2] of pairs u, v: v is computed from u, so that u is a child of v.
    The children have the order of their edges; the roots are the sinks.

    >>> from_edges([(0, 1), (0, 2), (1, 3), (2, 3)], 4).csr()["roots"]
    array([3])
    """
    edges = np.asarray(edges)
    if edges.size == 0:
        edges = np.zeros((0, 2), np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"edges must be pairs, an array [edges, 2], not {list(edges.shape)}")
    if nodes < 0:
        raise ValueError(f"the number of nodes is {nodes}")
    flat = _integers("edges", edges.reshape(-1))
    _inside(flat, 0, nodes, lambda i: f"an end of edge {i // 2}")
    begin, order = _grouped(flat[1::2], nodes)
    return Forest(begin, flat[::2][order])


def from_nested(trees: Iterable[Any]) -> Forest:
    """Trees by nested tuples or lists; every other object in them is a leaf, and its word. Nodes are numbered in pre-order. The
    argument holds the trees: one tree is from_nested([tree]).

    >>> from_nested([("a", ("b", "c"))]).parents()
    array([-1,  0,  0,  2,  2])
    """
    parent: list[int] = []
    word: list[Any] = []
    begin = []
    around: set[int] = set()  # the lists, by their id, that the next node lies in
    for tree in trees:
        begin.append(len(parent))
        pending = [(-1, tree)]
        while pending:
            above, node = pending.pop()
            if above == _LEAVE:
                around.remove(node)
                continue
            n = len(parent)
            parent.append(above)
            if not isinstance(node, (tuple, list)):
                word.append(node)
                continue
            if not node:
                raise ValueError(f"tree {len(begin) - 1} has an empty {type(node).__name__}, "
                                 "a node without children that is no leaf")
            if isinstance(node, list):
                if id(node) in around:
                    raise ValueError(f"tree {len(begin) - 1} has a list that contains itself")
                around.add(id(node))
                pending.append((_LEAVE, id(node)))
            word.append(None)
            pending += [(n, c) for c in reversed(node)]
    return _of_trees(parent, begin, word, None)


def from_text(text: str, labels: bool = True) -> Forest:
    """Trees by bracketed text: (label word), (label child child …), or (label word child …). Labels may be left out; of two
    tokens before the children the first one is the label, one token alone is the word of a leaf, the label of an inner node.
    labels=False: there are no labels, and leaves have no brackets: "((a cat) sleeps)". Tokens end at brackets and at ASCII spaces
    and ends of lines, because words may contain other spaces. Trees follow each other, on one line or several. Nodes are
    numbered in pre-order; word and label have strings.

    >>> from_text("((a cat) sleeps)", labels=False).word
    [None, None, 'a', 'cat', 'sleeps']
    """
    parent: list[int] = []
    word: list[Any] = []
    label: list[Any] = []
    begin: list[int] = []
    opened: list[tuple[int, int]] = []  # the nodes whose brackets are open, and where

    def node(w: str | None) -> int:
        if not opened:
            begin.append(len(parent))
        parent.append(opened[-1][0] if opened else -1)
        word.append(w)
        label.append(None)
        return len(parent) - 1

    for match in _TOKEN.finditer(text):
        token, at = match.group(), match.start()
        if token == "(":
            n = node(None)
            if n and parent[n] == n - 1 and label[n - 1] is None:  # a first child: the one token before it was
                label[n - 1], word[n - 1] = word[n - 1], None      # a label
            opened.append((n, at))
        elif token == ")":
            if not opened:
                raise ValueError(f"{_place(text, at)}: ')' closes nothing")
            n, _ = opened.pop()
            if not labels and n == len(parent) - 1:
                raise ValueError(f"{_place(text, at)}: ')' closes a bracket with no word inside")
        elif not labels:
            node(token)
        elif not opened:
            raise ValueError(f"{_place(text, at)}: '{token}' stands outside of brackets")
        else:
            n = opened[-1][0]
            if n != len(parent) - 1:
                raise ValueError(f"{_place(text, at)}: '{token}' stands behind a child; words stand before the children")
            if label[n] is not None:
                raise ValueError(f"{_place(text, at)}: '{token}' is a third token; a node has a label and a word")
            word[n], label[n] = token, word[n]
    if opened:
        raise ValueError(f"{_place(text, opened[-1][1])}: '(' is never closed")
    return _of_trees(parent, begin, word, label if labels else None)


def from_binary(left: ArrayLike, right: ArrayLike, is_leaf: ArrayLike, roots: ArrayLike | None = None, *,
                word: Iterable[Any] | None = None) -> Forest:
    """Trees or a DAG by the arrays of binary(). left and right of leaves are not looked at.

    >>> from_binary([1, 0, 0], [2, 0, 0], [False, True, True]).children()
    [[1, 2], [], []]
    """
    left, right, leaf = _integers("left", left), _integers("right", right), np.asarray(is_leaf, bool)
    if not len(left) == len(right) == leaf.size:
        raise ValueError(f"left, right and is_leaf have {len(left)}, {len(right)} and {leaf.size} elements")
    inner = ~leaf.reshape(-1)
    begin = np.concatenate([[0], np.cumsum(2 * inner)])
    return Forest(begin, np.stack([left[inner], right[inner]], 1).reshape(-1), roots, word=word)


def grid(rows: int, columns: int) -> Forest:
    """The DAG of a grid with edges to the right and down. Node r·columns + c has the children above and to the left of it, in
    this order; the one root is the last node.

    >>> grid(2, 2).children()
    [[], [0], [0], [1, 2]]
    """
    if rows < 0 or columns < 0:
        raise ValueError(f"a grid cannot have {rows} × {columns} nodes")
    n = np.arange(rows * columns)
    has = np.stack([n >= columns, n % max(columns, 1) > 0], 1)
    begin = np.concatenate([[0], np.cumsum(has.sum(1))])
    return Forest(begin, np.stack([n - columns, n - 1], 1)[has])


def concatenate(forests: Iterable[Forest]) -> Forest:
    """Several forests as one, each a part of it: the nodes of forest k are moved by node_begin[k].

    >>> both = concatenate([from_parents([-1, 0, 0]), from_parents([-1])])
    >>> both.roots, both.node_begin
    (array([0, 3]), array([0, 3, 4]))
    >>> [rows.tolist() for rows in both.split_nodes(np.arange(4))]
    [[0, 1, 2], [3]]
    """
    forests = list(forests)
    sizes = np.array([(0, 0, 0), *((len(f), len(f.roots), len(f.child)) for f in forests)], np.int64)
    nodes, roots, edges = np.cumsum(sizes, 0).T

    def joined(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def objects(name: str) -> list[Any] | None:
        if not any(getattr(f, name) for f in forests):
            return None
        return [v for f in forests for v in getattr(f, name) or [None] * len(f)]

    whole = Forest(joined([np.zeros(1, np.int64), *(f.child_begin[1:] + e for f, e in zip(forests, edges))]),
                   joined([f.child + n for f, n in zip(forests, nodes)]),
                   joined([f.roots + n for f, n in zip(forests, nodes)]), word=objects("word"), label=objects("label"))
    return whole._parts(nodes, roots)


def levels(forest: Forest) -> Levels:
    """The nodes by height: each level needs only lower ones.

    >>> levels(from_nested([("a", ("b", "c"))]))[:2]
    (array([1, 3, 4, 2, 0]), array([0, 3, 4, 5]))
    """
    if forest._height is None:
        forest._height = _heights(forest.child_begin, forest.child)
    height = forest._height.copy()
    begin, order = _grouped(height, int(height.max(initial=-1)) + 1)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Levels(order, begin, place, height)


# ---- inside

def _many(n: int, one: str, more: str = "") -> str:
    return f"{n} {one}" if n == 1 else f"{n} {more or one + 's'}"


def _integers(name: str, values: ArrayLike) -> np.ndarray:
    """A new int64 array of one dimension."""
    a = np.asarray(values)
    if a.ndim != 1 or a.dtype.kind not in "iu" and a.size:
        raise ValueError(f"{name} must be integers in one dimension, not {a.dtype}{list(a.shape)}")
    return a.astype(np.int64)


def _objects(name: str, values: Iterable[Any] | None, n: int) -> list[Any] | None:
    if values is None:
        return None
    values = list(values)
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} elements for {_many(n, 'node')}")
    return values


def _inside(a: np.ndarray, low: int, high: int, what: Any) -> None:
    wrong = np.flatnonzero((a < low) | (a >= high))
    if len(wrong):
        raise ValueError(f"{what(wrong[0])} is {a[wrong[0]]}, outside [{low}, {high})")


def _grouped(key: np.ndarray, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of `key` grouped by its values, below `keys`: where each group begins, and all indices."""
    begin = np.zeros(keys + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=keys), out=begin[1:])
    return begin, np.argsort(key, kind="stable")


def _owners(begin: np.ndarray) -> np.ndarray:
    """Whose child each entry of child is."""
    return np.repeat(np.arange(len(begin) - 1), np.diff(begin))


def _of_trees(parent: list[int], begin: list[int], word: list[Any], label: list[Any] | None) -> Forest:
    """Trees one after the other, each a part."""
    some = label is not None and any(v is not None for v in label)
    forest = from_parents(parent, word=word, label=label if some else None)
    return forest._parts([*begin, len(parent)], np.arange(len(begin) + 1))


def _split(what: str, values: Any, begin: np.ndarray) -> list[Any]:
    if len(values) != begin[-1]:
        raise ValueError(f"{_many(len(values), 'row')} for {_many(begin[-1], what)}")
    return [values[a:b] for a, b in zip(begin.tolist(), begin[1:].tolist())]


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at)
    return f"line {line + 1}, column {at - text.rfind(chr(10), 0, at)}"


def _heights(begin: np.ndarray, child: np.ndarray) -> np.ndarray:
    """The height of each node, from the leaves upwards: level by level while levels are wide, then node by node."""
    n = len(begin) - 1
    missing = np.diff(begin)  # children without a height
    above_begin, order = _grouped(child, n)
    above = _owners(begin)[order]  # the parents of each node
    height = np.zeros(n, np.int64)
    ready, level = np.flatnonzero(missing == 0), 0
    done = len(ready)
    while len(ready) >= _WIDE:
        first, count = above_begin[ready], above_begin[ready + 1] - above_begin[ready]
        ends = np.cumsum(count)
        parents = above[np.arange(ends[-1]) + np.repeat(first - ends + count, count)]
        np.subtract.at(missing, parents, 1)
        ready, level = np.unique(parents[missing[parents] == 0]), level + 1
        height[ready] = level
        done += len(ready)
    left, high, starts, parents_of = missing.tolist(), height.tolist(), above_begin.tolist(), above.tolist()
    pending = ready.tolist()
    for node in pending:
        for p in parents_of[starts[node]:starts[node + 1]]:
            high[p] = max(high[p], high[node] + 1)
            left[p] -= 1
            if not left[p]:
                pending.append(p)
                done += 1
    if done < n:
        raise ValueError(_cycle(begin, child, left))
    return np.array(high, np.int64)


def _cycle(begin: np.ndarray, child: np.ndarray, left: list[int]) -> str:
    """Names a cycle: each node that has no height has a child that has none."""
    node = next(n for n, c in enumerate(left) if c)
    at: dict[int, int] = {}
    while node not in at:
        at[node] = len(at)
        node = next(c for c in child[begin[node]:begin[node + 1]].tolist() if left[c])
    way = [*at][at[node]:]
    more = " → …" if len(way) > 8 else ""
    return f"node {node} needs itself: {' → '.join(map(str, way[:8]))}{more} → {node}"
