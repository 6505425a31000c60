#!/usr/bin/env python3
"""Writes what eval/gpu/times.py compares: every model of eval/tasks.py with its data, for batch 1 and 64 (trees: 10).

    write.py --out DATA [--models NAME,…] [--batch N,…] [--small] [--jobs N] [--treebank FILE]

A folder DATA/bBATCH/NAME for each, with model.onnx, data.npz (inputs, weights, expected outputs) and
options.json. The libraries that times.py runs are compiled of DATA/bBATCH/NAME/model.onnx to
LIBS/bBATCH/NAME.so.
"""
import argparse
import concurrent.futures
import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as many processes as CPUs instead
EVAL = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [EVAL, os.path.dirname(EVAL)]

import tasks  # noqa: E402: after the paths


def folder(batch, name, file):
    """Below DATA, and of the library below LIBS."""
    return os.path.join(f"b{batch}", tasks.place(name, file))


def write(out, name, file, batch, treebank, small):
    at = os.path.join(out, f"b{batch}")
    os.makedirs(at, exist_ok=True)
    tasks.prepare(at, name, tasks.TASKS[name], file, batch, treebank, small)
    return folder(batch, name, file)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, metavar="DATA")
    p.add_argument("--models", type=tasks.chosen, default=tasks.chosen("all"), metavar="NAME,…",
                   help="models or groups (loops, branches, trees, other, trips); all of them")
    p.add_argument("--batch", type=lambda t: [int(n) for n in t.split(",")], metavar="N,…",
                   help="only these")
    p.add_argument("--small", action="store_true", help="sizes for tests")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--treebank", metavar="FILE",
                   help="trees are the first of average size in it; without it, random trees")
    args = p.parse_args()
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        found = [pool.submit(write, args.out, name, file, batch, args.treebank, args.small)
                 for name in args.models for batch in tasks.TASKS[name].batches
                 if not args.batch or batch in args.batch for file in tasks.TASKS[name].main]
        for written in concurrent.futures.as_completed(found):
            print(written.result(), flush=True)


if __name__ == "__main__":
    main()
