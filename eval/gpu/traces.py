#!/usr/bin/env python3
"""Profiles models on the GPU: when each block came to each synchronization, and when it went on.

    traces.py --braid BRAID --target T --models FOLDER --out WORK/traces [--jobs N]

For each model.onnx of FOLDER with its inputs (pack.py), by a build that measures itself: NAME.trace.json, which
ui.perfetto.dev opens, NAME.json, and NAME.txt, what `braid profile` prints. A slow model is explained by the same run.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys

EACH = 28  # seconds


def profile(args, name):
    """Why there is none, or None."""
    folder, out = os.path.join(args.models, name), os.path.join(args.out, name)
    with open(os.path.join(folder, "inputs")) as f:
        names = f.read().split()
    inputs = [w for i, n in enumerate(names) for w in ("-i", f"{n}={folder}/test_data_set_0/input_{i}.pb")]
    try:
        done = subprocess.run([args.braid, "profile", os.path.join(folder, "model.onnx"), "--target", args.target, *inputs,
                               "--json", out + ".json", "--trace", out + ".trace.json"], capture_output=True, text=True, timeout=EACH)
    except subprocess.TimeoutExpired:
        return f"not done after {EACH} s"
    with open(out + ".txt", "w") as f:
        f.write(done.stdout)
    return (done.stderr.strip() or f"ended with {done.returncode}")[-400:] if done.returncode else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "braid", "target", "models", "out":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    names, failed = sorted(os.listdir(args.models)), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, why in zip(names, pool.map(lambda name: profile(args, name), names)):
            failed += why is not None
            print(f"{name}: {why or 'profiled'}")
            if why is None:
                with open(os.path.join(args.out, name + ".txt")) as f:
                    print(f.read())
    print(f"{len(names) - failed} profiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
