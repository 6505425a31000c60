#!/usr/bin/env python3
"""What tuning gains: compiles each model by the cost model alone and with --tune, and runs both in turn. Times are the
least of all rounds; the speedup is the median of the rounds' ratios.

    python eval/tuning.py [--braid build/release/braid] [--threads N] FOLDER...

Each FOLDER holds model.onnx and test_data_set_0/input_N.pb. Does not use earlier measurements.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import onnx

ROUNDS = 7


def inputs_of(folder):
    names = [i.name for i in onnx.load(folder + "/model.onnx", load_external_data=False).graph.input]
    options = []
    for i, name in enumerate(names):
        options += ["-i", "%s=%s/test_data_set_0/input_%d.pb" % (name, folder, i)]
    return options


def compiled(args, folder, library, cache, options):
    begin = time.time()
    subprocess.run([args.braid, "compile", folder + "/model.onnx", "-o", library] + args.team + options, check=True,
                   env={**os.environ, "BRAID_CACHE": cache})
    return time.time() - begin


def bench(args, library, given):
    done = subprocess.run([args.braid, "bench", library, "--json"] + args.team + given, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["min_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--threads", type=int)
    parser.add_argument("folder", nargs="+")
    args = parser.parse_args()
    args.team = ["--threads", str(args.threads)] if args.threads else []
    with tempfile.TemporaryDirectory() as work:
        for folder in args.folder:
            given = inputs_of(folder)
            plain, tuned = work + "/plain.so", work + "/tuned.so"
            compiled(args, folder, plain, work + "/cache", [])
            first = compiled(args, folder, tuned, work + "/cache", ["--tune"] + given)
            again = compiled(args, folder, tuned, work + "/cache", ["--tune"] + given)
            us = [(bench(args, plain, given), bench(args, tuned, given)) for _ in range(ROUNDS)]
            print("%-20s by model %10.2f us, tuned %10.2f us, %5.2f times; tuning took %.1f s, again %.1f s" %
                  (os.path.basename(folder.rstrip("/")), min(u[0] for u in us), min(u[1] for u in us),
                   statistics.median(u[0] / u[1] for u in us), first, again), flush=True)


if __name__ == "__main__":
    main()
