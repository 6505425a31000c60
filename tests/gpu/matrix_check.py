#!/usr/bin/env python3
"""Products by the matrix units of GPUs: of 16-bit floats, and on request of float32.

    matrix_check.py FOLDER [--target T] [--threads N] [--seed S] [--braid PATH]

Writes models with MatMul and Gemm inside of a Loop to FOLDER, with what they should give, computed in float64 with the
roundings that ONNX asks for, and runs `braid test` on them. Fails also when the matrix units were not used.
"""
import argparse
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

STEPS = 3
TYPES = {
    "f16": (TensorProto.FLOAT16, np.float16),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "f32": (TensorProto.FLOAT, np.float32),
}
# Rows, and the state's width; none, some or all multiples of 16. Others are random.
SHAPES = [(1, 16), (3, 40), (5, 17), (20, 48), (33, 130), (64, 64)]
RANDOM = 3


class Graph:
    def __init__(self, kind, rows, width, seed):
        self.type, self.dtype = TYPES[kind]
        self.r = np.random.default_rng(seed)
        self.weights, self.nodes = [], []
        self.rows, self.width = rows, width

    def rounded(self, x):
        return x.astype(np.float32).astype(self.dtype)

    def array(self, *shape, scale=1.0):
        return self.rounded(self.r.standard_normal(shape) * scale)

    def weight(self, name, *shape):
        a = self.array(*shape, scale=shape[0] ** -0.5)
        self.weights.append(proto_of(a, name))
        return a

    def op(self, kind, inputs, output, **attrs):
        self.nodes.append(helper.make_node(kind, inputs, [output], **attrs))
        return output


def proto_of(a, name):
    if a.dtype == ml_dtypes.bfloat16:
        return helper.make_tensor(name, TensorProto.BFLOAT16, a.shape, a.tobytes(), raw=True)
    return numpy_helper.from_array(a, name)


def product(g, a, b):
    return g.rounded(a.astype(np.float64) @ b.astype(np.float64))


def model(kind, rows, width, seed):
    """h = tanh(Gemm(x, W, b, transB) + MatMul(h, U) + MatMul(h, x')), whose last factor is not constant."""
    g = Graph(kind, rows, width, seed)
    x, h, y = g.array(rows, width), g.array(rows, width, scale=0.3), g.array(width, width, scale=width ** -0.5)
    w, b, u = g.weight("w", width, width), g.weight("b", width), g.weight("u", width, width)
    g.op("Gemm", ["x", "w", "b"], "p", transB=1)
    g.op("MatMul", ["h_in", "u"], "q")
    g.op("MatMul", ["h_in", "y"], "s")
    g.op("Add", ["p", "q"], "pq")
    g.op("Add", ["pq", "s"], "pqs")
    g.op("Tanh", ["pqs"], "h_out")
    g.op("Identity", ["c_in"], "c_out")
    info = lambda name, *shape: helper.make_tensor_value_info(name, g.type, shape)
    scalar = lambda name, t: helper.make_tensor_value_info(name, t, [])
    body = helper.make_graph(g.nodes, "body", [scalar("i", TensorProto.INT64), scalar("c_in", TensorProto.BOOL),
                                               info("h_in", rows, width)],
                             [scalar("c_out", TensorProto.BOOL), info("h_out", rows, width)])
    g.weights.append(numpy_helper.from_array(np.int64(STEPS), "steps"))
    loop = helper.make_node("Loop", ["steps", "", "h"], ["last"], body=body)
    graph = helper.make_graph([loop], f"products_{kind}", [info("x", rows, width), info("h", rows, width), info("y", width, width)],
                              [info("last", rows, width)], g.weights)
    feed = [x, h, y]
    for _ in range(STEPS):
        p = g.rounded(product_exact(x, w.T) + b.astype(np.float64))
        total = g.rounded(p.astype(np.float64) + product(g, h, u).astype(np.float64))
        total = g.rounded(total.astype(np.float64) + product(g, h, y).astype(np.float64))
        h = g.rounded(np.tanh(total.astype(np.float64)))
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), feed, h


def product_exact(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def write(folder, proto, feed, want):
    backend_test.write(folder, proto, [proto_of(v, "") for v in feed], [proto_of(want, "")])


def by_matrix_units(args, folder, force):
    text = f"{folder}/model.cu"
    command = [args.braid, "compile", f"{folder}/model.onnx", "-o", f"{folder}/model.so", "--emit", text, "--target", args.target]
    if subprocess.run(command + force).returncode:
        return False
    with open(text) as f:
        if any("bk_matrix_" in line and "(acc +" in line for line in f):
            return True
    print(f"FAIL {folder}: not by matrix units")
    return False


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("folder")
    ap.add_argument("--target", default="emulate:cuda")
    ap.add_argument("--threads", default="4")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--braid", default="build/braid")
    args = ap.parse_args()
    failed = 0
    r = np.random.default_rng(args.seed)
    shapes = [(int(r.integers(1, 70)), int(r.integers(16, 140))) for _ in range(RANDOM)] + SHAPES
    for kind in TYPES:
        if kind == "f32" and "hip" in args.target:
            continue  # no tf32 there
        folders = []
        for i, (rows, width) in enumerate(shapes):
            folders.append(f"{args.folder}/{kind}_{rows}x{width}")
            write(folders[-1], *model(kind, rows, width, args.seed + i))
        # A rounding of 16 bits that falls the other way, or one of 10 bits in each factor.
        step = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 4e-3}[kind]
        command = [args.braid, "test", "--target", args.target, "--threads", args.threads, "--rtol", str(step), "--atol", str(step)]
        force = ["--schedule", "tf32=on" if kind == "f32" else "matrix=on"]
        failed |= subprocess.run(command + force + folders).returncode
        failed |= not by_matrix_units(args, folders[-1], force)
    return failed


if __name__ == "__main__":
    sys.exit(main())
