#!/usr/bin/env python3
"""ONNX's conformance tests with what their models declare of shapes taken away: they pass as before.

    open_ranks.py [--braid PATH] [--target T] [--keep DIR]

Every model is compiled for the ranks that its data bring; a rule about ranks (frontend/ranks.c) that is
wrong refuses one of them.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx


def strip(t):
    kind = t.WhichOneof("value")
    if kind == "tensor_type":
        t.tensor_type.ClearField("shape")
    elif kind in ("sequence_type", "optional_type"):
        strip(getattr(t, kind).elem_type)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--target", default="interp")
    p.add_argument("--keep", metavar="DIR", help="leave the models there")
    a = p.parse_args()
    source = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    out = pathlib.Path(a.keep or tempfile.mkdtemp(prefix="open_ranks"))
    n = 0
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
        n += 1
    counts = []
    for folder in (source, out):
        r = subprocess.run([a.braid, "test", "--target", a.target, str(folder)], capture_output=True, text=True)
        lines = r.stdout.splitlines() or ["no output"]
        counts.append(lines[-1])
        if folder == out:
            print("\n".join(lines[:-1]))
    if not a.keep:
        shutil.rmtree(out)
    print("%d models: %s; without declared shapes: %s" % (n, *counts))
    return counts[0] != counts[1]


if __name__ == "__main__":
    sys.exit(main())
