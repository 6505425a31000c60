#!/usr/bin/env python3
"""Where units meet and what stays on chip, model by model: the same whatever form a model was exported in; and the
blocks of a cluster, where one runs the loops.

    structure.py [--braid BRAID] FOLDER
    structure.py --list | --list-many     the models; those of FOLDER/64

FOLDER holds the benchmark models in full size (python -m models NAME... --full --out FOLDER). They are looked at for
four cores, and for a GPU's blocks (nothing is compiled for it). Prints a line a model and target.
"""
import argparse
import json
import os
import subprocess
import sys

CPU, GPU = ["--target", "cpu", "--threads", "4"], ["--target", "cuda:sm_90"]
GPU_UNITS = 132
# Most synchronizations in an iteration of the loops, by depth: outer ones first.
LOOPS = {
    "lstm_operator": ([1], [1]),
    "lstm_split": ([2, 1], [1]),
    "lstm_four": ([2, 1], [1]),
    "lstm_gemm": ([2, 1], [1]),
    "lstm_scan": ([2, 1], [1]),
    "nasrnn": ([1], [1]),
    "seq2seq": ([3], [2]),
    "seq2seq_gemm": ([3], [2]),
    "seq2seq_scan": ([3], [2]),
    "attention": ([0], [0]),
    "attention_where": ([0], [0]),
    "attention_added": ([0], [0]),
    "attention_chosen": ([0], [0]),
    "attention_grow": ([1], [1]),
    "mamba": ([0], [0]),
    "mamba_hoisted": ([0], [0]),
}
# The same at batch 64, in FOLDER/64: rows of one unit synchronize nobody. On a GPU of 132 units mamba's 64 rows would leave
# half of them idle in the longest group, which is then shared by channels and costs a barrier.
MANY = {"attention": ([0], [0]), "attention_where": ([0], [0]), "mamba": ([0], [1])}
# Barriers of a cluster in an iteration of a loop that one runs. The grid has none there.
CLUSTERS = {"lstm_operator": 1, "nasrnn": 1, "seq2seq": 3, "attention": 0}
LSTM_LAYERS, HIDDEN = 10, 256
GATE = HIDDEN * HIDDEN * 4
# Bytes of weights that a step multiplies by: those of the inputs are used before the loop.
RESIDENT = {name: (2 * LSTM_LAYERS - 1) * 4 * GATE for name in ("lstm_operator", "lstm_split", "lstm_four", "lstm_gemm", "lstm_scan")}
RESIDENT["nasrnn"] = 8 * GATE
# Cells that a GPU's blocks compute side by side in an iteration.
SIDE = {name: LSTM_LAYERS for name in ("lstm_operator", "lstm_split", "lstm_four", "lstm_gemm", "lstm_scan")}
BLOCK, BLOCKS = 2, 15  # synchronizations of a block: in front of each convolution; blocks
ALONE = ["blockdrop", "trips_if", "experts"]  # have work of one unit
SEES = "%-16s %-5s %s"


def explain(braid, folder, target, form=()):
    done = subprocess.run([braid, "explain", os.path.join(folder, "model.onnx"), *target, *form],
                          capture_output=True, text=True, check=True)
    return done.stdout


def synchronizations(loop):
    """A barrier is a flag from all units to one and one from that one to all."""
    return loop["barriers"] + (loop["flags"] + 1) // 2


def branches(tree):
    """Synchronizations in the two arms of each outermost branch."""
    found, arm = [], None
    for line in tree.splitlines():
        text = line.strip()
        if line.startswith("if "):
            found.append([0, 0])
            arm = 0
        elif line == "else":
            arm = 1
        elif not line.startswith(" "):
            arm = None
        elif arm is not None and is_meeting(text):
            found[-1][arm] += 1
    return found


def is_meeting(text):
    return text == "barrier" or text.startswith("flag")


def inside_alone(tree):
    """(constructs of one unit, synchronizations inside them)"""
    constructs, inside, core, indent = 0, 0, None, None
    for line in tree.splitlines():
        depth, text = len(line) - len(line.lstrip()), line.strip()
        if indent is not None and depth > indent:
            inside += is_meeting(text)
            continue
        if indent is not None and text == "else":
            continue
        indent = None
        if text.startswith("level "):
            core = depth if text == "level core" else None
        elif core == depth and (text.startswith("loop ") or text.startswith("if ")):
            constructs += 1
            indent = depth
    return constructs, inside


