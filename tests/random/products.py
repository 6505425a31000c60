#!/usr/bin/env python3
"""Products at host level on emulated GPUs: random programs of matrix products, epilogues, movements and loops, with sizes
that are known and that are not, against ONNX Runtime, the first two of half precision; with the library, without it, and
with one that fails.

    products.py --braid BRAID [--programs N] [--seed S] [--threads N] [--target T]...
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, TESTS + "/../eval"]
import backend_test  # noqa: E402
import braid_api  # noqa: E402


class Program:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.g = np.random.default_rng(seed)
        self.nodes, self.inits, self.inputs, self.feed, self.count = [], [], [], {}, 0
        r = self.r
        self.dynamic = r.random() < .6
        self.shape = [2 + r.randrange(2)] * (r.random() < .6) + [self.size(), self.size()]
        names = ["d%d" % i if self.dynamic and r.random() < .6 else n for i, n in enumerate(self.shape)]
        self.x = self.input(self.shape, names[:-1] + self.shape[-1:])
        for _ in range(r.randint(1, 4)):
            self.product()
            self.between()
        self.outputs = [self.x, self.op("ReduceMean", [self.x], keepdims=0)]

    def size(self):
        return self.r.choice([1, 2, 3, 5, 8, 9, 16, 17])

    def name(self):
        self.count += 1
        return "v%d" % self.count

    def values(self, *shape):
        return (self.g.standard_normal(shape) / max(1, shape[-1]) ** .5).astype(np.float32)

    def const(self, a):
        self.inits.append(numpy_helper.from_array(np.asarray(a), self.name()))
        return self.inits[-1].name

    def input(self, shape, names=None):
        name = self.name()
        self.inputs.append(helper.make_tensor_value_info(name, TP.FLOAT, names or shape))
        self.feed[name] = self.values(*shape)
        return name

    def op(self, kind, ins, **attributes):
        self.nodes.append(helper.make_node(kind, ins, [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def product(self):
        """x by something."""
        r, k, n, rank = self.r, self.shape[-1], self.size(), len(self.shape)
        way = r.choice(["weights", "gemm", "own", "batch", "input", "turned"])
        if way == "gemm" and rank == 2:
            ins = [self.x, self.const(self.values(n, k)), self.const(self.values(n))]
            self.x = self.op("Gemm", ins, transB=1, alpha=r.choice([1., .5]))
        elif way == "own":
            n = self.shape[-2]
            self.x = self.op("MatMul", [self.x, self.op("Transpose", [self.x], perm=[*range(rank - 2), rank - 1, rank - 2])])
        elif way == "batch" and rank == 3:
            names = [r.choice(["d0", self.shape[0]]), k, n] if self.dynamic else None
            self.x = self.op("MatMul", [self.x, self.input([self.shape[0], k, n], names)])
        elif way == "input":
            self.x = self.op("MatMul", [self.x, self.input([k, n])])
        elif way == "turned":
            self.x = self.op("MatMul", [self.x, self.op("Transpose", [self.const(self.values(n, k))], perm=[1, 0])])
        else:
            self.x = self.op("MatMul", [self.x, self.const(self.values(k, n))])
        self.shape = self.shape[:-1] + [n]

    def between(self):
        """Behind a product: an epilogue, a part of it, a hand-written body that takes memory, or a loop whose trip count the
        data decides."""
        way = self.r.choice(["none", "relu", "bias", "part", "sort", "loop", "loop"])
        if way == "relu":
            self.x = self.op("Relu", [self.x])
        elif way == "bias":
            self.x = self.op("Tanh", [self.op("Add", [self.x, self.const(self.values(self.shape[-1]))])])
        elif way == "sort":
            values, places = self.name(), self.name()
            self.nodes.append(helper.make_node("TopK", [self.x, self.const(np.array([self.shape[-1]]))], [values, places]))
            self.x = values
        elif way == "part" and self.shape[-1] % 2 == 0:
            half = self.shape[-1] // 2
            self.x = self.op("Slice", [self.x] + [self.const(np.array([n])) for n in (half, 2 * half, -1)])
            self.shape = self.shape[:-1] + [half]
        elif way == "loop":
            whole = self.op("Cast", [self.op("Abs", [self.op("ReduceSum", [self.x], keepdims=0)])], to=TP.INT64)
            trips = self.op("Mod", [whole, self.const(np.int64(4))])
            b = "b%d" % self.count
            any_ = [None] * len(self.shape)
            info = helper.make_tensor_value_info
            body = helper.make_graph(
                [helper.make_node("Sin", [b + "x"], [b + "y"]), helper.make_node("Identity", [b + "c"], [b + "d"]),
                 helper.make_node("ReduceMax", [b + "y"], [b + "s"], keepdims=0)], "body",
                [info(b + "i", TP.INT64, []), info(b + "c", TP.BOOL, []), info(b + "x", TP.FLOAT, any_)],
                [info(b + "d", TP.BOOL, []), info(b + "y", TP.FLOAT, any_), info(b + "s", TP.FLOAT, [])])
            last, each = self.name(), self.name()
            self.nodes.append(helper.make_node("Loop", [trips, "", self.x], [last, each], body=body))
            more = self.op("ReduceSum", [each], keepdims=0) if self.r.random() < .5 else self.op("Cast", [trips], to=TP.FLOAT)
            self.x = self.op("Add", [last, more])

    def save(self, folder):
        outs = [helper.make_tensor_value_info(n, TP.FLOAT, [None] * k) for n, k in zip(self.outputs, (len(self.shape), 0))]
        g = helper.make_graph(self.nodes, "products", self.inputs, outs, self.inits)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, self.feed)
        backend_test.write(folder, m, self.feed.values(), want)


def save_half(folder, dtype):
    """Two products of small whole numbers, so that every order of summation gives the same."""
    g = np.random.default_rng(1)
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    x, w, v = (g.integers(-1, 2, shape).astype(np.float32) for shape in ((2, 5, 9), (9, 16), (2, 16, 4)))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
         helper.make_node("MatMul", ["r", "v"], ["y"])], "half",
        [info("x", dtype, [2, "n", 9]), info("v", dtype, [2, 16, 4])], [info("y", dtype, [2, "n", 4])],
        [numpy_helper.from_array(w.astype(kind), "w")])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    backend_test.write(folder, m, [x.astype(kind), v.astype(kind)], [(np.maximum(x @ w, 0) @ v).astype(kind)])


def run(*args, **env):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env})
    return r.returncode, r.stdout


def repeated(braid, target, how, folder):
    """One session many times: the sequence of launches and products is a graph from the third run on. Whether all was well."""
    path, library = os.path.join(folder, "model.onnx"), os.path.join(folder, target.replace(":", "_") + ".so")
    status, text = run(braid, "compile", path, "--target", target, *how, "-o", library)
    if status:
        print(text)
        return False
    peer = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    model, g = braid_api.Compiled(library, 3), np.random.default_rng(1)
    shapes = {}
    for i, name in enumerate(model.inputs):
        shapes[name] = onnx.load_tensor(os.path.join(folder, "test_data_set_0/input_%d.pb" % i)).dims
    for _ in range(5):
        feed = {name: g.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        model.bind(feed)
        model.run()
        for name, want in zip([o.name for o in peer.get_outputs()], peer.run(None, feed)):
            if not np.allclose(model.out(name), want, 1e-3, 1e-5):
                return False
    return True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--programs", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", default="3")
    p.add_argument("--target", action="append")
    o = p.parse_args()
    targets, bad, products = o.target or ["emulate:cuda", "emulate:hip"], 0, 0
    how = ["--schedule", "library=on", "--threads", o.threads]
    with tempfile.TemporaryDirectory() as work:
        for seed in range(o.seed, o.seed + o.programs):
            folder = os.path.join(work, str(seed))
            if seed < o.seed + 2:
                save_half(folder, [TP.FLOAT16, TP.BFLOAT16][seed - o.seed])
            else:
                Program(seed).save(folder)
            said = run(o.braid, "explain", "--target", targets[0], *how, os.path.join(folder, "model.onnx"))[1]
            products += int((re.search(r"^launches: .*, (\d+) products", said, re.M) or [0, 0])[1])
        for target in targets:
            for seed in range(o.seed + 2, min(o.seed + 4, o.seed + o.programs)):
                good = repeated(o.braid, target, how, os.path.join(work, str(seed)))
                print("%s, runs of one session: %s" % (target, "good" if good else "FAIL: program %d" % seed))
                bad += not good
        for i, target in enumerate(targets):
            for library in ["", ["none", "fails"][i % 2]]:
                status, text = run(o.braid, "test", "--target", target, *how, work, BRAID_EMULATE_LIBRARY=library)
                print("%s, library %s: %s" % (target, library or "there", text.strip()))
                bad += status != 0 or not text.splitlines()[-1].startswith("%d passed" % o.programs)
    print("%d programs, %d products at host level" % (o.programs, products))
    return bad > 0 or products < o.programs


if __name__ == "__main__":
    sys.exit(main())
