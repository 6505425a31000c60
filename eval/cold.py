#!/usr/bin/env python3
"""Calls of a stream: Braid beside ONNX Runtime, back to back and every 30 ms, on one thread and on two.

    cold.py [--braid build/release/braid] [--every MS] [--only TEXT] [--rounds N] [--work DIR] [--out FILE.json]

A chunk of silero's voice detector, a step of an LSTM (10 layers of 256), a sequence-to-sequence decoder, a step of
attention with a cache (GPT). Both are called from C: Braid by `braid bench --every`, ONNX Runtime by cold_ort.c
through the C API of its wheel. Between calls the thread sleeps: caches are as cold as what else runs leaves them, and
teams sleep. Rounds alternate; of each figure the median over the rounds counts. Prints Markdown.
"""
import argparse
import glob
import importlib.util
import json
import os
import statistics
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper

from machine import machine

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
MODELS = {"LSTM step": ("lstm_operator", ["--length", "1"]), "seq2seq": ("seq2seq", []), "GPT step": ("attention", ["--length", "2"])}


def silero():
    """The model's path, and its inputs."""
    spec = importlib.util.find_spec("silero_vad")
    chunk = np.random.default_rng(0).standard_normal((1, 576)).astype(np.float32) / 10
    return (os.path.join(os.path.dirname(spec.origin), "data/silero_vad.onnx"),
            {"input": chunk, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)})


def made(name, options, work):
    folder = f"{work}/{name}"
    subprocess.run([sys.executable, "-m", "models", name, "--full", *options, "--out", work], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL)
    path = f"{folder}/model.onnx"
    names = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    feed = {}
    for i, n in enumerate(names):
        t = onnx.TensorProto()
        with open(glob.glob(f"{folder}/test_data_set_0/input_{i}.pb")[0], "rb") as f:
            t.ParseFromString(f.read())
        feed[n] = numpy_helper.to_array(t)
    return path, feed


class Braid:
    def __init__(self, braid, path, feed, threads, work):
        self.args = []
        for n, a in feed.items():
            file = f"{work}/{len(self.args)}.npy"
            np.save(file, a)
            self.args += ["-i", f"{n}={file}"]
        self.braid, self.library, self.threads = braid, f"{work}/model{threads}.so", threads
        subprocess.run([braid, "compile", path, "--threads", str(threads), "-o", self.library], check=True)

    def times(self, every):
        r = json.loads(subprocess.run([self.braid, "bench", self.library, "--threads", str(self.threads), "--json", *self.args,
                                       *(["--every", str(every)] if every else [])], check=True, capture_output=True, text=True).stdout)
        return [r[k] for k in ("first_us", "min_us", "median_us", "p95_us")]


class Ort:
    def __init__(self, path, feed, threads, work):
        self.program = f"{work}/cold_ort"
        subprocess.run(["cc", "-O2", "-w", f"{HERE}/cold_ort.c", "-o", self.program, "-ldl"], check=True)
        spec = importlib.util.find_spec("onnxruntime")
        library = glob.glob(os.path.join(os.path.dirname(spec.origin), "capi/libonnxruntime.so*"))[0]
        graph = onnx.load(path, load_external_data=False).graph
        self.head = [library, path, str(threads)]
        self.tail = [",".join(o.name for o in graph.output)]
        for n, a in feed.items():
            file = f"{work}/{len(self.tail)}.raw"
            a.tofile(file)
            self.tail += [n, str(onnx.helper.np_dtype_to_tensor_dtype(a.dtype)), ",".join(map(str, a.shape)), file]

    def times(self, every):
        done = subprocess.run([self.program, *self.head, str(every), *self.tail], check=True, capture_output=True, text=True)
        return [float(v) for v in done.stdout.split()]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--braid", default=f"{ROOT}/build/release/braid")
    p.add_argument("--every", type=float, default=30)
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--work", default=f"{ROOT}/build/cold")
    p.add_argument("--out", metavar="FILE.json")
    a = p.parse_args()
    rows = []
    for name in ("silero chunk", *MODELS):
        if a.only not in name:
            continue
        work = f"{a.work}/{name.replace(' ', '_')}"
        os.makedirs(work, exist_ok=True)
        path, feed = silero() if name not in MODELS else made(*MODELS[name], work)
        for threads in (1, 2):
            sides = {"braid": Braid(os.path.abspath(a.braid), path, feed, threads, work), "onnxruntime": Ort(path, feed, threads, work)}
            for every in (0, a.every):
                took = {k: [] for k in sides}
                for _ in range(a.rounds):
                    for k, side in sides.items():
                        took[k].append(side.times(every))
                row = {"model": name, "threads": threads, "every_ms": every}
                for k, t in took.items():
                    row[k] = dict(zip(("first", "min", "median", "p95"), (round(statistics.median(c), 2) for c in zip(*t))))
                rows.append(row)
    print(f"{machine()}; µs of a call from C: median (95 % within)\n")
    print("| model | threads | calls | Braid | ONNX Runtime | times as fast |\n|---|--:|---|--:|--:|--:|")
    for r in rows:
        b, o = r["braid"], r["onnxruntime"]
        calls = f"every {r['every_ms']:g} ms" if r["every_ms"] else "back to back"
        print(f"| {r['model']} | {r['threads']} | {calls} | {b['median']:.1f} ({b['p95']:.1f}) | {o['median']:.1f} ({o['p95']:.1f}) | "
              f"{o['median'] / b['median']:.1f} |")
    if a.out:
        with open(a.out, "w") as f:
            json.dump({"processor": machine(), "rows": rows}, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    main()
