#!/usr/bin/env python3
"""Where units meet, model by model, on four units: the same whatever form a model was exported in.

    structure.py [--braid BRAID] FOLDER
    structure.py --list                   the models

FOLDER holds the benchmark models in full size (python -m models NAME... --full --out FOLDER). Prints a line a model.
"""
import argparse
import json
import os
import subprocess
import sys

# Most synchronizations in an iteration of the loops, by depth: outer ones first.
LOOPS = {
    "lstm_operator": [1],
    "lstm_split": [2, 1],
    "lstm_four": [2, 1],
    "lstm_gemm": [2, 1],
    "lstm_scan": [2, 1],
    "nasrnn": [1],
    "seq2seq": [3],
    "seq2seq_gemm": [3],
    "seq2seq_scan": [3],
    "attention": [0],
    "attention_where": [0],
    "attention_grow": [2],
    "mamba": [0],
}
SEES = "%-16s %s"


def explain(braid, folder):
    done = subprocess.run([braid, "explain", os.path.join(folder, "model.onnx"), "--threads", "4", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def skipped_meets(braid, folder):
    """Synchronizations of a run of blockdrop in which every block is skipped, less those of the parts outside."""
    tree = subprocess.run([braid, "explain", os.path.join(folder, "model.onnx"), "--threads", "4"],
                          capture_output=True, text=True, check=True).stdout
    inside_else = 0
    indent = None
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        text = line.strip()
        if indent is not None and depth <= indent:
            indent = None
        if text == "else":
            indent = depth
        elif indent is not None and text == "barrier":
            inside_else += 1
    return inside_else


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("folder", nargs="?")
    args = parser.parse_args()
    if args.list:
        print(*LOOPS, "blockdrop")
        return
    failed = count = 0
    for name, most in LOOPS.items():
        folder = os.path.join(args.folder, name)
        if not os.path.isdir(folder):
            sys.exit("there is no %s" % folder)
        count += 1
        loops = [(l["depth"], l["barriers"]) for l in explain(args.braid, folder)["loops"]]
        bad = not loops or any(n > most[min(depth, len(most) - 1)] for depth, n in loops)
        failed += bad
        print(SEES % (name, ", ".join("%d at depth %d" % (n, d) for d, n in sorted(set(loops)))) + ("  FAIL, at most %s" % most if bad else ""))
    n = skipped_meets(args.braid, os.path.join(args.folder, "blockdrop"))
    failed += n > 0
    print(SEES % ("blockdrop", "%d in skipped blocks" % n) + ("  FAIL" if n else ""))
    print("%d models, %d failed" % (count + 1, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
