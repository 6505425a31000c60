#!/usr/bin/env python3
"""Times the modules of tests/torch/modules.py: eager PyTorch, torch.compile with its own compiler (inductor), and Braid.

    torch_modules.py [NAME…] [--threads 1 2] [--seconds 1.0] [--no-inductor] [--json FILE]

Each module is run at one size, by all three in turn in the same process, without gradients. Prints microseconds a call (least
and median over all rounds), eager's and inductor's time by Braid's, and the geometric means of these ratios. Run with a Python
that has torch and braid (`source cmake/setup.sh; python_package; setup_torch; install_package $TORCH_VENV`).
"""
import argparse
import json
import math
import os
import statistics
import sys
import time
import warnings

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "torch"))
import modules  # noqa: E402
from modules_check import compare  # noqa: E402

import braid  # noqa: E402
import braid.torch  # noqa: E402

# The size, and what the module is made with.
SIZES = {"PowerIteration": (48, {}), "Gated": (16, {"width": 64}), "Smoother": (64, {"width": 64}), "Tagger": (48, {"width": 64, "layers": 2}),
         "Speaker": (64, {"width": 64, "layers": 2}), "Decoder": (128, {"width": 128, "heads": 4}), "EarlyExit": (16, {"width": 64, "layers": 12}),
         "Pointer": (64, {"width": 64}), "Mixture": (32, {"width": 64, "experts": 8}), "Greedy": (32, {"width": 64, "words": 100, "longest": 24})}
ROUNDS = 7


def rounds(ways, args, seconds):
    """{way: [µs a call in each round]}, the ways in turn."""
    calls, times = {}, {name: [] for name in ways}
    for name, run in ways.items():
        run(*args), run(*args)
        begin = time.perf_counter()
        run(*args)
        calls[name] = max(1, int(seconds / ROUNDS / (time.perf_counter() - begin)))
    for _ in range(ROUNDS):
        for name, run in ways.items():
            begin = time.perf_counter()
            for _ in range(calls[name]):
                run(*args)
            times[name].append((time.perf_counter() - begin) / calls[name] * 1e6)
    return times


def measure(case, threads, a):
    size, made = SIZES[case.__name__]
    module = modules.make(case, **made)
    args = module.inputs(size)
    wanted = module(*args)
    ways = {"eager": module, "braid": braid.torch.compile(module, args, dynamic_shapes=module.shapes, threads=threads)}
    compare(ways["braid"](*args), wanted, case.__name__)
    if not a.no_inductor:
        torch._dynamo.reset()
        inductor = torch.compile(module)
        try:
            compare(inductor(*args), wanted, case.__name__)
            ways["inductor"] = inductor
        except Exception as error:
            print(f"{case.__name__}: without inductor: {str(error).strip().splitlines()[0][:150]}", file=sys.stderr)
    return rounds(ways, args, a.seconds)


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else float("nan")


def table(threads, found):
    print(f"\n{threads} thread{'s' if threads > 1 else ''}; µs a call: least / median")
    print(f"{'':16}{'eager':>20}{'inductor':>20}{'braid':>20}{'eager/braid':>14}{'inductor/braid':>16}")
    ratios = {"eager": [], "inductor": []}
    for name, times in found.items():
        line = f"{name:16}"
        for way in ("eager", "inductor", "braid"):
            x = times.get(way)
            line += f"{min(x):10.1f} /{statistics.median(x):8.1f}" if x else f"{'-':>20}"
        for way, width in (("eager", 14), ("inductor", 16)):
            if way in times:
                ratios[way].append((min(times[way]) / min(times["braid"]), statistics.median(times[way]) / statistics.median(times["braid"])))
                line += f"{ratios[way][-1][1]:{width}.2f}"
        print(line)
    for way, pairs in ratios.items():
        if pairs:
            print(f"geometric mean, {way}/braid: {mean([x for x, _ in pairs]):.2f} of least, {mean([x for _, x in pairs]):.2f} of medians")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    p.add_argument("--seconds", type=float, default=1.0, help="for each way of each module")
    p.add_argument("--no-inductor", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    results = {}
    for threads in a.threads:
        torch.set_num_threads(threads)
        results[threads] = {case.__name__: measure(case, threads, a) for case in modules.CASES if not a.names or case.__name__ in a.names}
        table(threads, results[threads])
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"torch": torch.__version__, "braid": braid.__version__, "microseconds": results}, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
