#!/usr/bin/env python3
"""NaN, infinities and zeros of both signs through operators, against numpy, on every target.

    special_values.py [--target interp|cpu|emulate:cuda|emulate:hip ...] [--braid PATH] [--only TEXT] [--keep DIR]

The specification decides, and where it leaves it open numpy: a maximum or minimum with a NaN in it is NaN, the first
NaN is the extreme of ArgMax and ArgMin (the last one with select_last_index), NaN sorts behind all numbers. Rows of attention that see no key are zeros (attention_masks.py).
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import attention_masks  # noqa: E402
import backend_test  # noqa: E402

OPSET = 24
TYPES = {"f32": (np.float32, 1), "f64": (np.float64, 11), "f16": (np.float16, 10), "bf16": (ml_dtypes.bfloat16, 16)}
SIZES = (1, 3, 8, 17, 64, 130)    # of a row: none, part of and several vectors
# The interpreter runs all, unless some are asked for; compiling takes longer.
ATTENTION = [("attention", k) for k in ("bool_float32", "float_float16", "nonpad_causal_float32", "nonpad_window_float32",
                                        "infinite_score_float_float32", "shared_heads_nonpad_float32", "softcap_float32")]
SOME = {"cpu": [("f32", 1), ("f32", 17), ("f32", 130), ("f64", 17), ("f16", 130), ("bf16", 17)] + ATTENTION,
        "emulate:cuda": [("f32", 17), ("f32", 130), ("f16", 130), ("f64", 17)] + ATTENTION[:3],
        "emulate:hip": [("f32", 130), ("bf16", 17)] + ATTENTION[3:5]}
NAN, INF = np.nan, np.inf


def rows(n, r):
    """[12, n]: what is special lies in front, in the middle, at the end, everywhere."""
    x = r.choice([-2, -1, -.5, .5, 1, 2], (12, n)).astype(np.float64)
    x[1, n // 2] = NAN
    x[2, 0] = NAN
    x[3, -1] = NAN
    x[4, :] = NAN
    x[5, r.integers(0, n, 3)] = (INF, -INF, INF)
    x[6, :] = -INF
    x[7, :] = INF
    x[8, :] = r.choice([0., -0.], n)
    x[9, r.integers(0, n, 5)] = (NAN, INF, -INF, NAN, -0.)
    x[10, n // 3] = x[10, n - 1 - n // 3] = NAN
    x[11, n // 2] = -INF
    return x


# ---- what numpy says: each takes the model's inputs in the wide type ---------------------------------------------------
def softmax(x, axis, log=False):
    x = x - x.max(axis, keepdims=True)
    e = np.exp(x)
    return x - np.log(e.sum(axis, keepdims=True)) if log else e / e.sum(axis, keepdims=True)


def logsumexp(x, axis):
    return np.logaddexp.reduce(x.astype(np.float64), axis=axis, keepdims=True)


def arg(x, axis, f, last):
    return x.shape[axis] - 1 - f(np.flip(x, axis), axis) if last else f(x, axis)


def hardmax(x, axis):
    y = np.zeros_like(x)
    np.put_along_axis(y, np.expand_dims(x.argmax(axis), axis), 1, axis)
    return y


def topk(x, k, axis, largest):
    """NaN above all numbers, ties by place."""
    y = np.moveaxis(x, axis, -1)
    values, places = np.empty(y.shape[:-1] + (k,), x.dtype), np.empty(y.shape[:-1] + (k,), np.int64)
    for i in np.ndindex(y.shape[:-1]):
        v = y[i]
        order = sorted(range(len(v)), key=lambda j: (np.isnan(v[j]) != largest, 0 if np.isnan(v[j]) else -v[j] if largest else v[j], j))[:k]
        values[i], places[i] = v[order], order
    return [np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)]


def unique(x):
    """Sorted: values, first places, inverse, counts. All NaN are one value."""
    u, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    return [u, first, inverse.reshape(-1), counts]


def window(x, f, k=3, pad=1, stride=1):
    """f of the values in each window of the last axis, padding left out."""
    first = range(-pad, x.shape[-1] + pad - k + 1, stride)
    out = [f(x[..., max(0, i):i + k]) for i in first]
    return np.stack(out, -1)


def cumulate(x, axis, f, exclusive, reverse):
    y = np.flip(x, axis) if reverse else x
    if exclusive:
        one = np.ones_like if f is np.cumprod else np.zeros_like
        y = np.concatenate([one(y.take([0], axis)), y.take(range(y.shape[axis] - 1), axis)], axis)
    y = f(y, axis)
    return np.flip(y, axis) if reverse else y


def scatter(x, updates, f):
    y = x.copy()
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j // 2] = f(y[i, j // 2], updates[i, j])
    return y


class Model:
    """Nodes over x and their expected outputs; what the type does not have is left out."""

    def __init__(self, dtype, n, seed):
        self.np, self.type = TYPES[dtype]
        self.wide = np.float64 if dtype == "f64" else np.float32
        self.n, self.nodes, self.want, self.consts = n, [], [], []
        r = np.random.default_rng(seed)
        self.x = rows(n, r).astype(self.wide)
        self.y = rows(n, r)[r.permutation(12)].astype(self.wide)
        self.counter = 0

    def const(self, v):
        v = np.asarray(v)
        name = "c%d" % len(self.consts)
        self.consts.append(onnx.numpy_helper.from_array(v if v.dtype.kind in "iub" else v.astype(self.np), name))
        return name

    def allowed(self, op):
        """Whether the first input may have the type."""
        s = onnx.defs.get_schema(op, OPSET)
        name = {1: "tensor(float)", 11: "tensor(double)", 10: "tensor(float16)", 16: "tensor(bfloat16)"}[self.type]
        return name in s.inputs[0].types

    def add(self, op, inputs, want, signed_zeros=False, **attrs):
        """want: an array or a list of them; floats take the model's type."""
        if not self.allowed(op):
            return
        want = want if isinstance(want, list) else [want]
        names = ["%s_%d_%d" % (op, self.counter, i) for i in range(len(want))]
        self.counter += 1
        self.nodes.append(helper.make_node(op, [v if isinstance(v, str) else self.const(v) for v in inputs], names, **attrs))
        for name, v in zip(names, want):
            v = np.asarray(v)
            v = v.astype(self.np) if v.dtype.kind == "f" else v
            self.want.append((name, v))
            if signed_zeros:
                one = self.const(np.float32(1))
                self.nodes.append(helper.make_node("Div", [one, name], [name + "_inverse"]))
                self.want.append((name + "_inverse", (self.wide(1) / v.astype(self.wide)).astype(self.np)))

    def write(self, folder):
        types = {np.dtype(np.int64): 7, np.dtype(bool): 9, np.dtype(np.uint8): 2, np.dtype(np.int8): 3, np.dtype(np.uint16): 4, np.dtype(np.int16): 5, np.dtype(self.np): self.type}
        types.update({np.dtype(t): k for t, k in TYPES.values()})
        dims = ["r", "n"] if self.np == np.float64 else self.x.shape    # sizes that are not known when compiling, too
        info = [helper.make_tensor_value_info(k, self.type, dims) for k in ("x", "y")]
        outs = [helper.make_tensor_value_info(k, types[v.dtype], None) for k, v in self.want]
        g = helper.make_graph(self.nodes, "special", info, outs, self.consts)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        backend_test.write(folder, m, [self.x.astype(self.np), self.y.astype(self.np)], [v for _, v in self.want])


