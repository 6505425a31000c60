#!/usr/bin/env python3
"""Models whose sizes are open: random chains of layers over (batch, length, channels), one library for all sizes, with batch
and length in every rest of a tile's rows, against ONNX Runtime; and for one size against a library that knows it.

    sizes_check.py [COUNT] [--seed S] [--braid PATH]
"""
import os
import platform
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS + "/../eval")
import braid_api  # noqa: E402
import seeded  # noqa: E402

WIDTHS = [16, 24, 40, 64, 100, 1024]  # rows of 1,024 floats lie a page apart
SIZES = [((1, 2, 3, 9)[n % 4], n) for n in range(1, 34)] + [(n, 1) for n in (7, 12, 33)] + [(17, 2), (1, 70), (65, 3)]
CPUS = [[], [], ["--cpu", "x86-64-v3"] if platform.machine() == "x86_64" else []]


class Chain:
    def __init__(self, seed):
        self.r, self.g = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.inits, self.kinds = [], [], []
        self.width = self.first = self.r.choice(WIDTHS)
        self.x = "x"
        kinds = [self.dense, self.turned, self.window, self.norm, self.attention, self.lstm, self.centre]
        for kind in self.r.sample(kinds, 3) if seed % 2 else self.r.choices(kinds, k=2) + [self.dense]:
            kind()
            self.kinds.append(kind.__name__)

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = ["t%d_%d" % (len(self.nodes), i) for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def constant(self, value):
        self.inits.append(numpy_helper.from_array(np.asarray(value), "c%d" % len(self.inits)))
        return self.inits[-1].name

    def weight(self, *shape, fan):
        return self.constant((self.g.standard_normal(shape) / fan ** .5).astype(np.float32))

    def product(self, x, m):
        y = self.op("MatMul", x, self.weight(self.width, m, fan=self.width))
        self.width = m
        return y

    def dense(self):
        y = self.product(self.x, self.r.choice(WIDTHS))
        y = self.op("Add", y, self.weight(self.width, fan=1))
        self.x = self.op(self.r.choice(["Relu", "Tanh", "Sigmoid"]), y)

    def turned(self):
        """Rows in the other order: (length, batch), which cannot be one axis."""
        y = self.product(self.op("Transpose", self.x, perm=[1, 0, 2]), self.r.choice(WIDTHS))
        self.x = self.op("Transpose", self.op("Relu", y), perm=[1, 0, 2])

    def window(self):
        m = self.r.choice(WIDTHS[:4])
        y = self.op("Transpose", self.x, perm=[0, 2, 1])
        y = self.op("Conv", y, self.weight(m, self.width, 3, fan=3 * self.width), self.weight(m, fan=1), pads=[1, 1])
        self.x, self.width = self.op("Transpose", y, perm=[0, 2, 1]), m

    def norm(self):
        self.x = self.op("LayerNormalization", self.x, self.weight(self.width, fan=1), self.weight(self.width, fan=1))

    def attention(self):
        heads, size = self.r.choice([(1, 16), (2, 24), (4, 16)])
        parts, width = [], self.width
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            y = self.op("Reshape", self.product(self.x, heads * size), self.constant(np.array([0, 0, heads, size])))
            parts.append(self.op("Transpose", y, perm=perm))
            self.width = width
        scores = self.op("Mul", self.op("MatMul", *parts[:2]), self.constant(np.float32(size ** -.5)))
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), parts[2]), perm=[0, 2, 1, 3])
        self.x, self.width = self.op("Reshape", y, self.constant(np.array([0, 0, heads * size]))), heads * size

    def lstm(self):
        h = self.r.choice([8, 24, 64])
        y = self.op("Transpose", self.x, perm=[1, 0, 2])
        y = self.op("LSTM", y, self.weight(1, 4 * h, self.width, fan=self.width), self.weight(1, 4 * h, h, fan=h), hidden_size=h)
        y = self.op("Squeeze", y, self.constant(np.array([1])))
        self.x, self.width = self.op("Transpose", y, perm=[1, 0, 2]), h

    def centre(self):
        self.x = self.op("Sub", self.x, self.op("ReduceMean", self.x, self.constant(np.array([1])), keepdims=1))

    def save(self, path, batch, length):
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "sizes", [info("x", TP.FLOAT, [batch, length, self.first])],
                                  [info(self.x, TP.FLOAT, None)], self.inits)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def compiled(braid, path, threads, options):
    library = path[:-len("onnx")] + "so"
    subprocess.run([braid, "compile", path, "-o", library, "--threads", str(threads)] + options, check=True)
    return braid_api.Compiled(library, threads)


def result(session, x):
    session.bind({"x": x})
    session.run()
    return session.out(session.outputs[0])


def difference(got, want):
    """What is wrong with a result; None: nothing is."""
    if got.shape != want.shape:
        return f"{got.shape}, not {want.shape}"
    return None if np.allclose(got, want, rtol=1e-3, atol=2e-4) else f"differs by {np.abs(got - want).max()}"


def check(seed, work, braid):
    """Texts of what differs, and how many results were compared."""
    chain, found = Chain(seed), []
    threads, options = chain.r.randint(1, 3), chain.r.choice(CPUS)
    path, fixed_path = "%s/open%d.onnx" % (work, seed), "%s/fixed%d.onnx" % (work, seed)
    chain.save(path, "batch", "length")
    library, reference = compiled(braid, path, threads, options), ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    known = chain.r.choice(SIZES)
    chain.save(fixed_path, *known)
    fixed = compiled(braid, fixed_path, threads, options)
    sizes = chain.r.sample(SIZES, len(SIZES))
    for size in sizes:
        x = chain.g.standard_normal((*size, chain.first)).astype(np.float32)
        want = reference.run(None, {"x": x})[0]
        for name, session in [("open", library)] + [("fixed", fixed)] * (size == known):
            if wrong := difference(result(session, x), want):
                found.append("seed %d (%s, %s, %d threads), %s sizes %s: %s" % (seed, " ".join(chain.kinds), options, threads, name, size, wrong))
    return found, len(sizes) + 1


def run(doc, check, *others):
    """Runs check(seed, work, braid) for each seed, and others(work, braid) once; ends the program."""
    args = seeded.options(doc, 16, where=False)
    failures, compared = [], 0
    with tempfile.TemporaryDirectory() as work:
        for seed in range(args.seed, args.seed + args.count):
            found, n = check(seed, work, args.braid)
            compared += n
            failures += found
        for other in others:
            failures += other(work, args.braid)
    print("".join("FAIL: %s\n" % f for f in failures), end="")
    print("%d models, %d results compared, %d failed" % (args.count, compared, len(failures)))
    sys.exit(bool(failures) or not compared)


if __name__ == "__main__":
    run(__doc__, check)
