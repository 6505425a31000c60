#!/usr/bin/env python3
"""Decision forests, Braid beside ONNX Runtime.

    forests.py [--trees 100] [--depth 8] [--features 30] [--rows 1,1000] [--threads 1,2] [--rounds N] [--braid PATH]

Random complete trees with random features and thresholds. Braid is called as a C program calls it; ONNX Runtime in its plain
form and with bound inputs and outputs, and the faster one counts. Rounds alternate. Prints the least and median time of a run.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper

import braid_api
from machine import machine


def forest(trees, depth, features, targets, seed):
    """A model with one TreeEnsembleRegressor of complete trees."""
    r, inner = np.random.default_rng(seed), 2 ** depth - 1
    n, leaves = 2 * inner + 1, inner + 1
    ids = np.tile(np.arange(n), trees)
    leaf = ids >= inner
    at = np.repeat(np.arange(trees), leaves * targets)
    attrs = dict(
        n_targets=targets, nodes_treeids=np.repeat(np.arange(trees), n), nodes_nodeids=ids,
        nodes_featureids=np.where(leaf, 0, r.integers(features, size=len(ids))),
        nodes_values=np.where(leaf, 0, r.standard_normal(len(ids))).astype(np.float32),
        nodes_modes=["LEAF" if v else "BRANCH_LEQ" for v in leaf],
        nodes_truenodeids=np.where(leaf, 0, 2 * ids + 1), nodes_falsenodeids=np.where(leaf, 0, 2 * ids + 2),
        target_treeids=at, target_nodeids=np.tile(np.repeat(np.arange(inner, n), targets), trees),
        target_ids=np.tile(np.arange(targets), trees * leaves),
        target_weights=r.standard_normal(len(at)).astype(np.float32))
    attrs = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    graph = helper.make_graph([helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attrs)], "forest",
                              [helper.make_tensor_value_info("x", T.FLOAT, ["n", features])],
                              [helper.make_tensor_value_info("y", T.FLOAT, ["n", targets])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=10)


def contestants(library, path, threads, x):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    s = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    bound = s.io_binding()
    bound.bind_cpu_input("x", x)
    bound.bind_output("y")
    b = braid_api.Compiled(library, threads)
    b.bind({"x": x})
    b.run()
    want, got = s.run(None, {"x": x})[0], b.out("y").copy()
    assert np.allclose(got, want, rtol=1e-4, atol=1e-4), "the two differ"
    return b.run, lambda: s.run(None, {"x": x}), lambda: s.run_with_iobinding(bound)


def times(f, seconds):
    got, end = [], time.perf_counter() + seconds
    while len(got) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        f()
        got.append((time.perf_counter() - begin) * 1e6)
    return got


def main():
    numbers = lambda s: [int(v) for v in s.split(",")]  # noqa: E731
    p = argparse.ArgumentParser()
    p.add_argument("--trees", type=int, default=100)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--features", type=int, default=30)
    p.add_argument("--targets", type=numbers, default=[1, 3])
    p.add_argument("--rows", type=numbers, default=[1, 1000])
    p.add_argument("--threads", type=numbers, default=[1, 2])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    print("%s; ONNX Runtime %s" % (machine(), ort.__version__))
    print("%d trees of depth %d, %d features; microseconds a run, least and median" % (args.trees, args.depth, args.features))
    print("%7s %5s %7s   %19s   %19s   %6s %6s" % ("targets", "rows", "threads", "Braid", "ONNX Runtime", "least", "median"))
    with tempfile.TemporaryDirectory() as folder:
        for targets in args.targets:
            path = os.path.join(folder, "forest.onnx")
            onnx.save(forest(args.trees, args.depth, args.features, targets, 1), path)
            for threads in args.threads:
                library = os.path.join(folder, "forest%d-%d.so" % (targets, threads))
                subprocess.run([args.braid, "compile", path, "-o", library, "--threads", str(threads)], check=True)
                for rows in args.rows:
                    x = np.random.default_rng(2).standard_normal((rows, args.features)).astype(np.float32)
                    all_of = contestants(library, path, threads, x)
                    got = [[] for _ in all_of]
                    for _ in range(args.rounds):
                        for i, f in enumerate(all_of):
                            got[i] += times(f, 0.1)
                    least, median = [min(g) for g in got], [statistics.median(g) for g in got]
                    a, b = (least[0], median[0]), (min(least[1:]), min(median[1:]))
                    print("%7d %5d %7d   %9.2f %9.2f   %9.2f %9.2f   %6.2f %6.2f" %
                          (targets, rows, threads, *a, *b, b[0] / a[0], b[1] / a[1]), flush=True)


if __name__ == "__main__":
    main()
