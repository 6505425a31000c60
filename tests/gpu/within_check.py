#!/usr/bin/env python3
"""Loops with the time inside of one function (scheduler/plan/within.h), on the emulator, against ONNX Runtime.

    within_check.py [--braid BRAID] [--seed S] [--jobs N]

Recurrences of several forms and of sizes that are no multiples of anything: elementwise ones, sums over a short last axis
that later iterations wait for or do not, states that change places, integers, reads at carried positions, outputs in
reverse order, trips that only the run knows, none among them. Each is to become such a function. Then a loop that is to
stop at --max-iterations. Prints a line for each failure, and what was run.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)
from models.common import F, Graph, I, f32  # noqa: E402

TARGETS = ("emulate:cuda", "emulate:hip")
FORCE = "within=on,unroll=off,interchange=off,core=off"


def scan_of(make):
    """A case with a Scan over `steps` iterations: make(g, rng, steps, *sizes) gives (state, xs, body)."""
    def build(rng, steps, *sizes):
        g = Graph("within")
        state, xs, body = make(g, rng, *sizes)
        feeds, args = {}, {}
        for name, (shape, type_) in xs.items():
            feeds[name] = f32(rng.standard_normal((steps, *shape)) * 0.5)
            args[name] = (g.input(name, F("steps", *shape)), type_)
        results = g.scan(state, args, body)
        for i, r in enumerate(results):
            g.output(g.Identity(r, out="result%d" % i))
        return g.model(), feeds
    return build


@scan_of
def elementwise(g, rng, *shape):
    t = F(*shape)

    def body(g, h, x):
        h = g.Add(g.Mul(h, 0.9), g.Tanh(x))
        return [h], [g.Mul(h, g.Sigmoid(x))]
    return {"h": (g.const(f32(rng.standard_normal(shape))), t)}, {"x": (shape, t)}, body


@scan_of
def state_space(g, rng, batch, width, n):
    """A sum of each step that no later step waits for."""
    h_type, x_type, b_type = F(batch, width, n), F(batch, width), F(batch, n)
    decay = g.const(f32(-rng.uniform(0.1, 1, (width, n))))

    def body(g, h, x, b):
        h = g.Add(g.Mul(g.Exp(g.Mul(g.Unsqueeze(g.Abs(x), [2]), decay)), h),
                  g.Mul(g.Unsqueeze(x, [2]), g.Unsqueeze(b, [1])))
        return [h], [g.Add(g.ReduceSum(g.Mul(h, g.Unsqueeze(b, [1])), [2], keepdims=0), x)]
    xs = {"x": ((batch, width), x_type), "b": ((batch, n), b_type)}
    return {"h": (g.const(f32(np.zeros((batch, width, n)))), h_type)}, xs, body


@scan_of
def feedback(g, rng, rows, n):
    """Sums and maxima that the next step waits for; the sums are carried, too."""
    t, r = F(rows, n), F(rows, 1)

    def body(g, h, s, x):
        top = g.ReduceMax(h, [1], keepdims=1)
        e = g.Exp(g.Sub(h, top))
        total = g.ReduceSum(e, [1], keepdims=1)
        p = g.Div(e, total)
        s = g.Add(g.Mul(s, 0.5), total)
        return [g.Add(g.Mul(p, x), g.Mul(h, 0.5)), s], [top, p]
    state = {"h": (g.const(f32(rng.standard_normal((rows, n)))), t), "s": (g.const(f32(np.ones((rows, 1)))), r)}
    return state, {"x": ((rows, n), t)}, body


@scan_of
def exchange(g, rng, n):
    """Two states that change places."""
    t = F(n)

    def body(g, a, b, x):
        return [g.Add(b, 1.0), g.Mul(g.Add(a, x), 0.5)], [g.Sub(a, b)]
    return {"a": (g.const(f32(np.zeros(n))), t), "b": (g.const(f32(np.ones(n))), t)}, {"x": ((n,), t)}, body


def lookup(rng, steps, rows, n):
    """A loop whose trips come with the run; integers, which say where a table is read."""
    g = Graph("within")
    trips = g.input("trips", I())
    kind = helper.make_tensor_type_proto(TensorProto.INT64, [rows])
    table = g.const(rng.integers(0, n, n).astype(np.int64))
    values = g.const(f32(rng.standard_normal(n)))

    def body(g, i, at, s):
        at = g.Mod(g.Add(g.Gather(table, at), i), n)
        return [at, g.Add(g.Mul(s, 0.5), g.Gather(values, at))], [at]
    at, s, seen = g.loop(trips, {"at": (g.const(np.arange(rows, dtype=np.int64) % n), kind),
                                 "s": (g.const(f32(np.zeros(rows))), F(rows))}, body)
    for i, r in enumerate((at, s, seen)):
        g.output(g.Identity(r, out="result%d" % i))
    return g.model(), {"trips": np.array(steps, np.int64)}


def backwards(rng, steps, rows, n):
    """A Scan from the last element to the first, whose outputs are in the reverse order."""
    model, feeds = state_space(rng, steps, 1, rows, n)
    for node in model.graph.node:
        if node.op_type == "Scan":
            node.attribute.append(helper.make_attribute("scan_input_directions", [1, 1]))
            node.attribute.append(helper.make_attribute("scan_output_directions", [1]))
    return model, feeds


def cases(rng):
    for sizes in ((5,), (7,), (3, 5), (2, 301), (700,)):
        yield elementwise, int(rng.choice([1, 7, 8, 9, 63, 64, 65, 130])), sizes
    for n in (2, 3, 8, 11, 16, 32):
        yield state_space, int(rng.choice([1, 15, 16, 17, 64, 67, 131])), (int(rng.integers(1, 4)), int(rng.integers(5, 20)), n)
    for n in (5, 8, 16, 27):
        yield feedback, int(rng.choice([2, 8, 17, 66])), (int(rng.integers(17, 40)), n)
    yield exchange, int(rng.choice([1, 8, 9, 77])), (int(rng.integers(2, 600)),)
    for steps in (0, int(rng.integers(1, 80))):
        yield lookup, steps, (int(rng.integers(17, 60)), 13)
    yield backwards, int(rng.choice([3, 16, 70])), (5, 16)


def write(folder, model, feeds):
    data = folder + "/test_data_set_0"
    os.makedirs(data)
    onnx.save(model, folder + "/model.onnx")
    results = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    for kind, arrays in (("input", [feeds[i.name] for i in model.graph.input]), ("output", results)):
        for i, v in enumerate(arrays):
            with open("%s/%s_%d.pb" % (data, kind, i), "wb") as f:
                f.write(numpy_helper.from_array(np.asarray(v)).SerializeToString())


def run(args, *words):
    return subprocess.run([args.braid, *words], capture_output=True, text=True)


def stops(args, folder, target):
    """A run that makes more iterations than it may; None, or what is wrong."""
    done = run(args, "run", folder + "/model.onnx", "--target", target, "--schedule", FORCE, "--max-iterations", "3",
               "-i", "trips=%s/trips.npy" % folder)
    return None if done.returncode == 1 and "iterations" in done.stderr else "not stopped: " + done.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    failed = ran = 0
    with tempfile.TemporaryDirectory() as work:
        for i, (make, steps, sizes) in enumerate(cases(rng)):
            name = "%02d_%s_%d_%s" % (i, make.__name__, steps, "x".join(map(str, sizes)))
            model, feeds = make(rng, steps, *sizes)
            write("%s/%s" % (work, name), model, feeds)
            said = run(args, "explain", "%s/%s/model.onnx" % (work, name), "--target", "emulate:cuda", "--schedule", FORCE)
            if "within a thread" not in said.stdout:
                print("%s: no such function\n%s%s" % (name, said.stdout, said.stderr))
                failed += 1
            ran += 1
        for target in TARGETS:
            done = run(args, "test", "--target", target, "--schedule", FORCE, "--jobs", str(args.jobs), work)
            last = done.stdout.splitlines()[-1] if done.stdout else done.stderr
            if last != "%d passed, 0 failed, 0 skipped" % ran:
                print("%s: %s" % (target, done.stdout + done.stderr))
                failed += 1
        model, feeds = lookup(rng, 9, 4, 5)
        onnx.save(model, work + "/model.onnx")
        np.save(work + "/trips.npy", feeds["trips"])
        for target in TARGETS:
            wrong = stops(args, work, target)
            if wrong:
                print("%s: %s" % (target, wrong))
                failed += 1
    print("%d loops on %s, %d failed" % (ran, " and ".join(TARGETS), failed))
    return 1 if failed or ran < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
