#!/usr/bin/env python3
"""Nobody works alone: in no function of a GPU program does a thread, or a warp, make many loads one behind the other, or
many iterations, while the other threads of its block wait for it.

    alone.py [--braid BRAID] [--target T]... [--jobs N] [--work DIR] [--verbose] [NAME...]

Compiles models for emulated GPUs, of small sizes for the first target or, where only those show it, of the published
widths with few steps for all targets, and reads the emulator's count (codegen/emulate/count.cc) of one run. NAMEs choose
among the models. Prints a line for
each function that exceeds the limits of `braid profile`, and what was counted. Exit status 1 if any does, or if a model
is not counted.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "eval", "gpu"))
import counted  # noqa: E402: after the path

WIDE = {  # options of `python -m models`: wide where the width is what one thread could walk
    "seq2seq": "--limit 6 --length 2",
    "seq2seq_scan": "--limit 6 --length 2",
    "rnnt": "--length 2",
    "attention": "--length 3",
    "attention_grow": "--length 160 --heads 2 --width 16",
    "nasrnn": "--length 2",
    "mamba": "--length 3",
    "mamba_inside": "--length 3",
    "lstm_operator": "--length 2 --layers 2",
    "bert": "--length 5 --layers 1 --width 288 --heads 2 --vocabulary 300",
    "blockdrop": "--blocks 1",
    "earlyexit_3": "",
    "experts": "",
    "experts_gather": "",
    "experts_dispatch": "",
    "treelstm": "--length 9",
    "treelstm_children": "--length 150 --hidden 16",
    "rae": "--length 200 --hidden 16",
    "mvrnn": "--length 5",
    "dagrnn": "--rows 4 --columns 4",
    "dagrnn_random": "--length 150 --hidden 16",
    "syntax": "--length 150 --hidden 16",
    "trips_if": "--length 300 --width 300",
}


def models(work, names):
    """[(what, folder)]: small ones and wide ones, or those that are named."""
    run = lambda *a: subprocess.run([sys.executable, "-m", "models", *a], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    small, wide = os.path.join(work, "small"), os.path.join(work, "wide")
    if names:
        run(*names, "--small", "--out", small)
    else:
        run("--all", "--small", "--out", small)
        for name in WIDE:
            shutil.rmtree(os.path.join(small, name))
    for name in WIDE:
        if not names or name in names:
            run(name, *WIDE[name].split(), "--out", wide)
    return [(f"{os.path.basename(d)} {name}", os.path.join(d, name)) for d in (small, wide) if os.path.isdir(d)
            for name in sorted(os.listdir(d))]


def count(braid, target, folder):
    """The launches that the emulator counted, or why there are none."""
    with tempfile.TemporaryDirectory() as work:
        try:
            return counted.launches_of(braid, os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0"), target, None, work)
        except subprocess.CalledProcessError as e:
            return str(e)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--target", action="append")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--work")
    p.add_argument("--verbose", action="store_true", help="print what stays below the limits, too")
    args = p.parse_args()
    bad = functions = 0
    with open(os.path.join(ROOT, "cli", "counted.c")) as f:
        limit = dict(re.findall(r"#define ALONE_(\w+) (\d+)", f.read()))
    most_loads, most_iterations = int(limit["LOADS"]), int(limit["ITERATIONS"])
    with tempfile.TemporaryDirectory() as own, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        targets = args.target or ["emulate:cuda", "emulate:hip"]
        cases = [(target, *m) for m in models(args.work or own, args.names)
                 for target in (targets if m[0].startswith("wide") else targets[:1])]
        runs = [pool.submit(count, os.path.abspath(args.braid), target, folder) for target, _, folder in cases]
        for (target, what, _), done in zip(cases, runs):
            launches = done.result()
            if isinstance(launches, str) or not launches or not all(x["functions"] for x in launches):
                print(f"{what}, {target}: not counted: {launches}")
                bad += 1
                continue
            functions += sum(len(x["functions"]) for x in launches)
            for x in (x for launch in launches for x in launch["alone"]):
                over = x["loads"] > most_loads or x["iterations"] > most_iterations
                if over or args.verbose:
                    print(f"{what}, {target}: {x['threads']} threads of {x['name']} make {x['loads']} dependent loads, "
                          f"{x['iterations']} iterations" + (" alone" if over else ""), flush=True)
                bad += over
    print(f"{len(cases)} runs, {functions} functions on critical paths, {bad} alone or not counted")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
