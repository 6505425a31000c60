#!/usr/bin/env python3
"""Products whose rows are read through an index: sums, gates and other forms of gathered rows by constant matrices, with
bases, epilogues, several products of one operand, and in loops over levels of a table; numbers of rows that fill blocks and
tiles and that do not, none included; as the scheduler chooses and with the choice "operand" forced on and off, against ONNX
Runtime. And the fault of an index that is outside.

    gathered_check.py [COUNT] [--seed S] [--braid PATH] [--target T]...
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

ROWS = [0, 1, 2, 3, 5, 6, 7, 13, 16, 29, 63, 64, 65, 70, 129]
WIDTHS = [1, 3, 8, 17, 31, 64, 100, 257]
COLUMNS = [1, 16, 17, 24, 33, 48, 64, 70, 130]
info = helper.make_tensor_value_info


class Program:
    """y = f(Σ op(H[i], …) · W, …) over `rows` rows, of which the compiler knows the number or does not."""

    def __init__(self, seed):
        self.r, self.g = random.Random(seed), np.random.default_rng(seed)
        r = self.r
        self.nodes, self.inits, self.count = [], [], 0
        self.loop = r.random() < .3
        self.k, self.n, self.table = r.choice(WIDTHS), r.choice(COLUMNS), r.choice([1, 2, 40])
        if self.loop:
            self.k = self.n = r.choice([16, 24, 33, 64])
        self.rank = 1 if self.loop or r.random() < .8 else 2
        self.ways = r.sample(["i0", "i1", "i2"], 3)

    def name(self):
        self.count += 1
        return "v%d" % self.count

    def const(self, a):
        self.inits.append(numpy_helper.from_array(np.asarray(a), self.name()))
        return self.inits[-1].name

    def values(self, *shape):
        return (self.g.standard_normal(shape) / max(1, shape[0]) ** .5).astype(np.float32)

    def op(self, kind, ins, **attributes):
        self.nodes.append(helper.make_node(kind, ins, [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def gathered(self, i):
        return self.op("Gather", ["H", self.ways[i]], axis=0)

    def operand(self):
        way = self.r.choice(["one", "one", "two", "two", "three", "scaled", "gate", "function", "twice"])
        x = self.gathered(self.r.randrange(2))
        if way in ("two", "three"):
            x = self.op("Add", [x, self.gathered(1)])
        if way == "three":
            x = self.op("Sub", [x, self.gathered(2)])
        if way == "scaled":
            x = self.op("Mul", [x, self.const(self.values(self.k))])
        if way == "gate":
            x = self.op("Mul", [self.op("Add", [x, self.gathered(2)]), "R"])
        if way == "function":
            x = self.op(self.r.choice(["Relu", "Tanh", "Abs"]), [x])
        if way == "twice":
            x = self.op("Mul", [x, x])
        return x

    def products(self):
        """The sum of a few products, some with one operand."""
        r, sums, operand = self.r, [], self.operand()
        for i in range(r.choice([1, 1, 2, 3, 4, 5])):
            if i and r.random() < .4:
                operand = self.operand()
            y = self.op("MatMul", [operand, self.const(self.values(self.k, self.n))])
            if r.random() < .5:
                y = self.op("Add", [y, self.const(self.values(self.n))])
            if r.random() < .5:
                y = self.op(r.choice(["Sigmoid", "Tanh", "Relu"]), [y])
            sums.append(y)
        y = sums[0]
        for s in sums[1:]:
            y = self.op(r.choice(["Add", "Mul"]), [y, s])
        if r.random() < .3:  # the operand is used elsewhere, too
            y = self.op("Add", [y, self.op("ReduceSum", [operand, self.const(np.array([-1]))], keepdims=1)])
        return y

    def flat(self, r, known):
        """Plain: rows of an input table."""
        rows = list(r.choice([(1, 3), (2, 5), (3, 64)]) if self.rank == 2 else [r.choice(ROWS)])
        names = rows if known else ["r%d" % i for i in range(self.rank)]
        kind = r.choice([TP.INT64, TP.INT64, TP.INT32])
        ints = helper.tensor_dtype_to_np_dtype(kind)
        self.inputs = [info("H", TP.FLOAT, [self.table, self.k])]
        self.inputs += [info("i%d" % i, kind, names) for i in range(3)] + [info("R", TP.FLOAT, names + [self.k])]
        y = self.products()
        self.outputs = [info(y, TP.FLOAT, names + [self.n])]

        def feed(rows):
            index = {"i%d" % i: self.g.integers(-self.table, self.table, rows).astype(ints) for i in range(3)}
            return {"H": self.values(self.table, self.k), **index, "R": self.values(*rows, self.k)}

        more = [] if known else [[r.choice(ROWS[:9]) for _ in range(self.rank)] for _ in range(3)]
        return [feed(x) for x in [rows, *more]]

    def levels(self, r):
        """A loop whose iteration reads rows of the table that is made so far, counted from the level's first one, and adds the
        level's rows."""
        sizes = [r.choice(ROWS[1:9]) for _ in range(r.randint(1, 5))]
        outer = {"i0": "j0", "i1": "j1", "i2": "j2"}
        self.nodes = []
        one = self.const(np.array([1], np.int64))
        low = self.op("Gather", ["begin", "it1"], axis=0)
        high = self.op("Gather", ["begin", self.op("Add", ["it1", one])], axis=0)
        for i, j in outer.items():
            self.nodes.append(helper.make_node("Slice", [j, low, high], [i]))
        self.nodes.append(helper.make_node("Slice", ["RR", low, high], ["R"]))
        self.nodes.insert(0, helper.make_node("Unsqueeze", ["it", self.const(np.array([0], np.int64))], ["it1"]))
        y = self.op("Tanh", [self.products()])
        self.nodes.append(helper.make_node("Concat", ["H", y], ["Hnext"], axis=0))
        self.nodes.append(helper.make_node("Identity", ["cond"], ["condnext"]))
        body = helper.make_graph(self.nodes, "level",
                                 [info("it", TP.INT64, []), info("cond", TP.BOOL, []), info("H", TP.FLOAT, [None, self.k])],
                                 [info("condnext", TP.BOOL, []), info("Hnext", TP.FLOAT, [None, self.k])], self.inits)
        self.inits = []
        self.nodes = [helper.make_node("Loop", ["trips", "", "H0"], ["y"], body=body)]
        self.inputs = [info("trips", TP.INT64, []), info("begin", TP.INT64, [None]), info("H0", TP.FLOAT, [self.table, self.k])]
        self.inputs += [info(j, TP.INT64, ["all"]) for j in outer.values()] + [info("RR", TP.FLOAT, ["all", self.k])]
        self.outputs = [info("y", TP.FLOAT, [None, self.k])]

        def feed(sizes):
            begin = np.cumsum([0, *sizes])
            there = np.concatenate([np.full(n, self.table + b) for n, b in zip(sizes, begin)])
            index = {j: self.g.integers(0, there) for j in outer.values()}
            return {"trips": np.array(len(sizes)), "begin": begin, "H0": self.values(self.table, self.k), **index,
                    "RR": self.values(int(begin[-1]), self.k)}

        return [feed(sizes), feed(sizes[::-1] + [1, 65])]

    def save(self, folder):
        feeds = self.levels(self.r) if self.loop else self.flat(self.r, self.r.random() < .3)
        g = helper.make_graph(self.nodes, "gathered", self.inputs, self.outputs, self.inits)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        peer = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        for i, feed in enumerate(feeds):
            feed = {x.name: feed[x.name] for x in self.inputs}
            used = {x.name: feed[x.name] for x in peer.get_inputs()}
            part = folder if i == 0 else f"{folder}/{i}"
            backend_test.write(part, m, feed.values(), peer.run(None, used))
            if i:  # one model, several data sets
                os.rename(f"{part}/test_data_set_0", f"{folder}/test_data_set_{i}")
                os.remove(f"{part}/model.onnx")
                os.rmdir(part)


