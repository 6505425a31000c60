#!/usr/bin/env python3
"""What loops stack and what is made of it element by element, and choices by rows in their bodies, against numpy.

    python tests/random/tail_check.py [--braid PROGRAM] [--seed S] [--count N] [--keep DIR]

A step chooses for each row between what a product with a one-hot row (of a number that may name none), a maximum and a
sigmoid make of it, and the state that it had. Behind the loop stand sums and products with constants, with the model's
inputs, with what is computed of these, and functions; results may be read twice. Fails, too, if less than half of the models
have something that is made in the loop.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, TESTS + "/.."]
import backend_test  # noqa: E402
from models.common import F, Graph, f32, i64  # noqa: E402


def behind(g, r, y, x, pick):
    """A value of ONNX and the same in numpy, and what is made of both."""
    (a, b), (xa, xb) = y, x
    for _ in range(pick(1, 2, 3)):
        kind = pick("row", "all", "input", "computed", "function", "twice")
        if kind in ("row", "all"):
            c = f32(r.standard_normal(b.shape[2:] if kind == "row" else b.shape))
            a, b = (g.Mul(a, g.const(c)), b * c) if pick(0, 1) else (g.Add(g.const(c), a), b + c)
        elif kind == "input":
            a, b = g.Sub(a, xa), b - xb
        elif kind == "computed":
            a, b = g.Add(g.Mul(xa, g.const(f32(0.5))), a), xb * f32(0.5) + b
        elif kind == "function":
            a, b = g.Tanh(a), np.tanh(b)
        else:
            a, b = g.Mul(a, g.Sin(a)), b * np.sin(b)
    return a, b


def model(seed):
    """(Graph, [input], [expected])"""
    r = np.random.default_rng(seed)

    def pick(*of):
        return of[r.integers(len(of))]

    steps, rows, width, words = pick(1, 2, 5, 7), pick(1, 3, 16), pick(1, 5, 16, 33, 64), 6
    g = Graph("tails")
    x, s0 = g.input("x", F(steps, rows, width)), g.input("s0", F(rows, width))
    on, token = g.input("on", F(rows, 1)), g.input("token", F(rows))
    w, u = (f32(r.standard_normal(n) / 3) for n in ((words, width), (width, width)))
    gw, gu = g.const(w), g.const(u)
    twice, product, relu = pick(0, 0, 0, 1), pick(0, 1), pick(0, 1)
    data = [f32(r.standard_normal(n)) for n in ((steps, rows, width), (rows, width))]
    data += [f32(r.integers(0, 2, (rows, 1))), f32(r.integers(-1, words + 1, rows))]
    bias = f32(r.standard_normal(width))

    def step(g, t, s):
        hot = g.OneHot(g.Cast(token, to=7), g.const(i64(words)), g.const(f32([0, 1])), axis=-1)
        z = g.Add(g.MatMul(s, gu) if product else s, g.Add(g.Gather(x, t), g.MatMul(hot, gw)))
        z = g.Mul(g.Sigmoid(z), g.Add(g.Relu(z) if relu else g.Tanh(z), g.const(bias)))
        s = g.Where(g.Greater(on, g.const(f32(0.5))), z, s)
        return [s], [g.Add(g.Mul(s, g.const(f32(2))), g.MatMul(hot, g.const(w + bias)))]

    last, ys = g.loop(steps, {"s": (s0, F(rows, width))}, step, name="steps")
    state, made = data[1], []
    hot = np.zeros((rows, words), np.float32)
    for i, k in enumerate(data[3].astype(int)):
        k = k + words if k < 0 else k
        if k < words:
            hot[i, k] = 1
    for t in range(steps):
        z = (state @ u if product else state) + data[0][t] + hot @ w
        z = 1 / (1 + np.exp(-z)) * ((np.maximum(z, 0) if relu else np.tanh(z)) + bias)
        state = np.where(data[2] > 0.5, z, state)
        made.append(state * 2 + hot @ (w + bias))
    a, b = behind(g, r, (ys, np.stack(made)), (x, data[0]), pick)
    results = [(last, state, F(rows, width)), (a, b, F(steps, rows, width))]
    if twice:
        results.append((ys, np.stack(made), F(steps, rows, width)))
    for i, (value, _, type_) in enumerate(results):
        g.output(g.Identity(value, out=f"y{i}"), type_)
    return g, data, [f32(v) for _, v, _ in results]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=8)
    p.add_argument("--keep", metavar="DIR", help="where the models stay")
    a = p.parse_args()
    failed = moved = 0
    with tempfile.TemporaryDirectory() as work:
        work = a.keep or work
        folders = []
        for i in range(a.count):
            g, inputs, expected = model(a.seed + i)
            folders.append(os.path.join(work, f"tail_{a.seed + i}"))
            backend_test.write(folders[-1], g.model(), inputs, expected)
            said = subprocess.run([a.braid, "explain", "--schedule", "sink=on,unroll=off", folders[-1] + "/model.onnx"],
                                  capture_output=True, text=True, check=True).stdout
            moved += "chosen sink" in said
        for how in (["interp"], ["cpu", "--threads", "1", "--schedule", "sink=on,unroll=off"],
                    ["cpu", "--threads", "3", "--schedule", "sink=on"]):
            r = subprocess.run([a.braid, "test", "--target", *how, *folders], capture_output=True, text=True)
            ok = r.returncode == 0 and f"{len(folders)} passed, 0 failed, 0 skipped" in r.stdout
            failed += not ok
            print(" ".join(how) + ": " + (r.stdout + r.stderr).strip())
    print(f"{failed} failed, {moved} of {a.count} models with something made in the loop")
    return 1 if failed or 2 * moved < a.count else 0


sys.exit(main())
