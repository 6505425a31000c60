#!/usr/bin/env python3
"""Nests of loops, steps around layers, against numpy: as they are and with the layers outside.

    python tests/random/nest_check.py [--braid PROGRAM] [--seed S] [--keep DIR]

Layer l of step t takes what the layer before made in this step, and its own state of the step before. A model may
give what each step made, what the last one made, and the states; its layers may read what was made before them. Where a
step needs the states of all its layers, the order stays.
"""
import argparse
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, TESTS + "/.."]
import backend_test  # noqa: E402
from models.common import F, Graph, f32  # noqa: E402

STEPS, LAYERS, WIDTH = 6, 3, 24


def nest(r, skip, each, last, states, needs_all=False):
    """(Graph, {input: array}, [expected])"""
    g = Graph("nest")
    x, s0 = g.input("x", F(STEPS, 2, WIDTH)), g.input("s0", F(LAYERS, 2, WIDTH))
    w, u = (f32(r.standard_normal((LAYERS, WIDTH, WIDTH)) / 5) for _ in "wu")
    ws, us = g.const(w), g.const(u)

    def step(g, t, s, *kept):
        before = g.Tanh(g.Gather(x, t))

        def layer(g, l, v):
            z = g.Add(g.MatMul(v, g.Gather(ws, l)), g.MatMul(g.Gather(s, l), g.Gather(us, l)))
            z = g.Add(z, before) if skip else z
            return [g.Tanh(z)], [g.Sin(z)]
        v, s = g.loop(LAYERS, {"v": (g.Neg(before), F(2, WIDTH))}, layer)
        y = g.Mul(g.Add(v, before), 0.5)
        if needs_all:
            y = g.Add(y, g.ReduceSum(s, [0], keepdims=0))
        return [s] + [g.Identity(v) for _ in kept], [y] if each else []
    carried = {"s": (s0, F(LAYERS, 2, WIDTH))}
    if last:
        carried["last"] = (g.const(np.zeros((2, WIDTH), np.float32)), F(2, WIDTH))
    s, *rest = g.loop(STEPS, carried, step)
    if last:
        g.output(g.Identity(rest.pop(0), out="last"), F(2, WIDTH))
    if each:
        g.output(g.Identity(rest.pop(0), out="y"), F(STEPS, 2, WIDTH))
    if states:
        g.output(g.Identity(s, out="s"), F(LAYERS, 2, WIDTH))
    xs, state, ys = f32(r.standard_normal((STEPS, 2, WIDTH))), f32(r.standard_normal((LAYERS, 2, WIDTH))), []
    inputs = {"x": xs, "s0": state}
    for t in range(STEPS):
        before = np.tanh(xs[t])
        v, made = -before, []
        for l in range(LAYERS):
            z = v @ w[l] + state[l] @ u[l] + (before if skip else 0)
            v = np.tanh(z)
            made.append(np.sin(z))
        state = np.stack(made)
        ys.append((v + before) * f32(0.5) + (state.sum(0) if needs_all else 0))
    return g, inputs, [*([v] if last else []), *([np.stack(ys)] if each else []), *([state] if states else [])]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", metavar="DIR", help="where the models stay")
    a = p.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        work = a.keep or work
        folders = []
        models = [b for b in itertools.product((False, True), repeat=4) if any(b[1:])]
        for bits in [(False, True, False, False, True)] + models:
            g, inputs, expected = nest(np.random.default_rng(a.seed), *bits)
            folders.append(os.path.join(work, "nest_" + "".join("01"[b] for b in bits)))
            backend_test.write(folders[-1], g.model(), [f32(inputs[v.name]) for v in g.model().graph.input], map(f32, expected))
        explained = subprocess.run([a.braid, "explain", "--schedule", "interchange=on", folders[-1] + "/model.onnx"],
                                   capture_output=True, text=True).stdout
        if explained.count("chosen interchange") < 3:  # the nest, and the loops before and behind it
            print("the nest is not exchanged:\n" + explained)
            failed += 1
        for how in (["interp"], ["cpu", "--threads", "1", "--schedule", "interchange=on"],
                    ["cpu", "--threads", "3", "--schedule", "interchange=on"], ["cpu", "--threads", "2", "--schedule", "interchange=off"]):
            r = subprocess.run([a.braid, "test", "--target", *how, *folders], capture_output=True, text=True)
            ok = r.returncode == 0 and f"{len(folders)} passed, 0 failed, 0 skipped" in r.stdout
            failed += not ok
            print(" ".join(how) + ": " + (r.stdout + r.stderr).strip())
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
