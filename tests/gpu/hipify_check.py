#!/usr/bin/env python3
"""Compares Braid's own way from CUDA to HIP with torch.utils.hipify: programs by each give the same results, bit for bit.

    hipify_check.py [--braid BRAID] [--jobs N] [--python PYTHON] FOLDER...

PYTHON has torch; by default it is the python3 that is found first. Each FOLDER holds model.onnx and
test_data_set_0/input_N.pb. Prints a line for each failure and, last, how much was run.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

import onnx

HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def outputs(args, folder, hipify, work):
    """{file: bytes} of a run on the emulator."""
    inputs = []
    for i, value in enumerate(onnx.load(folder + "/model.onnx", load_external_data=False).graph.input):
        inputs += ["-i", "%s=%s/test_data_set_0/input_%d.pb" % (value.name, folder, i)]
    done = subprocess.run([args.braid, "run", folder + "/model.onnx", "--target", "emulate:hip", "--threads", "3", "-o", work, *inputs],
                          env={**os.environ, "HIPIFY": hipify, "BRAID_CACHE": work + "/cache"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("%s: %s" % (hipify, done.stderr.strip()[-500:]))
    found = {}
    for name in sorted(os.listdir(work)):
        if name.startswith("output_"):
            with open(os.path.join(work, name), "rb") as f:
                found[name] = f.read()
    return found


def check(args, folder):
    try:
        with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as torch:
            results = outputs(args, folder, "own", own)
            if not results:
                return "no outputs"
            return "" if results == outputs(args, folder, "torch", torch) else "the results differ"
    except RuntimeError as why:
        return str(why)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--python")
    parser.add_argument("folder", nargs="+")
    args = parser.parse_args()
    args.braid = os.path.abspath(args.braid)
    if args.python:
        os.environ["PATH"] = os.path.dirname(os.path.abspath(args.python)) + os.pathsep + os.environ.get("PATH", "")
    if subprocess.run(["python3", "-c", HAS_TORCH]).returncode:
        sys.exit("there is nothing to compare with: python3 has no torch")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for folder, why in zip(args.folder, pool.map(lambda f: check(args, f), args.folder)):
            failed += why != ""
            if why:
                print("FAIL %s: %s" % (folder, why), flush=True)
    print("%d models, %d failed" % (len(args.folder), failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
