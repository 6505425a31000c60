"""Recursive models against numpy: trees, mutual recursion, recursion in loops and branches and these in it,
results and arguments whose sizes depend on the call, depth, and models that are wrong.

    python tests/conformance/recursion.py [--braid PROGRAM] [--trees N] [--seed S] [--keep DIR]
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, TESTS + "/.."]
import backend_test  # noqa: E402
from models import build, trees  # noqa: E402
from models.common import B, F, Graph, I, f32, i64  # noqa: E402
from recursion_loops import absent_children, at, child_sum, many_children  # noqa: E402

CELLS = ("rae", "treernn", "treefc", "treelstm", "treelstm_words", "treegru", "simpletreegru", "mvrnn",
         "treelstm_binary", "treelstm_children", "dagrnn", "syntax", "syntax_program")
UNITS = (1, 2, 3, 4)
ALL_WAYS = ("wide", "shared_children", "state_goes_down", "two_functions")


def runs(i=None):
    """How model number i is run: by the interpreter, numbered ahead and not, with calls of a depth at once and without,
    these unrolled or not, by units that part or stay together, what calls need to find their way computed by every unit for
    itself or together, on other numbers of threads than the next one; every way, and on GPUs, for no number."""
    some = [(i % 4, "on"), ((i + 1) % 4, "off")] if i is not None else [(0, "on"), (1, "off"), (2, "on"), (3, "off")]
    ahead = [UNITS[i % 4]] if i is not None else UNITS
    turn = ("on", "off") if not i or i % 3 else ("off", "on")
    return [("interp", [])] + [
        ("cpu", ["--threads", str(UNITS[k]), "--schedule",
                 f"linearize=off,batch={how},unroll-recursion={('off', 'on')[k in (1, 2)]},replicate={turn[k // 2]},parallel={turn[k % 2]}"])
        for k, how in some] + [
        ("cpu", ["--threads", str(n), "--schedule", "linearize=on"]) for n in ahead] + [
        ("emulate:cuda", ["--schedule", f"{how},batch=off"]) for how in (
            ("linearize=off,unroll-recursion=off", "linearize=off,unroll-recursion=on", "linearize=on") if i is None else ())]


cases = {}


def case(f):
    """f(rng) -> (Graph, {input: array}, [expected]); a further {option: value} for the command line."""
    cases[f.__name__] = f
    return f


def write(folder, model, inputs, expected):
    backend_test.write(folder, model, [inputs[v.name] for v in model.graph.input], expected)


def structure(g):
    return g.input("left", I("n")), g.input("right", I("n")), g.input("leaf", B("n")), g.input("root", I())


def tree(r, nodes=31):
    a, _ = trees.make("random", 1, nodes, r, 10)
    return {"left": a["left"], "right": a["right"], "leaf": a["is_leaf"], "root": i64(a["roots"][0])}


def walk(t, leaf, inner):
    def f(n):
        return leaf(n) if t["leaf"][n] else inner(n, f(t["left"][n]), f(t["right"][n]))
    return f(int(t["root"]))


def sub(g, n, k=1):
    return g.Sub(n, k)


# ---- integers --------------------------------------------------------------------------------------
@case
def even_odd(r):
    g = Graph("even_odd")

    def half(other, base):
        return lambda g, n: g.branch(g.Equal(n, 0), lambda g: [g.const(base)], lambda g: [g.invoke(other, sub(g, n))])
    n = g.input("n", I())
    g.function("even", ["n"], half("odd", True))
    g.function("odd", ["n"], half("even", False))
    g.output(g.Identity(g.invoke("even", n), out="e"), B())
    g.output(g.Identity(g.invoke("odd", n), out="o"), B())
    return g, {"n": i64(37)}, [np.array(False), np.array(True)]


@case
def fibonacci(r):
    g = Graph("fibonacci")
    n = g.input("n", I())
    g.function("fib", ["n"], lambda g, n: g.branch(
        g.Less(n, 2), lambda g: [g.Identity(n)],
        lambda g: [g.Add(g.invoke("fib", sub(g, n)), g.invoke("fib", sub(g, n, 2)))]))
    g.output(g.Identity(g.invoke("fib", n), out="y"), I())
    return g, {"n": i64(15)}, [i64(610)]


@case
def ackermann(r):
    g = Graph("ackermann")
    m, n = g.input("m", I()), g.input("n", I())
    g.function("ack", ["m", "n"], lambda g, m, n: g.branch(
        g.Equal(m, 0), lambda g: [g.Add(n, 1)],
        lambda g: g.branch(g.Equal(n, 0), lambda g: [g.invoke("ack", sub(g, m), 1)],
                           lambda g: [g.invoke("ack", sub(g, m), g.invoke("ack", m, sub(g, n)))])))
    g.output(g.Identity(g.invoke("ack", m, n), out="y"), I())
    return g, {"m": i64(2), "n": i64(6)}, [i64(15)]


@case
def constant_argument(r):
    """The first call's argument is known when compiling."""
    g = Graph("constant")
    x = g.input("x", F(4))
    g.function("power", ["x", "n"], lambda g, x, n: g.branch(
        g.Equal(n, 0), lambda g: [g.Sub(x, x)],
        lambda g: [g.Add(g.invoke("power", x, sub(g, n)), x)]))
    g.output(g.Identity(g.invoke("power", x, 6), out="y"), F(4))
    v = f32(r.standard_normal(4))
    return g, {"x": v}, [6 * v]


