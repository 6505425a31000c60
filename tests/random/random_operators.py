#!/usr/bin/env python3
"""Random operators: distributions, seeds, and that every execution of a node draws numbers of its own.

    random_operators.py [--braid PATH]

Seeds are fixed, so the same numbers come every time: what is asked of them cannot fail now and then.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, parser

N = 100000


def model_of(text, functions=""):
    m = parser.parse_model('<ir_version: 10, opset_import: ["" : 20, "local" : 1, "ai.braid" : 1]>\n%s\n%s' % (text, functions))
    return m


class Runs:
    def __init__(self, braid, folder):
        self.braid, self.folder, self.n = braid, folder, 0

    def __call__(self, model, inputs=None, target="cpu", seed=None, schedule=None, threads=1):
        """The outputs of a run by `braid run`, in order."""
        self.n += 1
        path = os.path.join(self.folder, "model%d.onnx" % self.n)
        out = os.path.join(self.folder, "out%d" % self.n)
        onnx.save(model, path)
        args = [self.braid, "run", path, "-o", out, "--target", target, "--threads", str(threads)]
        for name, x in (inputs or {}).items():
            np.save(os.path.join(self.folder, name + ".npy"), x)
            args += ["-i", "%s=%s.npy" % (name, os.path.join(self.folder, name))]
        args += ["--seed", str(seed)] if seed is not None else []
        args += ["--schedule", schedule] if schedule else []
        r = subprocess.run(args, capture_output=True, text=True)
        if r.returncode:
            raise SystemExit("braid run: %s" % r.stderr.strip())
        return [np.load(os.path.join(out, "output_%d.npy" % i)) for i in range(len(model.graph.output))]


def node_model(op, inputs, types, **attrs):
    """One node; inputs: {name: array}; types of the outputs, or the one's."""
    dtypes = types if isinstance(types, list) else [types]
    names = ["y%d" % i for i in range(len(dtypes))]
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), names, **attrs)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, dtypes)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def check(good, *what):
    if not good:
        raise SystemExit("FAIL: " + " ".join(map(str, what)))


def distance(x, cdf):
    """Kolmogorov's: the largest difference of the distribution function of x and the right one."""
    p = cdf(np.sort(x.astype(np.float64).ravel()))
    i = np.arange(len(p) + 1) / len(p)
    return max(np.max(p - i[:-1]), np.max(i[1:] - p))


def normal_cdf(mean, scale):
    return lambda x: 0.5 * (1 + np.array([math.erf(v) for v in (x - mean) / scale / math.sqrt(2)]))


def uniform_cdf(low, high):
    return lambda x: np.clip((x - low) / (high - low), 0, 1)