def check_loops(braid, folder, name, loops_of=LOOPS):
    """Lines of what is seen, and whether each is wrong."""
    for target, kind, most in zip((CPU, GPU), ("cpu", "gpu"), loops_of[name]):
        facts = json.loads(explain(braid, folder, target, ["--json"]))
        loops = [(l["depth"], synchronizations(l)) for l in facts["loops"]]
        bad = not loops or any(n > most[min(depth, len(most) - 1)] for depth, n in loops)
        yield kind, ", ".join("%d at depth %d" % (n, d) for d, n in sorted(set(loops))) + (", at most %s" % most if bad else ""), bad
        if kind == "gpu" and name in RESIDENT and loops_of is LOOPS:
            kept = GPU_UNITS * sum(r["bytes"] for r in facts["residents"] if r["kept"])
            out = [r["name"] for r in facts["residents"] if not r["kept"]]
            yield kind, "%d bytes of weights on chip" % kept, kept < RESIDENT[name] or out


def longest_row(nodes):
    """Most statements at the same time, in a loop."""
    most = n = 0
    for node in nodes:
        n = n + 1 if node.get("beside") else 1
        most = max(most, n, longest_row(node.get("children", [])))
    return most


def check_side(braid, folder, least):
    tree = json.loads(explain(braid, folder, GPU, ["--json"]))["tree"]
    n = max((longest_row(node["children"]) for node in tree if node["kind"] == "loop"), default=0)
    yield "gpu", "%d side by side" % n, n < least


def check_cluster(braid, folder, most):
    facts = json.loads(explain(braid, folder, [*GPU, "--schedule", "cluster=on,grid=on"], ["--json"]))
    loops = [(l["barriers"] + l["flags"], l["cluster_barriers"]) for l in facts["loops"]]
    bad = not loops or any(grid or cluster > most for grid, cluster in loops)
    yield "gpu", "%d of a cluster" % max((n for _, n in loops), default=0), bad


def check_blocks(braid, folder):
    for target, kind in ((CPU, "cpu"), (GPU, "gpu")):
        arms = branches(explain(braid, folder, target))
        skipped = sum(other for _, other in arms)
        yield kind, "%d in skipped blocks" % skipped, skipped > 0 or len(arms) != BLOCKS
        if kind == "gpu":
            most = max(taken for taken, _ in arms)
            yield kind, "at most %d in a block" % most, most > BLOCK


def check_alone(braid, folder):
    constructs, inside = inside_alone(explain(braid, folder, GPU))
    yield "gpu", "%d inside %d constructs of one unit" % (inside, constructs), inside > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--list-many", action="store_true")
    parser.add_argument("folder", nargs="?")
    args = parser.parse_args()
    names = list(dict.fromkeys([*LOOPS, *ALONE]))
    if args.list or args.list_many:
        print(*(MANY if args.list_many else names))
        return
    failed = constructs = 0
    for name in names:
        folder = os.path.join(args.folder, name)
        if not os.path.isdir(folder):
            sys.exit("there is no %s" % folder)
        checks = list(check_loops(args.braid, folder, name)) if name in LOOPS else []
        checks += check_cluster(args.braid, folder, CLUSTERS[name]) if name in CLUSTERS else []
        checks += check_side(args.braid, folder, SIDE[name]) if name in SIDE else []
        checks += check_blocks(args.braid, folder) if name == "blockdrop" else []
        constructs += inside_alone(explain(args.braid, folder, GPU))[0]
        for kind, sees, bad in [*checks, *check_alone(args.braid, folder)]:
            failed += bool(bad)
            print(SEES % (name, kind, sees) + ("  FAIL" if bad else ""))
    for name in MANY:
        for kind, sees, bad in check_loops(args.braid, os.path.join(args.folder, "64", name), name, MANY):
            failed += bool(bad)
            print(SEES % (name + " 64", kind, sees) + ("  FAIL" if bad else ""))
    if not constructs:
        failed += 1
        print("no model has work of one unit  FAIL")
    print("%d models, %d failed" % (len(names) + len(MANY), failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