# ---- trees -----------------------------------------------------------------------------------------
@case
def two_functions(r):
    """A tree whose levels take turns between two cells."""
    g, t = Graph("two_functions"), tree(r)
    x = g.input("x", F("n", 8))
    names = list(structure(g))
    root = names.pop()

    def cell(other, op):
        def body(g, n, x, left, right, leaf):
            def inner(g):
                a, b = (g.invoke(other, g.Gather(s, n), x, left, right, leaf) for s in (left, right))
                return [getattr(g, op)(g.Add(a, b))]
            return g.branch(g.Gather(leaf, n), lambda g: [at(g, x, n)], inner)
        return body
    params = ["n", "x", "left", "right", "leaf"]
    g.function("f", params, cell("h", "Tanh"))
    g.function("h", params, cell("f", "Sin"))
    g.output(g.Identity(g.invoke("f", root, x, *names), out="y"), F(1, 8))
    v = f32(r.standard_normal((31, 8)))

    def ref(n, k):
        if t["leaf"][n]:
            return v[n:n + 1]
        return (np.tanh, np.sin)[k](ref(t["left"][n], 1 - k) + ref(t["right"][n], 1 - k))
    return g, {"x": v, **t}, [ref(int(t["root"]), 0)]


@case
def wide(r):
    """More activations at one depth than run at once; words out of order."""
    g = Graph("wide")
    a, _ = trees.make("perfect", 1, 1023, r, 10)
    t = {"left": a["left"], "right": a["right"], "leaf": a["is_leaf"], "root": i64(a["roots"][0])}
    word = g.input("word", I("n"))
    table, w = f32(r.standard_normal((17, 6))), f32(r.standard_normal((6, 6)) / 2)
    *names, root = structure(g)

    def body(g, n, word, left, right, leaf):
        def inner(g):
            a, b = (g.invoke("f", g.Gather(s, n), word, left, right, leaf) for s in (left, right))
            return [g.Tanh(g.Add(g.MatMul(a, g.const(w)), b))]
        return g.branch(g.Gather(leaf, n), lambda g: [g.MatMul(at(g, g.const(table), g.Gather(word, n)), g.const(w))], inner)
    g.function("f", ["n", "word", "left", "right", "leaf"], body)
    g.output(g.Identity(g.invoke("f", root, word, *names), out="y"), F(1, 6))
    words = r.integers(-17, 17, 1023)
    return g, {"word": words, **t}, [walk(t, lambda n: table[words[n]][None] @ w,
                                          lambda n, a, b: np.tanh(a @ w + b))]


@case
def state_goes_down(r):
    """A tensor made on the way down, of the same size everywhere; the two functions that take turns call
    themselves for one child each."""
    g, t = Graph("down"), tree(r, 61)
    x = g.input("x", F("n", 12))
    *names, root = structure(g)
    w = f32(r.standard_normal((12, 12)) / 4)

    def cell(name, other, op):
        def body(g, n, s, x, left, right, leaf):
            s = getattr(g, op)(g.Add(g.MatMul(s, g.const(w)), at(g, x, n)))

            def inner(g):
                a = g.invoke(other, g.Gather(left, n), s, x, left, right, leaf)
                b = g.invoke(name, g.Gather(right, n), s, x, left, right, leaf)
                c = g.invoke(other, g.Gather(left, n), g.Neg(s), x, left, right, leaf)
                return [g.Sub(g.Add(a, c), b)]
            return g.branch(g.Gather(leaf, n), lambda g: [g.Identity(s)], inner)
        return body
    params = ["n", "s", "x", "left", "right", "leaf"]
    g.function("f", params, cell("f", "h", "Tanh"))
    g.function("h", params, cell("h", "f", "Sin"))
    g.output(g.Identity(g.invoke("f", root, g.const(np.ones((1, 12), np.float32)), x, *names), out="y"), F(1, 12))
    v = f32(r.standard_normal((61, 12)))

    def ref(n, s, k):
        s = (np.tanh, np.sin)[k](s @ w + v[n])
        if t["leaf"][n]:
            return s
        i, j = t["left"][n], t["right"][n]
        return ref(i, s, 1 - k) + ref(i, -s, 1 - k) - ref(j, s, k)
    return g, {"x": v, **t}, [ref(int(t["root"]), np.ones((1, 12), np.float32), 0)]


