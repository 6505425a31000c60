#!/usr/bin/env python3
"""Networks whose sizes are known at run time only: one library for all sizes, beside libraries of fixed sizes and peers.

    dynamic.py [--only TEXT] [--threads N] [--rounds N] [--out FILE.json] [--work build/dynamic] [--braid build/release/braid]

Every network of SIZES is exported once with open sizes (networks.py) and compiled once. For every row of sizes the same file
with these sizes fixed is compiled, too, and both are timed in alternating runs with ONNX Runtime, and with OpenVINO where it
can be imported. Prints a line for each row: least milliseconds, those of fixed sizes, the first run after other sizes, the
peers' over Braid's. Times of one thread are processor time, which other programs' load changes less. Exit status 1 if a result
is wrong, a network costs more than SLOWER times the fixed one in the geometric mean, BERT is behind a peer, or a first run
costs more than FIRST times a steady one and than FIRST times the first one of fixed sizes.
"""
import gc
import glob
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime as ort

import braid_api
import networks
import real

SLOWER, FIRST = 1.1, 1.5
BERT = [(batch, length) for batch in (1, 8) for length in (7, 32, 100, 128)]
# name: (a function from sizes to inputs, rows of sizes)
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape, np.float32)


def words(batch, length):
    return rng.integers(0, 5000, (batch, length)), np.ones((batch, length), np.int64)


def step(batch, past):
    return rng.integers(0, 5000, (batch, 1)), normal(6, batch, 8, past, 64), normal(6, batch, 8, past, 64)


SIZES = {
    "bert4": (words, BERT),
    "bert_base": (words, BERT),
    "conformer": (lambda b, t: (normal(b, t, 256),), [(1, 17), (1, 200), (4, 100)]),
    "crnn": (lambda b, w: (normal(b, 1, 32, w),), [(1, 100), (1, 160), (4, 160)]),
    "gpt_step": (step, [(1, 1), (1, 32), (1, 127), (1, 500), (4, 127)]),
    "lstm": (lambda b, t: (normal(b, t, 128),), [(1, 1), (1, 50), (4, 50)]),
    "resnet18": (lambda b, h, w: (normal(b, 3, h, w),), [(1, 160, 200), (1, 224, 224), (2, 224, 224)]),
}


def frozen(path, feed, to):
    """Writes the model with the sizes of `feed` as `to`."""
    model = onnx.load(path)
    for v in model.graph.input:
        for d, size in zip(v.type.tensor_type.shape.dim, feed[v.name].shape):
            d.dim_value = size
    del model.graph.value_info[:]
    for v in model.graph.output:
        v.type.tensor_type.ClearField("shape")
    onnx.save(model, to)


def compiled(path, a):
    library = os.path.splitext(path)[0] + ".so"
    subprocess.run([a.braid, "compile", path, "-o", library, "--threads", str(a.threads)], check=True, timeout=900)
    return braid_api.Compiled(library, a.threads)


def of_fixed_sizes(name, path, sizes, feed, a):
    """The network compiled for the sizes of `feed`. Every library has a path of its own: one that is loaded is not loaded again."""
    folder = os.path.join(a.work, "fixed")
    os.makedirs(folder, exist_ok=True)
    stem = os.path.join(folder, "_".join(map(str, (name, *sizes))))
    frozen(path, feed, stem + ".onnx")
    session = compiled(stem + ".onnx", a)
    for f in glob.glob(stem + ".*"):
        os.remove(f)
    return Ours(session)


class Ours:
    def __init__(self, session):
        self.session = session

    def bind(self, feed):
        self.session.bind(feed)
        self.run = self.session.run

    def results(self):
        self.run()
        return [self.session.out(n).copy() for n in self.session.outputs]


