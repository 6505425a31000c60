#!/usr/bin/env python3
"""Layers over images of open sizes: random chains over (batch, channels, height, width), of which only the run knows all but
the channels, one library for all sizes, against ONNX Runtime. And which kernels layers of few channels get.

    images_check.py [COUNT] [--seed S] [--braid PATH]
"""
import itertools
import random
import re
import subprocess

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as TP, helper

from sizes_check import CPUS, Chain, compiled, difference, result, run

CHANNELS = [4, 8, 12, 16, 24, 40]
SIZES = [(1, 16, 16), (2, 17, 19), (1, 33, 20), (3, 18, 31), (1, 64, 48), (1, 15, 70)]
SCALES = [(2, 2), (3, 1), (1, 4), (1.5, 2), (0.5, 0.75), (2.25, 1)]
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


class Images(Chain):
    def __init__(self, seed):
        self.r, self.g = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.inits, self.kinds = [], [], []
        self.width = self.first = self.r.choice(CHANNELS)
        self.x = "x"
        kinds = [self.conv, self.grouped, self.depthwise, self.transposed, self.resize, self.pad, self.pool, self.scaled]
        for kind in [kinds[seed % len(kinds)], *self.r.choices(kinds, k=2)]:
            kind()
            self.kinds.append(kind.__name__)

    def layer(self, kind, m, group, size, **attributes):
        """A convolution whose padding keeps positions, or nearly so."""
        shape = (m, self.width // group, *size) if kind == "Conv" else (self.width, m // group, *size)
        w = self.weight(*shape, fan=self.width // group * size[0] * size[1])
        self.x = self.op(kind, self.x, w, self.weight(m, fan=1), group=group, **attributes)
        if self.r.random() < 0.5:
            self.x = self.op(self.r.choice(["Relu", "Sigmoid", "Elu"]), self.x)
        self.width = m

    def conv(self):
        size = self.r.choice([(1, 1), (3, 3), (3, 3), (1, 5), (5, 5), (7, 1)])
        self.layer("Conv", self.r.choice(CHANNELS), 1, size, pads=[n // 2 for n in size] * 2,
                   strides=self.r.choice([(1, 1), (1, 1), (2, 2), (1, 2)]))

    def grouped(self):
        self.layer("Conv", self.width, self.r.choice([2, 4]), (3, 3), pads=[1, 1, 1, 1])

    def depthwise(self):
        n = self.r.choice([3, 5])
        self.layer("Conv", self.width, self.width, (n, n), pads=[n // 2] * 4, strides=[self.r.choice([1, 1, 2])] * 2)

    def transposed(self):
        n = self.r.choice([2, 3, 4])
        self.layer("ConvTranspose", self.r.choice(CHANNELS), 1, (n, n), strides=[2, 2], pads=[n // 4] * 4)

    def resize(self):
        mode, scales = self.r.choice(["nearest", "nearest", "linear", "cubic"]), np.float32([1, 1, *self.r.choice(SCALES)])
        how = {"nearest_mode": self.r.choice(NEAREST)} if mode == "nearest" else {}
        y, x = scales[2:]
        # One element more or less, and where rounding in float32 decides, is not what is compared here.
        coordinates = COORDINATES if x == int(x) and y == int(y) and mode != "nearest" else ["half_pixel", "asymmetric"]
        self.x = self.op("Resize", self.x, "", self.constant(scales), mode=mode, coordinate_transformation_mode=self.r.choice(coordinates), **how)

    def pad(self):
        mode, amounts = self.r.choice(["reflect", "reflect", "edge", "constant", "wrap"]), [self.r.randrange(3) for _ in range(4)]
        self.x = self.op("Pad", self.x, self.constant(np.array([0, 0, *amounts[:2], 0, 0, *amounts[2:]])), mode=mode)

    def pool(self):
        n = self.r.choice([2, 3])
        self.x = self.op(self.r.choice(["MaxPool", "AveragePool"]), self.x, kernel_shape=[n, n], strides=[self.r.choice([1, 2])] * 2, pads=[n // 2] * 4)

    def scaled(self):
        y = self.op("Mul", self.x, self.weight(1, self.width, 1, 1, fan=1))
        self.x = self.op("Add", self.op("HardSwish", y), y)

    def save(self, path):
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "images", [info("x", TP.FLOAT, ["n", self.first, "h", "w"])], [info(self.x, TP.FLOAT, None)], self.inits)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10), path)


def check(seed, work, braid):
    """Texts of what differs, and how many results were compared."""
    images, found, compared, path = Images(seed), [], 0, "%s/images%d.onnx" % (work, seed)
    threads, options = 1 + seed % 3, CPUS[seed // 3 % 3]
    images.save(path)
    library, reference = compiled(braid, path, threads, options), ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n, h, w in SIZES:
        x = images.g.standard_normal((n, images.first, h, w)).astype(np.float32)
        try:
            want = reference.run(None, {"x": x})[0]
        except ort.capi.onnxruntime_pybind11_state.InvalidArgument:
            continue  # too small to be reflected
        compared += 1
        if wrong := difference(result(library, x), want):
            found.append("seed %d (%s, %s, %d threads), sizes %s: %s" % (seed, " ".join(images.kinds), options, threads, (n, h, w), wrong))
    return found, compared


def few_channels(work, braid):
    """Units share positions of layers of few channels, not the lanes of a vector."""
    found, path = [], work + "/few.onnx"
    for channels, threads in itertools.product((5, 10, 12), ("1", "2", "4")):
        images = Images(0)
        images.nodes, images.x, images.width = [], "x", images.first
        images.layer("Conv", 32, 1, (3, 3))
        images.layer("Conv", channels, 1, (3, 3))
        images.save(path)
        said = subprocess.run([braid, "explain", "--threads", threads, path], capture_output=True, text=True, check=True).stdout
        if len(re.findall(r"chosen (?:near|tile|winograd)\b", said)) != 2:
            found.append(f"{channels} channels, {threads} threads: computed without vectors")
    return found


if __name__ == "__main__":
    run(__doc__, check, few_channels)
