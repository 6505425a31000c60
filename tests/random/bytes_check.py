#!/usr/bin/env python3
"""Checks random sums of products of 8-bit integers bit for bit.

    bytes_check.py COUNT [--target T]... [--threads N] [--cpu NAME] [--seed S] [--braid PATH]

A model has several products and convolutions: signs of both factors, zero points at the ends of their ranges, one for
all or one for each channel, small weights, odd sizes, strides, dilations, pads, groups, factors that do not lie
together, sizes that only the run knows; with what follows them in networks. What they must give is computed here, in integers of 64 bits.
"""
import itertools
import os
import sys

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

MEMBERS = 6
TYPES = {np.uint8: T.UINT8, np.int8: T.INT8}


class Model:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs, self.feed, self.want = [], [], [], [], {}, []
        self.n = 0
        for _ in range(MEMBERS):
            self.pick(self.product, self.convolution, self.convolution, self.two_inputs)()
        self.clipped()

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def name(self, stem):
        self.n += 1
        return f"{stem}{self.n}"

    def bytes(self, t, *shape):
        """Often at the ends of the range, where sums in 16 bits would saturate."""
        low, high = np.iinfo(t).min, np.iinfo(t).max
        v = self.r.integers(low, high + 1, shape)
        return np.where(self.r.random(shape) < self.pick(0, 0, 0.9), self.pick(low, high), v).astype(t)

    def weights_of(self, t, *shape):
        """Bytes, or so small ones that sums of two products fit into 16 bits."""
        v, zero = self.bytes(t, *shape), 128 if t is np.uint8 else 0
        return v if self.r.random() < 0.7 else np.clip(v, zero - 64, zero + 64).astype(t)

    def zero(self, t, *shape):
        low, high = np.iinfo(t).min, np.iinfo(t).max
        some = [0, low, high, 128 if t is np.uint8 else 0, 3]
        if not shape:
            return np.array(self.pick(*some), t)
        return self.r.choice(some, shape).astype(t)

    def constant(self, value):
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind, *inputs, domain="", **attrs):
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], domain=domain, **attrs))
        return out

    def input(self, value, known):
        name = self.name("x")
        dims = list(value.shape) if known else [f"{name}_{i}" if i in (0, value.ndim - 2) else d for i, d in enumerate(value.shape)]
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[value.dtype.type], dims))
        self.feed[name] = value
        return name

    def factor(self, value, known):
        """The value as an input, as what another node gives, or transposed."""
        how = self.pick("input", "input", "computed", "transposed")
        if how == "transposed":
            perm = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            return self.op("Transpose", self.input(np.ascontiguousarray(value.transpose(perm)), known), perm=perm)
        if how == "computed":
            x = self.input(value, known)
            bits = self.op("Cast", x, to=T.INT32)
            return self.op("Cast", self.op("Mul", bits, self.constant(np.array(1, np.int32))), to=TYPES[value.dtype.type])
        return self.input(value, known)

    def output(self, name, value):
        self.outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None))
        self.want.append(value)

    def requantized(self, total, xs, ws, ys, yz):
        scale = np.float32(xs) * np.float32(ws) / np.float32(ys)
        info = np.iinfo(yz.dtype)
        y = np.rint(total.astype(np.float32) * scale) + yz.astype(np.float32)
        return np.clip(y, info.min, info.max).astype(yz.dtype)

    def product(self):
        ta, tb = self.pick(np.uint8, np.int8), self.pick(np.uint8, np.int8)
        rows, k, n = self.pick(1, 2, 5, 6, 7, 13, 31), self.pick(1, 3, 4, 17, 32, 63, 130), self.pick(3, 8, 16, 17, 40, 64, 70, 130)
        batch = self.pick([], [], [], [2], [3, 1])
        a, b = self.bytes(ta, *batch, rows, k), self.weights_of(tb, k, n)
        az, bz = self.zero(ta), self.pick(self.zero(tb), self.zero(tb, n), np.array(0, tb))
        by_row = not batch and self.r.random() < 0.2
        if by_row:
            az = self.zero(ta, rows)
        wide = az.astype(np.int64)[:, None] if by_row else az.astype(np.int64)
        total = ((a.astype(np.int64) - wide) @ (b.astype(np.int64) - bz.astype(np.int64))).astype(np.int32)
        x = self.factor(a, known=by_row or self.r.random() < 0.7)
        zero = self.constant(az) if self.r.random() < 0.5 or by_row else self.input(az.reshape(1), True)
        if not by_row and bz.ndim == 0 and ta is np.uint8 and self.r.random() < 0.4:
            xs, ws, ys, yz = 0.02, 0.003, 0.5 + self.r.random(), self.zero(ta)
            y = self.op("QLinearMatMul", x, self.constant(np.float32(xs)), self.constant(az), self.constant(b), self.constant(np.float32(ws)),
                        self.constant(bz), self.constant(np.float32(ys)), self.constant(yz))
            self.output(y, self.requantized(total, xs, ws, ys, yz))
            return
        y = self.op("MatMulInteger", x, self.constant(b), zero, self.constant(bz))
        if self.r.random() < 0.5:
            bias = self.r.integers(-1000, 1000, n).astype(np.int32)
            y, total = self.op("Add", y, self.constant(bias)), total + bias
        self.output(y, total)

    def two_inputs(self):
        ta, tb = self.pick(np.uint8, np.int8), self.pick(np.uint8, np.int8)
        rows, k, n = self.pick(1, 7, 8, 13, 31), self.pick(1, 3, 4, 17, 32, 63), self.pick(8, 16, 17, 40, 70)
        batch = self.pick([], [2], [3, 2])
        if self.r.random() < 0.2:  # packed block by block
            k, n, batch = 1031, self.pick(40, 70), []
        a, b = self.bytes(ta, *batch, rows, k), self.bytes(tb, *self.pick([], batch), k, n)
        az, bz = self.zero(ta), self.zero(tb)
        total = ((a.astype(np.int64) - int(az)) @ (b.astype(np.int64) - int(bz))).astype(np.int32)
        zeros = [self.constant(z) if self.r.random() < 0.5 else self.input(z.reshape(1), True) for z in (az, bz)]
        y = self.op("MatMulInteger", self.factor(a, True), self.factor(b, True), *zeros)
        self.output(y, total)

    def convolution(self):
        tx, tw = self.pick(np.uint8, np.int8), self.pick(np.uint8, np.int8)
        rank = self.pick(1, 2, 2, 2, 3)
        c, size = self.pick(1, 3, 4, 16, 24, 33), [self.pick(5, 7, 9, 14) for _ in range(rank)]
        group = self.pick(1, 1, 1, c)
        m = self.pick(3, 8, 16, 17, 40, 64, 70) if group == 1 else c * self.pick(1, 1, 2)
        kernel, stride, dil = ([self.pick(*v) for _ in range(rank)] for v in [(1, 2, 3), (1, 1, 2), (1, 1, 2)])
        pads = [self.pick(0, 0, 1, 2) for _ in range(2 * rank)]
        x, w = self.bytes(tx, self.pick(1, 2), c, *size), self.weights_of(tw, m, c // group, *kernel)
        xz, wz = self.zero(tx), self.pick(self.zero(tw), self.zero(tw, m), np.array(0, tw))
        wide = np.pad(x.astype(np.int64) - int(xz), [(0, 0), (0, 0)] + [(pads[i], pads[rank + i]) for i in range(rank)])
        v = w.astype(np.int64) - wz.astype(np.int64).reshape([-1] + [1] * (rank + 1))
        out = [(wide.shape[2 + i] - (kernel[i] - 1) * dil[i] - 1) // stride[i] + 1 for i in range(rank)]
        total = np.zeros([x.shape[0], group, m // group, *out], np.int64)
        for tap in itertools.product(*[range(n) for n in kernel]):
            part = wide[(..., *[slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dil, out, stride)])]
            part = part.reshape(x.shape[0], group, c // group, *out)
            total += np.einsum("bgc...,gmc->bgm...", part, v.reshape(group, m // group, c // group, *kernel)[(..., *tap)])
        total = total.reshape(x.shape[0], m, *out).astype(np.int32)
        how = dict(group=group, strides=stride, dilations=dil, pads=pads)
        name, weights = self.factor(x, known=self.r.random() < 0.7), self.constant(w)
        if self.r.random() < 0.4:
            xs, ws, ys, yz = 0.02, 0.003, 0.5 + self.r.random(), self.zero(tx)
            if wz.ndim:
                ws = (0.001 + self.r.random(m) * 0.004).astype(np.float32)
            bias = self.r.integers(-1000, 1000, m).astype(np.int32)
            y = self.op("QLinearConv", name, self.constant(np.float32(xs)), self.constant(xz), weights, self.constant(np.float32(ws)),
                        self.constant(wz), self.constant(np.float32(ys)), self.constant(yz), self.constant(bias), **how)
            each = [-1] + [1] * rank
            ws = ws.reshape(each) if wz.ndim else ws
            self.output(y, self.requantized(total + bias.reshape(each), xs, ws, ys, yz))
            return
        zero = self.constant(xz) if self.r.random() < 0.5 else self.input(xz.reshape(1), True)
        self.output(self.op("ConvInteger", name, weights, zero, self.constant(wz), **how), total)

    def clipped(self):
        """Floats to 8 bits: what is no number is 0."""
        t = self.pick(np.uint8, np.int8)
        x = (self.r.standard_normal((5, 37)) * self.pick(1, 100, 1e10)).astype(np.float32)
        x[self.r.random(x.shape) < 0.3] = self.pick(np.nan, np.inf, -np.inf, -0.0, 0.5, -0.3)
        name, zero = self.name("x"), self.zero(t)
        self.inputs.append(helper.make_tensor_value_info(name, T.FLOAT, x.shape))
        self.feed[name] = x
        wide = np.clip(np.rint(x) + zero.astype(np.float32), np.iinfo(t).min, np.iinfo(t).max)
        q = np.where(np.isnan(x), 0, wide).astype(t)
        y = self.op("QuantizeLinear", name, self.constant(np.float32(1)), self.constant(zero))
        self.output(y, q)

    def proto(self):
        graph = helper.make_graph(self.nodes, "bytes", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def main():
    args = seeded.options(__doc__)
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            model = Model(seed)
            backend_test.write(folder, model.proto(), model.feed.values(), model.want)
        return seeded.test(args, made.values(), "--rtol", "0", "--atol", "0")


if __name__ == "__main__":
    sys.exit(main())
