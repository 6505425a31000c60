#!/usr/bin/env python3
"""The texts that two builds of Braid make of the same models: a change that should change nothing shows it here.

    emitted.py --braid BEFORE --braid AFTER [--targets cpu,cuda:sm_90,hip:gfx90a] [--size small] [--schedule LIST]
               [--work build/emitted] [NAME|MODEL.onnx|FOLDER...]

Emits models by both builds for each target: those of models/ with the names, files, and all files below folders; without
any, all of models/. A message in place of a text is compared, too. Prints the first lines that differ of each text that does,
and last how many texts are equal. No compiler is run. Lines that travel with every model (those of the files in codegen/
and include/ of the tree of either build) are left out, unless --all. Exit status 1 when texts differ.
"""
import argparse
import concurrent.futures
import difflib
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def benchmarks(a, names):
    made = f"{a.work}/models-{a.size}"
    subprocess.run([sys.executable, "-m", "models", *(names or ["--all"]), f"--{a.size}", "--out", made], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    return [(n, f"{made}/{n}/model.onnx") for n in sorted(os.listdir(made)) if not names or n in names]


def models(a):
    """(name, file)"""
    names = [n for n in a.names if not os.path.exists(n)]
    found = benchmarks(a, names) if names or not a.names else []
    for place in a.names:
        if os.path.isfile(place):
            found.append((place, place))
        files = sorted(f"{d}/{f}" for d, _, fs in os.walk(place) for f in fs if f.endswith(".onnx"))
        found += [(f, f) for f in files]
    return found


def emit(braid, model, target, threads, schedule, path):
    """The text; where the build refuses, its message."""
    env = {**os.environ, "CC": "false", "NVCC": "false", "HIPCC": "false"}
    if os.path.exists(path):
        os.remove(path)
    r = subprocess.run([braid, "compile", model, "--target", target, "--threads", str(threads), *schedule, "--emit", path, "-o", path + ".so"], env=env,
                       capture_output=True, text=True)
    if os.path.exists(path):
        with open(path) as f:
            return f.read()
    return "no text: " + r.stderr


def common_lines(braid):
    """The lines of the files that a build pastes into programs; the build lies in TREE/build/NAME/braid."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(braid))))
    found = set()
    for folder in ("codegen", "include"):
        for d, _, files in os.walk(os.path.join(tree, folder)):
            for f in files:
                if f.endswith((".h", ".c", ".inc")):
                    with open(os.path.join(d, f)) as x:
                        found.update(x.read().splitlines())
    return found


def own(text, common):
    return [x for x in text.splitlines() if x not in common]


def compare(a, name, target, model):
    texts = [emit(b, model, target, a.threads, ["--schedule", a.schedule] if a.schedule else [], f"{a.work}/{name.replace('/', '_')}.{target.replace(':', '_')}.{k}.txt") for k, b in enumerate(a.braid)]
    lines = list(difflib.unified_diff(*(own(t, a.common) for t in texts), lineterm="", n=1))
    return name, target, len(texts[0]), lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME|MODEL.onnx|FOLDER")
    p.add_argument("--braid", action="append", required=True)
    p.add_argument("--targets", default="cpu,cuda:sm_90,hip:gfx90a")
    p.add_argument("--size", default="small", choices=["small", "full"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--schedule", help="choices to force, as braid compile takes them")
    p.add_argument("--all", action="store_true")
    p.add_argument("--lines", type=int, default=12)
    p.add_argument("--work", default=os.path.join(ROOT, "build/emitted"))
    a = p.parse_args()
    if len(a.braid) != 2:
        p.error("--braid must be given twice")
    os.makedirs(a.work, exist_ok=True)
    a.common = set() if a.all else set().union(*map(common_lines, a.braid))
    equal = differ = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        todo = [pool.submit(compare, a, n, t, m) for n, m in models(a) for t in a.targets.split(",")]
        for job in todo:
            name, target, size, lines = job.result()
            if lines:
                differ += 1
                print(f"{name} for {target}: {sum(x[0] in '+-' for x in lines)} lines differ")
                print("\n".join("    " + x[:160] for x in lines[:a.lines]))
            else:
                equal += 1
    print(f"{equal} texts equal, {differ} differ")
    return differ > 0 or not equal


if __name__ == "__main__":
    sys.exit(main())