@case
def shared_children(r):
    """Three calls, one of which needs another's results; nodes with several parents; a result that is an argument's
    part; an If inside an arm."""
    g = Graph("shared")
    n, x = g.input("n", I()), g.input("x", F("k", 5))
    w = f32(r.standard_normal((5, 5)) / 3)

    def body(g, n, x):
        def inner(g):
            a, b = g.invoke("f", sub(g, n), x), g.invoke("f", sub(g, n, 2), x)
            small = g.Less(g.ReduceSum(g.Add(a, b), keepdims=0), 0.0)
            c = g.invoke("f", g.Sub(n, g.Where(small, g.const(2), g.const(3))), x)
            odd = g.Equal(g.Mod(n, 2), 1)
            y = g.branch(odd, lambda g: [g.Add(g.MatMul(a, g.const(w)), c)], lambda g: [g.Sub(b, g.MatMul(c, g.const(w)))])
            return [g.Tanh(y[0] if isinstance(y, list) else y)]
        return g.branch(g.Less(n, 2), lambda g: [at(g, x, g.Max(n, g.const(0)))], inner)
    g.function("f", ["n", "x"], body)
    g.output(g.Identity(g.invoke("f", n, x), out="y"), F(1, 5))
    v = f32(r.standard_normal((3, 5)))

    def ref(n):
        if n < 2:
            return v[max(n, 0)][None]
        a, b = ref(n - 1), ref(n - 2)
        c = ref(n - 2 if (a + b).sum() < 0 else n - 3)
        return np.tanh(a @ w + c if n % 2 else b - c @ w)
    return g, {"n": i64(9), "x": v}, [ref(9)]


@case
def grows(r):
    """The result is as long as the tree has leaves."""
    g, t = Graph("grows"), tree(r, 41)
    x = g.input("x", F("n", 3))
    *names, root = structure(g)

    def body(g, n, x, left, right, leaf):
        return g.branch(
            g.Gather(leaf, n), lambda g: [at(g, x, n)],
            lambda g: [g.Concat(*(g.invoke("f", g.Gather(s, n), x, left, right, leaf) for s in (left, right)), axis=0)])
    g.function("f", ["n", "x", "left", "right", "leaf"], body)
    g.output(g.Identity(g.invoke("f", root, x, *names), out="y"), F("m", 3))
    v = f32(r.standard_normal((41, 3)))
    return g, {"x": v, **t}, [walk(t, lambda n: v[n:n + 1], lambda n, a, b: np.concatenate([a, b]))]


@case
def path_grows(r):
    """An argument grows on the way down."""
    g, t = Graph("path"), tree(r, 25)
    x = g.input("x", F("n", 3))
    *names, root = structure(g)

    def body(g, n, path, x, left, right, leaf):
        longer = g.Concat(path, at(g, x, n), axis=0)

        def inner(g):
            a, b = (g.invoke("f", g.Gather(s, n), longer, x, left, right, leaf) for s in (left, right))
            return [g.Sub(a, b)]
        return g.branch(g.Gather(leaf, n), lambda g: [g.ReduceSum(g.Mul(longer, longer), [0], keepdims=0)], inner)
    g.function("f", ["n", "path", "x", "left", "right", "leaf"], body)
    empty = g.const(np.zeros((0, 3), np.float32))
    g.output(g.Identity(g.invoke("f", root, empty, x, *names), out="y"), F(3))
    v = f32(r.standard_normal((25, 3)))

    def ref(n, s):
        s = s + v[n] * v[n]
        return s if t["leaf"][n] else ref(t["left"][n], s) - ref(t["right"][n], s)
    return g, {"x": v, **t}, [ref(int(t["root"]), np.zeros(3, np.float32))]


