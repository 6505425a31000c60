#!/usr/bin/env python3
"""Reductions of what units make together, by each unit of its own part first (scheduler/transform/partial.c): values
against the interpreter, on both emulated GPUs.

    partial_check.py [COUNT] [--seed S] [--braid BRAID]

Each graph reduces products along their columns, in a loop that goes on from the results or without one: ArgMax and ArgMin
by both rules for ties, extremes, sums, of float32, float16 and integers, of sizes that are no multiples of anything, with
ties everywhere, NaN, infinities and zeros of both signs. The products are used elsewhere, too, or not. All numbers are
small integers, so that results are equal bit by bit. Most graphs must have such reductions. Last, how much was run.
"""
import os
import random
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), d) for d in ("gpu", "random", "")]
import beside_check  # noqa: E402
import seeded  # noqa: E402

SIZES = (64, 67, 96, 131, 200, 257, 509)
TYPES = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT8, TensorProto.DOUBLE)
UNITS = ("2", "3", "4", "7")


class Step:
    """From a state h [batch, k] of small integers in float32 the next one; `results` of it besides."""

    def __init__(self, seed):
        self.r, self.g = random.Random(seed), np.random.default_rng(seed)
        self.batch, self.k, self.n = self.r.choice((1, 1, 2, 3)), self.r.choice((8, 19, 32)), self.r.choice(SIZES)
        self.nodes, self.constants, self.results = [], [], []

    def node(self, op, *inputs, **attributes):
        self.nodes.append(helper.make_node(op, list(inputs), ["v%d" % len(self.nodes)], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, x):
        self.constants.append(numpy_helper.from_array(np.asarray(x), "w%d" % len(self.constants)))
        return self.constants[-1].name

    def numberless(self, y):
        """y with a few elements that are no numbers, or infinite."""
        add = np.zeros((1, self.n), np.float32)
        for _ in range(self.r.randint(1, 4)):
            add[0, self.r.randrange(self.n)] = self.r.choice((np.nan, np.nan, np.inf, -np.inf))
        return self.node("Add", y, self.constant(add))

    def zeros(self, y):
        """No number of y is above zero, of which there are both."""
        y = self.node("Clip", y, self.constant(np.float32(-60)), self.constant(np.float32(0)))
        return self.node("Mul", y, self.constant(self.g.choice(np.float32([1, 1, -0.0]), (1, self.n))))

    def reduce(self, y):
        """[batch, 1] in int64 of y [batch, n]."""
        kind = self.r.choice(("ArgMax", "ArgMin", "ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "ReduceSum"))
        if kind[:3] == "Arg":
            x = self.node(kind, y, axis=1, keepdims=1, select_last_index=self.r.randint(0, 1))
        elif kind == "ReduceSum":
            x = self.node(kind, self.node("Cast", y, to=TensorProto.FLOAT), self.constant(np.int64([1])))
        else:
            x = self.node(kind, y, axes=[1])
        x = self.node("Cast", x, to=TensorProto.FLOAT)
        self.results.append(x)
        bad = self.node("Or", self.node("IsNaN", x), self.node("IsInf", x))
        return self.node("Cast", self.node("Where", bad, self.constant(np.float32(3)), x), to=TensorProto.INT64)

    def next(self, h):
        whole = lambda *shape: self.g.integers(-2, 3, shape).astype(np.float32)  # noqa: E731
        y = self.node("MatMul", h, self.constant(whole(self.k, self.n)))
        if self.r.random() < .6:
            y = self.node("Add", y, self.constant(whole(self.n)))
        y = self.node("Clip", y, self.constant(np.float32(-60)), self.constant(np.float32(60)))
        self.results += [y] if self.r.random() < .4 else []
        type_ = self.r.choice(TYPES)
        if type_ in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE) and self.r.random() < .8:
            y = self.r.choice((self.numberless, self.zeros))(y)
        y = self.node("Cast", y, to=type_)
        x = self.reduce(y)
        if self.r.random() < .3:
            x = self.node("Add", x, self.reduce(y))
        five = self.constant(np.int64(5))
        x = self.node("Mod", self.node("Add", x, self.constant(np.arange(self.k, dtype=np.int64))), five)
        h = self.node("Mod", self.node("Add", x, self.node("Cast", h, to=TensorProto.INT64)), five)
        return self.node("Cast", self.node("Sub", h, self.constant(np.int64(2))), to=TensorProto.FLOAT)


def value(name, *shape, type_=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type_, shape)


def graph(seed):
    """A model, and its inputs."""
    s = Step(seed)
    state, new = value("h", s.batch, s.k), s.next("g")
    made = [value(new, s.batch, s.k)] + [value(x, s.batch, None) for x in s.results]
    if s.r.random() < .8:
        body = helper.make_graph(s.nodes + [helper.make_node("Identity", ["go"], ["on"])], "body",
                                 [value("i", type_=TensorProto.INT64), value("go", type_=TensorProto.BOOL), value("g", s.batch, s.k)],
                                 [value("on", type_=TensorProto.BOOL)] + made)
        trips = s.constant(np.int64(s.r.choice((1, 3, 4))))
        outs = [value("y%d" % i, *([None] * (3 if i else 2))) for i in range(len(made))]
        nodes = [helper.make_node("Loop", [trips, "", "h"], [y.name for y in outs], body=body)]
    else:
        nodes, outs = [helper.make_node("Identity", ["h"], ["g"]), *s.nodes], made
    model = helper.make_model(helper.make_graph(nodes, "partial", [state], outs, s.constants), opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model, [("h", s.g.integers(-2, 3, (s.batch, s.k)).astype(np.float32))]


def main():
    args = seeded.options(__doc__, 12, where=False)
    failed = outputs = found = 0
    with seeded.folders(args) as made:
        for seed, work in made.items():
            os.mkdir(work)
            model, inputs = graph(seed)
            onnx.save(model, work + "/model.onnx")
            for name, x in inputs:
                np.save("%s/%s.npy" % (work, name), x)
            how = ["--target", ("emulate:cuda", "emulate:hip")[seed % 2], "--threads", UNITS[seed // 2 % len(UNITS)],
                   "--schedule", "partial=on,core=off" if seed % 3 else "partial=on"]
            tree = subprocess.run([args.braid, "explain", work + "/model.onnx", *how], check=True, capture_output=True, text=True).stdout
            found += "chosen partial" in tree
            n = len(model.graph.output)
            why = beside_check.differ(args.braid, work, inputs, n, how, lambda a, b: np.array_equal(a, b, equal_nan=True))
            outputs += n
            if why:
                failed += 1
                print("FAIL: graph of seed %d by %s: %s" % (seed, " ".join(how), why), flush=True)
    if 2 * found < args.count:
        failed += 1
        print("FAIL: units reduce their own parts in %d graphs" % found)
    print("%d graphs, %d where units reduce their own parts, %d outputs, %d failed" % (args.count, found, outputs, failed))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
