"""braid.trees: round trips through every form, what is refused and how, deep and wide structures, a model that runs."""
import inspect
import os
import re
import subprocess
import sys
import tempfile
import unittest

import braid
import numpy as np
from braid import trees
from onnx import TensorProto, numpy_helper, parser


def random_parents(r, n, roots=1):
    """Parent pointers of n nodes in `roots` trees, in a random numbering."""
    parent = np.concatenate([np.full(min(roots, n), -1), [int(r.integers(0, i)) for i in range(min(roots, n), n)]]).astype(int)
    number = r.permutation(n)
    moved = np.empty(n, int)
    moved[number] = np.where(parent < 0, -1, number[parent])
    return moved


def random_nested(r, leaves, most=2):
    """A nested tuple with so many leaves, of at most `most` children a node."""
    made = [f"w{i}" for i in range(leaves)]
    while len(made) > 1:
        k = min(int(r.integers(2, most + 1)), len(made))
        at = int(r.integers(0, len(made) - k + 1))
        made[at:at + k] = [tuple(made[at:at + k])]
    return made[0]


def random_edges(r, n, e):
    """A DAG's edges in a random numbering; some stand there twice."""
    pairs = np.sort(r.integers(0, n, (e, 2)), 1)
    return r.permutation(n)[pairs[pairs[:, 0] < pairs[:, 1]]]


def slow_heights(children):
    """By repetition, as the definition says."""
    height = [0] * len(children)
    while True:
        new = [1 + max(height[c] for c in some) if some else 0 for some in children]
        if new == height:
            return new
        height = new


def walk(forest, a):
    """The trees of the arrays of a binary model, as nested tuples."""
    def f(n):
        return forest.word[n] if a["is_leaf"][n] else (f(a["left"][n]), f(a["right"][n]))
    return [f(n) for n in a["roots"]]