# ---- the table -----------------------------------------------------------------------------------------------------
def reductions(m):
    x = m.x
    for axis in (0, 1, None):
        axes = i64([0, 1] if axis is None else [axis])
        at = dict(axis=axis, keepdims=True)
        m.add("ReduceMax", ["x", axes], x.max(**at))
        m.add("ReduceMin", ["x", axes], x.min(**at))
        m.add("ReduceSum", ["x", axes], x.sum(**at))
        m.add("ReduceMean", ["x", axes], x.mean(**at))
        m.add("ReduceProd", ["x", axes], x.prod(**at))
        m.add("ReduceL1", ["x", axes], np.abs(x).sum(**at))
        m.add("ReduceL2", ["x", axes], np.sqrt((x * x).sum(**at)))
        m.add("ReduceSumSquare", ["x", axes], (x * x).sum(**at))
        m.add("ReduceLogSum", ["x", axes], np.log(x.sum(**at)))
        m.add("ReduceLogSumExp", ["x", axes], logsumexp(x, axis if axis is not None else (0, 1)) if axis is not None else
              logsumexp(x.reshape(1, -1), 1).reshape(1, 1))
    # Over what is all numbers but one, and of a computed value.
    m.add("ReduceMax", [sub(m, "Neg", "x"), i64([1])], (-x).max(1), keepdims=0)
    for axis in (0, 1):
        for op, f in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
            for last in (0, 1):
                m.add(op, ["x"], np.expand_dims(arg(x, axis, f, last), axis), axis=axis, select_last_index=last)
                m.add(op, [sub(m, "Neg", "x")], arg(-x, axis, f, last), axis=axis, select_last_index=last, keepdims=0)
        m.add("Hardmax", ["x"], hardmax(x, axis), axis=axis)
        m.add("Softmax", ["x"], softmax(x, axis), axis=axis)
        m.add("LogSoftmax", ["x"], softmax(x, axis, True), axis=axis)
        for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1)):
            m.add("CumSum", ["x", np.int64(axis)], cumulate(x, axis, np.cumsum, exclusive, reverse), exclusive=exclusive, reverse=reverse)
        for largest in (0, 1):
            k = (x.shape[axis] + 1) // 2
            m.add("TopK", ["x", i64([k])], topk(x, k, axis, largest), axis=axis, largest=largest)
    m.add("Unique", ["x"], unique(x))


