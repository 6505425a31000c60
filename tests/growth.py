#!/usr/bin/env python3
"""Memory that runs take while they go on: values, restarts, the limit, and sessions side by side.

    growth.py [--braid BRAID]

Loops whose tensors grow to megabytes (appended at the end, at the front, along an inner axis, stacked, twice as
long each time, in a loop in a loop) in new sessions of one and two threads, against NumPy. Where nothing has to
move, the first run may not begin again. A session that may hold exactly what a run needs has it; one byte less is
the message of the limit, and the session goes on. Four sessions grow at the same time. A process with little address
space has less of it in reserve.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
import onnx.parser

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../eval"))
import braid_api

F = np.float32
RESTARTS, NODE = 2, r"the run needs "
# Loops without a trip count end by a condition, so that nothing bounds what they make. `n` trips, `x` float[4, 8].
HEAD = """<ir_version: 8, opset_import: ["" : 17]>
g (int64 n, float[4, 8] x) => (float[a, b] y) <bool t = {1}, int64 one = {1}, int64 zero = {0}> {
    %s
}"""
BODY = "y = Loop(, t, x%s) <body = l (int64 j, bool c, float[h, w] v) => (bool c2, float[h2, w2] u%s) { k = Add(j, one)  c2 = Less(k, n)  %s }>"


def loop(step):
    return HEAD % (BODY % ("", "", step))


def appended(n, x):
    return np.concatenate([x] + [-x] * n)


def doubled(n, x):
    for _ in range(n):
        x = np.concatenate([x, x + F(1)])
    return x


def stacked(n, x):
    return np.concatenate([x * F(j) for j in range(n)])


def nested(n, x):
    return np.concatenate([x] + [np.concatenate([x[:1] * F(k) for k in range(j + 1)]) for j in range(n)])


# name: the graph, what it gives, trips of the first run and of the second, whether runs may begin again
CASES = {
    "appended": (loop("m = Neg(x)  u = Concat <axis = 0> (v, m)"), appended, 20000, 30000, False),
    "appended_in_front": (loop("m = Neg(x)  u = Concat <axis = 0> (m, v)"), lambda n, x: np.concatenate([-x] * n + [x]), 3000, 4000,
                          True),
    "appended_inside": (loop("m = Neg(x)  u = Concat <axis = 1> (v, m)"), lambda n, x: np.concatenate([x] + [-x] * n, 1), 3000, 4000, True),
    "doubled": (loop("s = Cast <to = 1> (one)  m = Add(v, s)  u = Concat <axis = 0> (v, m)"), doubled, 15, 16, False),
    "stacked": (HEAD % """q, z = Loop(, t, x) <body = l (int64 j, bool c, float[4, 8] v) => (bool c2, float[4, 8] u, float[4, 8] o) {
        k = Add(j, one)  c2 = Less(k, n)  u = Identity(v)  f = Cast <to = 1> (j)  o = Mul(x, f) }>
        s = Constant <value = int64[2] {-1, 8}> ()  y = Reshape(z, s)""", stacked, 20000, 30000, False),
    "nested": (HEAD % """r = Constant <value = int64[1] {0}> ()  e = Constant <value = int64[1] {1}> ()  x1 = Slice(x, r, e)
        y = Loop(, t, x) <body = l (int64 j, bool c, float[h, w] v) => (bool c2, float[h2, w2] u) {
            k = Add(j, one)  c2 = Less(k, n)
            z = Loop(k, t) <body = l2 (int64 i, bool d) => (bool d2, float[1, 8] o) { d2 = Identity(d)  f = Cast <to = 1> (i)  o = Mul(x1, f) }>
            s = Constant <value = int64[2] {-1, 8}> ()  m = Reshape(z, s)  u = Concat <axis = 0> (v, m) }>""", nested, 300, 400, False),
}
count = bad = 0


def check(what, good, detail=""):
    global count, bad
    count += 1
    if not good:
        bad += 1
        print("FAIL:", what, detail)


def bound(session, n, x):
    session.bind({"n": np.array(n, np.int64), "x": x})
    session.run()
    return session.out("y")


def sizes(what, library, expected, trips, moves, threads, x):
    """A new session's first run, a longer one, and a short one."""
    s = braid_api.Compiled(library, threads)
    for i, n in enumerate((*trips, 3)):
        y = bound(s, n, x)
        check(f"{what}: values of {n} trips", np.array_equal(y, expected(n, x)), y.shape)
        restarts = s.model.stat(s.handle, RESTARTS)
        check(f"{what}: {n} trips begin again", restarts == 0 or (moves and i < 2), restarts)
    return s.working_bytes()


def limit(what, library, expected, trips, x):
    """What the run holds is what it needs: it has that, and not one byte less."""
    s = braid_api.Compiled(library)
    bound(s, trips, x)
    most = s.working_bytes()
    s = braid_api.Compiled(library, max_memory=most)
    check(f"{what}: values at the limit", np.array_equal(bound(s, trips, x), expected(trips, x)))
    check(f"{what}: bytes at the limit", s.working_bytes() == most, (s.working_bytes(), most))
    s = braid_api.Compiled(library, max_memory=most - 1)
    try:
        bound(s, trips, x)
        check(f"{what}: one byte less", False)
    except braid_api.BraidError as e:
        check(f"{what}: the message of the limit", NODE in str(e) and f"{most} bytes of memory; the limit is {most - 1} bytes" in str(e) or
              NODE in str(e) and "iB of memory; the limit is " in str(e), e)
    check(f"{what}: goes on", np.array_equal(bound(s, 3, x), expected(3, x)) and s.working_bytes() < most)


def little_space(braid, library, expected, folder, x):
    """Where little address space can be had, runs begin again instead."""
    for name, a in (("n", np.array(20000, np.int64)), ("x", x)):
        np.save(f"{folder}/{name}.npy", a)
    command = f"ulimit -v 400000; '{braid}' run '{library}' -i n='{folder}/n.npy' -i x='{folder}/x.npy' -o '{folder}/out'"
    r = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    check("little address space", r.returncode == 0 and np.array_equal(np.load(f"{folder}/out/output_0.npy"), expected(20000, x)), r.stderr)


def side_by_side(library, expected, x):
    def work(k):
        s = braid_api.Compiled(library, 1 + k % 2)
        for n in (400 * (k + 1), 3000, 5000 - 300 * k):
            good[k] &= np.array_equal(bound(s, n, x * F(k + 1)), expected(n, x * F(k + 1)))
    good = [True] * 4
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("sessions side by side", all(good), good)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--braid", default="build/release/braid")
    a = p.parse_args()
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(F)
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, expected, first, second, moves) in CASES.items():
            model, library = f"{folder}/{name}.onnx", f"{folder}/{name}.so"
            with open(model, "wb") as f:
                f.write(onnx.parser.parse_model(text).SerializeToString())
            subprocess.run([a.braid, "compile", model, "--threads", "2", "-o", library], check=True)
            for threads in (1, 2):
                sizes(f"{name} on {threads}", library, expected, (first, second), moves, threads, x)
            if not moves:
                limit(name, library, expected, first, x)
            if name == "appended":
                side_by_side(library, expected, x)
                little_space(a.braid, library, expected, folder, x)
    print("%d checks, %d failed" % (count, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
