#!/usr/bin/env python3
"""Compares random quantized networks, as quantizers write them, with ONNX Runtime.

    quantized_check.py COUNT [--target T] [--threads N] [--cpu NAME] [--seed S] [--braid PATH]

A model has a few chains of QuantizeLinear and DequantizeLinear around convolutions and matrix products, some of two
computed factors, with what stands between them in networks. In most models all scales are powers of two, so that every
order of computation gives the same and results must be equal; the others are of one product each and may be a step of
quantization away. Products must become sums of integers.
"""
import os
import re
import subprocess
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

ort.set_default_logger_severity(4)
CHAINS = 3
STEP = 0.043  # of the results that may be a step away


class Model:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.exact = seed % 4 > 0
        self.nodes, self.weights, self.inputs, self.outputs, self.feed = [], [], [], [], {}
        self.n = self.products = 0
        for _ in range(CHAINS):
            self.chain()

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def name(self, stem):
        self.n += 1
        return f"{stem}{self.n}"

    def const(self, data):
        self.weights.append(numpy_helper.from_array(np.asarray(data), self.name("w")))
        return self.weights[-1].name

    def op(self, kind, *inputs, **attrs):
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attrs))
        return out

    def scale(self, about, n=None):
        """A scale near `about`, or n of them."""
        s = about * 2.0 ** (self.r.integers(-1, 2, n) if self.exact else self.r.uniform(-0.5, 0.5, n))
        return np.asarray(2.0 ** np.round(np.log2(s)) if self.exact else s, np.float32)

    def both(self, x, about=None, like=None):
        """x quantized and dequantized; with the parameters of `like`, another such value."""
        if like:
            s, z = next(n.input[1:] for n in self.nodes if n.output[0] == like)
        else:
            kind = self.pick(np.uint8, np.uint8, np.int8)
            z = self.const(kind(self.pick(0, 1, 3, -7) if kind == np.int8 else self.pick(128, 128, 0, 255, 101)))
            s = self.const(self.scale(about) if about else np.float32(STEP))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weight(self, shape, axis):
        """Dequantized weights; per channel along the axis, or per tensor."""
        kind = self.pick(np.int8, np.int8, np.uint8)
        low, high = (-63, 64) if kind == np.int8 else (0, 256)
        n = shape[axis] if self.r.random() < 0.5 else None
        zero = self.r.integers(low // 4, high // 4 + 1, n) if self.r.random() < 0.4 else np.full(n or (), 128 * (kind == np.uint8))
        w = self.const(self.r.integers(low, high, shape).astype(kind))
        return self.op("DequantizeLinear", w, self.const(self.scale(2.0 ** -8, n)), self.const(zero.astype(kind)),
                       **({"axis": axis} if n else {}))

    def bias(self, n):
        b, s = self.const(self.r.integers(-400, 400, n).astype(np.int32)), self.const(self.scale(2.0 ** -9))
        return self.op("DequantizeLinear", b, s, self.const(np.int32(0)))

    # ---- images
    def conv(self, x, shape, keep=False, cout=None):
        cin, size = shape[1], shape[2:]
        group = self.pick(1, 1, 1, cin, self.pick(*[g for g in range(1, cin + 1) if cin % g == 0]))
        cout = cout or (group * self.pick(1, 1, 2, 5, 16) if group > 1 else self.pick(1, 3, 16, 17, 24, 40))
        group = 1 if cout % group else group
        k, s, d, lo, hi = [], [], [], [], []
        for n in size:
            while True:
                a, b, c = self.pick(1, 1, 2, 3, 3, 5), self.pick(1, 1, 1, 2, 3), self.pick(1, 1, 1, 2)
                span = (a - 1) * c + 1
                p, q = self.pick(0, 0, 1, span // 2), self.pick(0, 0, 1, 2, span // 2)
                if keep:
                    b, p, q = 1, (span - 1) // 2, span - 1 - (span - 1) // 2
                if n + p + q >= span:
                    break
            k.append(a), s.append(b), d.append(c), lo.append(p), hi.append(q)
        inputs = [x, self.weight([cout, cin // group, *k], 0)] + ([self.bias(cout)] if self.r.random() < 0.6 else [])
        self.products += cin // group * int(np.prod(k)) > 1 and cout * cin // group * np.prod(k) > 4
        y = self.op("Conv", *inputs, group=group, strides=s, dilations=d, pads=lo + hi)
        return y, [shape[0], cout] + [(n + p + q - (a - 1) * c - 1) // b + 1 for n, p, q, a, b, c in zip(size, lo, hi, k, s, d)]

    def image(self, x, shape):
        rank = len(shape) - 2
        for _ in range(self.pick(1, 2, 3) if self.exact else 1):
            y, after = self.conv(x, shape)
            y = self.op(*self.pick(("Relu", y), ("Relu", y), ("Clip", y, self.const(np.float32(0)), self.const(np.float32(6))),
                                   ("Identity", y)))
            x, shape = self.both(y, 2.0 ** -5 if self.exact else None), after
            if self.exact:
                x, shape = self.between(x, shape, rank)
        return x

    def between(self, x, shape, rank):
        what = self.pick("", "", "residual", "pool", "mean", "join", "split", "near", "turn", "up")
        if what == "residual":
            y, _ = self.conv(x, shape, keep=True, cout=shape[1])
            x = self.both(self.op("Add", self.both(y, 2.0 ** -5), x), 2.0 ** -4)
        if what == "pool":
            pads = [self.pick(0, 1) for _ in range(2 * rank)]
            if all(n + pads[i] + pads[rank + i] >= 3 for i, n in enumerate(shape[2:])):
                x = self.both(self.op("MaxPool", x, kernel_shape=[3] * rank, strides=[2] * rank, pads=pads), like=x)
                shape = shape[:2] + [(n + pads[i] + pads[rank + i] - 3) // 2 + 1 for i, n in enumerate(shape[2:])]
        if what == "mean" and min(shape[2:]) >= 2:
            x = self.both(self.op("AveragePool", x, kernel_shape=[2] * rank, strides=[2] * rank), 2.0 ** -5)
            shape = shape[:2] + [n // 2 for n in shape[2:]]
        if what == "join":
            y, after = self.conv(x, shape, keep=True)
            like = x if self.r.random() < 0.5 else None
            x = self.op("Concat", self.both(y, 2.0 ** -5, like), x, axis=1)
            x, shape = self.both(x, 2.0 ** -5, like), [shape[0], shape[1] + after[1]] + shape[2:]
        if what == "split" and shape[1] > 1:
            at = self.r.integers(1, shape[1])
            x = self.both(self.op("Slice", x, *(self.const(np.array([v])) for v in (at, shape[1], 1))), like=x)
            shape = [shape[0], shape[1] - at] + shape[2:]
        if what == "near" and np.prod(shape) < 4000:
            x = self.both(self.op("Resize", x, "", self.const(np.array([1, 1] + [2] * rank, np.float32)), mode="nearest"), like=x)
            shape = shape[:2] + [2 * n for n in shape[2:]]
        if what == "up" and np.prod(shape) < 4000:
            n = self.pick(1, 8, 17)
            y = self.op("ConvTranspose", x, self.weight([shape[1], n] + [3] * rank, 1), strides=[2] * rank, pads=[1] * 2 * rank)
            x, shape = self.both(y, 2.0 ** -5), [shape[0], n] + [2 * v - 1 for v in shape[2:]]
        if what == "turn":
            x = self.both(self.op("Transpose", x, perm=[0, 1] + list(range(rank + 1, 1, -1))), like=x)
            shape = shape[:2] + shape[:1:-1]
        return x, shape

    # ---- matrices
    def product(self, x, shape):
        k, n = shape[-1], self.pick(1, 3, 16, 17, 33, 48)
        self.products += k > 1 and k * n > 4
        if len(shape) == 2 and self.r.random() < 0.5:
            turned = self.pick(0, 1)
            y = self.op("Gemm", x, self.weight([n, k] if turned else [k, n], 1 - turned), self.bias(n), transB=turned)
        elif self.r.random() < 0.3:
            y = self.op("MatMul", x, self.op("Transpose", self.weight([n, k], 0), perm=[1, 0]))
        else:
            y = self.op("MatMul", x, self.weight([k, n], 1))
        return y, shape[:-1] + [n]

    def matrix(self, x, shape, known):
        for _ in range(self.pick(1, 2, 3) if self.exact else 1):
            y, shape = self.product(x, shape)
            if self.r.random() < 0.5:
                y = self.op("Add", y, self.const(self.scale(0.25, shape[-1])))
            x = self.both(self.op(self.pick("Relu", "Identity"), y), 2.0 ** -5 if self.exact else None)
            what = self.pick("", "residual", "flat", "turn", "rows", "heads", "pair") if self.exact else ""
            if what == "residual":
                y = self.op("MatMul", x, self.weight([shape[-1]] * 2, 1))
                self.products += shape[-1] > 2
                x = self.both(self.op("Add", x, y), 2.0 ** -4)
            if what == "flat" and len(shape) > 2:
                x, shape = self.both(self.op("Reshape", x, self.const(np.array([-1, shape[-1]]))), like=x), [int(np.prod(shape[:-1])), shape[-1]]
            if what == "turn":
                perm = list(range(len(shape) - 2)) + [len(shape) - 1, len(shape) - 2]
                x, shape = self.both(self.op("Transpose", x, perm=perm), like=x), [shape[i] for i in perm]
            if what == "heads" and len(shape) < 4:
                heads = self.pick(*(h for h in (1, 2, 3) if shape[-1] % h == 0))
                split = shape[:-1] + [heads, shape[-1] // heads]
                dims = [-1 if i == 0 else n for i, n in enumerate(split)]
                x = self.both(self.op("Reshape", x, self.const(np.array(dims))), like=x)
                x = self.both(self.op("Transpose", x, perm=[*range(len(split) - 3), len(split) - 2, len(split) - 3, len(split) - 1]), like=x)
                shape = split[:-3] + [heads, split[-3], split[-1]]
            if what == "pair":  # of computed factors: scores, and what they weigh
                turned = self.both(self.op("Transpose", x, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]), like=x)
                scores = self.both(self.op("MatMul", x, turned), 2.0 ** -4)
                x = self.both(self.op("MatMul", scores, x), 2.0 ** -3)
                self.products += 2 * (known and min(shape[-2:]) >= 8)
            if what == "rows":
                at = self.r.integers(0, shape[-2], self.pick(1, 4, 9))
                x = self.both(self.op("Gather", x, self.const(at), axis=len(shape) - 2), like=x)
                shape = shape[:-2] + [len(at), shape[-1]]
        return x

    def chain(self):
        image = self.r.random() < 0.6
        rank = self.pick(1, 2, 2, 2, 3) if image else 0
        size = [self.pick(1, 5, 7, 16, 33) if rank < 3 else self.pick(3, 5) for _ in range(rank)] if image else [self.pick(1, 2, 7, 16, 65)]
        shape = [self.pick(1, 1, 2), self.pick(1, 3, 8, 17, 24)] + size if image else self.pick([], [1], [3]) + size + [self.pick(1, 2, 15, 16, 40)]
        x = self.name("x")
        known = image or self.r.random() < 0.7
        dims = shape if known else [f"{x}_{i}" for i in range(len(shape) - 1)] + shape[-1:]
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, dims))
        self.feed[x] = np.float32(self.r.standard_normal(shape) * 1.2)
        x = self.both(x, 2.0 ** -6)
        y = self.image(x, shape) if image else self.matrix(x, shape, known)
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def proto(self):
        graph = helper.make_graph(self.nodes, "quantized", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def write(folder, model):
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = model.proto()
    want = ort.InferenceSession(proto.SerializeToString(), plain).run(None, model.feed)
    backend_test.write(folder, proto, model.feed.values(), want)


def integer_sums(braid, folder):
    text = subprocess.run([braid, "explain", "--target", "cpu", "--schedule", "quantized=on", "--dump-after", "fuse",
                           f"{folder}/model.onnx"], capture_output=True, text=True, check=True).stdout
    return len(re.findall(r"sum\([^:]*: \(?int32\(", text))


def main():
    args = seeded.options(__doc__)
    bad, exact, near = 0, [], []
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            model = Model(seed)
            (exact if model.exact else near).append(folder)
            write(folder, model)
            sums = integer_sums(args.braid, folder)
            if sums < model.products:
                print(f"seed {seed}: {sums} sums of integers for {model.products} products")
                bad = 1
        for folders, atol in (exact, 0), (near, 1.01 * STEP):
            bad |= seeded.test(args, folders, "--schedule", "quantized=on", "--rtol", "0", "--atol", str(atol))
    return bad


if __name__ == "__main__":
    sys.exit(main())
