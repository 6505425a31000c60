#!/usr/bin/env python3
"""Single operators and short chains at the sizes of whole networks, by Braid and by ONNX Runtime, side by side.

    operators.py [--only TEXT] [--threads N] [--out FILE.json] [--files DIR] [--work build/operators] [--braid build/release/braid]

Every member is a model of one operator, or of the few that always stand together, with weights of a fixed seed. It is
compiled, compared with ONNX Runtime, and both are timed in alternating runs with the same number of threads. Prints a
line for each and, last, the geometric mean and the least of ONNX Runtime's time over Braid's. --files takes the .onnx
files of a folder instead. Exit status 1 if one failed.
"""
import glob
import os
import statistics
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import real


class Model:
    """Builds a graph statement by statement: every call adds a node and gives the name of its output."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.constants, self.inputs = np.random.default_rng(seed), [], [], []

    def input(self, *shape, dtype=T.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", dtype, shape))
        return self.inputs[-1].name

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape, scale=None):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.constant((self.rng.standard_normal(shape) * (scale or fan ** -0.5)).astype(np.float32))

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def save(self, path, *outputs, opset=17):
        graph = helper.make_graph(self.nodes, "operators", self.inputs,
                                  [helper.make_empty_tensor_value_info(o) for o in outputs], self.constants)
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


# ---- the members: name -> a function of a Model that returns its outputs -----------------------------------------------
def conv(c, m, k, size, stride=1, group=1, then=None, dilation=1, spatial=2, pad=None):
    def build(g):
        x = g.input(1, c, *(size if isinstance(size, tuple) else [size] * spatial))
        p = (k - 1) // 2 * dilation if pad is None else pad
        y = g.op("Conv", x, g.weight(m, c // group, *[k] * spatial), g.weight(m), kernel_shape=[k] * spatial, group=group,
                 strides=[stride] * spatial, pads=[p] * 2 * spatial, dilations=[dilation] * spatial)
        return [g.op(then, y) if then else y]
    return build


def conv_transpose(c, m, k, size, stride, spatial=2):
    def build(g):
        x = g.input(1, c, *[size] * spatial)
        return [g.op("ConvTranspose", x, g.weight(c, m, *[k] * spatial), g.weight(m), strides=[stride] * spatial,
                     pads=[(k - stride) // 2] * 2 * spatial)]
    return build


def inverted_residual(c, hidden, size, stride):
    """A MobileNetV2 block: pointwise, depthwise, pointwise, and the sum where sizes agree."""
    def build(g):
        def clipped(y):
            return g.op("Clip", y, g.constant(np.float32(0)), g.constant(np.float32(6)))
        x = g.input(1, c, size, size)
        y = clipped(g.op("Conv", x, g.weight(hidden, c, 1, 1), g.weight(hidden)))
        y = clipped(g.op("Conv", y, g.weight(hidden, 1, 3, 3), g.weight(hidden), group=hidden, pads=[1] * 4, strides=[stride] * 2))
        y = g.op("Conv", y, g.weight(c, hidden, 1, 1), g.weight(c))
        return [g.op("Add", x, y) if stride == 1 else y]
    return build


def stem(c, m, k, size, pool_size, before=1):
    """Conv, Relu and MaxPool of a k x k window at stride 2, or at stride 1 behind an image that is enlarged."""
    def build(g):
        x = g.input(1, c, size, size)
        if before > 1:
            scales = g.constant(np.array([1, 1, before, before], np.float32))
            x = g.op("Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        y = g.op("Relu", g.op("Conv", x, g.weight(m, c, k, k), g.weight(m), strides=[2 if before == 1 else 1] * 2, pads=[k // 2] * 4))
        return [g.op("MaxPool", y, kernel_shape=[pool_size] * 2, strides=[2, 2], pads=[pool_size // 2 if pool_size > 2 else 0] * 4)]
    return build


def vgg_block(c, size):
    def build(g):
        y = g.input(1, c, size, size)
        for _ in range(2):
            y = g.op("Relu", g.op("Conv", y, g.weight(c, c, 3, 3), g.weight(c), pads=[1] * 4))
        return [g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])]
    return build


def residual_block(c, size):
    def build(g):
        x = g.input(1, c, size, size)
        y = g.op("Relu", g.op("Conv", x, g.weight(c, c, 3, 3), g.weight(c), pads=[1] * 4))
        y = g.op("Conv", y, g.weight(c, c, 3, 3), g.weight(c), pads=[1] * 4)
        return [g.op("Relu", g.op("Add", x, y))]
    return build


def separable(c, m, size):
    def build(g):
        y = g.op("Relu", g.op("Conv", g.input(1, c, size, size), g.weight(c, 1, 3, 3), g.weight(c), group=c, pads=[1] * 4))
        return [g.op("Relu", g.op("Conv", y, g.weight(m, c, 1, 1), g.weight(m)))]
    return build


def product(rows, k, n, then=None, batch=()):
    def build(g):
        y = g.op("Add", g.op("MatMul", g.input(*batch, rows, k), g.weight(k, n, scale=k ** -0.5)), g.weight(n))
        return [g.op(then, y) if then else y]
    return build


def gelu_product(rows, k, n):
    def build(g):
        y = g.op("Add", g.op("MatMul", g.input(rows, k), g.weight(k, n, scale=k ** -0.5)), g.weight(n))
        e = g.op("Erf", g.op("Div", y, g.constant(np.float32(2 ** 0.5))))
        return [g.op("Mul", g.op("Mul", y, g.op("Add", e, g.constant(np.float32(1)))), g.constant(np.float32(0.5)))]
    return build


def attention(batch, heads, rows, length, width, masked=False):
    def build(g):
        q, k, v = g.input(batch, heads, rows, width), g.input(batch, heads, length, width), g.input(batch, heads, length, width)
        s = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        s = g.op("Mul", s, g.constant(np.float32(width ** -0.5)))
        if masked:
            s = g.op("Add", s, g.input(batch, 1, 1, length))
        return [g.op("MatMul", g.op("Softmax", s, axis=-1), v)]
    return build


def unary(kind, shape, **attributes):
    return lambda g: [g.op(kind, g.input(*shape), **attributes)]


def softmax(shape, axis):
    return unary("Softmax", shape, axis=axis)


def normalization(kind, shape, groups=None):
    def build(g):
        x, c = g.input(*shape), shape[1] if kind != "LayerNormalization" else shape[-1]
        scale, bias = g.constant(np.ones(c, np.float32)), g.constant(np.zeros(c, np.float32))
        if kind == "GroupNormalization":
            y = g.op("Reshape", x, g.constant(np.array([shape[0], groups, -1])))
            y = g.op("InstanceNormalization", y, g.constant(np.ones(groups, np.float32)), g.constant(np.zeros(groups, np.float32)))
            return [g.op("Reshape", y, g.constant(np.array(shape)))]
        return [g.op(kind, x, scale, bias)]
    return build


def transpose(shape, perm):
    return unary("Transpose", shape, perm=perm)


def resize(shape, factor, mode):
    def build(g):
        scales = g.constant(np.array([1, 1, factor, factor], np.float32))
        how = {"mode": mode} if mode != "nearest" else {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return [g.op("Resize", g.input(*shape), "", scales, **how)]
    return build


def pool(kind, shape, k, stride, pad):
    return unary(kind, shape, kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)


def reduction(kind, shape, axes):
    return unary(kind, shape, axes=axes, keepdims=0)


def topk(shape, k):
    return lambda g: g.op("TopK", g.input(*shape), g.constant(np.array([k])), outputs=2)


def cumsum(shape, axis):
    return lambda g: [g.op("CumSum", g.input(*shape), g.constant(np.array(axis)))]


def gather(rows, width, count):
    def build(g):
        index = g.constant(g.rng.integers(0, rows, (1, count)))
        return [g.op("Gather", g.weight(rows, width), g.op("Add", g.input(1, count, dtype=T.INT64), index))]
    return build


def concat(shape, axis):
    return lambda g: [g.op("Concat", g.input(*shape), g.input(*shape), axis=axis)]


def recurrent(kind, steps, batch, inputs, hidden):
    def build(g):
        n = {"LSTM": 4, "GRU": 3}[kind]
        x = g.input(steps, batch, inputs)
        return g.op(kind, x, g.weight(1, n * hidden, inputs, scale=inputs ** -0.5), g.weight(1, n * hidden, hidden, scale=hidden ** -0.5),
                    g.weight(1, 2 * n * hidden, scale=0.1), hidden_size=hidden, outputs=2)
    return build


def pruned(g, share, *shape):
    w = g.rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5
    return g.constant(np.where(g.rng.random(shape) < share, w, 0).astype(np.float32))


def sparse_recurrent(steps, batch, size, share):
    def build(g):
        return g.op("LSTM", g.input(steps, batch, size), pruned(g, share, 1, 4 * size, size), pruned(g, share, 1, 4 * size, size),
                    g.weight(1, 8 * size, scale=0.1), hidden_size=size, outputs=2)
    return build


def sparse_conv(c, m, k, size, share):
    def build(g):
        return [g.op("Relu", g.op("Conv", g.input(1, c, size, size), pruned(g, share, m, c, k, k), g.weight(m), pads=[(k - 1) // 2] * 4))]
    return build


def quantized_product(rows, k, n, form):
    def build(g):
        weight = g.constant(g.rng.integers(-127, 128, (k, n)).astype(np.int8))
        zero8, scale = g.constant(np.int8(0)), g.constant(np.float32(0.01))
        if form == "integer":
            q, s, z = g.op("DynamicQuantizeLinear", g.input(rows, k), outputs=3)
            y = g.op("Cast", g.op("MatMulInteger", q, weight, z, zero8), to=T.FLOAT)
            return [g.op("Mul", y, g.op("Mul", s, scale))]
        zero, own = g.constant(np.uint8(128)), g.constant(np.float32(0.04))
        q = g.op("QuantizeLinear", g.input(rows, k), own, zero)
        x, w = g.op("DequantizeLinear", q, own, zero), g.op("DequantizeLinear", weight, scale, zero8)
        y = g.op("Add", g.op("MatMul", x, w), g.weight(n))
        wide = g.constant(np.float32(0.8))
        return [g.op("DequantizeLinear", g.op("QuantizeLinear", y, wide, zero), wide, zero)]
    return build


def quantized_conv(c, m, k, size, form, group=1):
    def build(g):
        weight = g.constant(g.rng.integers(-127, 128, (m, c // group, k, k)).astype(np.int8))
        zero8, zero = g.constant(np.int8(0)), g.constant(np.uint8(128))
        own, ws, out = (g.constant(np.float32(s)) for s in (0.02, 0.005, 0.1))
        how = {"pads": [(k - 1) // 2] * 4, "group": group}
        q = g.op("QuantizeLinear", g.input(1, c, size, size), own, zero)
        if form == "qlinear":
            bias = g.constant(g.rng.integers(-900, 900, m).astype(np.int32))
            y = g.op("QLinearConv", q, own, zero, weight, ws, zero8, out, zero, bias, **how)
        else:
            x, w = g.op("DequantizeLinear", q, own, zero), g.op("DequantizeLinear", weight, ws, zero8)
            y = g.op("QuantizeLinear", g.op("Relu", g.op("Conv", x, w, g.weight(m), **how)), out, zero)
        return [g.op("DequantizeLinear", y, out, zero)]
    return build


def four_bit_product(rows, k, n):
    def build(g):
        packed = g.constant(g.rng.integers(0, 256, (n, k // 32, 16)).astype(np.uint8))
        scales = g.constant((g.rng.random(n * (k // 32)) * 0.01).astype(np.float32))
        return [g.op("MatMulNBits", g.input(rows, k), packed, scales, domain="com.microsoft", K=k, N=n, bits=4, block_size=32)]
    return build


def half_product(rows, k, n):
    def build(g):
        weight = g.constant((g.rng.standard_normal((k, n)) * k ** -0.5).astype(np.float16))
        return [g.op("MatMul", g.input(rows, k, dtype=T.FLOAT16), weight)]
    return build


def spectrum(samples, frame, step):
    """|STFT| as exporters of voice models write it: a convolution with the sine and cosine windows."""
    def build(g):
        t, f = np.arange(frame), np.arange(frame // 2 + 1)[:, None]
        w = np.hanning(frame) * np.concatenate([np.cos(2 * np.pi * f * t / frame), -np.sin(2 * np.pi * f * t / frame)])
        y = g.op("Conv", g.input(1, 1, samples), g.constant(w.astype(np.float32)[:, None]), strides=[step])
        re, im = g.op("Split", y, outputs=2, axis=1)
        return [g.op("Sqrt", g.op("Add", g.op("Mul", re, re), g.op("Mul", im, im)))]
    return build


def suppression(boxes, classes=1):
    def build(g):
        corner = g.op("Sigmoid", g.input(1, boxes, 2))
        far = g.op("Add", corner, g.op("Mul", g.op("Sigmoid", g.input(1, boxes, 2)), g.constant(np.float32(0.1))))
        scores = g.op("Sigmoid", g.input(1, classes, boxes))
        return [g.op("NonMaxSuppression", g.op("Concat", corner, far, axis=2), scores, g.constant(np.array([100])),
                     g.constant(np.float32(0.5)), g.constant(np.float32(0.3)))]
    return build


def roi_align(rois, size, mode="avg"):
    def build(g):
        corner = g.rng.random((rois, 2)) * 400
        boxes = g.constant(np.hstack([corner, corner + 20 + g.rng.random((rois, 2)) * 300]).astype(np.float32))
        return [g.op("RoiAlign", g.input(1, size, 50, 50), boxes, g.constant(np.zeros(rois, np.int64)), output_height=7,
                     output_width=7, sampling_ratio=2, spatial_scale=1 / 16, mode=mode)]
    return build


def transform(frames, size, inverse=False):
    """The discrete Fourier transform of rows."""
    def build(g):
        return [g.op("DFT", g.input(frames, size, 2 if inverse else 1), inverse=int(inverse), onesided=int(not inverse), axis=1)]
    return build


def short_transform(samples, frame, step):
    def build(g):
        return [g.op("STFT", g.input(1, samples, 1), g.constant(np.array(step)), g.constant(np.hanning(frame).astype(np.float32)),
                     g.constant(np.array(frame)))]
    return build


def of_type(dtype, kind, *shapes, **attributes):
    """One operator on inputs of that element type."""
    return lambda g: [g.op(kind, *[g.input(*s, dtype=dtype) for s in shapes], **attributes)]


def with_constants(kind, shape, *constants, outputs=1, dtype=T.FLOAT, **attributes):
    """One operator on an input and constants behind it."""
    return lambda g: g.op(kind, g.input(*shape, dtype=dtype), *[g.constant(c) for c in constants], outputs=outputs, **attributes)


def grid_sample(c, size):
    return lambda g: [g.op("GridSample", g.input(1, c, size, size), g.op("Tanh", g.input(1, size, size, 2)))]


def scatter(kind, shape, count, **attributes):
    def build(g):
        x = g.input(*shape)
        if kind == "ScatterND":
            index = g.rng.permutation(shape[0])[:count, None]
            return [g.op(kind, x, g.constant(index), g.input(count, *shape[1:]), **attributes)]
        index = g.rng.integers(0, shape[0], (count, shape[1]))
        return [g.op(kind, x, g.constant(index), g.input(count, shape[1]), **attributes)]
    return build


def gather_nd(rows, columns, width, count):
    def build(g):
        index = np.stack([g.rng.integers(0, rows, count), g.rng.integers(0, columns, count)], 1)
        return [g.op("GatherND", g.input(rows, columns, width), g.constant(index))]
    return build


def small_integers(g, high, *shape):
    """Whole numbers from 0 to high, of float inputs."""
    return g.op("Cast", g.op("Mul", g.op("Sigmoid", g.input(*shape)), g.constant(np.float32(high))), to=T.INT64)


def one_hot(count, depth):
    return lambda g: [g.op("OneHot", small_integers(g, depth - 1, count), g.constant(np.array(depth)), g.constant(np.array([0, 1], np.float32)))]


def unique(count, high):
    return lambda g: g.op("Unique", small_integers(g, high, count), outputs=4)


def masked(rows, columns):
    def build(g):
        mask = g.op("Greater", g.input(1, columns), g.constant(np.float32(0)))
        return [g.op("Where", mask, g.input(rows, columns), g.constant(np.float32(-1e9)))]
    return build


def nonzero(*shape):
    return lambda g: [g.op("NonZero", g.op("Greater", g.input(*shape), g.constant(np.float32(0.5))))]


def einsum(equation, *shapes):
    return lambda g: [g.op("Einsum", *[g.input(*s) for s in shapes], equation=equation)]


def many(kind, count, shape, axis):
    if kind == "Concat":
        return lambda g: [g.op("Concat", *[g.op("Relu", g.input(*shape)) for _ in range(count)], axis=axis)]
    return lambda g: g.op("Split", g.input(*shape), outputs=count, axis=axis)


def batch_normalization(shape):
    def build(g):
        c = shape[1]
        return [g.op("BatchNormalization", g.input(*shape), g.weight(c), g.weight(c), g.weight(c), g.constant(np.ones(c, np.float32)))]
    return build


def gelu(shape):
    def build(g):
        x = g.input(*shape)
        e = g.op("Erf", g.op("Mul", x, g.constant(np.float32(0.5 ** 0.5))))
        return [g.op("Mul", g.op("Mul", x, g.constant(np.float32(0.5))), g.op("Add", e, g.constant(np.float32(1))))]
    return build


def mish(shape):
    def build(g):
        x = g.input(*shape)
        return [g.op("Mul", x, g.op("Tanh", g.op("Softplus", x)))]
    return build


def integers(kind, shape, divisor, dtype):
    def build(g):
        kinds = {T.INT32: np.int32, T.INT64: np.int64}
        return [g.op(kind, g.input(*shape, dtype=dtype), g.constant(np.array(divisor, kinds[dtype])))]
    return build


def pad(shape, pads, mode):
    return with_constants("Pad", shape, np.array(pads), mode=mode)


def after_layout(kind, shape, m, **attributes):
    """A rearrangement and the convolution behind it, as of upscalers."""
    def build(g):
        y = g.op(kind, g.input(*shape), **attributes)
        c = shape[1] // 4 if kind == "DepthToSpace" else shape[1] * 4
        return [g.op("Conv", y, g.weight(m, c, 3, 3), g.weight(m), pads=[1] * 4)]
    return build


def padded_conv(c, m, length, k):
    """Padding by reflection and a convolution, as in front of spectra."""
    def build(g):
        y = g.op("Pad", g.input(1, c, length), g.constant(np.array([0, 0, k // 2, 0, 0, k // 2])), mode="reflect")
        return [g.op("Conv", y, g.weight(m, c, k), g.weight(m))]
    return build


def exponent_product(rows, k, n):
    return lambda g: [g.op("MatMul", g.op("Exp", g.input(rows, k)), g.weight(k, n))]


MEMBERS = {
    "conv 3x3 64 56x56": conv(64, 64, 3, 56, then="Relu"),
    "conv 3x3 128 28x28": conv(128, 128, 3, 28, then="Relu"),
    "conv 3x3 256 14x14": conv(256, 256, 3, 14, then="Relu"),
    "conv 3x3 512 7x7": conv(512, 512, 3, 7, then="Relu"),
    "conv 3x3 s2 64-128 56x56": conv(64, 128, 3, 56, stride=2),
    "conv 3x3 s2 3-32 224x224": conv(3, 32, 3, 224, stride=2, then="Relu"),
    "conv 7x7 s2 3-64 224x224": conv(3, 64, 7, 224, stride=2, then="Relu"),
    "conv 3x3 16 128x128": conv(16, 16, 3, 128, then="Relu"),
    "conv 1x1 24-144 56x56": conv(24, 144, 1, 56),
    "conv 1x1 256 14x14": conv(256, 256, 1, 14, then="Relu"),
    "conv 1x1 960-160 7x7": conv(960, 160, 1, 7),
    "conv 1x1 s2 64-128 56x56": conv(64, 128, 1, 56, stride=2),
    "conv depthwise 3x3 144 56x56": conv(144, 144, 3, 56, group=144),
    "conv depthwise 3x3 s2 96 112x112": conv(96, 96, 3, 112, stride=2, group=96),
    "conv depthwise 3x3 32 112x112": conv(32, 32, 3, 112, group=32),
    "conv depthwise 3x3 960 7x7": conv(960, 960, 3, 7, group=960),
    "conv depthwise 5x5 240 28x28": conv(240, 240, 5, 28, group=240),
    "conv depthwise 5x5 s2 96 56x56": conv(96, 96, 5, 56, stride=2, group=96),
    "conv depthwise 7x7 96 56x56": conv(96, 96, 7, 56, group=96),
    "conv depthwise dilated 3x3 96 28x28": conv(96, 96, 3, 28, group=96, dilation=2),
    "conv grouped 3x3 128/32 56x56": conv(128, 128, 3, 56, group=32),
    "conv grouped 3x3 256/32 28x28": conv(256, 256, 3, 28, group=32),
    "conv grouped 3x3 s2 256/32 56x56": conv(256, 256, 3, 56, stride=2, group=32),
    "conv grouped 3x3 512/32 14x14": conv(512, 512, 3, 14, group=32),
    "conv grouped 3x3 s2 512/32 28x28": conv(512, 512, 3, 28, stride=2, group=32),
    "conv grouped 3x3 1024/32 7x7": conv(1024, 1024, 3, 7, group=32),
    "conv grouped 3x3 s2 1024/32 14x14": conv(1024, 1024, 3, 14, stride=2, group=32),
    "conv grouped 1x1 240/3 28x28": conv(240, 240, 1, 28, group=3),
    "conv grouped 5x5 96-256/2 27x27": conv(96, 256, 5, 27, group=2),
    "conv dilated 3x3 64 28x28": conv(64, 64, 3, 28, dilation=2),
    "conv 5x5 32 64x64": conv(32, 32, 5, 64),
    "conv 1x3 1-D 256 400": conv(256, 256, 3, 400, spatial=1),
    "conv 1x3 1-D 512 100": conv(512, 512, 3, 100, spatial=1),
    "conv 1x31 1-D depthwise 256 400": conv(256, 256, 31, 400, spatial=1, group=256),
    "conv 3-D 3x3x3 16 16": conv(16, 16, 3, 16, spatial=3),
    "conv 3-D 3x3x3 64 8x28x28": conv(64, 64, 3, (8, 28, 28), spatial=3),
    "conv transposed 4x4 s2 128-64 32x32": conv_transpose(128, 64, 4, 32, 2),
    "conv transposed 2x2 s2 64-32 56x56": conv_transpose(64, 32, 2, 56, 2),
    "conv transposed 4 s2 1-D 256-128 200": conv_transpose(256, 128, 4, 200, 2, spatial=1),
    "inverted residual 24-144 56x56": inverted_residual(24, 144, 56, 1),
    "inverted residual 96-576 14x14": inverted_residual(96, 576, 14, 1),
    "block conv relu maxpool 3-64 224x224": stem(3, 64, 7, 224, 3),
    "block resize conv relu maxpool 32 56x56": stem(32, 32, 3, 56, 2, before=2),
    "block vgg 64 112x112": vgg_block(64, 112),
    "block residual 64 56x56": residual_block(64, 56),
    "block residual 256 14x14": residual_block(256, 14),
    "block separable 32-64 112x112": separable(32, 64, 112),
    "product 1x768x768": product(1, 768, 768),
    "product 1x1024x4096": product(1, 1024, 4096),
    "product 8x768x3072": product(8, 768, 3072),
    "product 32x768x768": product(32, 768, 768),
    "product 128x768x3072 gelu": gelu_product(128, 768, 3072),
    "product 128x3072x768": product(128, 3072, 768),
    "product 100x256x1000": product(100, 256, 1000),
    "attention 12x128x128x64": attention(1, 12, 128, 128, 64),
    "attention masked 8x12x32x32x64": attention(8, 12, 32, 32, 64, masked=True),
    "attention one row 12x1x512x64": attention(1, 12, 1, 512, 64),
    "softmax 12x128x128": softmax([12, 128, 128], -1),
    "softmax axis 1 21x64x64": softmax([1, 21, 64, 64], 1),
    "layer normalization 128x768": normalization("LayerNormalization", [1, 128, 768]),
    "instance normalization 64 64x64": normalization("InstanceNormalization", [1, 64, 64, 64]),
    "group normalization 64/8 64x64": normalization("GroupNormalization", [1, 64, 64, 64], 8),
    "transpose to channels last 32 224x224": transpose([1, 32, 224, 224], [0, 2, 3, 1]),
    "transpose heads 128x12x64": transpose([1, 128, 12, 64], [0, 2, 1, 3]),
    "transpose matrix 768x768": transpose([768, 768], [1, 0]),
    "max pool 3x3 s2 64 112x112": pool("MaxPool", [1, 64, 112, 112], 3, 2, 1),
    "max pool 2x2 s2 64 56x56": pool("MaxPool", [1, 64, 56, 56], 2, 2, 0),
    "average pool 3x3 s1 64 28x28": pool("AveragePool", [1, 64, 28, 28], 3, 1, 1),
    "global average pool 512 7x7": unary("GlobalAveragePool", [1, 512, 7, 7]),
    "resize linear x2 32 64x64": resize([1, 32, 64, 64], 2, "linear"),
    "resize nearest x2 64 32x32": resize([1, 64, 32, 32], 2, "nearest"),
    "reduce mean last 128x768": reduction("ReduceMean", [128, 768], [1]),
    "reduce max first 512x512": reduction("ReduceMax", [512, 512], [0]),
    "erf 128x3072": unary("Erf", [128, 3072]),
    "tanh 128x768": unary("Tanh", [128, 768]),
    "top 10 of 100x1000": topk([100, 1000], 10),
    "cumulative sum 64x4000": cumsum([64, 4000], 1),
    "gather 30000x768 128": gather(30000, 768, 128),
    "concat 64 56x56": concat([1, 64, 56, 56], 1),
    "lstm 50x1x256": recurrent("LSTM", 50, 1, 256, 256),
    "lstm 50x8x256": recurrent("LSTM", 50, 8, 256, 256),
    "gru 50x1x256": recurrent("GRU", 50, 1, 256, 256),
    "dynamic 8-bit product 64x768x768": quantized_product(64, 768, 768, "integer"),
    "dynamic 8-bit product 1x768x3072": quantized_product(1, 768, 3072, "integer"),
    "quantized product 64x768x768": quantized_product(64, 768, 768, "qdq"),
    "quantized conv 3x3 64 56x56": quantized_conv(64, 64, 3, 56, "qdq"),
    "quantized conv 1x1 256 14x14": quantized_conv(256, 256, 1, 14, "qlinear"),
    "quantized conv depthwise 3x3 144 28x28": quantized_conv(144, 144, 3, 28, "qlinear", group=144),
    "4-bit product 1x2048x2048": four_bit_product(1, 2048, 2048),
    "half product 64x768x768": half_product(64, 768, 768),
    "half product 1x768x3072": half_product(1, 768, 3072),
    "sparse lstm 15% 50x1x256": sparse_recurrent(50, 1, 256, 0.15),
    "sparse lstm 15% 50x64x256": sparse_recurrent(50, 64, 256, 0.15),
    "sparse conv 15% 3x3 64 56x56": sparse_conv(64, 64, 3, 56, 0.15),
    "spectrum 16000 400/160": spectrum(16000, 400, 160),
    "non-max suppression 100": suppression(100),
    "non-max suppression 1000": suppression(1000),
    "non-max suppression 5000": suppression(5000),
    "non-max suppression 20000": suppression(20000),
    "non-max suppression 1000 of 80 classes": suppression(1000, 80),
    "roi align 1000 of 256x50x50": roi_align(1000, 256),
    "roi align max 100 of 256x50x50": roi_align(100, 256, "max"),
    "top 1 of 30000": topk([1, 30000], 1),
    "top 5 of 30000": topk([1, 30000], 5),
    "top 100 of 30000": topk([1, 30000], 100),
    "top 1000 of 1000": topk([16, 1000], 1000),
    "top 5 smallest axis 1 8x1000x16": with_constants("TopK", [8, 1000, 16], np.array([5]), outputs=2, axis=1, largest=0),
    "top 10 of int64 100x1000": with_constants("TopK", [100, 1000], np.array([10]), outputs=2, dtype=T.INT64),
    "cumulative sum axis 0 400x512": cumsum([400, 512], 0),
    "transform 100x256": transform(100, 256),
    "transform 100x400": transform(100, 400),
    "transform 100x512": transform(100, 512),
    "transform 10x2048": transform(10, 2048),
    "transform 10x1023": transform(10, 1023),
    "transform 10x509": transform(10, 509),
    "inverse transform 100x512": transform(100, 512, inverse=True),
    "short transform 16000 400/160": short_transform(16000, 400, 160),
    "short transform 16000 512/128": short_transform(16000, 512, 128),
    "half add 128x768": of_type(T.FLOAT16, "Add", [128, 768], [128, 768]),
    "half mul 1x3x224x224": of_type(T.FLOAT16, "Mul", [1, 3, 224, 224], [1, 3, 224, 224]),
    "half relu 1x3x224x224": of_type(T.FLOAT16, "Relu", [1, 3, 224, 224]),
    "half sigmoid 128x768": of_type(T.FLOAT16, "Sigmoid", [128, 768]),
    "half softmax 128x768": of_type(T.FLOAT16, "Softmax", [128, 768], axis=-1),
    "half to float 128x768": of_type(T.FLOAT16, "Cast", [128, 768], to=T.FLOAT),
    "float to half 128x768": unary("Cast", [128, 768], to=T.FLOAT16),
    "half layer normalization 128x768": lambda g: [g.op("LayerNormalization", g.input(1, 128, 768, dtype=T.FLOAT16), g.constant(np.ones(768, np.float16)), g.constant(np.zeros(768, np.float16)))],
    "grid sample 64 56x56": grid_sample(64, 56),
    "scatter rows 100 of 1000x256": scatter("ScatterND", [1000, 256], 100),
    "scatter add rows 100 of 1000x256": scatter("ScatterND", [1000, 256], 100, reduction="add"),
    "scatter elements 500x64 add": scatter("ScatterElements", [1000, 64], 500, axis=0, reduction="add"),
    "gather nd 1000 of 100x100x64": gather_nd(100, 100, 64, 1000),
    "gather elements 1000x64": with_constants("GatherElements", [1000, 64], np.random.default_rng(1).integers(0, 1000, (1000, 64)), axis=0),
    "one hot 1000x100": one_hot(1000, 100),
    "where 512x512": masked(512, 512),
    "unique 10000": unique(10000, 500),
    "nonzero 256x256": nonzero(256, 256),
    "einsum bhid,bhjd->bhij": einsum("bhid,bhjd->bhij", [1, 12, 128, 64], [1, 12, 128, 64]),
    "einsum bnij,bjd->bnid": einsum("bij,bjd->bid", [8, 64, 64], [8, 64, 96]),
    "arg max last 128x1000": unary("ArgMax", [128, 1000], axis=1),
    "arg max first 21x128x128": unary("ArgMax", [21, 128, 128], axis=0),
    "log sum exp 128x1000": unary("ReduceLogSumExp", [128, 1000], axes=[1]),
    "l2 norm 128x768": unary("ReduceL2", [128, 768], axes=[1]),
    "reduce sum middle 32x64x256": with_constants("ReduceSum", [32, 64, 256], np.array([1])),
    "log softmax 128x1000": unary("LogSoftmax", [128, 1000], axis=-1),
    "layer normalization 128x1024": normalization("LayerNormalization", [1, 128, 1024]),
    "lp normalization 128x768": unary("LpNormalization", [128, 768], axis=1),
    "instance normalization 1-D 256 400": normalization("InstanceNormalization", [1, 256, 400]),
    "batch normalization 64 56x56": batch_normalization([1, 64, 56, 56]),
    "resize cubic x2 32 32x32": resize([1, 32, 32, 32], 2, "cubic"),
    "pad constant 64 56x56": pad([1, 64, 56, 56], [0, 0, 1, 1, 0, 0, 1, 1], "constant"),
    "pad reflect 64 56x56": pad([1, 64, 56, 56], [0, 0, 3, 3, 0, 0, 3, 3], "reflect"),
    "pad edge 1-D 16000": pad([1, 1, 16000], [0, 0, 256, 0, 0, 256], "edge"),
    "tile 128x64": with_constants("Tile", [128, 64], np.array([4, 8])),
    "expand 64 56x56": with_constants("Expand", [1, 64, 1, 1], np.array([1, 64, 56, 56])),
    "upper triangle 512x512": unary("Trilu", [512, 512]),
    "concat 16 64x64": many("Concat", 16, [1, 64, 64], 1),
    "split 4 128x1024": many("Split", 4, [128, 1024], 1),
    "slice step 2 64 56x56": with_constants("Slice", [1, 64, 56, 56], np.array([0, 0]), np.array([56, 56]), np.array([2, 3]), np.array([2, 2])),
    "slice reversed 128x768": with_constants("Slice", [128, 768], np.array([-1]), np.array([-1000]), np.array([1]), np.array([-1])),
    "depth to space 64 64x64": unary("DepthToSpace", [1, 64, 64, 64], blocksize=2),
    "depth to space and conv 64 64x64": after_layout("DepthToSpace", [1, 64, 64, 64], 16, blocksize=2, mode="CRD"),
    "space to depth 16 128x128": unary("SpaceToDepth", [1, 16, 128, 128], blocksize=2),
    "prelu 64 56x56": lambda g: [g.op("PRelu", g.input(1, 64, 56, 56), g.weight(64, 1, 1))],
    "leaky relu 64 56x56": unary("LeakyRelu", [1, 64, 56, 56]),
    "hard swish 64 56x56": unary("HardSwish", [1, 64, 56, 56]),
    "gelu 128x3072": gelu([128, 3072]),
    "mish 64 56x56": mish([1, 64, 56, 56]),
    "sigmoid 64 56x56": unary("Sigmoid", [1, 64, 56, 56]),
    "softplus 128x768": unary("Softplus", [128, 768]),
    "elu 128x768": unary("Elu", [128, 768]),
    "exp 128x768": unary("Exp", [128, 768]),
    "sine 128x768": unary("Sin", [128, 768]),
    "square root 128x768": lambda g: [g.op("Sqrt", g.op("Abs", g.input(128, 768)))],
    "logarithm 128x768": lambda g: [g.op("Log", g.op("Abs", g.input(128, 768)))],
    "power 2 128x768": with_constants("Pow", [128, 768], np.float32(2)),
    "power 2.2 128x768": lambda g: [g.op("Pow", g.op("Abs", g.input(128, 768)), g.constant(np.float32(2.2)))],
    "clip 64 56x56": with_constants("Clip", [1, 64, 56, 56], np.float32(0), np.float32(6)),
    "add row 128x768": lambda g: [g.op("Add", g.input(128, 768), g.input(768))],
    "add 64 56x56": of_type(T.FLOAT, "Add", [1, 64, 56, 56], [1, 64, 56, 56]),
    "add channel 64 56x56": lambda g: [g.op("Mul", g.input(1, 64, 56, 56), g.input(1, 64, 1, 1))],
    "integer div 64x1024": integers("Div", [64, 1024], 7, T.INT64),
    "integer mod 64x1024": integers("Mod", [64, 1024], 10, T.INT32),
    "float to int64 128x768": unary("Cast", [128, 768], to=T.INT64),
    "float to uint8 128x768": lambda g: [g.op("Cast", g.op("Abs", g.input(128, 768)), to=T.UINT8)],
    "bytes to float 3x224x224": of_type(T.UINT8, "Cast", [3, 224, 224], to=T.FLOAT),
    "quantize 64 56x56": with_constants("QuantizeLinear", [1, 64, 56, 56], np.float32(0.02), np.uint8(128)),
    "padded conv 1-D 1-258 16000/256": padded_conv(1, 258, 16000, 256),
    "exponential and product 64x768x768": exponent_product(64, 768, 768),
}


def members(a):
    """[(name, path)] of the models, written into WORK."""
    if a.files:
        return [(os.path.splitext(os.path.basename(p))[0], p) for p in sorted(glob.glob(a.files + "/*.onnx"))]
    found = []
    for name, build in MEMBERS.items():
        path = os.path.join(a.work, name.replace(" ", "_").replace("/", "-") + ".onnx")
        if a.only in name:
            model = Model()
            outputs = build(model)
            model.save(path, *([outputs] if isinstance(outputs, str) else outputs))
        found.append((name, path))
    return found


def main():
    p = real.options(__doc__, "build/operators")
    p.add_argument("--files")
    a = p.parse_args()
    a.time = True
    os.makedirs(a.work, exist_ok=True)
    rows = [real.report(real.check(name, path, a)) for name, path in members(a) if a.only in name]
    return real.summary(rows, a.out)


if __name__ == "__main__":
    sys.exit(main())
