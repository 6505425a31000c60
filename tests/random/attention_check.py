#!/usr/bin/env python3
"""Compares random attentions with the interpreter.

    attention_check.py COUNT [--half] [--threads N] [--cpu NAME] [--seed S] [--schedule S] [--braid PATH]

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed. A model has a few
attentions in the forms that exporters write and as operators: heads in any order in memory, in groups that share keys
and values, scales, masks of all kinds (given, causal, by select, of -inf, of whole rows), one query and many, odd
sizes, sizes known and not, and one over a cache that grows in a loop. --half: in float16. Most of them must be
computed in one pass, or nothing is tested.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

ATTENTIONS = 6


class Model:
    def __init__(self, seed, half):
        self.r = np.random.default_rng(seed)
        self.type, self.dtype = (T.FLOAT16, np.float16) if half else (T.FLOAT, np.float32)
        self.nodes, self.weights, self.inputs, self.outputs, self.feed = [], [], [], [], {}
        self.n = 0
        for _ in range(ATTENTIONS):
            self.known, self.member = self.r.random() < 0.6, self.n
            y = self.pick(self.written, self.written, self.written, self.operator)()
            self.outputs.append(helper.make_tensor_value_info(y, self.type, None))
        if self.r.random() < 0.5:
            self.outputs.append(helper.make_tensor_value_info(self.cached(), self.type, None))

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def name(self, stem):
        self.n += 1
        return f"{stem}{self.n}"

    def input(self, value, *open):
        """`open`: names of sizes that the model does not know; "": it does, as it does all behind them."""
        name = self.name("x")
        dims = [n if self.known or i >= len(open) or not open[i] else f"{open[i]}{self.member}" for i, n in enumerate(value.shape)]
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims))
        self.feed[name] = value
        return name

    def some(self, *shape):
        return self.r.standard_normal(shape).astype(self.dtype)

    def constant(self, value):
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def number(self, value):
        return self.constant(np.array(value, self.dtype))

    def op(self, kind, *inputs, **attrs):
        out = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attrs))
        return out

    def sizes(self):
        """Batch, heads, queries, keys, size of queries and of values."""
        width = self.pick(4, 8, 16, 17, 32, 64)
        return (self.pick(1, 2), self.pick(1, 2, 3), self.pick(1, 1, 2, 5, 7, 16, 33, 70), self.pick(2, 7, 33, 64, 65, 130, 200),
                width, self.pick(width, width, 16, 23, 48))

    def heads(self, batch, length, heads, width, perm, what):
        """[batch, length, heads, width] in the order of perm: as it is, or turned from rows of all heads; `what` names
        the length."""
        if self.r.random() < 0.5:
            return self.input(self.some(batch, length, heads, width).transpose(perm), *[("b", what, "", "")[p] for p in perm])
        x = self.input(self.some(batch, length, heads * width), "b", what)
        if self.r.random() < 0.5:
            x = self.op("MatMul", x, self.constant((self.some(heads * width, heads * width) * (heads * width) ** -0.5).astype(self.dtype)))
        return self.op("Transpose", self.op("Reshape", x, self.constant(np.array([0, 0, heads, width]))), perm=perm)

    def mask(self, s, batch, heads, length, keys):
        """The scores with a mask."""
        low = self.pick(-1e4, -np.inf, -65504. if self.dtype == np.float16 else -3.4e38)
        shape, sizes = self.pick(((batch, 1, 1, keys), ("b", "", "", "n")), ((batch, 1, length, keys), ("b", "", "l", "n")),
                                 ((1, heads, length, keys), ("", "", "l", "n")), ((length, keys), ("l", "n")), ((1, 1, 1, keys), ("", "", "", "n")))
        seen = self.r.random(shape) < self.pick(0.2, 0.8)
        if self.r.random() < 0.5:
            seen[..., 0] = True # else some rows may see nothing
        kind = self.pick("add", "add", "select", "causal", "bias")
        if kind == "add":
            return self.op("Add", s, self.input(np.where(seen, 0, low).astype(self.dtype), *sizes))
        if kind == "select":
            return self.op("Where", self.input(seen, *sizes), s, self.number(low))
        if kind == "bias":
            return self.op("Add", s, self.input(self.some(*shape), *sizes))
        return self.op("Add", s, self.constant(np.triu(np.full((length, keys), low), 1 + max(keys - length, 0)).astype(self.dtype)))

    def written(self):
        """As exporters write it: products, a scale, a mask, Softmax."""
        batch, heads, length, keys, size, width = self.sizes()
        q = self.heads(batch, length, heads, size, [0, 2, 1, 3], "l")
        turned = self.r.random() < 0.5
        k = self.heads(batch, keys, heads, size, [0, 2, 3, 1] if turned else [0, 2, 1, 3], "n")
        if not turned:
            k = self.op("Transpose", k, perm=[0, 1, 3, 2])
        v = self.heads(batch, keys, heads, width, [0, 2, 1, 3], "n")
        scale = self.pick("mul", "div", "both", "none")
        if scale == "both":
            q, k = (self.op("Mul", x, self.number(size ** -0.25)) for x in (q, k))
        s = self.op("MatMul", q, k)
        if scale == "mul":
            s = self.op("Mul", s, self.number(size ** -0.5))
        if scale == "div":
            s = self.op("Div", s, self.number(size ** 0.5))
        if self.r.random() < 0.7:
            s = self.mask(s, batch, heads, length, keys)
        p = self.op("Softmax", s, axis=-1)
        if self.r.random() < 0.3:
            p = self.op("Where", self.op("IsNaN", p), self.number(0), p)
        return self.end(self.op("MatMul", p, v), batch, length, heads, width)

    def end(self, y, batch, length, heads, width):
        what = self.pick("", "turn", "add", "relu")
        if what == "turn":
            y = self.op("Transpose", y, perm=[0, 2, 1, 3])
            return self.op("Reshape", y, self.constant(np.array([0, 0, heads * width])))
        if what == "add":
            return self.op("Add", y, self.input(self.some(batch, heads, length, width), "b", "", "l"))
        return self.op("Relu", y) if what == "relu" else y

    def operator(self):
        """The operator, with heads in groups, a past and masks."""
        batch, groups, length, keys, size, width = self.sizes()
        members = self.pick(1, 2, 4)
        q = self.input(self.some(batch, groups * members, length, size), "b", "", "l")
        k, v = (self.input(self.some(batch, groups, keys, n), "b", "", "n") for n in (size, width))
        inputs, past = [q, k, v, "", "", ""], 0
        if self.r.random() < 0.3:
            past = self.pick(3, 17)
            inputs[4:6] = (self.input(self.some(batch, groups, past, n), "b", "", "p") for n in (size, width))
        if self.r.random() < 0.5:
            shape = self.pick((length, keys + past), (batch, 1, length, keys + past))
            seen = self.r.random(shape) < 0.6
            inputs[3] = self.input(seen if self.r.random() < 0.5 else np.where(seen, self.r.standard_normal(shape), -np.inf).astype(self.dtype))
        return self.op("Attention", *inputs, is_causal=self.pick(0, 1), softcap=self.pick(0., 0., 2.))

    def cached(self):
        """A loop, each of whose iterations adds a key and a value and asks once."""
        batch, heads, _, _, size, width = self.sizes()
        steps, first = self.pick(3, 9), self.pick(1, 30)
        self.known = True
        k, v = self.input(self.some(batch, heads, first, size)), self.input(self.some(batch, heads, first, width))
        q, kn, vn = (self.input(self.some(steps, batch, heads, 1, n)) for n in (size, size, width))
        outer, self.nodes = self.nodes, []
        row = [self.op("Gather", x, "step", axis=0) for x in (q, kn, vn)]
        keys, values = self.op("Concat", "past_k", row[1], axis=2), self.op("Concat", "past_v", row[2], axis=2)
        s = self.op("MatMul", row[0], self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        p = self.op("Softmax", self.op("Mul", s, self.number(size ** -0.5)), axis=-1)
        y = self.op("MatMul", p, values)
        again = self.op("Identity", "go")
        info = helper.make_tensor_value_info
        body = helper.make_graph(self.nodes, "body", [info("step", T.INT64, []), info("go", T.BOOL, []),
                                                      info("past_k", self.type, [batch, heads, None, size]), info("past_v", self.type, [batch, heads, None, width])],
                                 [info(again, T.BOOL, []), info(keys, self.type, None), info(values, self.type, None), info(y, self.type, None)])
        self.nodes = outer
        names = [self.name("loop") for _ in range(3)]
        self.nodes.append(helper.make_node("Loop", [self.constant(np.array(steps)), "", k, v], names, body=body))
        return names[2]

    def proto(self):
        graph = helper.make_graph(self.nodes, "attentions", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 23)])


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("count", type=int)
    ap.add_argument("--half", action="store_true")
    ap.add_argument("--threads", default="1")
    ap.add_argument("--cpu")
    ap.add_argument("--schedule", default="attention=on")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--keep", help="a folder for the models")
    ap.add_argument("--braid", default="build/braid")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folders, made, taken = [], 0, 0
        for seed in range(args.seed, args.seed + args.count):
            model = Model(seed, args.half)
            folders.append(f"{args.keep or work}/seed_{seed}")
            run = f"{work}/run_{seed}"
            os.mkdir(run)
            wrong = backend_test.run(args.braid, model.proto(), model.feed, run, "--target", "interp")
            if wrong:
                print(f"seed {seed}: {wrong}")
                return 1
            want = [np.load(f"{run}/out/output_{i}.npy") for i in range(len(model.outputs))]
            backend_test.write(folders[-1], model.proto(), model.feed.values(), want)
            said = subprocess.run([args.braid, "explain", "--schedule", args.schedule, f"{run}/m.onnx"], capture_output=True, text=True)
            made += len(model.outputs)
            taken += said.stdout.count("chosen attention")
        command = [args.braid, "test", "--threads", args.threads, "--schedule", args.schedule]
        command += ["--rtol", "1e-2", "--atol", "4e-3"] if args.half else ["--rtol", "1e-3", "--atol", "2e-5"]
        code = subprocess.run(command + (["--cpu", args.cpu] if args.cpu else []) + folders).returncode
        print(f"{taken} of {made} attentions in one pass")
        return code or taken * 10 < made * 8


if __name__ == "__main__":
    sys.exit(main())