def pools(m):
    x = m.x[None]
    cube = sub(m, "Unsqueeze", "x", i64([0]))
    places = np.arange(x.size).reshape(x.shape)
    at = dict(kernel_shape=[3], pads=[1, 1])
    if m.n >= 3:
        m.add("MaxPool", [cube], [window(x, lambda v: v.max(-1)), window(np.stack([x, places]), lambda v: np.take_along_axis(
            v[1], np.expand_dims(v[0].argmax(-1), -1), -1)[..., 0].astype(np.int64))], **at)
        m.add("AveragePool", [cube], window(x, lambda v: v.mean(-1)), **at)
        m.add("LpPool", [cube], window(x, lambda v: np.sqrt((v * v).sum(-1))), p=2, **at)
        m.add("MaxPool", [cube], window(x, lambda v: v.max(-1), 2, 0, 2), kernel_shape=[2], strides=[2])
    m.add("GlobalMaxPool", [cube], x.max(-1, keepdims=True))
    m.add("GlobalAveragePool", [cube], x.mean(-1, keepdims=True))
    m.add("GlobalLpPool", [cube], np.sqrt((x * x).sum(-1, keepdims=True)))


def elementwise(m):
    x, y, t = m.x, m.y, m.wide
    one = t(1)
    m.add("Max", ["x", "y"], np.maximum(x, y))
    m.add("Min", ["x", "y"], np.minimum(x, y))
    m.add("Max", ["x", "y", x[:1]], np.maximum(np.maximum(x, y), x[:1]))
    m.add("Min", ["y", x[:, :1], "x"], np.minimum(np.minimum(x, y), x[:, :1]))
    m.add("Sum", ["x", "y", "x"], x + y + x)
    m.add("Mean", ["x", "y"], (x + y) / 2)
    for lo, hi in ((-1, 1), (NAN, 1), (-1, NAN), (-INF, INF), (1, -1), (INF, INF)):
        m.add("Clip", ["x", t(lo), t(hi)], np.minimum(np.maximum(x, t(lo)), t(hi)))
    m.add("Relu", ["x"], np.maximum(x, 0))
    m.add("LeakyRelu", ["x"], np.where(x < 0, t(.25) * x, x), alpha=.25)
    m.add("PRelu", ["x", "y"], np.where(x < 0, y * x, x))
    m.add("ThresholdedRelu", ["x"], np.where(x > .5, x, 0), alpha=.5)
    m.add("Elu", ["x"], np.where(x < 0, np.expm1(x), x))
    m.add("Celu", ["x"], np.maximum(x, 0) + np.minimum(np.expm1(x), 0))
    m.add("HardSigmoid", ["x"], np.maximum(0, np.minimum(1, t(.25) * x + t(.5))), alpha=.25)
    m.add("Softsign", ["x"], x / (1 + np.abs(x)))
    m.add("Softplus", ["x"], np.logaddexp(x, 0))
    m.add("Sigmoid", ["x"], 1 / (1 + np.exp(-x)))
    m.add("Shrink", ["x"], np.where(x < -.5, x + 1, np.where(x > .5, x - 1, 0 * np.nan_to_num(x, posinf=0, neginf=0))), lambd=.5, bias=1.)
    m.add("Gelu", ["x"], t(.5) * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)).astype(t)))
    for op, f in (("Exp", np.exp), ("Log", np.log), ("Tanh", np.tanh), ("Sin", np.sin), ("Cos", np.cos), ("Atan", np.arctan),
                  ("Acos", np.arccos), ("Atanh", np.arctanh), ("Cosh", np.cosh), ("Asinh", np.arcsinh), ("Acosh", np.arccosh),
                  ("Erf", np.vectorize(math.erf))):
        m.add(op, ["x"], f(x).astype(t))
    small = x * t(.25)
    smaller = sub(m, "Mul", "x", t(.25))
    for op, f in (("Neg", np.negative), ("Abs", np.abs), ("Sqrt", np.sqrt), ("Floor", np.floor), ("Ceil", np.ceil), ("Round", np.rint)):
        m.add(op, [smaller], f(small), signed_zeros=True)
    m.add("Identity", ["x"], x, signed_zeros=True)
    m.add("Sign", ["x"], np.sign(x))
    m.add("Reciprocal", ["x"], one / x)
    m.add("Add", ["x", "y"], x + y)
    m.add("Sub", ["x", "y"], x - y)
    m.add("Mul", ["x", "y"], x * y, signed_zeros=True)
    m.add("Div", ["x", "y"], x / y, signed_zeros=True)
    m.add("Mod", ["x", "y"], np.fmod(x, y), signed_zeros=True, fmod=1)
    m.add("Pow", ["x", "y"], np.power(x, y))
    for e in (0, 1, 2, 3, -1, .5, INF, NAN):
        m.add("Pow", ["x", t(e)], np.power(x, t(e)))
    for op, f in (("Equal", np.equal), ("Less", np.less), ("Greater", np.greater), ("LessOrEqual", np.less_equal),
                  ("GreaterOrEqual", np.greater_equal)):
        m.add(op, ["x", "y"], f(x, y))
    m.add("IsNaN", ["x"], np.isnan(x))
    m.add("IsInf", ["x"], np.isinf(x))
    m.add("IsInf", ["x"], np.isposinf(x), detect_negative=0)
    m.add("IsInf", ["x"], np.isneginf(x), detect_positive=0)
    m.add("Cast", ["x"], x != 0, to=9)
    if m.np == np.float32:
        for kind, zero in ((np.uint8, 3), (np.int8, -3), (np.uint16, 9), (np.int16, -9)):
            scaled = np.clip(np.rint(x / t(.125)) + zero, np.iinfo(kind).min, np.iinfo(kind).max)
            m.add("QuantizeLinear", ["x", t(.125), kind(zero)], np.where(np.isnan(x), 0, scaled).astype(kind))
    m.add("NonZero", ["x"], np.stack(np.nonzero(x)).astype(np.int64))
    for name, (k, number) in TYPES.items():
        if k != m.np:
            m.nodes.append(helper.make_node("Cast", ["x"], ["as_" + name], to=number))
            m.want.append(("as_" + name, x.astype(m.np).astype(k)))


