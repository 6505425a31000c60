#!/usr/bin/env python3
"""Random products and convolutions with weights of few bits, against the interpreter: float16, bfloat16, integers of 2, 4
and 8 bits with scales by column or by blocks, and float32 weights that --weights rounds; for several instruction sets.

    narrow_check.py [COUNT] [--seed S] [--braid PATH] [--cpu NAME]...

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed. A run in which less than
half of the libraries read narrow weights fails, and one in which --weights leaves a product over rows of unknown number as
it is.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as TP, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

ROWS = [1, 1, 2, 5, 7, 16, 31, 70]
FLOATS = {TP.FLOAT: np.float32, TP.FLOAT16: np.float16}
TOLERANCE = {TP.FLOAT: 1e-3, TP.FLOAT16: 6e-3, TP.BFLOAT16: 5e-2}
ROUNDED = {"f16": 4e-3, "bf16": 3e-2, "int8": 6e-2}  # --weights
NARROW = ("= bk_loadh(w", "= bk_loadb(w", "= bk_loadu(w")


class Model:
    """Sums over inputs of one type, float32 outside: what is computed in it is cast."""

    def __init__(self, seed):
        self.r, self.nodes, self.inits, self.inputs, self.feed, self.n = np.random.default_rng(seed), [], [], [], [], 0
        self.type = self.pick(TP.FLOAT16, TP.BFLOAT16, TP.FLOAT, TP.FLOAT)
        self.rounded = self.pick(*ROUNDED) if self.type == TP.FLOAT and self.r.random() < .5 else None
        self.outputs = [self.member() for _ in range(4)]

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def constant(self, value, dtype=None):
        self.n += 1
        self.inits.append(numpy_helper.from_array(np.asarray(value), f"c{self.n}") if dtype is None else
                          helper.make_tensor(f"c{self.n}", dtype, value.shape, value.ravel().tolist()))
        return f"c{self.n}"

    def weight(self, *shape):
        value = self.r.standard_normal(shape) / np.sqrt(max(1, np.prod(shape) / max(shape)))
        return self.constant(value, self.type)

    def op(self, kind, *inputs, domain="", **attributes):
        self.n += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"t{self.n}"], domain=domain, **attributes))
        return f"t{self.n}"

    def input(self, *shape):
        outside = self.type if self.type in FLOATS and self.r.random() < .7 else TP.FLOAT
        name = f"x{len(self.inputs)}"
        dims = [f"{name}_{i}" if i == len(shape) - 2 and self.r.random() < .2 else n for i, n in enumerate(shape)]
        self.inputs.append(helper.make_tensor_value_info(name, outside, dims))
        self.feed.append(self.r.standard_normal(shape).astype(FLOATS[outside]))
        return name if outside == self.type else self.op("Cast", name, to=self.type)

    def member(self):
        sums, coded = [self.product, self.convolution, self.both], [self.bits, self.blocks, self.channels]
        y = self.pick(*(sums if self.type != TP.FLOAT or self.rounded else coded))()
        if self.r.random() < .5:
            y = self.op(self.pick("Relu", "Tanh", "Neg"), y)
        return self.op("Cast", y, to=TP.FLOAT) if self.type not in FLOATS or self.r.random() < .5 else y

    # ---- 16 bits
    def product(self):
        m, k, n = self.pick(*ROWS), self.pick(1, 7, 32, 100, 257), self.pick(5, 16, 33, 64, 96, 200)
        y = self.op("MatMul", self.input(m, k), self.weight(k, n))
        if self.r.random() < .5:
            y = self.op("Add", y, self.weight(n))
        if self.r.random() < .4:
            y = self.op("Gemm", self.op("Relu", y), self.weight(40, n), self.weight(40), transB=1)
        return y

    def both(self):
        b, m, k, n = self.pick(1, 3), self.pick(1, 9, 33), self.pick(8, 40, 64), self.pick(7, 16, 40)
        x, y = self.input(b, m, k), self.input(b, n, k)
        return self.op("Softmax", self.op("MatMul", x, self.op("Transpose", y, perm=[0, 2, 1])), axis=-1)

    def convolution(self):
        c, n, size = self.pick(1, 3, 16, 24), self.pick(8, 17, 32, 48), self.pick(7, 12, 15)
        group = self.pick(1, 1, c)
        n, k = n * c if group > 1 else n, self.pick(1, 3, 3, 5)
        y = self.op("Conv", self.input(self.pick(1, 2), c, size, size), self.weight(n, c // group, k, k), self.weight(n),
                    group=group, pads=[k // 2] * 4, strides=[self.pick(1, 2)] * 2)
        if self.r.random() < .6:
            y = self.op("Conv", self.op("Relu", y), self.weight(16, n, 1, 1))
        return self.op("MaxPool", y, kernel_shape=[2, 2]) if self.r.random() < .3 else y

    # ---- few bits
    def rows(self, m, k):
        return self.input(*self.pick((m, k), (m, k), (2, m, k)))

    def bits(self):
        """com.microsoft.MatMulNBits."""
        m, k, n, bits, block = self.pick(*ROWS), self.pick(32, 64, 96, 200), self.pick(5, 16, 33, 64, 100), self.pick(2, 4, 4, 8), self.pick(16, 32, 64)
        blocks = -(-k // block)
        inputs = [self.rows(m, k), self.constant(self.r.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)),
                  self.constant((self.r.random((n, blocks)) * .05).astype(np.float32))]
        if self.r.random() < .5:
            inputs.append(self.constant(self.r.integers(0, 256, (n, (blocks * bits + 7) // 8)).astype(np.uint8)))
        return self.op("MatMulNBits", *inputs, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)

    def blocks(self):
        """DequantizeLinear by blocks of integers of 4 and 8 bits."""
        m, k, n, block = self.pick(*ROWS), self.pick(32, 64, 96), self.pick(5, 16, 33, 64, 100), self.pick(16, 32)
        dtype = self.pick(TP.INT4, TP.UINT4, TP.INT8, TP.UINT8)
        low, high = {TP.INT4: (-8, 8), TP.UINT4: (0, 16), TP.INT8: (-128, 128), TP.UINT8: (0, 256)}[dtype]
        inputs = [self.constant(self.r.integers(low, high, (k, n)), dtype), self.constant((self.r.random((k // block, n)) * .02).astype(np.float32))]
        if self.r.random() < .5:
            inputs.append(self.constant(self.r.integers(low, high, (k // block, n)), dtype))
        return self.op("MatMul", self.rows(m, k), self.op("DequantizeLinear", *inputs, axis=0, block_size=block))

    def channels(self):
        """DequantizeLinear by columns, or with one scale, of 8 bits."""
        m, k, n = self.pick(*ROWS), self.pick(1, 31, 64, 130), self.pick(5, 16, 33, 64, 100)
        each = self.pick((), (n,))
        inputs = [self.constant(self.r.integers(-128, 128, (k, n)).astype(np.int8)), self.constant((.001 + self.r.random(each) * .01).astype(np.float32))]
        if self.r.random() < .5:
            inputs.append(self.constant(self.r.integers(-128, 128, each).astype(np.int8)))
        return self.op("MatMul", self.rows(m, k), self.op("DequantizeLinear", *inputs, axis=1))

    def proto(self):
        outputs = [helper.make_empty_tensor_value_info(o) for o in self.outputs]
        graph = helper.make_graph(self.nodes, "narrow", self.inputs, outputs, self.inits)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def write(folder, model, braid):
    """The model with its inputs, and what the interpreter makes of them. Returns the path of the model."""
    path, out = folder + "/model.onnx", folder + "/want"
    backend_test.write(folder, model.proto(), model.feed, [])
    given = [f"-i={i.name}={folder}/test_data_set_0/input_{k}.pb" for k, i in enumerate(model.inputs)]
    subprocess.run([braid, "run", path, "--target", "interp", "-o", out] + [w for g in given for w in ("-i", g[3:])], check=True)
    want = [np.load(f"{out}/output_{i}.npy") for i in range(len(model.outputs))]
    backend_test.write(folder, model.proto(), model.feed, want)
    return path


def open_rows(folder, braid):
    """Whether --weights narrows a product that waits for its weights, with as many rows as a run has, unforced."""
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((1024, 1024), np.float32), "w")
    ends = [helper.make_tensor_value_info(n, TP.FLOAT, ["batch", "rows", 1024]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "open", ends[:1], ends[1:], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder + "/open.onnx")
    said = subprocess.run([braid, "explain", "--weights", "f16", folder + "/open.onnx"], capture_output=True, text=True, check=True)
    found = "chosen narrow" in said.stdout
    print("rows of unknown number: " + ("narrow weights" if found else "weights stay wide\n" + said.stdout))
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("count", nargs="?", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--cpu", action="append", default=[])
    a = p.parse_args()
    failures = narrow = 0
    with tempfile.TemporaryDirectory() as d:
        failures += not open_rows(d, a.braid)
        for i in range(a.count):
            model, folder = Model(a.seed + i), f"{d}/seed_{a.seed + i}"
            path, bound = write(folder, model, a.braid), str(ROUNDED.get(model.rounded, TOLERANCE[model.type]))
            how = ["--weights", model.rounded, "--schedule", "narrow=on"] if model.rounded else []
            for cpu in a.cpu or [None]:
                on = ["--cpu", cpu] if cpu else []
                r = subprocess.run([a.braid, "test", "--threads", str(1 + i % 3), "--rtol", bound, "--atol", bound, *how, *on, folder],
                                   capture_output=True, text=True)
                failures += r.returncode != 0
                if r.returncode:
                    print(f"seed {a.seed + i} {cpu or ''}: {r.stdout}{r.stderr}")
            subprocess.run([a.braid, "compile", path, "--emit-c", d + "/c", *how], check=True)
            texts = [open(f"{base}/{f}").read() for base, _, files in os.walk(d + "/c") for f in files if f.endswith(".c")]
            narrow += any(call in text for text in texts for call in NARROW)
    print(f"{a.count} models, {failures} failed, {narrow} with narrow weights")
    return int(failures > 0 or narrow * 2 < a.count)


if __name__ == "__main__":
    sys.exit(main())
