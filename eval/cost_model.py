#!/usr/bin/env python3
"""How well the scheduler's cost model ranks its choices: estimates against measured times.

    python eval/cost_model.py --braid build/release/braid FOLDER...

Each FOLDER holds model.onnx and test_data_set_0/input_N.pb (python -m models --all --full --out DIR makes some).
Runs every model on one thread and on all, once for each single transformation that is forced. Prints Spearman's
rank correlation over all of these, and how often the estimate ranks two of them correctly.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys

import onnx

WAYS = ["", "hoist=off", "split-sum=off", "core=on", "core=off"]


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    rank = [0.0] * len(values)
    i = 0
    while i < len(order):
        j = i
        while j < len(order) and values[order[j]] == values[order[i]]:
            j += 1
        for k in order[i:j]:
            rank[k] = (i + j - 1) / 2
        i = j
    return rank


def spearman(x, y):
    a, b = ranks(x), ranks(y)
    n = len(a)
    mean = (n - 1) / 2
    cov = sum((p - mean) * (q - mean) for p, q in zip(a, b))
    var = (sum((p - mean) ** 2 for p in a) * sum((q - mean) ** 2 for q in b)) ** 0.5
    return cov / var if var else float("nan")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def measure(braid, folder, way, threads):
    """(estimated ns, least measured ns) of one run."""
    path = os.path.join(folder, "model.onnx")
    options = ["--threads", str(threads)] + (["--schedule", way] if way else [])
    plan = run([braid, "explain", path, "--json"] + options)["schedule"]
    names = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    given = []
    for i, name in enumerate(names):
        given += ["-i", "%s=%s" % (name, os.path.join(folder, "test_data_set_0", "input_%d.pb" % i))]
    return plan["estimate_ns"], run([braid, "bench", path, "--json"] + options + given)["min_us"] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("folder", nargs="+")
    args = parser.parse_args()
    threads = sorted({1, len(os.sched_getaffinity(0))})
    rows, right, pairs = [], 0, 0
    for folder in args.folder:
        of_model = []
        for n, way in itertools.product(threads, WAYS):
            try:
                estimate, ns = measure(args.braid, folder, way, n)
            except RuntimeError as why:
                print("%s: %s" % (folder, why), file=sys.stderr)
                break
            of_model.append((estimate, ns))
            print("%-24s %d threads %-14s estimate %12.1f us  measured %12.1f us  %6.2f" %
                  (os.path.basename(folder.rstrip("/")), n, way or "-", estimate / 1e3, ns / 1e3, estimate / ns), flush=True)
        for (a, x), (b, y) in itertools.combinations(of_model, 2):
            if abs(x - y) > 0.1 * max(x, y):
                pairs += 1
                right += (a < b) == (x < y)
        rows += of_model
    if len(rows) < 2:
        sys.exit("nothing was measured")
    print("rank correlation %.3f over %d estimates; the faster of two ways that differ by more than 10 %%: right %d times of %d" %
          (spearman([r[0] for r in rows], [r[1] for r in rows]), len(rows), right, pairs))


if __name__ == "__main__":
    main()