@case
def several_results(r):
    """A tensor, a count in registers, and a tensor that may be an argument itself."""
    g, t = Graph("several"), tree(r, 33)
    x = g.input("x", F("n", 5))
    *names, root = structure(g)

    def body(g, n, y, x, left, right, leaf):
        def inner(g):
            (a, i, p), (b, j, q) = (g.invoke("f", g.Gather(s, n), y, x, left, right, leaf, outputs=3) for s in (left, right))
            return [g.Add(a, b), g.Add(g.Add(i, j), 1), g.Max(p, q)]
        return g.branch(g.Gather(leaf, n), lambda g: [at(g, x, n), g.const(1), g.Identity(y)], inner)
    g.function("f", ["n", "y", "x", "left", "right", "leaf"], body)
    y = g.Mul(x, 2.0)
    for v, name, ty in zip(g.invoke("f", root, y, x, *names, outputs=3), "abc", (F(1, 5), I(), F("n", 5))):
        g.output(g.Identity(v, out=name), ty)
    v = f32(r.standard_normal((33, 5)))
    return g, {"x": v, **t}, [v[t["leaf"]].sum(0, keepdims=True), i64(33), 2 * v]


@case
def one_after_the_other(r):
    """Two recursions without synchronization inside whose activations are laid out differently."""
    g, t = Graph("two"), tree(r, 63)
    x = g.input("x", F("n", 640))
    *names, root = structure(g)

    def cell(name, inner):
        def body(g, n, x, left, right, leaf):
            return g.branch(
                g.Gather(leaf, n), lambda g: [at(g, x, n)],
                lambda g: [inner(g, *(g.invoke(name, g.Gather(s, n), x, left, right, leaf) for s in (left, right)))])
        g.function(name, ["n", "x", "left", "right", "leaf"], body)
        return g.invoke(name, root, x, *names)
    a = cell("f", lambda g, a, b: g.Tanh(g.Add(a, b)))
    b = cell("h", lambda g, a, b: g.Cast(g.Sub(g.Cast(a, to=TensorProto.DOUBLE), g.Cast(b, to=TensorProto.DOUBLE)),
                                         to=TensorProto.FLOAT))
    g.output(g.Identity(g.Mul(a, b), out="y"), F(1, 640))
    v = f32(r.standard_normal((63, 640)))
    p = walk(t, lambda n: v[n:n + 1], lambda n, a, b: np.tanh(a + b))
    q = walk(t, lambda n: v[n:n + 1], lambda n, a, b: a - b)
    return g, {"x": v, **t}, [p * q]


# ---- with loops and branches -----------------------------------------------------------------------
def loop_in_recursion(r, collect):
    g = Graph("loop_in_recursion")
    first, count = many_children(r)
    x = g.input("x", F("n", 6))
    names = [g.input("first", I("n")), g.input("count", I("n"))]

    def body(g, n, x, first, count):
        mine, start = at(g, x, n), g.Gather(first, n)

        def child(g, i):
            return g.invoke("f", g.Add(start, i), x, first, count)
        if collect == "scan":
            y = g.loop(g.Gather(count, n), {}, lambda g, i: ([], [child(g, i)]))[0]
            total = g.ReduceSum(y, [0], keepdims=0)
        elif collect == "while":
            go = g.Greater(g.Gather(count, n), 0)
            y = g.loop(None, {}, lambda g, i: ([], [child(g, i)], g.Less(g.Add(i, 1), g.Gather(count, n))), cond=go)[0]
            total = g.ReduceSum(y, [0], keepdims=0)
        elif collect == "concat":
            y = g.loop(g.Gather(count, n), {"s": (g.Mul(mine, 0.0), F("k", 6))},
                       lambda g, i, s: ([g.Concat(s, child(g, i), axis=0)], []))[0]
            total = g.ReduceSum(y, [0], keepdims=1)
        else:
            total = g.loop(g.Gather(count, n), {"s": (g.Mul(mine, 0.0), F(1, 6))},
                           lambda g, i, s: ([g.Add(s, child(g, i))], []))[0]
        inner = g.branch(g.Equal(g.Gather(count, n), 0), lambda g: [g.Identity(mine)],
                         lambda g: [g.Tanh(g.Add(total, mine))])
        return inner

    # The loop is in the arm, so that leaves end the recursion.
    def guarded(g, n, x, first, count):
        return g.branch(g.Equal(g.Gather(count, n), 0), lambda g: [at(g, x, n)],
                        lambda g: body(g, n, x, first, count))
    g.function("f", ["n", "x", "first", "count"], guarded)
    g.output(g.Identity(g.invoke("f", 0, x, *names), out="y"), F(1, 6))
    v = f32(r.standard_normal((40, 6)))

    def ref(n):
        if not count[n]:
            return v[n:n + 1]
        return np.tanh(v[n:n + 1] + sum(ref(first[n] + i) for i in range(count[n])))
    return g, {"x": v, "first": first, "count": count}, [ref(0)]


