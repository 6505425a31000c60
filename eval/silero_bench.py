#!/usr/bin/env python3
"""silero's voice detector at 16 kHz, Braid beside ONNX Runtime, each with one thread.

    silero_bench.py [--seconds S] [--rounds N] [--braid build/release/braid] [--out FILE.json]

One chunk: a step of 32 ms whose state the caller keeps. Braid is called as a C program calls it; ONNX
Runtime in its plain form and with bound inputs and outputs, and the faster one counts. The recording:
all chunks as one kernel, against ONNX Runtime chunk by chunk. Rounds alternate. Prints Markdown; --out
also writes the numbers, with the processor's name, as JSON.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort

import audio
import braid_api
from machine import machine

RATE, STEPS_A_ROUND = 16000, 200
FOLD = ["--scan", "input", "--carry", "state=stateN"]


def model_path():
    spec = importlib.util.find_spec("silero_vad")
    return os.path.join(os.path.dirname(spec.origin), "data/silero_vad.onnx")


def seconds_per(count, f):
    begin = time.perf_counter()
    f()
    return (time.perf_counter() - begin) / count


class BraidSteps:
    name = "braid"

    def __init__(self, library, x):
        self.session, self.x = braid_api.Compiled(library), x
        self.state = np.zeros((2, 1, 128), np.float32)
        self.session.bind({"input": x[0], "state": self.state, "sr": np.array(RATE, np.int64)})
        self.out = self.session.outputs.index("stateN")
        self.address = [c.ctypes.data for c in x]

    def run(self, at, n):
        session, state = self.session, self.state.ctypes.data
        tensors, move, size = session.tensors_out, braid_api.C.memmove, self.state.nbytes
        for address in self.address[at:at + n]:
            session.point("input", address)
            session.run()
            move(state, tensors[self.out].data, size)

    def last(self):
        return self.session.out("output")[0, 0]


class OrtSteps:
    name = "onnxruntime"

    def __init__(self, session, x):
        self.session, self.x = session, x
        self.state, self.sr = np.zeros((2, 1, 128), np.float32), np.array(RATE, np.int64)

    def run(self, at, n):
        for chunk in self.x[at:at + n]:
            self.p, self.state = self.session.run(
                None, {"input": chunk, "state": self.state, "sr": self.sr})

    def last(self):
        return self.p[0, 0]


class OrtBoundSteps:
    """Two bindings that exchange their states, so that no state is copied or allocated."""
    name = "onnxruntime, bound"

    def __init__(self, session, x):
        self.session = session
        value = ort.OrtValue.ortvalue_from_numpy
        states = [value(np.zeros((2, 1, 128), np.float32)) for _ in range(2)]
        self.x = [value(c) for c in x]
        self.p, self.sr = value(np.zeros((1, 1), np.float32)), value(np.array(RATE, np.int64))
        self.bindings = []
        for i in range(2):
            b = session.io_binding()
            b.bind_ortvalue_input("state", states[i])
            b.bind_ortvalue_input("sr", self.sr)
            b.bind_ortvalue_output("output", self.p)
            b.bind_ortvalue_output("stateN", states[1 - i])
            self.bindings.append(b)

    def run(self, at, n):
        for i in range(at, at + n):
            b = self.bindings[i % 2]
            b.bind_ortvalue_input("input", self.x[i])
            self.session.run_with_iobinding(b)

    def last(self):
        return self.p.numpy()[0, 0]


def summary(seconds):
    us = [s * 1e6 for s in seconds]
    return {"min_us": round(min(us), 2), "median_us": round(statistics.median(us), 2)}


def table(title, rows, best):
    lines = [f"| {title} | min | median | ratio of min | ratio of medians |", "|---|--:|--:|--:|--:|"]
    for name, r in rows.items():
        unit, scale = ("ms", 1e3) if best["median_us"] >= 1e4 else ("µs", 1)
        lines.append(f"| {name} | {r['min_us'] / scale:.1f} {unit} | {r['median_us'] / scale:.1f} {unit} | "
                     f"{r['min_us'] / best['min_us']:.2f} | {r['median_us'] / best['median_us']:.2f} |")
    return "\n".join(lines)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--rounds", type=int, default=40)
    ap.add_argument("--braid", default="build/release/braid")
    ap.add_argument("--out", metavar="FILE.json")
    args = ap.parse_args()

    x = audio.chunks(audio.speech(RATE, args.seconds), RATE)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model_path(), options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        step, whole = (os.path.join(folder, n) for n in ("step.so", "whole.so"))
        took = {}
        for library, fold in ((step, []), (whole, FOLD)):
            begin = time.perf_counter()
            subprocess.run([args.braid, "compile", model_path(), *fold, "-o", library], check=True)
            took[library] = round(time.perf_counter() - begin, 2)
        runners = [BraidSteps(step, x), OrtSteps(session, x), OrtBoundSteps(session, x)]
        kernel = braid_api.Compiled(whole)
    kernel.bind({"input": x, "state": np.zeros((2, 1, 128), np.float32),
                 "sr": np.array(RATE, np.int64)})

    steps = min(STEPS_A_ROUND, len(x)) // 2 * 2
    chunk = {r.name: [] for r in runners}
    for i in range(-2, args.rounds):
        at = i % (len(x) // steps) * steps
        for r in runners:
            t = seconds_per(steps, lambda: r.run(at, steps))
            if i >= 0:
                chunk[r.name].append(t)
    off = max(abs(float(r.last() - runners[1].last())) for r in runners)

    recording = {"braid, one kernel": [], "onnxruntime": [], "onnxruntime, bound": []}
    even = len(x) // 2 * 2
    for _ in range(max(5, args.rounds // 4)):
        recording["braid, one kernel"].append(seconds_per(1, kernel.run))
        for r in runners[1:]:
            recording[r.name].append(seconds_per(1, lambda: r.run(0, even)))

    chunk = {k: summary(v) for k, v in chunk.items()}
    recording = {k: summary(v) for k, v in recording.items()}
    result = {
        "processor": machine(), "onnxruntime": ort.__version__, "threads": 1,
        "steps": len(x), "compile_seconds": {"step": took[step], "one kernel": took[whole]},
        "working_bytes": {"step": runners[0].session.working_bytes(),
                          "one kernel": kernel.working_bytes()},
        "largest_difference": off, "chunk": chunk, "recording": recording,
    }
    print(f"{result['processor']}; onnxruntime {ort.__version__}; one thread each; compiled in "
          f"{took[step]} s and {took[whole]} s\n")
    print(table("one chunk (32 ms of sound)", chunk, chunk["braid"]) + "\n")
    print(table(f"{len(x)} chunks ({args.seconds:g} s of sound)", recording,
                recording["braid, one kernel"]))
    if args.out:
        os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
        with open(args.out, "w") as f:
            json.dump(result, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
