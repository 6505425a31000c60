#!/usr/bin/env python3
"""Compares the silero voice detectors with ONNX Runtime on a minute of speech.

    silero_check.py [--target T]… [--library libbraid.so] [--seconds S]

Both models, at each sample rate that they know, for one and for three streams at a time, step by
step with the state kept by the caller, and as one kernel with that loop folded in.
"""
import argparse
import importlib.util
import os
import sys

import numpy as np
import onnxruntime as ort

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../eval"))
import audio
import braid_api

TOLERANCE = 1e-5  # of probabilities; of the last state also relative to its size
MODELS = [("silero_vad.onnx", (16000, 8000)), ("silero_vad_16k_op15.onnx", (16000,))]


def model_path(name):
    spec = importlib.util.find_spec("silero_vad")  # its code needs torch; its files do not
    return os.path.join(os.path.dirname(spec.origin), "data", name)


def steps(run, x, rate):
    state = np.zeros((2, x.shape[1], 128), np.float32)
    out = []
    for chunk in x:
        y = run({"input": chunk, "state": state, "sr": np.array(rate, np.int64)})
        out.append(y["output"])
        state = y["stateN"]
    return np.array(out), state


def reference(path, x, rate):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return steps(lambda feed: dict(zip(names, session.run(None, feed))), x, rate)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--target", action="append")
    ap.add_argument("--library", default="build/release/libbraid.so")
    ap.add_argument("--seconds", type=float, default=60)
    args = ap.parse_args()
    api = braid_api.Api(args.library)
    targets = args.target or ["interp", "cpu"]
    made = {}
    for target in targets:
        for name, _ in MODELS:
            path = model_path(name)
            step = braid_api.Model(api, path, target)
            fold = braid_api.Model(api, path, target, ["input"], {"state": "stateN"})
            made[target, name] = braid_api.Session(step), braid_api.Session(fold)
    failed = count = 0
    worst = 0.0
    for name, rates in MODELS:
        for rate in rates:
            stream = audio.speech(rate, args.seconds)
            for batch in (1, 3):
                x = np.concatenate([audio.chunks(np.roll(stream, -i * len(stream) // 3), rate)
                                    for i in range(batch)], 1)
                want, want_state = reference(model_path(name), x, rate)
                for target in targets:
                    step, fold = made[target, name]
                    folded = fold.run({"input": x, "sr": np.array(rate, np.int64),
                                       "state": np.zeros((2, batch, 128), np.float32)})
                    for how, (got, state) in (
                            ("step by step", steps(step.run, x, rate)),
                            ("one kernel", (folded["output"], folded["stateN"]))):
                        good = got.shape == want.shape and state.shape == want_state.shape
                        by = float(np.abs(got - want).max()) if good else float("inf")
                        good = by <= TOLERANCE and np.allclose(state, want_state, TOLERANCE,
                                                               TOLERANCE)
                        count += 1
                        worst = max(worst, by)
                        if not good:
                            failed += 1
                            off = np.abs(state - want_state).max()
                            print(f"FAIL {name} {rate} Hz, batch {batch}, {target}, {how}: "
                                  f"probability off by {by:.2g}, last state by {off:.2g}")
    print(f"{count} comparisons over {args.seconds:g} s of speech: {failed} failed, "
          f"largest difference {worst:.2g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
