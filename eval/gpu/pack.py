#!/usr/bin/env python3
"""Writes the tests that eval/gpu/check.sh takes along: pack.py FOLDER [--quick]

    small/        five models of models/ at small sizes; the files `inputs` have the names of their inputs
    fault/        a model that fails in the run when its `indices` are bad, for stress.py
    extra/        silero's voice detector: one step, and a stream as one kernel; `options` is for `braid compile`
    conformance/  the ONNX backend tests with control flow, and every EVERY-th other one

--quick is for tests: one small model, and few conformance tests.
"""
import argparse
import importlib.util
import os
import re
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

EVAL = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [EVAL, os.path.dirname(EVAL)]

import models  # noqa: E402: after the paths
from gpu.build import write_tests  # noqa: E402

SMALL = ("lstm_operator", "seq2seq", "blockdrop", "treelstm", "mamba", "earlyexit_3")
CONTROL = re.compile(r"test_(loop|if|scan|lstm|gru|simple_rnn|rnn|sequence|optional|range|identity_seq)")
EVERY = 8
LARGEST = 1 << 20  # bytes of a conformance test
RATE, CHUNK, STEPS = 16000, 512, 100  # of sound


def small(out, names):
    for name in names:
        built = models.build(name, small=True)
        folder = os.path.join(out, "small", name)
        order = [v.name for v in built.model.graph.input]
        results = [v.name for v in built.model.graph.output]
        write_tests(folder, [(n, np.asarray(built.inputs[n])) for n in order],
                    [(n, np.asarray(v)) for n, v in zip(results, built.expected, strict=True)])
        onnx.save(built.model, os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "inputs"), "w") as f:
            f.write("\n".join(order) + "\n")


def fault(out):
    """Rows by their indices, a product, and a loop that needs all of it in each step."""
    r = np.random.default_rng(0)
    rows, w = r.standard_normal((64, 96)).astype(np.float32), (r.standard_normal((96, 96)) / 10).astype(np.float32)
    indices = r.integers(0, 64, 32)
    text = """<ir_version: 10, opset_import: ["" : 21]>
    faults (int64[32] indices) => (float[32, 96] y) <float[64, 96] rows, float[96, 96] w, int64 n = {20}> {
        x = Gather (rows, indices)
        y = Loop (n, , x) <body = body (int64 i, bool c, float[32, 96] h) => (bool d, float[32, 96] g) {
            d = Identity (c)
            m = MatMul (h, w)
            t = Tanh (m)
            g = Add (t, x)
        }>
    }"""
    model = onnx.parser.parse_model(text)
    del model.graph.initializer[:]
    model.graph.initializer.extend([numpy_helper.from_array(rows, "rows"), numpy_helper.from_array(w, "w"),
                                    numpy_helper.from_array(np.array(20, np.int64), "n")])
    h = x = rows[indices]
    for _ in range(20):
        h = np.tanh(h @ w) + x
    folder = os.path.join(out, "fault")
    write_tests(folder, [("indices", indices)], [("y", h)])
    onnx.save(model, os.path.join(folder, "model.onnx"))
    with open(os.path.join(folder, "inputs"), "w") as f:
        f.write("indices\n")


def sound():
    """A sound like a voice: harmonics that come and go, over noise."""
    t = np.arange(STEPS * CHUNK) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * t)
    voice = sum(np.sin(2 * np.pi * k * np.cumsum(pitch) / RATE) / k for k in range(1, 20))
    noise = np.random.default_rng(0).standard_normal(len(t))
    x = 0.1 * voice * np.clip(np.sin(2 * np.pi * 0.6 * t), 0, 1) + 0.003 * noise
    return x.astype(np.float32).reshape(STEPS, 1, CHUNK)


def silero(out):
    spec = importlib.util.find_spec("silero_vad")  # its code needs torch; its files do not
    path = os.path.join(os.path.dirname(spec.origin), "data", "silero_vad.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = [v.name for v in onnx.load(path).graph.input]
    results = [o.name for o in session.get_outputs()]
    x, rate = sound(), np.array(RATE, np.int64)
    first = state = np.zeros((2, 1, 128), np.float32)
    probabilities = []
    for chunk in x:
        before = state
        p, state = session.run(["output", "stateN"], {"input": chunk, "state": state, "sr": rate})
        probabilities.append(p)
    for name, feed, found, options in (
            ("silero_step", {"input": x[-1], "state": before, "sr": rate},
             {"output": probabilities[-1], "stateN": state}, ""),
            ("silero_stream", {"input": x, "state": first, "sr": rate},
             {"output": np.stack(probabilities), "stateN": state}, "--scan input --carry state=stateN")):
        folder = os.path.join(out, "extra", name)
        write_tests(folder, [(n, feed[n]) for n in inputs], [(n, found[n]) for n in results])
        shutil.copy(path, os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "options"), "w") as f:
            f.write(options + "\n")


def size(folder):
    return sum(os.path.getsize(os.path.join(at, f)) for at, _, files in os.walk(folder) for f in files)


def conformance(out, step):
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
    names = [n for n in sorted(os.listdir(data)) if size(os.path.join(data, n)) <= LARGEST]
    control = [n for n in names if CONTROL.match(n)]
    for name in (control + [n for n in names if n not in control][::EVERY])[::step]:
        shutil.copytree(os.path.join(data, name), os.path.join(out, "conformance", name))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", metavar="FOLDER")
    p.add_argument("--quick", action="store_true")
    args = p.parse_args()
    small(args.out, ("blockdrop",) if args.quick else SMALL)
    fault(args.out)
    silero(args.out)
    conformance(args.out, 40 if args.quick else 1)


if __name__ == "__main__":
    main()