for how in ("carry", "scan", "while", "concat"):
    cases[f"loop_in_recursion_{how}"] = lambda r, how=how: loop_in_recursion(r, how)


for how in ("carry", "concat", "stack", "while", "scan", "nested", "mutual"):
    cases[f"child_sum_{how}"] = lambda r, how=how: child_sum(r, how)
cases["absent_children"] = absent_children


@case
def recursion_in_loop(r):
    """A forest with a carried sum and stacked results, in a loop that ends by a condition."""
    g = Graph("forest")
    a, _ = trees.make("random", 6, 13, r, 10)
    t = {"left": a["left"], "right": a["right"], "leaf": a["is_leaf"], "root": i64(0)}
    x = g.input("x", F("n", 7))
    *names, _ = structure(g)
    roots = g.input("roots", I("m"))

    def body(g, n, x, left, right, leaf):
        return g.branch(
            g.Gather(leaf, n), lambda g: [at(g, x, n)],
            lambda g: [g.Tanh(g.Add(*(g.invoke("f", g.Gather(s, n), x, left, right, leaf) for s in (left, right))))])
    g.function("f", ["n", "x", "left", "right", "leaf"], body)

    def step(g, i, s):
        y = g.invoke("f", g.Gather(roots, i), x, *names)
        more = g.Less(g.Add(i, 1), 5)
        return [g.Add(s, y)], [g.Mul(y, s)], more
    s, ys = g.loop(100, {"s": (g.const(np.ones((1, 7), np.float32)), F(1, 7))}, step, cond=True)
    g.output(g.Identity(s, out="s"), F(1, 7))
    g.output(g.Identity(ys, out="ys"), F("k", 1, 7))
    v = f32(r.standard_normal((len(a["left"]), 7)))
    total, out = np.ones((1, 7), np.float32), []
    for root in a["roots"][:5]:
        y = walk({**t, "root": root}, lambda n: v[n:n + 1], lambda n, p, q: np.tanh(p + q))
        out.append(y * total)
        total = total + y
    return g, {"x": v, **t, "roots": a["roots"]}, [total, np.stack(out)]


@case
def base_cases_differ(r):
    """Two base cases of different sizes; three ways on."""
    g = Graph("bases")
    n, x = g.input("n", I()), g.input("x", F(3))

    def body(g, n, x):
        def on(g):
            by3 = g.Equal(g.Mod(n, 3), 0)
            return g.branch(by3, lambda g: [g.Concat(g.invoke("f", sub(g, n, 2), x), x, axis=0)],
                            lambda g: g.branch(g.Less(n, 8), lambda g: [g.Neg(g.invoke("f", sub(g, n), x))],
                                               lambda g: [g.invoke("f", sub(g, n, 3), x)]))
        return g.branch(g.LessOrEqual(n, 0), lambda g: g.branch(
            g.Equal(n, 0), lambda g: [g.Identity(x)], lambda g: [g.Concat(x, x, axis=0)]), on)
    g.function("f", ["n", "x"], body)
    v = f32(r.standard_normal(3))

    def ref(n):
        if n <= 0:
            return v if n == 0 else np.concatenate([v, v])
        if n % 3 == 0:
            return np.concatenate([ref(n - 2), v])
        return -ref(n - 1) if n < 8 else ref(n - 3)
    g.output(g.Identity(g.invoke("f", n, x), out="y"), F("m"))
    return g, {"n": i64(19), "x": v}, [ref(19)]


@case
def swapped_arguments(r):
    g = Graph("swapped")
    n, a, b = g.input("n", I()), g.input("a", F(17)), g.input("b", F(17))
    g.function("f", ["n", "a", "b"], lambda g, n, a, b: g.branch(
        g.Equal(n, 0), lambda g: [g.Sub(a, b)], lambda g: [g.invoke("f", sub(g, n), b, g.Mul(a, 0.5))]))
    g.output(g.Identity(g.invoke("f", n, a, b), out="y"), F(17))
    x, y = f32(r.standard_normal((2, 17)))
    p, q = x, y
    for _ in range(7):
        p, q = q, p * f32(0.5)
    return g, {"n": i64(7), "a": x, "b": y}, [p - q]


