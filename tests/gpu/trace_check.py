#!/usr/bin/env python3
"""Traces of emulated GPU programs (eval/gpu/traced.py, traces.py): what they say is what the emulator counts.

    trace_check.py [--braid BRAID]

A traced program computes the same bits, is as long as the counted path, and passes each synchronization of a loop as often
as the loop turns; a block that is made slow is named, with about what it was late. What is made of records is compared with
records that are made by hand, also when the ring was too small for all.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "eval"), os.path.join(ROOT, "eval", "gpu"), os.path.dirname(os.path.abspath(__file__))]

import numpy as np  # noqa: E402: after the paths

import traced  # noqa: E402
import traces  # noqa: E402
from captured import load  # noqa: E402

UNITS, FENCES, SLOW = 4, 40, 2  # blocks; fences of the slow one, and which that is
GROUP = re.compile(r"^(static __device__ __noinline__ void f\d+_value\(bk_ctx \*k, int unit, .*\{)$", re.M)


def compiler(argv):
    """Stands in for the C++ compiler: makes a block slow in the model's functions."""
    for path in (a for a in argv if a.endswith(".cu")):
        with open(path) as f:
            text, n = GROUP.subn(rf"\1\n    if (unit == {SLOW}) for (int i = 0; i < {FENCES}; i++) bk_fence();",
                                 f.read())
        assert n, path
        with open(path, "w") as f:
            f.write(text)
    return subprocess.call(["c++", *argv])


def ring_of(records):
    """What a block leaves that wrote [(kind, place, ns)], with a clock of two ticks a ns that began at 2**33."""
    ring = np.zeros((traced.ROOM + 1, 4), np.uint32)
    ring[0, 0] = len(records)
    for i, (kind, place, ns) in enumerate(records):
        ticks = 2 * ns + (1 << 33)
        ring[1 + i % traced.ROOM] = (4 * place + kind, (ns + 4294967000) & 0xffffffff, ticks & 0xffffffff, ticks >> 32)
    return ring.reshape(-1)


def by_hand():
    """Three blocks, the last of which is 70 ns later than the others at each of n barriers."""
    places = [("the launch", 0, "")] * 2 + [("f1_x", 10, "x (Add)"), ("barrier", 11, "behind f1_x")]
    for n in 10, traced.ROOM:
        rings = []
        for late in 0, 0, 70:
            records = [(traced.LAUNCH, 0, 0)]
            for i in range(n):
                begin = 10 + 300 * i
                records += [(traced.FUNCTION, 2, begin), (traced.CAME, 3, begin + 100 + late), (traced.LEFT, 3, begin + 250)]
            rings.append(ring_of([*records, (traced.LAUNCH, 1, 10 + 300 * n)]))
        found = traces.summary([traces.Trace(r) for r in rings], places)
        (meet,), (function,) = found["meets"], found["functions"]
        whole = 3 * n + 2 <= traced.ROOM
        assert found["records"] == 3 * n + 2 and (not whole or abs(found["run_ns"] - 10 - 300 * n) < 1e-6 * 300 * n), found
        assert [round(meet[k], 6) for k in ("wait_ns", "late_ns", "last", "last_share")] == [150, 70, 2, 1], meet
        assert (round(function["ns"], 6), round(found["step"]["ns"], 6), round(function["step_ns"], 6)) == (170, 300, 170), found
        assert meet["passes"] == function["times"] == n if whole else meet["passes"] > traced.ROOM // 3 - 2, meet
        assert "last 8192 of" in "\n".join(traces.told("x", found)) or whole


def emulated(args, work, name, target, cxx, steps):
    """The summary of a traced run of a model, after what has to hold for each."""
    counts = os.path.join(work, "counts")
    library = os.path.join(work, f"{name}.{target.replace(':', '.')}.{os.path.basename(os.path.dirname(cxx))}.so")  # loaded but once
    folder = os.path.join(work, name)
    os.environ.update(CXX=cxx, BRAID_EMULATE_CHECKS="off", BRAID_EMULATE_COUNT=counts)
    try:
        traced.compile(args.braid, os.path.join(folder, "model.onnx"), target, library)
    except subprocess.CalledProcessError as e:
        sys.exit(f"{name}, {target}: {e.stderr}")
    open(counts, "w").close()
    feed, expected = load(folder)
    s, blocks = traces.trace(library, feed, 1, UNITS)
    with open(library.removesuffix(".so") + ".places.json") as f:
        found = traces.summary(blocks, json.load(f))
    with open(counts) as f:
        counted = json.loads(f.readlines()[-1])["ns"]
    assert np.allclose(s.out(s.outputs[0]), expected, rtol=1e-3, atol=1e-4), f"{name}, {target}: other results"
    assert found["blocks"] == UNITS and counted * 0.8 < found["run_ns"] <= counted, (name, target, found["run_ns"], counted)
    most = max(m["passes"] for m in found["meets"])
    assert most == steps, f"{name}, {target}: {most} passes of a synchronization, not {steps}"
    assert abs(found["step"]["ns"] * steps - found["run_ns"]) < 0.4 * found["run_ns"], found
    waits, work = sum(m["wait_ns"] * m["passes"] for m in found["meets"]), sum(f["all_ns"] for f in found["functions"])
    assert 0.6 * found["run_ns"] < waits + work < 1.7 * found["run_ns"], (waits, work, found["run_ns"])
    return found


def main():
    if sys.argv[1:2] == ["--compiler"]:
        return compiler(sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    args = p.parse_args()
    args.braid = os.path.abspath(args.braid)
    by_hand()
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "models", "lstm_operator", "--small", "--length", "6", "--out", work], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
        slow = os.path.join(work, "c++")
        with open(slow, "w") as f:
            f.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' --compiler \"$@\"\n")
        os.chmod(slow, 0o755)
        for target in "emulate:cuda", "emulate:hip":  # a step for each diagonal: 6 times, 3 layers
            found = emulated(args, work, "lstm_operator", target, "c++", 8)
            late = emulated(args, work, "lstm_operator", target, slow, 8)
            before, meet = (max(x["meets"], key=lambda m: m["passes"]) for x in (found, late))
            more = late["step"]["ns"] - found["step"]["ns"]
            assert meet["last"] == SLOW and meet["last_share"] == 1, meet
            assert meet["late_ns"] > before["late_ns"] + 0.7 * more and more > 10 * FENCES, (before, meet, more)
            f = max(late["functions"], key=lambda f: f["all_ns"])
            assert f["name"].endswith("_value") and f["model"].endswith("(LSTM)"), f
            print(f"{target}: {found['step']['ns']:.0f} ns a step, {late['step']['ns']:.0f} with a slow block, which is late by {meet['late_ns']:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