def distributions(run):
    for t, tol in ((T.FLOAT, 0), (T.DOUBLE, 0), (T.FLOAT16, 0.001)):
        m = node_model("RandomNormal", {}, t, shape=[N], mean=2.0, scale=3.0, dtype=t)
        x, = run(m, seed=1)
        x = x.astype(np.float64)
        check(distance(x, normal_cdf(2, 3)) < 1.7 / math.sqrt(N) + tol, "normal", t, distance(x, normal_cdf(2, 3)))
        check(abs(x.mean() - 2) < 0.03 and abs(x.std() - 3) < 0.03, "moments", t, x.mean(), x.std())
        check(len(np.unique(x)) > (0.95 * N if t != T.FLOAT16 else 3000), "numbers come again", t, len(np.unique(x)))
        check(abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.01, "neighbours", t)
        m = node_model("RandomUniform", {}, t, shape=[10, N // 10], low=-1.0, high=4.0, dtype=t)
        x, = run(m, seed=1)
        check(x.shape == (10, N // 10) and x.min() >= -1 and x.max() <= 4, "range", t)
        check(distance(x, uniform_cdf(-1, 4)) < 1.7 / math.sqrt(N) + tol, "uniform", t, distance(x, uniform_cdf(-1, 4)))
        q = np.quantile(x.astype(np.float64), [0.01, 0.25, 0.5, 0.75, 0.99])
        check(np.allclose(q, [-0.95, 0.25, 1.5, 2.75, 3.95], atol=0.04), "quantiles", t, q)
    like = np.zeros((3, 5), np.float64)
    x, = run(node_model("RandomNormalLike", {"a": like}, T.DOUBLE, scale=0.0, mean=7.0), {"a": like})
    check(x.dtype == np.float64 and np.array_equal(x, like + 7), "scale 0 is the mean")
    x, = run(node_model("RandomUniformLike", {"a": like}, T.FLOAT, dtype=T.FLOAT, low=3.0, high=3.0), {"a": like})
    check(x.dtype == np.float32 and np.array_equal(x, like + 3), "an empty range is its end")


def choices(run):
    p = np.linspace(0, 1, 11).astype(np.float32).repeat(N // 10).reshape(11, -1)
    for target in ("interp", "cpu"):
        x, = run(node_model("Bernoulli", {"p": p}, T.INT32, dtype=T.INT32), {"p": p}, target, seed=3)
        check(set(np.unique(x)) == {0, 1} and x.dtype == np.int32, "Bernoulli gives 0 and 1")
        check(np.allclose(x.mean(axis=1), p[:, 0], atol=0.02), "Bernoulli", target, x.mean(axis=1))
        check(x[0].sum() == 0 and x[-1].min() == 1, "what is sure")
        w = np.array([[1, 2, 3, 4], [0, 1, 0, 9], [5, 5, 0, 0]], np.float32)
        with np.errstate(divide="ignore"):
            logs = np.log(w) + 100
        x, = run(node_model("Multinomial", {"l": logs}, T.INT64, dtype=T.INT64, sample_size=20000), {"l": logs}, target, seed=3)
        got = np.stack([(x == i).mean(axis=1) for i in range(4)], axis=1)
        check(x.shape == (3, 20000) and x.dtype == np.int64, "Multinomial's shape")
        check(np.allclose(got, w / w.sum(axis=1, keepdims=True), atol=0.012), "Multinomial", target, got)
        check(np.all(got[w == 0] == 0), "classes without probability")


def dropout(run):
    x = np.random.default_rng(0).standard_normal((100, 200)).astype(np.float32)
    for ratio in (0.0, 0.25, 0.9):
        for train in (True, False):
            ins = {"x": x, "r": np.float32(ratio), "t": np.array(train)}
            for target in ("interp", "cpu"):
                y, mask = run(node_model("Dropout", ins, [T.FLOAT, T.BOOL]), ins, target, seed=5)
                keep = 1 - ratio if train else 1
                check(abs(mask.mean() - keep) < 0.02, "Dropout keeps", mask.mean(), "of", keep)
                check(np.allclose(y, np.where(mask, x / np.float32(keep), 0), rtol=1e-6), "Dropout", ratio, train)
    ins = {"x": x, "r": np.float64(0.5), "t": np.array(True)}
    a, = run(node_model("Dropout", ins, T.FLOAT, seed=4), ins)
    b, = run(node_model("Dropout", ins, T.FLOAT, seed=4), ins)
    check(np.array_equal(a, b) and (a == 0).any(), "Dropout by its seed")


ALL = """
    g (float[7, 33] x) => (float[n, m] u, float[n, m] s, double[k] d, bool[n, m] mask, float[n, m] drop, int64[p, q] choice,
                           float[n, m] normal) <float r = {0.3}, bool t = {1}, float zero = {0}, float one = {1}> {
        u = RandomUniformLike <low = -0.3, high = 1.7> (x)
        s = RandomUniformLike <seed = 4.5> (x)
        d = RandomUniform <shape = [100], dtype = 11> ()
        p = Clip(u, zero, one)  mask = Bernoulli <dtype = 9> (p)
        drop = Dropout(x, r, t)
        choice = Multinomial <dtype = 7, sample_size = 20> (x)
        normal = RandomNormalLike(x)
    }"""


def seeds(run):
    """One seed, one result: on every target and any number of threads. Other seeds, other numbers."""
    x = {"x": np.random.default_rng(1).standard_normal((7, 33)).astype(np.float32)}
    first = run(model_of(ALL), x, "interp", seed=11)
    for target, threads in (("cpu", 1), ("cpu", 3), ("emulate:cuda", 2)):
        other = run(model_of(ALL), x, target, seed=11, threads=threads)
        for i, (a, b) in enumerate(zip(first, other)):
            same = np.allclose(a, b, atol=1e-5) if i == 6 else np.array_equal(a, b)
            check(same, "output", i, "of", target, "is not the interpreter's")
    for target in ("interp", "cpu"):
        a, b, c = run(model_of(ALL), x, target), run(model_of(ALL), x, target), run(model_of(ALL), x, target, seed=12)
        for i in range(7):
            same = i == 1  # its attribute says so
            check(np.array_equal(a[i], b[i]) == same and np.array_equal(a[i], c[i]) == same and
                  np.array_equal(first[i], c[i]) == same, "output", i, "of runs by other seeds", target)
    alone = run(model_of("g (float[7, 33] x) => (float[n, m] s) { s = RandomUniformLike <seed = 4.5> (x) }"), x)
    check(np.array_equal(alone[0], first[1]), "an attribute's numbers depend on other nodes")
    two, = run(model_of("""g (float[40] x) => (float[n] y) {
        a = RandomUniformLike(x)  b = RandomUniformLike(x)  y = Sub(a, b) }"""), {"x": np.zeros(40, np.float32)})
    check(np.all(two != 0), "two nodes draw the same numbers")


def in_sessions(run, library):
    """Runs of one session differ, until it is given a seed."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../eval"))
    import braid_api
    api = braid_api.Api(library)
    path = os.path.join(run.folder, "session.onnx")
    onnx.save(model_of("g () => (float[5] y) { y = RandomUniform <shape = [5]> () }"), path)
    for target in ("interp", "cpu", "emulate:cuda"):
        m = braid_api.Model(api, path, target)
        s, other = braid_api.Session(m), braid_api.Session(m)
        draws = [s.run({})["y"] for _ in range(3)] + [other.run({})["y"] for _ in range(3)]
        check(len({d.tobytes() for d in draws}) == 6, "runs of sessions draw the same numbers", target)
        s.seed(9), other.seed(9)
        draws = [x.run({})["y"] for x in (s, other, s, other)]
        check(len({d.tobytes() for d in draws}) == 1, "runs by one seed differ", target)
        s.seed(10)
        check(not np.array_equal(s.run({})["y"], draws[0]), "another seed, and the same numbers", target)


LOOPS = """
    g (int64 n, float[3] x) => (float[k, m] inner, float[k, m] outer, float[k, m] fixed, float[k, m] scan, float[m] calls)
        <bool t = {1}, int64 two = {2}, float[5, 3] rows = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}, int64[2] flat = {-1, 3}> {
        inner3, outer, fixed = Loop(n, t) <body = b (int64 i, bool c) => (bool c2, float[a, m] i2, float[m] o, float[m] f) {
            c2 = Identity(c)
            o = RandomUniformLike(x)
            f = RandomUniformLike <seed = 3.0> (x)
            i2 = Loop(two, c) <body = b2 (int64 j, bool d) => (bool d2, float[m] p) {
                d2 = Identity(d)  p = RandomUniformLike(x) }>
        }>
        inner = Reshape(inner3, flat)
        scan = Scan <num_scan_inputs = 1, body = s (float[m] r) => (float[m] q) { w = RandomUniformLike(r) q = Add(w, r) }> (rows)
        c0 = local.draw(x)  c1 = local.draw(x)  calls = Concat <axis = 0> (c0, c1)
    }"""
DRAW = """<domain: "local", opset_import: ["" : 20]> draw (x) => (y) { a = RandomUniformLike(x) y = Identity(a) }"""

TREE = """
    g (int64 n) => (float[k] y) { a = ai.braid.Invoke <function = "tree"> (n)  b = ai.braid.Invoke <function = "tree"> (n)  y = Concat <axis = 0> (a, b) }"""
RECURSIVE = """<domain: "local", opset_import: ["" : 20, "ai.braid" : 1]> tree (n) => (y) {
    zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()  end = LessOrEqual(n, zero)
    y = If(end) <then_branch = t () => (float[k] r) { r = RandomUniform <shape = [1]> () },
                 else_branch = e () => (float[k] r) {
                     m = Sub(n, one)  a = ai.braid.Invoke <function = "tree"> (m)  b = ai.braid.Invoke <function = "tree"> (m)  r = Concat <axis = 0> (a, b) }> }"""
SUM = """g (int64 n, float[4] x) => (float[4] y) { y = ai.braid.Invoke <function = "sum"> (n, x) }"""
SUMMED = """<domain: "local", opset_import: ["" : 20, "ai.braid" : 1]> sum (n, x) => (y) {
    zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()  end = LessOrEqual(n, zero)
    y = If(end) <then_branch = t () => (float[4] r) { r = RandomUniform <shape = [4]> () },
                 else_branch = e () => (float[4] r) {
                     m = Sub(n, one)  a = ai.braid.Invoke <function = "sum"> (m, x)  b = ai.braid.Invoke <function = "sum"> (m, x)  c = Add(a, b)  d = RandomUniformLike(x)
                     r = Add(c, d) }> }"""


def executions(run):
    """Every iteration and every call draws numbers of its own, the same however the model is scheduled."""
    m, ins = model_of(LOOPS, DRAW), {"n": np.int64(4), "x": np.zeros(3, np.float32)}
    first = run(m, ins, "interp", seed=2)
    for name, x, n in zip(("inner", "outer", "fixed", "scan", "calls"), first, (24, 12, 12, 15, 6)):
        check(x.size == n and len(np.unique(x)) == n, "executions draw the same numbers:", name, x)
    again = run(m, ins, "interp", seed=3)
    check([np.array_equal(a, b) for a, b in zip(first, again)] == [False, False, True, False, False], "an attribute in a loop")
    for schedule in (None, "unroll=on,hoist=on,reuse=on", "interchange=on,wavefront=on", "unroll=off,interchange=off"):
        for a, b in zip(first, run(m, ins, "cpu", seed=2, schedule=schedule, threads=2)):
            check(np.array_equal(a, b), "loops by schedule", schedule)
    for a, b in zip(first, run(m, ins, "emulate:hip", seed=2)):
        check(np.array_equal(a, b), "loops on emulate:hip")
    m, ins = model_of(TREE, RECURSIVE), {"n": np.int64(3)}
    first, = run(m, ins, "interp", seed=2)
    check(first.size == 16 and len(np.unique(first)) == 16, "calls draw the same numbers", first)
    check(np.array_equal(first, run(m, ins, "cpu", seed=2)[0]), "recursion on cpu")
    m, ins = model_of(SUM, SUMMED), {"n": np.int64(4), "x": np.zeros(4, np.float32)}
    first, = run(m, ins, "interp", seed=2)
    for schedule in (None, "batch=on", "batch=off,unroll-recursion=on", "batch=off,unroll-recursion=off"):
        y, = run(m, ins, "cpu", seed=2, schedule=schedule, threads=2)
        check(np.allclose(first, y, rtol=1e-6), "recursion by schedule", schedule, first, y)
    check(np.all(np.abs(first - 15.5) < 6), "the sum of 31 numbers", first)


def faults(run):
    """What is wrong with a model or an input is said."""
    def fails(model, word, ins=None):
        path = os.path.join(run.folder, "wrong.onnx")
        onnx.save(model, path)
        args = [run.braid, "run", path, "--target", "interp"]
        for name, x in (ins or {}).items():
            np.save(os.path.join(run.folder, name + ".npy"), x)
            args += ["-i", "%s=%s.npy" % (name, os.path.join(run.folder, name))]
        r = subprocess.run(args, capture_output=True, text=True)
        check(r.returncode == 1 and word in r.stderr, "no word of", word, r.stderr)
    x = np.zeros((2, 3), np.float32)
    fails(node_model("RandomNormal", {}, T.FLOAT), "'shape' is missing")
    fails(node_model("RandomNormal", {}, T.FLOAT, shape=[2, -1]), "the size -1")
    fails(node_model("RandomUniform", {}, T.FLOAT, shape=[1 << 40, 1 << 40]), "has the size")
    fails(node_model("RandomUniform", {}, T.INT32, shape=[2], dtype=T.INT32), "random numbers are floats")
    fails(node_model("RandomNormalLike", {"x": x.astype(np.int64)}, T.INT64), "random numbers are floats")
    fails(node_model("Multinomial", {"x": x}, T.INT32, sample_size=-1), "sample_size")
    fails(node_model("Multinomial", {"x": x}, T.FLOAT, dtype=1), "not int32 or int64")
    for ratio in (1.0, -0.5, np.nan):
        ins = {"x": x, "r": np.float32(ratio), "t": np.array(True)}
        fails(node_model("Dropout", ins, T.FLOAT), "ratio is outside of [0, 1)", ins)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    library = os.path.join(os.path.dirname(args.braid), "libbraid.so")
    with tempfile.TemporaryDirectory() as folder:
        run = Runs(args.braid, folder)
        for part in (distributions, choices, dropout, seeds, executions, faults):
            part(run)
        in_sessions(run, library)
        print("random operators: %d runs as they should be" % run.n)


if __name__ == "__main__":
    main()