@case
def arguments_change_size(r):
    """Halves until one is left: sizes of arguments and results in registers."""
    g = Graph("halves")
    x = g.input("x", F("n", 2))

    def body(g, x):
        n = g.Gather(g.Shape(x), 0)

        def inner(g):
            half = g.Unsqueeze(g.Div(n, 2), [0])
            a = g.invoke("f", g.Slice(x, [0], half, [0]))
            b = g.invoke("f", g.Slice(x, half, g.Unsqueeze(n, [0]), [0]))
            return [g.Concat(b, a, axis=0)]
        return g.branch(g.Equal(n, 1), lambda g: [g.Mul(x, 3.0)], inner)
    g.function("f", ["x"], body)
    g.output(g.Identity(g.invoke("f", x), out="y"), F("m", 2))
    v = f32(r.standard_normal((23, 2)))
    return g, {"x": v}, [3 * v[::-1]]


@case
def called_twice(r):
    """From two places with different shapes, each with something computed outside."""
    g = Graph("twice")
    n, a, b = g.input("n", I()), g.input("a", F(4, 4)), g.input("b", F("k", 3))
    g.function("f", ["n", "x", "w"], lambda g, n, x, w: g.branch(
        g.Equal(n, 0), lambda g: [g.Identity(x)], lambda g: [g.MatMul(g.invoke("f", sub(g, n), x, w), w)]))
    w = g.Mul(a, 0.5)
    p = g.invoke("f", n, a, w)
    c = g.const(np.eye(3, dtype=np.float32)[[1, 2, 0]])
    q = g.invoke("f", g.Add(n, 1), b, g.Add(c, g.Mul(g.ReduceMax(p, keepdims=0), 0.1)))
    g.output(g.Identity(p, out="p"), F(4, 4))
    g.output(g.Identity(q, out="q"), F("k", 3))
    x, y = f32(r.standard_normal((4, 4))), f32(r.standard_normal((5, 3)))
    want = x
    for _ in range(3):
        want = want @ (x * f32(0.5))
    m = np.eye(3, dtype=np.float32)[[1, 2, 0]] + want.max() * f32(0.1)
    other = y
    for _ in range(4):
        other = other @ m
    return g, {"n": i64(3), "a": x, "b": y}, [want, other]


