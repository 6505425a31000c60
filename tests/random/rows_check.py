#!/usr/bin/env python3
"""Products of blocks of rows by weights that are fetched while others are used: a GRU-like cell over random numbers of
rows, known and not known to the compiler, in sizes that fill tiles and do not, against numpy.

    rows_check.py [COUNT] [--seed S] [--braid PATH]
"""
import os
import random
import subprocess
import sys

import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

ROWS = [1, 2, 3, 5, 6, 7, 11, 13, 16, 29, 64, 70, 129]


def model(r, g, rows, known):
    """(model, inputs, outputs): h = h + tanh(x_t W + h U + b) · sigmoid(h V) over a few steps."""
    n, m, steps = r.choice([144, 160, 171]), r.choice([96, 128, 133]), r.randint(1, 4)
    W, U, V = (g.standard_normal(s).astype(np.float32) / s[0] ** .5 for s in ((m, n), (n, n), (n, n)))
    b = g.standard_normal(n).astype(np.float32)
    x, h = g.standard_normal((steps, rows, m)).astype(np.float32), g.standard_normal((rows, n)).astype(np.float32)
    nodes = [helper.make_node(*a) for a in (
        ("MatMul", ["xt", "W"], ["xw"]), ("MatMul", ["h", "U"], ["hu"]), ("Add", ["xw", "b"], ["xb"]),
        ("Add", ["xb", "hu"], ["a"]), ("Tanh", ["a"], ["t"]), ("MatMul", ["h", "V"], ["hv"]),
        ("Sigmoid", ["hv"], ["s"]), ("Mul", ["t", "s"], ["ts"]), ("Add", ["h", "ts"], ["hn"]))]
    size = rows if known else "rows"
    info = helper.make_tensor_value_info
    body = helper.make_graph(nodes, "body", [info("h", TP.FLOAT, [size, n]), info("xt", TP.FLOAT, [size, m])],
                             [info("hn", TP.FLOAT, [size, n])])
    scan = helper.make_node("Scan", ["h0", "x"], ["y"], body=body, num_scan_inputs=1)
    inits = [numpy_helper.from_array(v, k) for k, v in (("W", W), ("U", U), ("V", V), ("b", b))]
    graph = helper.make_graph([scan], "rows", [info("h0", TP.FLOAT, [size, n]), info("x", TP.FLOAT, [steps, size, m])],
                              [info("y", TP.FLOAT, [size, n])], inits)
    y = h.astype(np.float64)
    for xt in x.astype(np.float64):
        y = y + np.tanh(xt @ W + y @ U + b) / (1 + np.exp(-(y @ V)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), [h, x], [y.astype(np.float32)]


def main():
    args = seeded.options(__doc__, 26, where=False)
    failures = fetched = 0
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            r, g = random.Random(seed), np.random.default_rng(seed)
            rows, known = ROWS[seed % len(ROWS)], r.random() < .6
            text = f"{folder}/model.c"
            backend_test.write(folder, *model(r, g, rows, known))
            schedule, threads = "prefetch=1024" + r.choice(["", ",tile=6x1", ",tile=4x2", ",hoist=off"]), str(r.randint(1, 3))
            options = ["--schedule", schedule, "--threads", threads]
            subprocess.run([args.braid, "compile", f"{folder}/model.onnx", "-o", f"{folder}/a.so", "--emit", text, *options], check=True)
            with open(text) as f:
                own = "last0 = next0" in f.read()
            fetched += own
            wrong = seeded.failure(args.braid, folder, *options)
            if wrong or (known and rows == 64 and not own):
                failures += 1
                print(f"FAIL: seed {seed}, {rows} rows{'' if known else ' (not known)'}, {schedule}, {threads} threads"
                      f"{'' if own else ', nothing fetched'}: {wrong}")
    print(f"{args.count} models, {fetched} with tiles fetched ahead, {failures} failed")
    return failures > 0 or not fetched


if __name__ == "__main__":
    sys.exit(main())
