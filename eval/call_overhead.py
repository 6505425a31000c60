#!/usr/bin/env python3
"""What a call from Python costs: nanoseconds of y = a + b with two arrays of eight float32, one thread each.

    call_overhead.py [--build build/release] [--calls 500] [--limit NS]

C: braid_session_run from a C program. Python: a session of the package braid, by position, by name, with out=, and
through run(). ONNX Runtime: InferenceSession.run, where it is installed. The least of 300 short rounds each, as other programs run, too. --limit: exit
code 1 if a call by position costs more than so many nanoseconds over the C call.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import braid
import numpy as np

ROUNDS = 300
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# An ONNX file by hand, so that the package onnx is not needed: y = Add(a, b), float32[8].


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def io(name):
    shape = field(2, field(1, b"\x08\x08"))
    return field(1, name) + field(2, field(1, b"\x08\x01" + shape))


NODE = field(1, b"a") + field(1, b"b") + field(2, b"y") + field(4, b"Add")
GRAPH = field(1, NODE) + field(2, b"add") + field(11, io(b"a")) + field(11, io(b"b")) + field(12, io(b"y"))
MODEL = b"\x08\x0a" + field(7, GRAPH) + field(8, field(1, b"") + b"\x10\x12")


def timed(call, n):
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(n):
            call()
        best = min(best, (time.perf_counter_ns() - begin) / n)
    return best


def c_call(library, build, folder, n):
    program = f"{folder}/call_overhead"
    subprocess.run(["cc", "-O2", f"-I{ROOT}/include", f"{ROOT}/eval/call_overhead.c", "-o", program, f"-L{build}", "-lbraid",
                    f"-Wl,-rpath,{os.path.abspath(build)}"], check=True)
    return float(subprocess.run([program, library, str(n)], check=True, capture_output=True, text=True).stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", default=f"{ROOT}/build/release")
    p.add_argument("--calls", type=int, default=500)
    p.add_argument("--limit", type=float)
    a = p.parse_args()
    x, y, out = np.ones(8, np.float32), np.ones(8, np.float32), np.empty(8, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/add.onnx", "wb") as f:
            f.write(MODEL)
        path = f"{folder}/add.so"
        session = braid.compile(f"{folder}/add.onnx", output=path, progress=False).session(threads=1)
        both = {"a": x, "b": y}
        assert np.array_equal(session(x, y), x + y)
        times = {
            "C": c_call(path, a.build, folder, a.calls),
            "session(a, b)": timed(lambda: session(x, y), a.calls),
            "session(a=a, b=b)": timed(lambda: session(a=x, b=y), a.calls),
            "session(a, b, out=out)": timed(lambda: session(x, y, out=out), a.calls),
            "session.run({…})": timed(lambda: session.run(both), a.calls),
            "np.add(a, b)": timed(lambda: np.add(x, y), a.calls),
        }
        try:
            import onnxruntime as ort
            options = ort.SessionOptions()
            options.intra_op_num_threads = 1
            other = ort.InferenceSession(f"{folder}/add.onnx", options, providers=["CPUExecutionProvider"])
            times["onnxruntime run(None, {…})"] = timed(lambda: other.run(None, both), a.calls)
        except ImportError:
            print("without onnxruntime, which is not installed")
    for name, ns in times.items():
        print(f"{name:28} {ns:7.0f} ns" + ("" if name == "C" else f"   C + {ns - times['C']:.0f}"))
    over = times["session(a, b)"] - times["C"]
    return 1 if a.limit is not None and over > a.limit else 0


if __name__ == "__main__":
    sys.exit(main())