class OnnxRuntime:
    def __init__(self, path, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def bind(self, feed):
        self.run = lambda: self.session.run(None, feed)

    def results(self):
        return self.run()


class OpenVino:
    def __init__(self, path, threads):
        import openvino as ov
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.request = ov.Core().compile_model(path, "CPU", options).create_infer_request()

    def bind(self, feed):
        import openvino as ov
        inputs = {n: ov.Tensor(x, shared_memory=True) for n, x in feed.items()}
        self.run = lambda: self.request.infer(inputs, share_inputs=True, share_outputs=True)

    def results(self):
        return list(self.run().values())


def peers(path, threads):
    found = {"onnxruntime": OnnxRuntime(path, threads)}
    try:
        found["openvino"] = OpenVino(path, threads)
    except ImportError:
        pass
    return found


def once(runner, clock):
    begin = clock()
    runner.run()
    return (clock() - begin) * 1e3


def timed(runners, rounds, clock):
    """{name: [milliseconds]} of alternating runs, as many in a round as take 20 ms."""
    times = {n: [] for n in runners}
    calls = {n: max(1, min(50, int(20 / max(once(r, clock), 0.01)))) for n, r in runners.items()}
    for _ in range(rounds):
        for n, r in runners.items():
            once(r, clock)  # with its own caches
            times[n] += [once(r, clock) for _ in range(calls[n])]
    return times


def measure(name, path, a):
    inputs, rows = SIZES[name]
    names = [v.name for v in real.inputs_of(onnx.load(path, load_external_data=False))]
    clock = time.process_time if a.threads == 1 else time.perf_counter
    dynamic, others = Ours(compiled(path, a)), peers(path, a.threads)
    found = []
    for sizes in rows:
        feed = dict(zip(names, inputs(*sizes)))
        fixed = of_fixed_sizes(name, path, sizes, feed, a)
        runners = {"dynamic": dynamic, "fixed": fixed, **others}
        for r in runners.values():
            r.bind(feed)
        first = {n: once(runners[n], clock) for n in ("dynamic", "fixed")}
        want = others["onnxruntime"].results()
        worst = max(real.difference(g, w) for n, r in runners.items() if n != "onnxruntime" for g, w in zip(r.results(), want))
        times = timed(runners, a.rounds, clock)
        least = {n: min(t) for n, t in times.items()}
        row = {"name": name, "sizes": sizes, "worst": worst, "first_ms": first, "min_ms": least,
               "median_ms": {n: statistics.median(t) for n, t in times.items()}, "slower": least["dynamic"] / least["fixed"]}
        found.append(row)
        print(f"{'ok  ' if worst <= 2e-4 else 'FAIL'} {name:10} {'x'.join(map(str, sizes)):10} {worst:8.1e} {least['dynamic']:9.3f} ms, fixed "
              f"{least['fixed']:9.3f}, {row['slower']:5.2f}, first {first['dynamic']:9.3f}" +
              "".join(f", {n} {least[n]:9.3f} {least[n] / least['dynamic']:5.2f}" for n in others), flush=True)
        del fixed, runners
        gc.collect()
    return found


def failures(rows):
    """What is below the aims."""
    found = [f"{r['name']} {r['sizes']}: wrong" for r in rows if r["worst"] > 2e-4]
    for name in dict.fromkeys(r["name"] for r in rows):
        own = [r for r in rows if r["name"] == name]
        mean = statistics.geometric_mean(r["slower"] for r in own)
        print(f"{name}: {mean:.2f} times the time of fixed sizes, at most {max(r['slower'] for r in own):.2f}")
        if mean > SLOWER:
            found.append(f"{name}: {mean:.2f} times the time of fixed sizes")
    for r in rows:
        least = r["min_ms"]
        steady = max(r["median_ms"]["dynamic"], r["first_ms"]["fixed"])
        if r["first_ms"]["dynamic"] > FIRST * steady:
            found.append(f"{r['name']} {r['sizes']}: the first run takes {r['first_ms']['dynamic'] / steady:.2f} runs")
        behind = [n for n in least if n not in ("dynamic", "fixed") and least[n] < least["dynamic"]]
        if behind and r["name"].startswith("bert"):
            found.append(f"{r['name']} {r['sizes']}: behind {' and '.join(behind)}")
    return found


def main():
    p = real.options(__doc__, "build/dynamic")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    rows = [r for name, path in networks.export_open(a.work, a.only) for r in measure(name, path, a)]
    if a.out:
        with open(a.out, "w") as f:
            json.dump(rows, f, indent=1)
    below = failures(rows)
    print("\n".join(below) or "all aims are met")
    return bool(below) or not rows


if __name__ == "__main__":
    sys.exit(main())
