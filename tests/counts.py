#!/usr/bin/env python3
"""What `braid explain` counts is what stands in the text: barriers of all units, those of a cluster, and flags.

    counts.py [--braid BRAID] [--graphs N] [--seed S] [--jobs N] [MODEL.onnx...]

Looks at the small benchmark models, those of tests/golden and N random graphs (tests/random/random_graphs.py), or at the
models given, as the scheduler would have them and with transformations forced. Nothing is compiled. Prints a line for
each count that differs, and last how many texts were looked at. Exit status 1 when a count differs.
Heads of attention at full size stay with their units: no unit waits for others in a step.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT + "/tests/random")
import random_graphs  # noqa: E402

FORCED = ["", "core=off,team=on", "core=off,team=on,append=on", "append=on"]
WAYS = [(t, s) for t in ("cpu", "cuda:sm_90") for s in FORCED] + [("cuda:sm_90", "library=on")]
CHIPS = ("cuda:sm_80", "cuda:sm_90", "hip:gfx90a")
# As the emitter writes them; what travels with every model has no such line.
CALLS = {
    "barriers": re.compile(r"\(st = bk_barrier\(k, unit\)\)"),
    "cluster_barriers": re.compile(r"\(st = bk_cluster_barrier\(\)\)"),
    "flags": re.compile(r"^ *bk_gather\(k, unit, .*;$|\(st = bk_release\(k, unit, ", re.M),
}


def braid(a, work, command, model, *options):
    env = {**os.environ, "CC": "false", "NVCC": "false", "HIPCC": "false", "BRAID_CACHE": work + "/cache"}
    return subprocess.run([a.braid, command, *options, model], env=env, capture_output=True, text=True)


def compare(a, work, i, model, target, schedule):
    """Lines about what differs; None where Braid refuses the model."""
    how = ["--target", target, "--threads", "4", *(["--schedule", schedule] if schedule else [])]
    said = braid(a, work, "explain", model, "--json", *how)
    if said.returncode:
        return None
    said, path = json.loads(said.stdout), f"{work}/{i}.txt"
    r = braid(a, work, "compile", model, "--emit", path, "-o", path + ".so", *how)
    if not os.path.exists(path):
        return ["no text: " + r.stderr.strip()]
    with open(path) as f:
        text = f.read()
    os.remove(path)
    counts = {kind: len(call.findall(text)) for kind, call in CALLS.items()}
    return [f"{kind}: {said[kind]} in explain, {n} in the text" for kind, n in counts.items() if said[kind] != n]


def models(a, work):
    """(name, path)"""
    subprocess.run([sys.executable, "-m", "models", "--all", "--small", "--out", work + "/models"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    random_graphs.make_all(range(a.seed, a.seed + a.graphs), work + "/graphs", a.jobs)
    for path in sorted(glob.glob(work + "/models/*/model.onnx") + glob.glob(work + "/graphs/*/*/model.onnx")):
        yield os.path.basename(os.path.dirname(path)), path
    for path in sorted(glob.glob(ROOT + "/tests/golden/*.onnx")):
        yield os.path.basename(path), path


def heads(a, work):
    """Lines about chips on which units wait for each other in a step of attention."""
    subprocess.run([sys.executable, "-m", "models", "attention", "--full", "--out", work + "/full"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    bad = []
    for target in CHIPS:
        said = braid(a, work, "explain", work + "/full/attention/model.onnx", "--json", "--target", target)
        loops = json.loads(said.stdout)["loops"]
        waits = [loop["barriers"] + loop["cluster_barriers"] + loop["flags"] for loop in loops]
        if waits != [0]:
            bad.append(f"attention for {target}: {waits} synchronizations in a step, not [0]")
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL.onnx")
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--graphs", type=int, default=24)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    a = p.parse_args()
    texts = refused = bad = 0
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        os.makedirs(work + "/graphs")
        todo = [(n, t, s, pool.submit(compare, a, work, f"{k}.{i}", m, t, s))
                for k, (n, m) in enumerate([(m, m) for m in a.models] or models(a, work)) for i, (t, s) in enumerate(WAYS)]
        for name, target, schedule, job in todo:
            lines = job.result()
            refused += lines is None
            texts += lines is not None
            for line in lines or []:
                bad += 1
                print(f"{name} for {target}{schedule and ', ' + schedule}: {line}", flush=True)
        for line in [] if a.models else heads(a, work):
            bad += 1
            print(line)
    print(f"{texts} texts, {refused} refused, {bad} counts differ")
    return bad > 0 or not texts


if __name__ == "__main__":
    sys.exit(main())
