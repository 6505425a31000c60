#!/usr/bin/env python3
"""Independent groups that run side by side on the warps of a block: values against the interpreter, on both emulated
GPUs, in graphs made for it.

    beside_check.py [N] [--seed S] [--braid BRAID]

Each graph has rows of alike and of different members (cells with products, sums over rows, elementwise work, an
ArgMax), more and fewer than a block has warps, in a loop that carries all of them or without one, with sizes that are
no multiples of anything. Most must have groups side by side: of some, fusion makes one group. Last, how much was run.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (1, 3, 8, 13, 32, 47, 64)


class Maker:
    def __init__(self, seed):
        self.r, self.g = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.constants, self.names = [], [], 0

    def node(self, op, *inputs, **attributes):
        self.names += 1
        out = "v%d" % self.names
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def constant(self, *shape):
        self.names += 1
        name = "w%d" % self.names
        self.constants.append(numpy_helper.from_array((self.g.standard_normal(shape) / 4).astype(np.float32), name))
        return name

    def member(self, kind, x, h, n, m):
        """A new state [batch, m] of x [batch, n] and its old state h."""
        product = self.node("Add", self.node("MatMul", x, self.constant(n, m)), self.node("MatMul", h, self.constant(m, m)))
        if kind == "gates":
            gate = self.node("Sigmoid", self.node("Add", product, self.constant(m)))
            return self.node("Add", self.node("Mul", gate, h), self.node("Tanh", product))
        if kind == "rows":
            return self.node("Softmax", product, axis=-1)
        if kind == "norm":
            mean = self.node("ReduceMean", h, keepdims=1, axes=[1])
            return self.node("Mul", self.node("Sub", h, mean), self.constant(m))
        if kind == "far":
            best = self.node("Cast", self.node("ArgMax", h, axis=1, keepdims=1), to=TensorProto.FLOAT)
            return self.node("Add", self.node("Mul", h, self.constant(m)), best)
        return self.node("Tanh", self.node("Add", self.node("Mul", h, self.constant(m)), self.constant(1, m)))


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def graph(seed):
    """A model, and its inputs."""
    k = Maker(seed)
    members, batch, n = k.r.choice((2, 3, 5, 9, 11)), k.r.choice((1, 1, 2, 5)), k.r.choice(SIZES)
    same, loop = k.r.random() < 0.5, k.r.random() < 0.7
    kinds = ["gates", "rows", "norm", "far", "plain"]
    widths = [k.r.choice(SIZES) for _ in range(members)]
    chosen = [k.r.choice(kinds) for _ in range(members)]
    if same:
        widths, chosen = widths[:1] * members, chosen[:1] * members
    new = [k.member(kind, "x", "h%d" % i, n, m) for i, (kind, m) in enumerate(zip(chosen, widths))]
    rows = "B" if k.r.random() < 0.3 else batch
    states = [value("s%d" % i, rows, m) for i, m in enumerate(widths)]
    if loop:
        body = helper.make_graph(k.nodes + [helper.make_node("Identity", ["go"], ["on"])], "body",
                                 [helper.make_tensor_value_info("i", TensorProto.INT64, ()), helper.make_tensor_value_info("go", TensorProto.BOOL, ())]
                                 + [value("h%d" % i, rows, m) for i, m in enumerate(widths)],
                                 [helper.make_tensor_value_info("on", TensorProto.BOOL, ())] + [value(v, rows, m) for v, m in zip(new, widths)])
        k.constants.append(numpy_helper.from_array(np.array(k.r.choice((1, 3, 4)), np.int64), "trips"))
        outs = ["y%d" % i for i in range(members)]
        nodes = [helper.make_node("Loop", ["trips", ""] + ["s%d" % i for i in range(members)], outs, body=body)]
    else:
        nodes = [helper.make_node("Identity", ["s%d" % i], ["h%d" % i]) for i in range(members)] + k.nodes
        outs = new
    inputs = [value("x", rows, n), *states]
    model = helper.make_model(helper.make_graph(nodes, "beside", inputs, [value(y, rows, m) for y, m in zip(outs, widths)], k.constants),
                              opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model, [(i.name, k.g.standard_normal((batch, w)).astype(np.float32)) for i, w in zip(inputs, [n] + widths)]


def run(braid, work, inputs, n, *target):
    out = os.path.join(work, "out")
    files = [a for name, _ in inputs for a in ("-i", "%s=%s/%s.npy" % (name, work, name))]
    subprocess.run([braid, "run", work + "/model.onnx", *files, "-o", out, *target], check=True, stdout=subprocess.DEVNULL)
    return [np.load("%s/output_%d.npy" % (out, i)) for i in range(n)]


def differ(braid, work, inputs, n, how, equal):
    """How the n outputs of a run differ from the interpreter's, in words; "" if they do not."""
    try:
        want, got = run(braid, work, inputs, n, "--target", "interp"), run(braid, work, inputs, n, *how)
    except subprocess.CalledProcessError:
        return "the run failed"
    bad = [i for i in range(n) if want[i].shape != got[i].shape or not equal(want[i], got[i])]
    return "outputs %s differ" % bad if bad else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="?", default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--braid", default="build/release/braid")
    args = parser.parse_args()
    failed = outputs = rows = graphs = 0
    for seed in range(args.seed, args.seed + args.n):
        target = ("emulate:cuda", "emulate:hip")[seed % 2]
        with tempfile.TemporaryDirectory() as work:
            model, inputs = graph(seed)
            onnx.save(model, work + "/model.onnx")
            for name, x in inputs:
                np.save("%s/%s.npy" % (work, name), x)
            how = ["--target", target, "--schedule", "beside=on"]
            tree = subprocess.run([args.braid, "explain", work + "/model.onnx", *how], check=True, capture_output=True, text=True).stdout
            found = tree.count("side by side")
            rows += found
            graphs += found > 0
            n = len(model.graph.output)
            why = differ(args.braid, work, inputs, n, how, lambda a, b: np.allclose(a, b, 1e-3, 1e-5))
            outputs += n
            if why:
                failed += 1
                print("FAIL: graph of seed %d on %s: %s" % (seed, target, why), flush=True)
    if 2 * graphs < args.n:
        failed += 1
        print("FAIL: groups run side by side in %d graphs" % graphs)
    print("%d graphs, %d rows of groups side by side, %d outputs, %d failed" % (args.n, rows, outputs, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