class RoundTrips(unittest.TestCase):
    def test_parents(self):
        r = np.random.default_rng(1)
        for n in (0, 1, 2, 3, 10, 200, 3000):
            for roots in (1, 3):
                p = random_parents(r, n, roots)
                f = trees.from_parents(p)
                self.assertEqual(f.parents().tolist(), p.tolist())
                self.assertEqual(len(f), n)
                self.assertEqual(f.roots.tolist(), [i for i in range(n) if p[i] < 0])
                self.assertEqual(f.children(), [[i for i in np.flatnonzero(p == k)] for k in range(n)])

    def test_children(self):
        r = np.random.default_rng(2)
        for n in (0, 1, 50, 400):
            children = trees.from_edges(random_edges(r, n, 3 * n), n).children() if n else []
            f = trees.from_children(children)
            self.assertEqual(f.children(), children)
            self.assertEqual(f.roots.tolist(), sorted(set(range(n)) - {c for some in children for c in some}))
            a = f.csr()
            self.assertEqual(trees.Forest(**a).children(), children)
            self.assertEqual({v.dtype for v in a.values()}, {np.dtype(np.int64)})

    def test_nested(self):
        r = np.random.default_rng(3)
        for most in (2, 5):
            many = [random_nested(r, int(k), most) for k in r.integers(1, 40, 30)]
            f = trees.from_nested(many)
            self.assertEqual(f.nested(), many)
            self.assertEqual(trees.from_text(f.text(labels=False), labels=False).nested(), many)
            self.assertEqual(trees.from_text(f.text()).nested(), many)
            if most == 2:
                a = f.binary()
                self.assertEqual(walk(f, a), many)
                self.assertEqual(trees.from_binary(**a, word=f.word).nested(), many)
        self.assertEqual(trees.from_nested([["a", [3, None]]]).nested(), [("a", (3, None))])
        self.assertEqual(trees.from_nested([]).nested(), [])
        twice = ["b", "c"]
        self.assertEqual(trees.from_nested([[twice, twice]]).nested(), [(("b", "c"), ("b", "c"))])

    def test_edges(self):
        r = np.random.default_rng(4)
        for n, e in ((1, 0), (5, 9), (300, 900)):
            edges = random_edges(r, n, e)
            f = trees.from_edges(edges, n)
            self.assertEqual(sorted(map(tuple, f.edges().tolist())), sorted(map(tuple, edges.tolist())))
            self.assertEqual(trees.from_edges(f.edges(), n).children(), f.children())
            for v in range(n):  # predecessors, in the order of their edges
                self.assertEqual(f.children()[v], [a for a, b in edges.tolist() if b == v])
        self.assertEqual(trees.from_edges([], 3).roots.tolist(), [0, 1, 2])
        square = trees.from_edges([(0, 1), (0, 1)], 2)  # x·x: both children are one node
        self.assertEqual([square.binary()[k][1] for k in ("left", "right")], [0, 0])

    def test_grid(self):
        for rows, columns in ((10, 10), (1, 5), (4, 1), (1, 1), (0, 3), (3, 0)):
            f = trees.grid(rows, columns)
            n = rows * columns
            want = [[v - columns] * (v >= columns) + [v - 1] * (v % columns > 0) for v in range(n)]
            self.assertEqual(f.children(), want)
            self.assertEqual(f.roots.tolist(), [n - 1] if n else [])
            self.assertEqual(len(trees.levels(f).batch_begin) - 1, rows + columns - 1 if n else 0)

    def test_text(self):
        some = "(3 (2 It) (4 (4 works) (2 .)))\n(2 Fine)\n"
        f = trees.from_text(some)
        self.assertEqual((f.word, f.label), ([None, "It", None, "works", ".", "Fine"], ["3", "2", "4", "4", "2", "2"]))
        self.assertEqual(f.text(), some)
        self.assertEqual(f.text(labels=False), "(It (works .))\nFine\n")
        self.assertEqual(trees.from_text("( 3(2 It)\r\n\t(4 ( 4 works )( 2 . )) )(2 Fine)").text(), some)
        odd = "(NP (DT a\u00a0b) (NN c\u2028d\u000b))\n"   # spaces that are none of ASCII's own
        self.assertEqual(trees.from_text(odd).word, [None, "a\u00a0b", "c\u2028d\u000b"])
        self.assertEqual(trees.from_text(odd).text(), odd)
        bare = "((It) ((works) (.)))\n"                     # no labels
        self.assertEqual((trees.from_text(bare).text(), trees.from_text(bare).label), (bare, None))
        words = "(root saw (nsubj she) (obj stars (amod bright)))\n"  # words at inner nodes
        self.assertEqual(trees.from_text(words).text(), words)
        self.assertEqual(trees.from_text(words).word, ["saw", "she", "stars", "bright"])
        self.assertEqual(trees.from_text("(S (2))").nested(), [("2",)])
        self.assertEqual((len(trees.from_text("")), trees.from_text(" \n").text()), (0, ""))
        vocabulary = {}
        self.assertEqual(f.numbers(vocabulary).tolist(), [0, 0, 0, 1, 2, 3])
        self.assertEqual(vocabulary, {"It": 0, "works": 1, ".": 2, "Fine": 3})
        self.assertEqual(trees.from_text("(2 no) (2 It)").numbers(vocabulary, unknown=9).tolist(), [9, 0])
        self.assertEqual(len(vocabulary), 4)

    def test_text_of_random_trees(self):
        r = np.random.default_rng(5)
        for n in (1, 2, 60, 500):
            p = random_parents(r, n, 4)
            f = trees.from_parents(p, label=[f"l{i}" for i in range(n)], word=[f"w{i}" for i in range(n)])
            g = trees.from_text(f.text())
            self.assertEqual(g.text(), f.text())
            number = [int(w[1:]) for w in g.word]  # of each node in f
            self.assertEqual([p[i] for i in number], [-1 if k < 0 else number[k] for k in g.parents()])

    def test_roots_in_another_order(self):
        f = trees.from_children([[], [0], [], [2]], roots=[3, 1], word="abcd")
        self.assertEqual(f.nested(), [("c",), ("a",)])