@case
def recursion_in_recursion(r):
    """f starts a recursion of h with what it computed itself; an ordinary function in between."""
    g = Graph("nested")
    n, x = g.input("n", I()), g.input("x", F(9))
    g.function("h", ["k", "y", "z"], lambda g, k, y, z: g.branch(
        g.LessOrEqual(k, 0), lambda g: [g.Identity(y)], lambda g: [g.Add(g.invoke("h", sub(g, k, 2), y, z), z)]))
    g.function("scaled", ["v"], lambda g, v: [g.Mul(v, 0.5)])

    def body(g, n, x):
        def on(g):
            y = g.invoke("f", sub(g, n), x)
            z = g.node("scaled", [y], domain="models")
            return [g.Sin(g.invoke("h", n, y, z))]
        return g.branch(g.Equal(n, 0), lambda g: [g.Neg(x)], on)
    g.function("f", ["n", "x"], body)
    for f in g.functions:
        f.opset_import.append(helper.make_opsetid("models", 1))
    g.output(g.Identity(g.invoke("f", n, x), out="y"), F(9))
    v = f32(r.standard_normal(9))
    y = -v
    for k in range(1, 9):
        z = y * f32(0.5)
        for _ in range((k + 1) // 2):
            y = y + z
        y = np.sin(y)
    return g, {"n": i64(8), "x": v}, [y]


def chain(depth, form):
    g = Graph("chain")
    n, x = g.input("n", I()), g.input("x", F(5))
    if form == "tensor":
        base, step = lambda g: [g.Identity(x_)], lambda g, y: g.Add(g.Mul(y, 0.5), 1.0)
        x_ = "x"
        g.function("f", ["n", "x"], lambda g, n, x: g.branch(
            g.Equal(n, 0), base, lambda g: [step(g, g.invoke("f", sub(g, n), x))]))
        y = f32([1, 2, 3, 4, 5])
        for _ in range(min(depth, 5000)):
            y = y * f32(0.5) + f32(1)
        g.output(g.Identity(g.invoke("f", n, x), out="y"), F(5))
        return g, {"n": i64(depth), "x": f32([1, 2, 3, 4, 5])}, [y]
    g.function("f", ["n"], lambda g, n: g.branch(
        g.Equal(n, 0), lambda g: [g.const(0)], lambda g: [g.Add(g.invoke("f", sub(g, n)), 2)]))
    g.output(g.Add(g.invoke("f", n), g.Cast(g.ReduceSum(x, keepdims=0), to=TensorProto.INT64), out="y"), I())
    return g, {"n": i64(depth), "x": f32([1, 2, 3, 4, 5])}, [i64(2 * depth + 15)]


# ---- running ---------------------------------------------------------------------------------------
class Failed(Exception):
    pass


def run(braid, *args):
    p = subprocess.run([braid, *args], capture_output=True, text=True, timeout=600)
    return p.returncode, p.stdout + p.stderr


def check_folder(braid, folder, options=(), number=None):
    for target, more in runs(number):
        code, text = run(braid, "test", "--target", target, *more, *options, folder)
        if code or "0 failed, 0 skipped" not in text:
            raise Failed(f"{target} {' '.join(more)}: {text.strip()}")


def check_depth(braid, work):
    for form in ("tensor", "integer"):
        for depth, options, ok in ((3000, [], True), (100000, [], False), (20000, ["--stack-depth", "20001"], True),
                                   (50, ["--stack-depth", "50"], False), (49, ["--stack-depth", "50"], True)):
            g, inputs, expected = chain(depth, form)
            folder = os.path.join(work, f"chain_{form}_{depth}")
            write(folder, g.model(), inputs, expected)
            if ok:
                check_folder(braid, folder, options, 0)
                continue
            limit = options[1] if options else "10000"
            too_deep(braid, folder, options, f"function f needs a depth of {depth + 1}; the limit is {limit} (--stack-depth)")
    for name in ("endless", "after_a_fault"):
        g = Graph(name)
        n, x = g.input("n", I()), g.input("x", I("k"))
        g.function("f", ["n", "x"], lambda g, n, x: g.branch(
            g.Equal(n, 0), lambda g: [g.Gather(x, n)], lambda g: [g.Add(g.invoke("f", sub(g, n), x), 2)]))
        g.output(g.Identity(g.invoke("f", n, x), out="y"), I())
        folder = os.path.join(work, name)
        endless = name == "endless"
        write(folder, g.model(), {"n": i64(-1 if endless else 200), "x": np.zeros(1 if endless else 0, np.int64)}, [i64(0)])
        need = r"more than \d{6,}" if endless else "more than 200"
        too_deep(braid, folder, ["--stack-depth", "100"], f"function f needs a depth of {need}; the limit is 100 (--stack-depth)")
    for name, nodes in (("endless_tree", 3), ("skewed_tree", 601)):
        endless = name == "endless_tree"
        r = np.random.default_rng(1)
        a, _ = trees.make("chain", 1, nodes, r, 10)
        if endless:
            a["left"][:], a["is_leaf"][:] = 0, False
        g = Graph(name)
        x = g.input("x", F("n", 16))
        *names, root = structure(g)
        w = f32(r.standard_normal((16, 16)) / 4)

        def body(g, n, x, left, right, leaf):
            def inner(g):
                a, b = (g.invoke("f", g.Gather(s, n), x, left, right, leaf) for s in (left, right))
                return [g.Tanh(g.MatMul(g.Add(a, b), g.const(w)))]
            return g.branch(g.Gather(leaf, n), lambda g: [at(g, x, n)], inner)
        g.function("f", ["n", "x", "left", "right", "leaf"], body)
        g.output(g.Identity(g.invoke("f", root, x, *names), out="y"), F(1, 16))
        folder = os.path.join(work, name)
        t = {"left": a["left"], "right": a["right"], "leaf": a["is_leaf"], "root": i64(a["roots"][0])}
        v = f32(r.standard_normal((nodes, 16)))
        sys.setrecursionlimit(3000)
        y = walk(t, lambda n: v[n:n + 1], lambda n, p, q: np.tanh((p + q) @ w)) if not endless else v[:1]
        write(folder, g.model(), {"x": v, **t}, [y])
        if not endless:
            check_folder(braid, folder, ["--stack-depth", "301"], 0)
        need = r"more than \d{5,}" if endless else "301"
        too_deep(braid, folder, ["--stack-depth", "300"], f"function f needs a depth of {need}; the limit is 300 (--stack-depth)")


def too_deep(braid, folder, options, message):
    for target, more in runs(0):
        code, text = run(braid, "test", "--target", target, *more, *options, folder)
        if code != 1 or not re.search(message.replace("(", r"\(").replace(")", r"\)"), text):
            raise Failed(f"{folder}, {target}: {code}: {text.strip()}")


def invalid(name):
    """A wrong model, and what must be said of it."""
    g = Graph("invalid")
    n = g.input("n", I())
    body = lambda g, n: g.branch(g.Equal(n, 0), lambda g: [g.Identity(n)], lambda g: [g.invoke("f", sub(g, n))])
    if name == "never returns":
        body = lambda g, n: [g.Add(g.invoke("f", sub(g, n)), 1)]
    if name == "type and rank of scan output 0 must be declared":
        body = lambda g, n: [g.ReduceSum(g.loop(n, {}, lambda g, i: ([], [g.invoke("f", i)]))[0], keepdims=0)]
    if name == "a loop that is made twice":    # is no way out
        body = lambda g, n: g.loop(2, {"s": (n, I())}, lambda g, i, s: ([g.invoke("f", s)], []))
    if name == "several functions":
        g.function("f", ["n"], body)
    g.function("f", ["n"], body)
    f = g.functions[-1]
    call = "g" if name == "there is no function 'g'" else "other:f" if name == "there is no function 'other:f'" else "f"
    args = [n, n] if name == "takes 1 inputs, the call gives 2" else [n]
    if name == "input 1 is missing":
        args = [n, None, n]
        f.input.extend(["b", "c"])
        del f.node[:]
        f.node.append(helper.make_node("Add", ["n", "c"], [f.output[0]]))
    outputs = 3 if name == "has 3 outputs" else 1
    if name == "has attributes":
        f.attribute.append("a")
    if name == "several functions":
        f.domain = "other"
        for k in g.functions:
            k.opset_import.append(helper.make_opsetid("other", 1))
    many = {"the model is too large": (40, 2), "calls are nested deeper": (150, 1)}.get(name)
    if many: # each function calls the next one, once or twice
        for k in range(many[0]):
            g.function(f"f{k}", ["n"], lambda g, n: [g.Add(n, g.invoke(f"f{k + 1}", n)) if many[1] == 1 else g.Add(
                g.invoke(f"f{k + 1}", n), g.invoke(f"f{k + 1}", g.Neg(n)))])
        g.function(f"f{many[0]}", ["n"], lambda g, n: [g.Identity(n)])
        call = "f0"
    y = g.invoke(call, *args, outputs=outputs)
    if name == "must name a function":
        del g.nodes[-1].attribute[:]
    g.output(g.Identity(y[0] if outputs > 1 else y, out="y"), I())
    m = g.model()
    if name == "does not import":
        del m.opset_import[1]
    if name == "version 2 of domain":
        m.opset_import[1].version = 2
    if name == "calls itself":
        f = m.functions[0]
        for node in f.node:
            for a in node.attribute:
                for k in a.g.node:
                    if k.op_type == "Invoke":
                        k.op_type, k.domain = "f", "models"
                        del k.attribute[:]
        f.opset_import.append(helper.make_opsetid("models", 1))
    return m


INVALID = ("never returns", "several functions", "there is no function 'g'", "there is no function 'other:f'",
           "takes 1 inputs, the call gives 2", "input 1 is missing", "has 3 outputs", "has attributes", "must name a function",
           "does not import", "version 2 of domain", "calls itself", "the model is too large",
           "calls are nested deeper", "type and rank of scan output 0 must be declared", "a loop that is made twice")


def check_invalid(braid, work):
    for i, name in enumerate(INVALID):
        path = os.path.join(work, f"invalid_{i}.onnx")
        onnx.save(invalid(name), path)
        code, text = run(braid, "run", path, "--target", "interp")
        if code != 1 or {"a loop that is made twice": "never returns"}.get(name, name) not in text:
            raise Failed(f"'{name}' is not what is said: {code}: {text.strip()}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--trees", type=int, default=64, help="random trees for each cell")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", metavar="DIR", help="where the models stay")
    p.add_argument("names", nargs="*", help="of cases; all of them if none is given")
    a = p.parse_args()
    sys.setrecursionlimit(10000)
    failed = passed = 0

    def attempt(name, f):
        nonlocal failed, passed
        try:
            f()
            passed += 1
        except Failed as e:
            failed += 1
            print(f"{name}: {e}")

    with tempfile.TemporaryDirectory() as work:
        work = a.keep or work
        for i, (name, make) in enumerate(cases.items()):
            if a.names and name not in a.names:
                continue
            folder = os.path.join(work, name)
            g, inputs, expected = make(np.random.default_rng(a.seed))
            write(folder, g.model(), inputs, expected)
            attempt(name, lambda: check_folder(a.braid, folder, number=None if name in ALL_WAYS else i))
        for i, name in enumerate(CELLS):
            if a.names and name not in a.names:
                continue
            b = build(name, True, batch=a.trees, length=21, seed=a.seed + i)
            folder = os.path.join(work, name)
            write(folder, b.model, b.inputs, b.expected)
            attempt(name, lambda: check_folder(a.braid, folder, number=i))
        if not a.names or "depth" in a.names:
            attempt("depth", lambda: check_depth(a.braid, work))
        if not a.names or "invalid" in a.names:
            attempt("invalid", lambda: check_invalid(a.braid, work))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
