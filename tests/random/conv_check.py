#!/usr/bin/env python3
"""Compares random chains of convolutions with ONNX Runtime.

    conv_check.py COUNT [--target T] [--threads N] [--cpu NAME] [--seed S] [--braid PATH]

A model has a few chains: convolutions of 1 to 3 dimensions with odd channels and sizes, strides, dilations, uneven pads
and groups, depthwise and transposed ones, with what comes between them in networks: normalization, activations,
residual sums, pooling, concatenation, resizing, branches. One chain is of a mobile network: pointwise, depthwise,
pointwise. Two are depthwise convolutions alone, or ones of few channels, whose inputs and outputs have the
channels apart; some models have large groups of channels.
"""
import os
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

ort.set_default_logger_severity(4)
CHAINS = 5


class Model:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs, self.feed = [], [], [], [], {}
        self.n = 0
        self.members()

    def members(self):
        for _ in range(CHAINS):
            self.chain()
        self.mobile()
        self.alone(), self.alone()
        if self.r.random() < 0.4:
            self.grouped()

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def name(self, stem):
        self.n += 1
        return f"{stem}{self.n}"

    def weight(self, *shape, scale=1.0):
        name = self.name("w")
        data = (self.r.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def op(self, kind, *inputs, **attrs):
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attrs))
        return out

    def conv(self, x, shape, keep=False, cout=None):
        """Returns the value and its shape; keep: of the same spatial size."""
        cin, size = shape[1], shape[2:]
        group = self.pick(1, 1, 1, cin, self.pick(*[g for g in range(1, cin + 1) if cin % g == 0]))
        cout = cout or group * self.pick(1, 2, 3, 4, 8, 16, 17) if group > 1 else cout or self.pick(1, 3, 8, 16, 17, 32, 40, 64, 70)
        if cout % group:
            group = 1
        k, s, d, lo, hi = [], [], [], [], []
        for n in size:
            while True:
                a, b, c = self.pick(1, 1, 2, 3, 3, 5, 7), self.pick(1, 1, 1, 2, 3), self.pick(1, 1, 1, 2, 3)
                span = (a - 1) * c + 1
                if keep:
                    b = 1
                    p, q = (span - 1) // 2, span - 1 - (span - 1) // 2
                else:
                    p, q = self.pick(0, 0, 1, span // 2), self.pick(0, 0, 1, 2, span // 2)
                if n + p + q >= span:
                    break
            k.append(a), s.append(b), d.append(c), lo.append(p), hi.append(q)
        inputs = [x, self.weight(cout, cin // group, *k, scale=1 / np.sqrt(cin // group * np.prod(k)))]
        if self.r.random() < 0.5:
            inputs.append(self.weight(cout))
        y = self.op("Conv", *inputs, group=group, strides=s, dilations=d, pads=lo + hi)
        out = [(n + p + q - (a - 1) * c - 1) // b + 1 for n, p, q, a, b, c in zip(size, lo, hi, k, s, d)]
        return y, [shape[0], cout] + out

    def transposed(self, x, shape):
        """Returns the value and its shape."""
        cin, rank = shape[1], len(shape) - 2
        group = self.pick(1, 1, 1, cin)
        each = self.pick(1, 1, 2) if group > 1 else self.pick(1, 3, 8, 16, 24)
        k, s, d = ([self.pick(*v) for _ in range(rank)] for v in ((1, 2, 3, 4), (1, 2, 2, 3), (1, 1, 2)))
        lo, hi = ([self.pick(0, 0, (a - 1) // 2) for a in k] for _ in range(2))
        more = [self.pick(0, b - 1) for b in s]
        out = [(n - 1) * b + (a - 1) * c + 1 + m - p - q for n, a, b, c, p, q, m in zip(shape[2:], k, s, d, lo, hi, more)]
        if min(out) < 1:
            return x, shape
        weight = self.weight(cin, each, *k, scale=1 / np.sqrt(cin // group * np.prod(k)))
        y = self.op("ConvTranspose", x, weight, group=group, strides=s, dilations=d, pads=lo + hi, output_padding=more)
        return y, [shape[0], group * each] + out

    def depthwise(self, x, shape):
        """Returns the value and its shape."""
        c, size = shape[1], shape[2:]
        k, s, d, lo, hi = [], [], [], [], []
        for n in size:
            a, c_, b = self.pick(1, 2, 3, 3, 5, 7, 9), self.pick(1, 1, 2), self.pick(1, 1, 2, 3)
            span = (a - 1) * c_ + 1
            least = max(0, span - n)
            p = self.pick(0, (span - 1) // 2, span - 1)
            q = max(self.pick(0, span // 2, span - 1), least - p)
            k.append(a), s.append(b), d.append(c_), lo.append(p), hi.append(q)
        inputs = [x, self.weight(c, 1, *k, scale=1 / np.sqrt(np.prod(k)))] + ([self.weight(c)] if self.r.random() < 0.5 else [])
        if self.r.random() < 0.2:
            y = self.op("Conv", *inputs, group=c, strides=s, auto_pad=self.pick("SAME_UPPER", "SAME_LOWER"))
            return y, shape[:2] + [-(-n // b) for n, b in zip(size, s)]
        y = self.op("Conv", *inputs, group=c, strides=s, dilations=d, pads=lo + hi)
        return y, shape[:2] + [(n + p + q - (a - 1) * e - 1) // b + 1 for n, p, q, a, b, e in zip(size, lo, hi, k, s, d)]

    def mobile(self):
        """Pointwise and depthwise convolutions in turn, whose channels are a vector's, a few lanes more, or many."""
        rank = self.pick(1, 2, 2, 2, 3)
        shape = [self.pick(1, 1, 2), self.pick(3, 16, 17)] + [self.pick(1, 2, 7, 14, 19, 40)] + [self.pick(3, 7, 14) for _ in range(rank - 1)]
        x = self.name("x")
        known = self.r.random() < 0.7
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, shape if known else [
            f"{x}_{i}" if i != 1 else n for i, n in enumerate(shape)]))
        self.feed[x] = self.r.standard_normal(shape).astype(np.float32)
        y = x
        for _ in range(2):
            c, z, before = self.pick(7, 8, 16, 17, 24, 40, 144), y, shape
            y = self.op("Conv", y, self.weight(c, shape[1], *[1] * rank, scale=shape[1] ** -0.5), self.weight(c))
            y = self.between(y, [shape[0], c])
            y, shape = self.depthwise(y, [shape[0], c] + shape[2:])
            y = self.between(y, shape)
            if self.r.random() < 0.3 and min(shape[2:]) >= 2: # two sums over windows in one
                y = self.op("Add", *(self.op("Conv", y, self.weight(c, 1, *[k] * rank), group=c, pads=[k // 2] * 2 * rank) for k in (3, 5)))
            out = before[1] if self.r.random() < 0.5 else self.pick(1, 2, 16, 24)
            y = self.op("Conv", y, self.weight(out, c, *[1] * rank, scale=c ** -0.5))
            if shape[2:] == before[2:] and out == before[1]:
                y = self.op("Add", y, z)
            shape = [shape[0], out] + shape[2:]
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def alone(self):
        """A depthwise convolution, or a sum of two, from an input to an output; groups may have two or three channels."""
        rank, each = self.pick(1, 2, 2, 2, 3), self.pick(1, 1, 1, 2, 3)
        group = self.pick(1, 2, 7, 16, 19)
        size = [self.pick(4, 7, 14, 17, 28, 33) for _ in range(rank - 1)] + [self.pick(5, 7, 14, 16, 31, 33, 56, 130, 150)]
        shape = [self.pick(1, 1, 2), group * each] + (size if rank < 3 else [self.pick(1, 3, 6)] + size[1:])
        x = self.name("x")
        known = self.r.random() < 0.7
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, shape if known else [
            f"{x}_{i}" if i != 1 else n for i, n in enumerate(shape)]))
        self.feed[x] = self.r.standard_normal(shape).astype(np.float32)
        k, s, d, lo, hi = [], [], [], [], []
        for n in shape[2:]:
            a, b, c = self.pick(1, 2, 3, 3, 3, 5, 7, 9), self.pick(1, 1, 2, 2, 3), self.pick(1, 1, 1, 2, 3)
            span = (a - 1) * c + 1
            p = self.pick(0, (span - 1) // 2, span - 1)
            q = max(self.pick(0, span // 2, span - 1), span - n - p, 0)
            k.append(a), s.append(b), d.append(c), lo.append(p), hi.append(q)
        weight = [x, self.weight(group, each, *k, scale=1 / np.sqrt(each * np.prod(k)))]
        bias = [self.weight(group)] if self.r.random() < 0.5 else []
        y = self.op("Conv", *weight, *bias, group=group, strides=s, dilations=d, pads=lo + hi)
        if self.r.random() < 0.2 and max(s) == 1:
            more = [self.pick(0, 1, 2) for _ in k]
            wide = [(a - 1) * c + 1 + 2 * m for a, c, m in zip(k, d, more)]
            z = self.op("Conv", x, self.weight(group, each, *wide), group=group, pads=[p + m for p, m in zip(lo, more)] + [q + m for q, m in zip(hi, more)])
            y = self.op("Add", y, z)
        y = self.between(y, [shape[0], group])
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def grouped(self):
        """Two or three groups of channels with many results each, over rows that fill no vectors."""
        group, each, more = self.pick(2, 3), self.pick(8, 9, 16, 20), self.pick(64, 70, 80)
        shape = [self.pick(1, 1, 2), group * each, self.pick(5, 7, 13), self.pick(7, 13, 17)]
        x, k, s = self.name("x"), self.pick(3, 3, 5), self.pick(1, 1, 2)
        known = self.r.random() < 0.7
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, shape if known else [
            f"{x}_{i}" if i != 1 else n for i, n in enumerate(shape)]))
        self.feed[x] = self.r.standard_normal(shape).astype(np.float32)
        w = self.weight(group * more, each, k, k, scale=1 / np.sqrt(each * k * k))
        y = self.op("Conv", x, w, self.weight(group * more), group=group, strides=[s, s], pads=[k // 2] * 4)
        self.outputs.append(helper.make_tensor_value_info(self.between(y, [1, group * more]), TensorProto.FLOAT, None))

    def sizes(self, weight):
        return next(w.dims[0] for w in self.weights if w.name == weight)

    def between(self, y, shape):
        if self.r.random() < 0.5:
            c = shape[1]
            y = self.op("BatchNormalization", y, self.weight(c), self.weight(c), self.weight(c), self.variance(c))
        if self.r.random() < 0.6:
            y = self.op(self.pick("Relu", "Relu", "Sigmoid", "Tanh"), y)
        return y

    def variance(self, c):
        name = self.name("w")
        self.weights.append(numpy_helper.from_array(self.r.uniform(0.5, 2, c).astype(np.float32), name))
        return name

    def chain(self):
        rank = self.pick(1, 2, 2, 2, 3)
        size = [self.pick(1, 5, 7, 9, 16, 33) if rank < 3 else self.pick(1, 3, 5, 7) for _ in range(rank)]
        shape = [self.pick(1, 1, 2, 3), self.pick(1, 3, 8, 17, 32)] + size
        wide = self.r.random() < 0.15
        if wide: # windows of 3 x 3 over many channels are computed in another way
            rank, shape = 2, [self.pick(1, 2), self.pick(96, 128), self.pick(13, 16, 17), self.pick(14, 15)]
        x = self.name("x")
        known = self.r.random() < 0.8
        dims = shape if known else [f"{x}_{i}" if i != 1 else n for i, n in enumerate(shape)]
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, dims))
        self.feed[x] = self.r.standard_normal(shape).astype(np.float32)
        y = x
        if wide:
            w = self.weight(self.pick(100, 128, 160), shape[1], 3, 3, scale=1 / np.sqrt(9 * shape[1]))
            y = self.op("Conv", x, w, pads=[1, 1, self.pick(0, 1), 1])
            shape = list(shape[:1]) + [self.sizes(w)] + [shape[2] - 1 + self.nodes[-1].attribute[0].ints[2], shape[3]]
            y = self.between(y, shape)
        for _ in range(self.pick(1, 2, 3) if not wide else self.pick(0, 1)):
            y, shape = self.conv(y, shape)
            y = self.between(y, shape)
            what = self.pick("", "", "residual", "pool", "mean", "transposed", "concat", "resize")
            if what == "transposed" and np.prod(shape) < 20000:
                y, shape = self.transposed(y, shape)
                y = self.between(y, shape)
            if what == "concat":
                z, other = self.conv(y, shape, keep=True)
                y = self.op("Concat", y, self.op("Relu", z), axis=1)
                shape = [shape[0], shape[1] + other[1]] + shape[2:]
            if what == "resize" and np.prod(shape) < 20000:
                self.weights.append(numpy_helper.from_array(np.array([1, 1] + [2] * rank, np.float32), self.name("s")))
                y = self.op("Resize", y, "", self.weights[-1].name, mode="nearest", coordinate_transformation_mode="asymmetric",
                            nearest_mode="floor")
                shape = shape[:2] + [2 * n for n in shape[2:]]
            if what == "residual":
                z, _ = self.conv(y, shape, keep=True, cout=shape[1])
                z = self.between(z, shape)
                y = self.op("Relu", self.op("Add", z, y)) if self.r.random() < 0.5 else self.op("Add", z, y)
            if what == "pool" and min(shape[2:]) >= 2:
                y = self.op(self.pick("MaxPool", "AveragePool"), y, kernel_shape=[2] * rank, strides=[2] * rank)
                shape = shape[:2] + [n // 2 for n in shape[2:]]
            if what == "mean":
                m = self.op("GlobalAveragePool", y)
                y = self.op("Mul", y, self.op("Sigmoid", m))
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def proto(self):
        graph = helper.make_graph(self.nodes, "convolutions", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def write(folder, model, proto):
    want = ort.InferenceSession(proto.SerializeToString()).run(None, model.feed)
    backend_test.write(folder, proto, model.feed.values(), want)


def main():
    args = seeded.options(__doc__)
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            model = Model(seed)
            write(folder, model, model.proto())
        return seeded.test(args, made.values())


if __name__ == "__main__":
    sys.exit(main())