class Forests(unittest.TestCase):
    def parts(self):
        r = np.random.default_rng(6)
        return [trees.from_nested([]), trees.from_nested(["a"]), trees.from_nested([random_nested(r, 9), "b"]),
                trees.from_text("(1 (2 x) (3 y))"), trees.grid(2, 3), trees.from_nested([])]

    def test_concatenated_and_split(self):
        parts = self.parts()
        f = trees.concatenate(parts)
        self.assertEqual(len(f), sum(map(len, parts)))
        back = f.split()
        self.assertEqual(len(back), len(parts))
        for a, b in zip(parts, back):
            self.assertEqual((a.children(), a.roots.tolist()), (b.children(), b.roots.tolist()))
            self.assertEqual(a.word or [None] * len(a), b.word)
            self.assertEqual(a.label or [None] * len(a), b.label)
        self.assertEqual([len(v) for v in f.split_nodes(np.zeros((len(f), 3)))], [len(p) for p in parts])
        self.assertEqual([v.tolist() for v in f.split_roots(f.roots - np.repeat(f.node_begin[:-1], np.diff(f.root_begin)))],
                         [p.roots.tolist() for p in parts])
        none = trees.concatenate([])
        self.assertEqual((len(none), none.split(), none.split_nodes([]), none.roots.tolist()), (0, [], [], []))
        self.assertEqual({k: len(v) for k, v in none.binary().items()}, {"left": 0, "right": 0, "is_leaf": 0, "roots": 0})

    def test_trees_of_a_text_are_parts(self):
        f = trees.from_text("(a b) (c (d e) (f g))")
        self.assertEqual([p.text() for p in f.split()], ["(a b)\n", "(c (d e) (f g))\n"])
        self.assertEqual(f.split_nodes("bcde"), ["b", "cde"])

    def test_arrays_are_its_own(self):
        child = np.array([1, 2])
        f = trees.Forest([0, 2, 2, 2], child)
        child[:] = 7
        self.assertEqual(f.children(), [[1, 2], [], []])
        with self.assertRaises(ValueError):
            f.child[0] = 2
        f.binary()["left"][:] = 9
        f.csr()["child"][:] = 9
        f.split_nodes(np.zeros(3))
        self.assertEqual(f.children(), [[1, 2], [], []])


class LevelsOfForests(unittest.TestCase):
    def test_heights(self):
        r = np.random.default_rng(7)
        some = [trees.from_parents(random_parents(r, 300, 5)), trees.from_parents(random_parents(r, 5000, 1000)),
                trees.from_edges(random_edges(r, 500, 700), 500), trees.grid(5, 90), trees.grid(100, 100),
                trees.from_nested([]), trees.from_nested(["a"] * 100)]
        for f in some:
            order, begin, place, height = trees.levels(f)
            self.assertEqual(height.tolist(), slow_heights(f.children()))
            self.assertEqual(sorted(order.tolist()), list(range(len(f))))
            self.assertEqual(order[place].tolist(), list(range(len(f))))
            self.assertEqual((begin[0], begin[-1]), (0, len(f)))
            for k, (a, b) in enumerate(zip(begin, begin[1:])):
                self.assertEqual(order[a:b].tolist(), np.flatnonzero(height == k).tolist())

    def test_deep(self):
        n = 100_000
        chain = trees.from_parents(np.arange(-1, n - 1), word=[None] * (n - 1) + ["end"])
        self.assertEqual(len(trees.levels(chain).batch_begin), n + 1)
        self.assertEqual(trees.from_text(chain.text(labels=False), labels=False).parents().tolist(), chain.parents().tolist())
        self.assertEqual(trees.from_nested(chain.nested()).parents().tolist(), chain.parents().tolist())
        up = trees.from_parents(np.append(np.arange(1, n), -1))  # the root is the last node
        self.assertEqual(trees.levels(up).height[-1], n - 1)
        mixed = random_parents(np.random.default_rng(8), n)
        self.assertEqual(trees.from_parents(mixed).parents().tolist(), mixed.tolist())
        with self.assertRaisesRegex(ValueError, r"needs itself: .* → … → "):
            trees.from_parents(np.append(n - 1, np.arange(n - 1)))
        binary = trees.from_children([[2 * i + 1, 2 * i + 2] if 2 * i + 2 < n - 1 else [] for i in range(n - 1)])
        self.assertEqual(len(trees.levels(binary).batch_begin) - 1, 17)


