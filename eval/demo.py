#!/usr/bin/env python3
"""Finds speech in a recording with silero's voice detector, the whole recording as one kernel.

    demo.py [FILE.wav] [--braid build/release/braid] [--out build]

Without FILE.wav, espeak-ng makes a recording. The detector is a step with state: it takes 32 ms of
sound and returns the probability of speech. `--scan` and `--carry` put the loop over the steps into
the compiled program. For comparison, ONNX Runtime runs the same recording step by step.
"""
import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time

import matplotlib
import numpy as np
import onnxruntime as ort

import audio
import braid_api

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402: after the choice of backend

RATE, CHUNK = 16000, 512
RUNS = 7
TOLERANCE = 1e-5


def take_model(folder):
    """Takes silero_vad.onnx out of the wheel. The wheel's code needs torch and is not imported."""
    spec = importlib.util.find_spec("silero_vad")
    path = os.path.join(folder, "silero_vad.onnx")
    shutil.copyfile(os.path.join(os.path.dirname(spec.origin), "data/silero_vad.onnx"), path)
    return path


def segments(probability, length):
    """Spoken parts in samples, by silero's rules: speech begins at 0.5 and ends where it stays
    under 0.35 for 100 ms; less than 250 ms does not count; 30 ms are added on each side."""
    silence, shortest, pad = RATE * 100 // 1000, RATE * 250 // 1000, RATE * 30 // 1000
    found, start, end = [], None, None
    for i, p in enumerate(probability):
        at = i * CHUNK
        if p >= 0.5:
            end = None
            if start is None:
                start = at
        elif p < 0.35 and start is not None:
            end = at if end is None else end
            if at - end >= silence:
                if end - start > shortest:
                    found.append([start, end])
                start = end = None
    if start is not None and length - start > shortest:
        found.append([start, length])
    for i, s in enumerate(found):
        if i == 0:
            s[0] = max(0, s[0] - pad)
        if i + 1 < len(found):
            gap = found[i + 1][0] - s[1]
            share = pad if gap >= 2 * pad else gap // 2
            s[1] += share
            found[i + 1][0] -= share
        else:
            s[1] = min(length, s[1] + pad)
    return found


def picture(path, sound, probability, spoken):
    fig, wave = plt.subplots(figsize=(14, 4.5), constrained_layout=True)
    seconds = len(sound) / RATE
    wave.plot(np.arange(len(sound)) / RATE, sound, color="#8a9bb0", linewidth=0.4)
    peak = max(float(np.abs(sound).max()), 1e-3) * 1.05
    wave.set(xlim=(0, seconds), ylim=(-peak, peak), xlabel="seconds", ylabel="sound")
    for i, (a, b) in enumerate(spoken):
        wave.axvspan(a / RATE, b / RATE, color="#4caf50", alpha=0.18, linewidth=0,
                     label=None if i else "speech")
    over = wave.twinx()
    over.step(np.arange(len(probability) + 1) * CHUNK / RATE, [*probability, probability[-1]],
              where="post", color="#d1495b", linewidth=1.2, label="probability")
    over.axhline(0.5, color="#d1495b", linewidth=0.6, linestyle=":")
    over.set(ylim=(0, 1.05), ylabel="probability of speech")
    handles = wave.get_legend_handles_labels()[0] + over.get_legend_handles_labels()[0]
    over.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    wave.set_title("silero voice detector: the whole recording in one kernel", loc="left")
    fig.savefig(path, dpi=110)


def timed(f):
    begin = time.perf_counter()
    result = f()
    return time.perf_counter() - begin, result


def reference(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sr = np.array(RATE, np.int64)

    def run(x):
        state, out = np.zeros((2, 1, 128), np.float32), np.empty(len(x), np.float32)
        for i, chunk in enumerate(x):
            p, state = session.run(None, {"input": chunk, "state": state, "sr": sr})
            out[i] = p[0, 0]
        return out
    return run


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("recording", nargs="?", metavar="FILE.wav")
    ap.add_argument("--braid", default="build/release/braid")
    ap.add_argument("--out", default="build")
    args = ap.parse_args()

    try:
        sound = audio.load(args.recording, RATE) if args.recording else audio.speech(RATE)
    except OSError as e:
        sys.exit(f"demo: {e.filename}: {e.strerror}")
    except audio.WavError as e:
        sys.exit(f"demo: {e}")
    x = audio.chunks(sound, RATE)
    print(f"recording   {args.recording or 'made by espeak-ng'}: {len(sound) / RATE:.1f} s, "
          f"{len(x)} steps")

    model = take_model(args.out)
    library = os.path.join(args.out, "silero.so")
    command = [args.braid, "compile", model, "--scan", "input", "--carry", "state=stateN",
               "-o", library]
    print("$ " + " ".join(command))
    took, _ = timed(lambda: subprocess.run(command, check=True))
    print(f"compiled    in {took:.1f} s, {os.path.getsize(library) / 1e6:.1f} MB")

    kernel = braid_api.Compiled(library)
    kernel.bind({"input": x, "state": np.zeros((2, 1, 128), np.float32),
                 "sr": np.array(RATE, np.int64)})
    step_by_step = reference(model)
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(timed(kernel.run)[0])
        took, want = timed(lambda: step_by_step(x))
        theirs.append(took)
    got = kernel.out("output").reshape(-1).copy()

    spoken = segments(got, len(sound))
    print("speech      " + (f"{len(spoken)} parts" if spoken else "none"))
    for a, b in spoken:
        print(f"            {a / RATE:7.2f} s to {b / RATE:7.2f} s")
    image = os.path.join(args.out, "demo.png")
    picture(image, sound, got, spoken)
    print(f"picture     {image}")

    off = float(np.abs(got - want).max())
    print(f"difference  {off:.1e} at most from onnxruntime {ort.__version__}, step by step")
    print(f"time        {RUNS} runs of each in turn, 1 thread   min       median")
    for name, t in (("braid, one kernel", ours), ("onnxruntime, step by step", theirs)):
        print(f"            {name:<36}{min(t) * 1e3:7.2f} ms{statistics.median(t) * 1e3:10.2f} ms")
    print(f"            braid is faster by{min(theirs) / min(ours):28.2f} x"
          f"{statistics.median(theirs) / statistics.median(ours):11.2f} x")
    if not off <= TOLERANCE:
        sys.exit(f"demo: the results differ by {off:g}, more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