def others(m):
    x, y = m.x, m.y
    index = np.broadcast_to(np.arange(m.n) // 2, x.shape).astype(np.int64)
    for how, f in (("max", np.maximum), ("min", np.minimum), ("add", np.add)):
        if how != "add" or m.np in (np.float32, np.float64):
            m.add("ScatterElements", ["x", index, "y"], scatter(x, y, f), axis=1, reduction=how)
    # What is special in one row or column of a product stays there.
    w = np.random.default_rng(m.n).choice([-1., .5, 2.], (m.n, 5)).astype(m.wide)
    m.add("MatMul", ["x", w], np.stack([product(row, w) for row in x]))
    b = w.copy()
    b[m.n // 2, 1], b[0, 3] = NAN, INF
    a = np.random.default_rng(m.n + 1).choice([-1., .5, 2.], (12, m.n)).astype(m.wide)
    m.add("MatMul", [a, b], np.stack([product(row, b) for row in a]))
    m.add("Where", [np.isnan(y), "x", "y"], np.where(np.isnan(y), x, y))


def product(row, w):
    return (row[:, None] * w).sum(0)


def i64(v):
    return np.array(v, np.int64)


def sub(m, op, *inputs):
    """A computed value."""
    m.counter += 1
    name = "v%d" % m.counter
    m.nodes.append(helper.make_node(op, [v if isinstance(v, str) else m.const(v) for v in inputs], [name]))
    return name


def empty(root, op, braid, target):
    """No element is the extreme of none."""
    folder = os.path.join(root, "empty_" + op)
    n = helper.make_node(op, ["x"], ["y"], axis=1)
    info = [helper.make_tensor_value_info("x", 1, ["n", "m"])], [helper.make_tensor_value_info("y", 7, None)]
    m = helper.make_model(helper.make_graph([n], "g", *info), opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    backend_test.write(folder, m, [np.zeros((2, 0), np.float32)], [np.zeros((2, 1), np.int64)])
    r = subprocess.run([braid, "test", "--target", target, folder], capture_output=True, text=True)
    return r.returncode == 1 and "(%s): there is no" % op in r.stdout + r.stderr


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--target", action="append", help="default: all four")
    p.add_argument("--only", default="", help="models whose name has this in it")
    p.add_argument("--keep", metavar="DIR")
    a = p.parse_args()
    np.seterr(all="ignore")
    failed = passed = 0
    with tempfile.TemporaryDirectory() as work:
        root = a.keep or work
        names = {}
        for dtype in TYPES:
            for k, n in enumerate(SIZES if dtype == "f32" else (17, 130)):
                for part in (reductions, pools, elementwise, others):
                    name = "%s_%s_%d" % (part.__name__, dtype, n)
                    if a.only in name:
                        m = Model(dtype, n, k)
                        part(m)
                        names[name] = (dtype, n)
                        m.write(os.path.join(root, name))
        for name in attention_masks.write(root, 3):
            if a.only in name:
                names[name] = ("attention", name[10:])
        for target in a.target or ("interp", "cpu", "emulate:cuda", "emulate:hip"):
            some = [k for k, v in names.items() if a.only or v in SOME.get(target, names.values())]
            r = subprocess.run([a.braid, "test", "--target", target, "--jobs", "2", "--rtol", "2e-3",
                                *(os.path.join(root, k) for k in some)], capture_output=True, text=True)
            lines = [v.replace(root + "/", "") for v in r.stdout.splitlines() if v.startswith(("FAIL", "SKIP"))]
            if " passed, " not in r.stdout:
                lines.append("no result: " + r.stdout + r.stderr)
            lines += [] if a.only else ["FAIL empty_" + op for op in ("ArgMax", "ArgMin") if not empty(root, op, a.braid, target)]
            print("\n".join(lines + ["%s: %d models, %d failed" % (target, len(some), len(lines))]), flush=True)
            failed += len(lines)
            passed += len(some) - len(lines)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