class Refused(unittest.TestCase):
    def test_messages(self):
        f, text = trees.from_parents, trees.from_text
        dag = trees.from_children([[1, 2], [3], [3], []])
        knot = ["a", ("b",)]
        knot.append((knot, "c"))
        for message, call in (
            ("node 1 needs itself: 1 → 2 → 1", lambda: f([-1, 2, 1])),
            ("node 1 needs itself: 1 → 1", lambda: f([-1, 1])),
            ("node 1 needs itself: 1 → 3 → 2 → 1", lambda: trees.from_edges([(0, 1), (1, 2), (2, 3), (3, 1), (1, 4)], 5)),
            ("the parent of node 1 is 5, outside [-1, 2)", lambda: f([-1, 5])),
            ("the parent of node 0 is -2, outside [-1, 1)", lambda: f([-2])),
            ("parent must be integers in one dimension, not float64[2]", lambda: f([-1.0, 0])),
            ("parent must be integers in one dimension, not int64[1, 2]", lambda: f([[-1, 0]])),
            ("a child of node 1 is 9, outside [0, 2)", lambda: trees.from_children([[1], [9]])),
            ("a child of node 0 is -1, outside [0, 1)", lambda: trees.from_children([[-1]])),
            ("root 1 is 4, outside [0, 1)", lambda: trees.from_children([[]], roots=[0, 4])),
            ("child_begin must rise from 0 to 1, the length of child", lambda: trees.Forest([0, 2, 1], [1])),
            ("child_begin must rise from 0 to 0, the length of child", lambda: trees.Forest([], [])),
            ("an end of edge 1 is 3, outside [0, 3)", lambda: trees.from_edges([(0, 1), (1, 3)], 3)),
            ("edges must be pairs, an array [edges, 2], not [1, 3]", lambda: trees.from_edges([(0, 1, 2)], 3)),
            ("the number of nodes is -1", lambda: trees.from_edges([], -1)),
            ("a grid cannot have -1 × 2 nodes", lambda: trees.grid(-1, 2)),
            ("node 3 has several parents, 1 and 2: this is a DAG, not a tree", dag.parents),
            ("node 3 has several parents, 1 and 2: this is a DAG, not a tree", dag.nested),
            ("node 3 has several parents, 1 and 2: this is a DAG, not a tree", dag.text),
            ("node 1 has 1 child; in a binary tree it has two or none", dag.binary),
            ("node 0 has 3 children; in a binary tree it has two or none", f([-1, 0, 0, 0]).binary),
            ("node 0 has no parent and is not among the roots", trees.from_children([[], []], roots=[1]).parents),
            ("root 1 has a parent, or is twice among the roots", trees.from_children([[1], []], roots=[0, 1]).nested),
            ("left, right and is_leaf have 1, 2 and 1 elements", lambda: trees.from_binary([0], [0, 0], [True])),
            ("a child of node 0 is 3, outside [0, 1)", lambda: trees.from_binary([3], [0], [False])),
            ("word has 1 elements for 2 nodes", lambda: f([-1, 0], word=["a"])),
            ("tree 1 has an empty tuple, a node without children that is no leaf", lambda: trees.from_nested(["a", ("b", ())])),
            ("tree 0 has a list that contains itself", lambda: trees.from_nested([knot])),
            ("3 rows for 2 nodes", lambda: f([-1, 0]).split_nodes([1, 2, 3])),
            ("2 rows for 1 root", lambda: f([-1, 0]).split_roots([1, 2])),
            ("line 2, column 4: '(' is never closed", lambda: text("(2 a)\n   ((2 c)\n")),
            ("line 1, column 6: ')' closes nothing", lambda: text("(2 a))")),
            ("line 2, column 7: 'c' stands outside of brackets", lambda: text("(2 a)\n(2 b) c")),
            ("line 1, column 6: 'b' is a third token; a node has a label and a word", lambda: text("(2 a b c)")),
            ("line 1, column 10: 'b' stands behind a child; words stand before the children", lambda: text("(2 (2 a) b)")),
            ("line 1, column 5: ')' closes a bracket with no word inside", lambda: text("(a ())", labels=False)),
            ("node 1 has neither children nor a word", f([-1, 0], word=["a", None], label=["b", "c"]).text),
            ("node 0 has children and a word, but no label to stand before it", f([-1, 0], word=["a", "b"]).text),
            ("node 0: 'a b' cannot be written: it is empty, or has a space or a bracket inside", f([-1], word=["a b"]).text),
            ("node 0: '' cannot be written: it is empty, or has a space or a bracket inside", f([-1], word=[""]).text),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, f"^{re.escape(message)}$"):
                call()


