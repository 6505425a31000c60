"""Networks over trees as recursive functions; models/cells.py has the cells.

    f(n) = leaf(n) if is_leaf[n] else inner(n, f(left[n]), f(right[n]))

f is a function of the model that calls itself by the operator Invoke of domain ai.braid. A function
sees only its arguments, so the weights and the arrays of the structure are passed down. A batch is
a forest, and a Loop runs over its roots.
length    nodes of a tree
tree      the kind of tree, see trees.make
words     "leaves", or "all": inner nodes also have a word (cells of sums)
children  "two", or "any": the trees of dependencies of the words, in CSR form; each node has a word, and a
          Loop over its children has the call inside (cells of sums)
form      "recursive", or "levels": the same written without recursion, see models/levels.py;
          or one of models/words.py, recursive
"""
import numpy as np

from . import levels, trees
from .cells import CELLS, SumCell, word_of
from .common import B, F, Graph, I, narrow, normal, wide
from .words import FORMS as WAYS

CASES = {
    "rae": dict(cell="rae", hidden=512, length=127),
    "treernn": dict(cell="treernn"),
    "treefc": dict(cell="treefc", tree="perfect", length=255),
    "treelstm": dict(cell="treelstm"),
    "treelstm_words": dict(cell="treelstm", words="all"),
    "treelstm_children": dict(cell="treelstm", words="all", children="any"),
    "treelstm_binary": dict(cell="treelstm_binary"),
    "treegru": dict(cell="treegru"),
    "simpletreegru": dict(cell="simpletreegru"),
    "mvrnn": dict(cell="mvrnn", hidden=64, vocabulary=100),
    "rae_levels": dict(cell="rae", hidden=512, length=127, form="levels"),
    "treelstm_levels": dict(cell="treelstm", form="levels"),
}
FORMS = {name: {form: dict(CASES[name], form=form) for form in WAYS}
         for name in ("rae", "treernn", "treefc", "treelstm", "treelstm_words", "treelstm_binary", "treegru", "mvrnn")}
SMALL = dict(batch=2, length=15, hidden=8, vocabulary=20)
STRUCTURE = ("left", "right", "is_leaf")


def check(cell, words, children, form, **_):
    """Refuses what no model is written for."""
    sums = issubclass(CELLS[cell], SumCell)
    if words == "all" and not sums:
        raise ValueError(f"inner nodes of {cell} have no words")
    if children == "any" and not (sums and words == "all" and form != "levels"):
        raise ValueError("any number of children is for recursive cells of sums with words at all nodes")
    if form == "levels" and cell == "mvrnn":
        raise ValueError("mvrnn computes one node at a time")


def forest(tree, batch, length, vocabulary, children, seed):
    """(arrays of the forest, the number of words, the generator after them)"""
    r = np.random.default_rng(seed + 1)
    a, words = trees.make(tree, batch, length, r, vocabulary)
    return trees.dependencies(a, r) if children == "any" else a, words, r


def structure(a):
    """The arrays of a forest as what computes with forests."""
    if "child" in a:
        return trees.structures.Forest(a["child_begin"], a["child"], a["roots"])
    return trees.structures.from_binary(*(a[k] for k in (*STRUCTURE, "roots")))


def weights(cell, hidden, vocabulary, tree, batch, length, children, seed, **_):
    words = forest(tree, batch, length, vocabulary, children, seed)[1]
    return CELLS[cell].weights(np.random.default_rng(seed), hidden, words)


def nodes(cell, hidden, vocabulary, tree, batch, length, children, seed, **_):
    """All arrays about nodes, in the numbering of the recursive form."""
    a, _, r = forest(tree, batch, length, vocabulary, children, seed)
    return {**a, "inp": normal(r, len(a["word"]), hidden)}


def inputs(**options):
    a = nodes(**options)
    arrays = CELLS[options["cell"]].arrays
    if options["children"] == "any":
        return {k: a[k] for k in (*arrays, "child_begin", "child", "roots")}
    if options["form"] != "levels":
        return {k: a[k] for k in (*arrays, *STRUCTURE, "roots")}
    order, place, leaves, begin = levels.number(structure(a))
    own = order if options["words"] == "all" else order[:leaves]
    return {**{k: a[k][own] for k in arrays}, **{k: place[a[k][order[leaves:]]] for k in STRUCTURE[:2]},
            "begin": begin, "roots": place[a["roots"]]}


def reference(x, w, **options):
    a = nodes(**options)
    trees_ = structure(a)
    children, order = trees_.children(), trees.structures.levels(trees_).order.tolist()
    a = {**wide(w), **wide(a)}
    cell, state = CELLS[options["cell"]], {}
    for n in order:
        own = [state[c] for c in children[n]]
        if issubclass(cell, SumCell):
            has_word = options["words"] == "all" or not own
            state[n] = cell.reference(a, word_of(a, n) * has_word, own)
        else:
            state[n] = cell.reference(a, n, own)
    results = [state[root] for root in a["roots"].tolist()]
    if len(results) == 1:
        return narrow(*results[0])
    return narrow(*(np.stack(v) for v in zip(*results)))


