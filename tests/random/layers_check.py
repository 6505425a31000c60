#!/usr/bin/env python3
"""Compares what stands around products in networks with the interpreter: pooling, transposes, normalizations, Softmax, sums.

    layers_check.py COUNT [--threads N] [--cpu NAME] [--seed S] [--schedule TEXT] [--braid PATH]

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed. A model has MEMBERS
layers side by side, of all types that they are defined for, over sizes that fill no vector, one or several; a fifth of
the sizes only the run knows. What is moved or compared must be equal, NaN included, what is added or divided close. Normalized values
with a large mean are compared with numpy's in float64.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MEMBERS = 14
SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 28, 31, 33, 56, 64, 67]
MOVED = [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_]


class Model:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs, self.outputs, self.feed, self.checks = [], [], [], [], {}, []
        makers = self.makers()
        for i in range(MEMBERS):
            self.member = i
            makers[i % len(makers)]()

    def makers(self):
        return [self.pool, self.pool, self.transpose, self.transpose, self.normalization, self.softmax, self.reduction,
                self.resize, self.scan, self.pieces]

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def sizes(self, n, most=40000):
        while True:
            s = [int(self.pick(*SIZES)) for _ in range(n)]
            if np.prod(s) <= most:
                return s

    def input(self, shape, dtype=np.float32, low=-3.0, high=3.0):
        name = f"x{len(self.inputs)}"
        data = self.r.uniform(low, high, shape)
        self.feed[name] = (data > 0) if dtype == np.bool_ else data.astype(dtype) if np.issubdtype(dtype, np.floating) else \
            self.r.integers(0 if np.issubdtype(dtype, np.unsignedinteger) else -100, 100, shape).astype(dtype)
        dims = [f"{name}_{i}" for i in range(len(shape))] if self.r.random() < 0.2 else shape
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        return name

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind, *inputs, **attributes):
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=f"{kind}_{self.member}", **attributes))
        return out

    def output(self, name, exact, what, want=None):
        self.outputs.append(helper.make_empty_tensor_value_info(name))
        self.checks.append((exact, what, want))

    def pool(self):
        n = int(self.pick(1, 2, 2, 2, 3))
        kind = self.pick("MaxPool", "MaxPool", "AveragePool", "LpPool")
        k = [int(self.pick(1, 2, 3, 3, 5, 7)) for _ in range(n)]
        stride = [int(self.pick(1, 1, 2, 2, 3, 4)) for _ in range(n)]
        apart = [int(self.pick(1, 1, 1, 2)) if kind == "MaxPool" else 1 for _ in range(n)]
        pads = [int(self.r.integers(0, (a + 1) // 2 + (a > 2) * (self.r.random() < 0.3))) for a in k + k]
        size = self.sizes(n, 5000)
        if self.r.random() < 0.15:
            size[-1] = 601 # more than a tile
        size = [max(a, (b - 1) * c + 1) for a, b, c in zip(size, k, apart)]
        dtype = self.pick(np.float32, np.float32, np.float32, np.int8, np.uint8, np.float16) if kind == "MaxPool" else np.float32
        x = self.input([int(self.pick(1, 2)), int(self.pick(1, 3, 5))] + size, dtype)
        how = {"dilations": apart} if kind == "MaxPool" else {"count_include_pad": int(self.pick(0, 1))} if kind == "AveragePool" else {}
        if kind == "MaxPool" and dtype == np.float32 and self.r.random() < 0.5:
            flat = self.feed[x].reshape(-1)
            flat[self.r.integers(0, flat.size, 3)] = [np.nan, np.inf, -np.inf]
            flat[self.r.integers(0, flat.size, 2)] = -np.nan
        y = self.op(kind, x, kernel_shape=k, strides=stride, pads=pads, ceil_mode=int(self.pick(0, 0, 1)) if kind != "LpPool" else 0, **how)
        if dtype == np.float32 and self.r.random() < 0.3:
            y = self.op("Relu", y)
        self.output(y, kind == "MaxPool", f"{kind} {k} stride {stride} of {self.feed[x].shape} {np.dtype(dtype).name}")

    def transpose(self):
        rank = int(self.pick(2, 3, 3, 4, 5))
        shape, perm = self.sizes(rank), [int(i) for i in self.r.permutation(rank)]
        dtype = self.pick(*MOVED)
        x = self.input(shape, dtype)
        y = self.op("Transpose", x, perm=perm)
        computed = dtype in (np.float32, np.float16, np.int32, np.int64, np.uint8) and self.r.random() < 0.5
        if computed:
            other = self.input([shape[i] for i in perm], dtype)
            y = self.op("Add", self.op("Mul", y, self.constant(np.ones((), dtype) * 2)), other)
        self.output(y, dtype != np.float16 or not computed, f"Transpose {perm} of {shape} {np.dtype(dtype).name}{' computed' * computed}")

    def normalization(self):
        kind = self.pick("InstanceNormalization", "LayerNormalization", "GroupNormalization", "root")
        mean = self.pick(0.0, 0.0, 1000.0)
        shape = [int(self.pick(1, 2)), int(self.pick(4, 8, 12))] + self.sizes(int(self.pick(1, 2)), 5000)
        if self.r.random() < 0.3: # beyond the first cache
            shape[1:] = [16] + self.sizes(2, 5000)
        axes = tuple(range(2, len(shape)))
        if kind in ("LayerNormalization", "root"):
            axes = (len(shape) - 1,)
        x = self.input(shape, low=mean - 2, high=mean + 2)
        channels = shape[-1] if kind == "LayerNormalization" else shape[1]
        scale, bias = (self.r.uniform(-2, 2, channels).astype(np.float32) for _ in range(2))
        value, eps = self.feed[x].astype(np.float64), 1e-3
        if kind == "root":
            y = self.op("Div", x, self.op("Sqrt", self.op("Add", self.op("ReduceMean", self.op("Mul", x, x), self.constant(np.array([-1]))),
                                                         self.constant(np.float32(eps)))))
            want = value / np.sqrt((value * value).mean(-1, keepdims=True) + eps)
        else:
            groups = int(self.pick(1, 2, 4))
            v = value.reshape(shape[0], groups, -1) if kind == "GroupNormalization" else value
            over = (2,) if kind == "GroupNormalization" else axes
            want = ((v - v.mean(over, keepdims=True)) / np.sqrt(v.var(over, keepdims=True) + eps)).reshape(shape)
            along = [1] * len(shape)
            along[-1 if kind == "LayerNormalization" else 1] = channels
            want = want * scale.reshape(along) + bias.reshape(along)
            how = {"num_groups": groups} if kind == "GroupNormalization" else {}
            y = self.op(kind, x, self.constant(scale), self.constant(bias), epsilon=eps, **how)
        self.output(y, False, f"{kind} of {shape}, mean {mean}", (want, 2e-3 if mean else 2e-4))

    def softmax(self):
        shape = self.sizes(int(self.pick(1, 2, 3, 4)))
        axis = int(self.r.integers(len(shape)))
        x = self.input(shape, self.pick(np.float32, np.float32, np.float64, np.float16), low=-20, high=20)
        kind = self.pick("Softmax", "Softmax", "LogSoftmax")
        self.output(self.op(kind, x, axis=axis), False, f"{kind} {axis} of {shape}")

    def reduction(self):
        shape = self.sizes(int(self.pick(1, 2, 3, 4)))
        kind = self.pick("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ArgMax", "ArgMax")
        dtype = self.pick(np.float32, np.float32, np.float32, np.float64, np.int32)
        if kind in ("ReduceL2", "ReduceLogSumExp"):
            dtype = np.float32
        x = self.input(shape, dtype)
        axes = [i for i in range(len(shape)) if self.r.random() < 0.5] or [len(shape) - 1]
        keep = int(self.pick(0, 1))
        if kind == "ArgMax": # with equal elements, and some that are none
            self.feed[x] = np.round(self.feed[x]).astype(dtype)
            if dtype == np.float32 and self.r.random() < 0.5:
                self.feed[x].reshape(-1)[self.r.integers(0, self.feed[x].size, 4)] = [np.nan, np.inf, -np.inf, -np.nan]
        last = int(self.pick(0, 1))
        y = self.op(kind, x, axis=axes[0], keepdims=keep, select_last_index=last) if kind == "ArgMax" else \
            self.op(kind, x, self.constant(np.array(axes)), keepdims=keep)
        self.output(y, kind in ("ArgMax", "ReduceMax", "ReduceMin") or dtype == np.int32, f"{kind} {axes} of {shape} {np.dtype(dtype).name}")

    def resize(self):
        shape = [1, int(self.pick(1, 3))] + self.sizes(2, 800)
        to = [shape[0], shape[1]] + [int(self.pick(n, 2 * n, 2 * n, 3 * n, n // 2 + 1, n + 3)) for n in shape[2:]]
        mode = self.pick("nearest", "nearest", "linear", "cubic")
        x = self.input(shape, self.pick(np.float32, np.float32, np.uint8) if mode == "nearest" else np.float32)
        how = {"coordinate_transformation_mode": self.pick("asymmetric", "half_pixel", "align_corners")}
        if mode == "nearest":
            how["nearest_mode"] = self.pick("floor", "round_prefer_floor")
        y = self.op("Resize", x, "", "", self.constant(np.array(to)), mode=mode, **how)
        self.output(y, mode == "nearest", f"Resize {mode} of {shape} to {to}")

    def scan(self):
        shape = self.sizes(int(self.pick(1, 2, 3)))
        x = self.input(shape, self.pick(np.float32, np.int32))
        axis = int(self.r.integers(len(shape)))
        y = self.op("CumSum", x, self.constant(np.array(axis)), exclusive=int(self.pick(0, 1)), reverse=int(self.pick(0, 1)))
        self.output(y, False, f"CumSum {axis} of {shape}")

    def pieces(self):
        shape = self.sizes(int(self.pick(2, 3, 4)))
        axis, dtype = int(self.r.integers(len(shape))), self.pick(*MOVED[:-1])
        x, z = self.input(shape, dtype), self.input(shape, dtype)
        y = self.op("Concat", x, z, x, axis=axis)
        if self.r.random() < 0.5:
            y = self.op("Slice", y, self.constant(np.array([1])), self.constant(np.array([2 * shape[axis] + 1])),
                        self.constant(np.array([axis])), self.constant(np.array([int(self.pick(1, 2))])))
        elif self.r.random() < 0.5:
            y = self.op("Pad", y, self.constant(np.array([int(self.pick(0, 1, 2)) for _ in shape * 2])))
        self.output(y, True, f"Concat {axis} of {shape} {np.dtype(dtype).name}")

    def save(self, folder):
        graph = helper.make_graph(self.nodes, "layers", self.inputs, self.outputs, self.constants)
        path = os.path.join(folder, "model.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
        for name, data in self.feed.items():
            np.save(os.path.join(folder, name + ".npy"), data)
        return path


def run(a, folder, path, feed, target):
    out = os.path.join(folder, target)
    os.makedirs(out, exist_ok=True)
    command = [a.braid, "run", path, "-o", out, "--target", target]
    if target == "cpu":
        command += ["--threads", str(a.threads)] + (["--cpu", a.cpu] if a.cpu else []) + (["--schedule", a.schedule] if a.schedule else [])
    for name in feed:
        command += ["-i", f"{name}={folder}/{name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{target}: {done.stderr.strip()}")
    return out


def difference(got, want, exact, allowed):
    """NULL, or what is wrong."""
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if exact:
        return None if np.array_equal(got, want, equal_nan=np.issubdtype(got.dtype, np.floating)) else "other values"
    wide, expected = got.astype(np.float64), want.astype(np.float64)
    tolerance = allowed if allowed else 2e-3 if got.dtype == np.float16 else 2e-5
    off = np.abs(wide - expected) > tolerance * (1 + np.abs(expected))
    return f"off by {np.nanmax(np.abs(wide - expected)):g}" if off.any() or (np.isnan(wide) != np.isnan(expected)).any() else None


def main(kind=Model, doc=__doc__):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("count", type=int)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--cpu")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--schedule", default="")
    p.add_argument("--braid", default="build/release/braid")
    a = p.parse_args()
    bad = compared = 0
    for seed in range(a.seed, a.seed + a.count):
        with tempfile.TemporaryDirectory() as folder:
            m = kind(seed)
            path = m.save(folder)
            try:
                folders = [run(a, folder, path, m.feed, t) for t in ("interp", "cpu")]
            except RuntimeError as e:
                print(f"FAIL seed {seed}: {e}")
                bad += 1
                continue
            for i, (exact, what, numpy_value) in enumerate(m.checks):
                want, got = (np.load(f"{f}/output_{i}.npy") for f in folders)
                wrong = difference(got, numpy_value[0], False, numpy_value[1]) if numpy_value else difference(got, want, exact, 0)
                compared += got.size
                if wrong:
                    print(f"FAIL seed {seed}, output {i}: {what}: {wrong}")
                    bad += 1
    print(f"{a.count} models, {compared} values, {bad} wrong")
    return 1 if bad or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