TREE = """<ir_version: 10, opset_import: ["" : 18, "ai.braid" : 1, "local" : 1]>
g (int64[n] word, int64[n] left, int64[n] right, bool[n] is_leaf, int64[t] roots) => (int64[t] y) {
    count = Shape(roots)
    zero = Constant<value = int64[1] {0}>()
    trip = Squeeze(count, zero)
    yes = Constant<value = bool {1}>()
    y = Loop(trip, yes) <body = b (int64 i, bool go) => (bool again, int64 v) {
        again = Identity(go)
        root = Gather(roots, i)
        v = ai.braid.Invoke<function = "f">(root, word, left, right, is_leaf)
    }>
}
<domain: "local", opset_import: ["" : 18, "ai.braid" : 1]>
f (n, word, left, right, is_leaf) => (y) {
    leaf = Gather(is_leaf, n)
    y = If(leaf) <then_branch = a () => (int64 p) { p = Gather(word, n) },
                  else_branch = c () => (int64 q) {
                      l = Gather(left, n)
                      r = Gather(right, n)
                      u = ai.braid.Invoke<function = "f">(l, word, left, right, is_leaf)
                      v = ai.braid.Invoke<function = "f">(r, word, left, right, is_leaf)
                      ten = Constant<value = int64 {10}>()
                      w = Mul(ten, u)
                      q = Sub(w, v)
                  }>
}"""


class Runs(unittest.TestCase):
    def test_a_forest_in_a_model(self):
        f = trees.from_text("(((1 2) 3) (4 5)) 7 (8 9)", labels=False)
        model = braid.compile(parser.parse_model(TREE), target="interp", progress=False)
        y = model(word=np.array([int(w or 0) for w in f.word]), **f.binary())
        self.assertEqual([v.tolist() for v in f.split_roots(y)], [[10 * (10 * 8 - 3) - 35], [7], [71]])

    def test_the_example(self):
        """examples/trees.py on the sentences that models/ wrote a model and its answer for."""
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        text = "(3 (2 It) (4 (3 works) (2 .)))\n(2 (1 No) (2 one))\n(2 Fine)\n"
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/trees.txt", "w") as f:
                f.write(text)
            subprocess.run([sys.executable, "-m", "models", "treelstm", "--small", "--tree", f"{work}/trees.txt", "--batch", "3",
                            "--out", work], cwd=root, check=True, capture_output=True)
            with open(f"{work}/treelstm/test_data_set_0/output_0.pb", "rb") as f:
                want = numpy_helper.to_array(TensorProto.FromString(f.read())).reshape(3, -1)
            command = [sys.executable, f"{root}/examples/trees.py", f"{work}/treelstm/model.onnx"]
            done = subprocess.run(command, input=text, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(re.findall(r"^\S.*", done.stdout, re.M), ["It works .", "No one", "Fine"])
            h = [[float(v) for v in line.split()] for line in re.findall(r"^    h = (.*) …$", done.stdout, re.M)]
            np.testing.assert_allclose(h, want[:, :6], atol=1e-4)
            bad = subprocess.run([*command, "(2 a"], capture_output=True, text=True)
            self.assertEqual((bad.returncode, bad.stderr), (1, "trees.py: line 1, column 1: '(' is never closed\n"))

    def test_without_the_extension(self):
        """By its path, by a Python that sees no package of that name."""
        code = ("import importlib.util as i, sys; s = i.spec_from_file_location('t', sys.argv[1]); m = i.module_from_spec(s); "
                "s.loader.exec_module(m); print(m.grid(2, 2), any(k.split('.')[0] == 'braid' for k in sys.modules))")
        done = subprocess.run([sys.executable, "-c", code, inspect.getfile(trees)], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "<Forest of 1 tree, 4 nodes> False\n")

    def test_documented(self):
        for name in trees.__all__:
            self.assertTrue(inspect.getdoc(getattr(trees, name)), name)
        for name, thing in vars(trees.Forest).items():
            if callable(thing) and not name.startswith("_"):
                self.assertTrue(inspect.getdoc(thing), name)
                self.assertIn("return", thing.__annotations__, name)


if __name__ == "__main__":
    unittest.main()