def many(r):
    return r if isinstance(r, list) else [r]


def export(batch=1, length=37, hidden=256, cell="treelstm", tree="random", words="leaves", children="two",
           form="recursive", vocabulary=1000, seed=0):
    check(cell, words, children, form)
    values = weights(cell, hidden, vocabulary, tree, batch, length, children, seed)
    write = export_levels if form == "levels" else export_recursive
    return write(Graph(cell, form=form), CELLS[cell], cell, values, batch, hidden, words, children)


def export_recursive(g, kind, name, values, batch, hidden, words, children):
    types = {"inp": F("nodes", hidden), "is_leaf": B("nodes"), "child_begin": I("nodes_and_one"), "child": I("edges")}
    structure = ("child_begin", "child") if children == "any" else STRUCTURE
    names = [g.input(k, types.get(k, I("nodes"))) for k in (*kind.arrays, *structure)]
    roots = g.input("roots", I(batch))
    names += g.weights(values)
    results = kind.types(hidden)

    def call(g, n, arguments):
        return many(g.invoke(name, n, *arguments, outputs=len(results)))

    def own(g, a, n):
        """The products of the word of node n."""
        return kind.products(g, a, kind.own(g, a, g.Unsqueeze(n, [0])), kind.of_node + kind.of_children)

    def binary(g, n, *rest):
        a = dict(zip(names, rest))

        def inner(g):
            both = [call(g, g.Gather(a[side], n, axis=0), rest) for side in STRUCTURE[:2]]
            return kind.inner(g, a, *both, *([own(g, a, n)] if words == "all" else []))

        return g.branch(g.Gather(a["is_leaf"], n, axis=0),
                        lambda g: kind.leaf(g, a, kind.own(g, a, g.Unsqueeze(n, [0]))), inner, name="node")

    def of_any(g, n, *rest):
        a = dict(zip(names, rest))
        first = g.Gather(a["child_begin"], n, axis=0)
        count = g.Sub(g.Gather(a["child_begin"], g.Add(n, 1), axis=0), first)
        products = own(g, a, n)
        zero = g.const(np.zeros((1, hidden), np.float32))

        def child(g, i, *sums):
            state = call(g, g.Gather(a["child"], g.Add(first, i), axis=0), rest)
            return [g.Add(*v) for v in zip(sums, kind.term(g, a, state, products))], []

        sums = {k: (zero, t) for k, t in results.items()}
        return kind.node(g, a, g.loop(count, sums, child, name="children"), products)

    g.function(name, ["n", *names], of_any if children == "any" else binary)

    def root(g, at):
        return call(g, g.Gather(roots, at, axis=0), names)

    values = root(g, 0) if batch == 1 else g.loop(batch, {}, lambda g, i: ([], root(g, i)), name="trees")
    for v, (k, type_) in zip(values, results.items()):
        if batch > 1:
            type_ = F(batch, *(d.dim_value for d in type_.tensor_type.shape.dim))
        g.output(g.Identity(v, out=k), type_)
    return g.model()


def export_levels(g, kind, name, values, batch, hidden, words, children):
    own = "nodes" if words == "all" else "leaves"
    types = {"inp": F("leaves", hidden), "word": I(own)}
    a = {k: g.input(k, types.get(k, I("inner"))) for k in (*kind.arrays, *STRUCTURE[:2])}
    begin = levels.begin_input(g)
    a["roots"] = g.input("roots", I(batch))
    a.update(g.weights(values))
    results = kind.types(hidden)
    x = a["inp"] if kind.arrays == ("inp",) else g.Gather(a["embedding"], a["word"], axis=0)
    leaves = x
    if words == "all":
        nodes = g.Shape(a["word"])
        bound = g.Sub(nodes, g.Shape(a["left"]))
        leaves, x = g.Slice(x, [0], bound, [0]), g.Slice(x, bound, nodes, [0])
    first = kind.leaf(g, a, leaves)

    def step(g, of_level, *states):
        both = [[g.Gather(v, child, axis=0) for v in states]
                for child in map(of_level, (a["left"], a["right"]))]
        if words == "leaves":
            return kind.inner(g, a, *both)
        return kind.inner(g, a, *both, kind.products(g, a, of_level(x), kind.of_node + kind.of_children))

    states = levels.loop(g, begin, dict(zip(results, first)), hidden, step)
    for v, k in zip(states, results):
        rows = g.Gather(v, a["roots"], axis=0)
        if batch > 1:
            rows = g.Unsqueeze(rows, [1])
        g.output(g.Identity(rows, out=k), F(batch, 1, hidden) if batch > 1 else F(1, hidden))
    return g.model()