def run(*args):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return r.returncode, r.stdout.strip()


def fault(braid, work, threads):
    """An index that is outside stops the run with its message, in a product of several units as in a gather."""
    folder = f"{work}/fault"
    os.makedirs(folder, exist_ok=True)
    w = np.ones((8, 64), np.float32)
    g = helper.make_graph([helper.make_node("Gather", ["H", "i"], ["x"], "rows of H"), helper.make_node("MatMul", ["x", "w"], ["y"])],
                          "fault", [info("H", TP.FLOAT, [5, 8]), info("i", TP.INT64, ["r"])], [info("y", TP.FLOAT, ["r", 64])],
                          [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{folder}/m.onnx")
    np.save(f"{folder}/H.npy", np.ones((5, 8), np.float32))
    np.save(f"{folder}/i.npy", np.array([0, 4, -5, 70, 3] * 20))
    status, text = run(braid, "run", f"{folder}/m.onnx", "-i", f"H={folder}/H.npy", "-i", f"i={folder}/i.npy", "--threads",
                       str(threads), "--schedule", "operand=on")
    good = status == 1 and "index 70 is outside [-5, 5)" in text
    if not good:
        print("FAIL: an index outside:", status, text)
    return not good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("count", nargs="?", type=int, default=16)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--target", action="append")
    o = p.parse_args()
    bad = chosen = sets = 0
    ways = [["--threads", "1"], ["--threads", "2"], ["--threads", "3", "--schedule", "operand=on"],
            ["--threads", "2", "--schedule", "operand=off"]]
    with tempfile.TemporaryDirectory() as work:
        folders = [f"{work}/models/{seed}" for seed in range(o.seed, o.seed + o.count)]
        for seed, folder in zip(range(o.seed, o.seed + o.count), folders):
            Program(seed).save(folder)
            sets += sum(f.startswith("test_data_set_") for f in os.listdir(folder))
            chosen += "chosen operand" in run(o.braid, "explain", f"{folder}/model.onnx", "--threads", "2")[1]
        for target in o.target or ["cpu", "emulate:cuda"]:
            for way in ways if target == "cpu" else ways[1:2]:
                status, text = run(o.braid, "test", "--rtol", "1e-3", "--atol", "2e-5", "--target", target, *way, f"{work}/models")
                good = status == 0 and text.splitlines()[-1] == f"{o.count} passed, 0 failed, 0 skipped"
                print(target, *way, text if good else "FAIL: " + text)
                bad += not good
        bad += sum(fault(o.braid, work, threads) for threads in (1, 2, 3))
    print(f"{o.count} programs with {sets} sets of inputs, {chosen} with operands that products compute")
    return bad > 0 or chosen < o.count // 3


if __name__ == "__main__":
    sys.exit(main())
