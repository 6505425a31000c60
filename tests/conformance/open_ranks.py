#!/usr/bin/env python3
"""Inputs that declare no rank: ONNX's conformance tests without declared shapes, and libraries.

    open_ranks.py [--braid PATH] [--target T] [--only models|libraries] [--keep DIR]

The conformance tests pass as with declared shapes: every model is compiled for the ranks that its data
bring, and a rule about ranks (frontend/ops_ranks.def) that is wrong refuses one of them. A library has
the ranks that the model allows inside, or its compilation says which input needs one.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from open_models import LIBRARIES, open_ranks


def strip(t):
    kind = t.WhichOneof("value")
    if kind == "tensor_type":
        t.tensor_type.ClearField("shape")
    elif kind in ("sequence_type", "optional_type"):
        strip(getattr(t, kind).elem_type)


def tested(braid, target, folder):
    """Names of the tests that do not pass, with the lines about them."""
    r = subprocess.run([braid, "test", "--verbose", "--target", target, str(folder)], capture_output=True, text=True)
    lines = r.stdout.splitlines()
    if not lines or " passed, " not in lines[-1]:
        sys.exit("braid test gave no result: " + r.stdout + r.stderr)
    print("%s: %s" % (folder, lines[-1]))
    return {re.match(r"\w+ \S*/([^/:]+): ", line).group(1): line for line in lines[:-1]}


def models(braid, target, out):
    source = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for model in sorted(source.rglob("model.onnx")):
        to = out / model.parent.relative_to(source)
        to.mkdir(parents=True, exist_ok=True)
        m = onnx.load(model)
        for v in list(m.graph.input) + list(m.graph.output):
            strip(v.type)
        del m.graph.value_info[:]
        onnx.save(m, to / "model.onnx")
        for data in model.parent.glob("test_data_set_*"):
            if not (to / data.name).exists():
                os.symlink(data, to / data.name)
    declared, opened = tested(braid, target, source), tested(braid, target, out)
    return [line for name, line in opened.items() if name not in declared]


def run(braid, args):
    r = subprocess.run([braid] + args, capture_output=True, text=True, timeout=300)
    return r.returncode, r.stderr.strip()


def library(braid, target, out, name, m, args, runs):
    """What is wrong with it, or ""."""
    path, so = str(out / (name + ".onnx")), str(out / (name + ".so"))
    onnx.save(m, path)
    code, text = run(braid, ["compile", path, "-o", so, "--target", target] + args * bool(runs))
    if not runs:
        return "" if code == 1 and re.search(args[0], text) else "exit code %d: %s" % (code, text)
    if code:
        return text
    for k, (values, want) in enumerate(runs):
        given = []
        for v, x in zip(m.graph.input, values):
            np.save(out / (v.name + ".npy"), x)
            given += ["-i", "%s=%s" % (v.name, out / (v.name + ".npy"))]
        code, text = run(braid, ["run", so, "-o", str(out / "o")] + given)
        if isinstance(want, str):
            if code != 1 or not re.search(want, text):
                return "run %d: exit code %d: %r has nothing of %r" % (k, code, text, want)
            continue
        if code:
            return "run %d: %s" % (k, text)
        for j, y in enumerate(want):
            got = np.load(out / "o" / ("output_%d.npy" % j))
            if got.shape != y.shape or not np.allclose(got, y, rtol=1e-4, atol=1e-6):
                return "run %d: output %d is %s, not %s" % (k, j, got, y)
    return ""


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--target", help="interp for the models, cpu for the libraries")
    p.add_argument("--only", choices=["models", "libraries"])
    p.add_argument("--keep", metavar="DIR", help="leave the models there")
    a = p.parse_args()
    out = pathlib.Path(a.keep or tempfile.mkdtemp(prefix="open_ranks"))
    problems = []
    if a.only != "libraries":
        problems += models(a.braid, a.target or "interp", out / "models")
    if a.only != "models":
        open_ranks()
        (out / "libraries").mkdir(parents=True, exist_ok=True)
        for name, m, args, runs in LIBRARIES:
            why = library(a.braid, a.target or "cpu", out / "libraries", name, m, args, runs)
            problems += ["FAIL library %s: %s" % (name, why)] if why else []
        print("%d libraries" % len(LIBRARIES))
    if not a.keep:
        shutil.rmtree(out)
    print("\n".join(problems + ["%d problems" % len(problems)]))
    return len(problems) > 0


if __name__ == "__main__":
    sys.exit(main())
