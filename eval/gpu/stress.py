#!/usr/bin/env python3
"""Runs small models thousands of times with random delays where blocks synchronize: every run has to give the same bits.

    stress.py --braid BRAID --target T --models FOLDER --fault FOLDER --out WORK [--seconds N]

Each folder of --models has model.onnx, test_data_set_0 and `inputs` (pack.py). A model runs on 2 blocks, on half of those
that there are, and on all, one session alone and two side by side; --fault is a model of which a run fails when its
indices are bad: of the runs enqueued behind that, one tells, and the next ones are right. Writes WORK/stress.json
after each.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np  # noqa: E402: after the paths

import braid_api  # noqa: E402

UNITS = 3  # of stat


def compiled(args, folder, name):
    library = os.path.join(args.out, f"stress.{name}.so")
    env = dict(os.environ)
    if args.target.startswith("cuda:"):
        nvcc = shutil.which(os.environ.get("NVCC") or "nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if nvcc:
            env.update(NVCC=os.path.join(HERE, "delays.py"), DELAYS_NVCC=nvcc)
    elif args.target.startswith("emulate:cuda"):
        env.update(CXX=os.path.join(HERE, "delays.py"), DELAYS_CXX="c++")
    subprocess.run([args.braid, "compile", os.path.join(folder, "model.onnx"), "--target", args.target, "-o", library],
                   check=True, env=env, stderr=subprocess.PIPE, text=True)
    return library


def feed_of(folder):
    from onnx import TensorProto, numpy_helper
    with open(os.path.join(folder, "inputs")) as f:
        names = f.read().split()
    feed = {}
    for i, name in enumerate(names):
        with open(os.path.join(folder, "test_data_set_0", f"input_{i}.pb"), "rb") as f:
            feed[name] = np.ascontiguousarray(numpy_helper.to_array(TensorProto.FromString(f.read())))
    return feed


def session_of(library, threads, feed):
    s = braid_api.session(library, threads)
    if threads and isinstance(s, braid_api.OnDevice):
        s = braid_api.OnDevice(library, threads)
    s.bind(feed)
    return s


def bits(s):
    s.finish()
    return [s.out(name).tobytes() for name in s.outputs]


def repeat(s, end, expected=None):
    """Runs until `end`; returns how many runs there were, and the number of the first with other bits, or None."""
    n = 0
    while not n or time.monotonic() < end:
        s.run()
        found = bits(s)
        expected = expected or found
        if found != expected:
            return n, n
        n += 1
    return n, None


def alone(library, feed, threads, seconds):
    s = session_of(library, threads, feed)
    n, other = repeat(s, time.monotonic() + seconds)
    return {"blocks": s.model.stat(s.handle, UNITS), "sessions": 1, "runs": n,
            **({"failed": f"run {other} has other bits than the first one"} if other is not None else {})}


def together(library, feed, seconds):
    """Two sessions, each with a thread of its own."""
    sessions = [session_of(library, 0, feed) for _ in range(2)]
    sessions[0].run()
    expected, found, end = bits(sessions[0]), [None, None], time.monotonic() + seconds

    def work(i):
        try:
            found[i] = repeat(sessions[i], end, expected)
        except braid_api.BraidError as e:
            found[i] = (0, str(e))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wrong = [f"session {i}: run {other}" for i, (_, other) in enumerate(found) if other is not None]
    return {"blocks": sessions[0].model.stat(sessions[0].handle, UNITS), "sessions": 2, "runs": sum(n for n, _ in found),
            **({"failed": "; ".join(wrong) + ": other bits"} if wrong else {})}


def behind_fault(library, folder, seconds):
    """Runs enqueued behind one with bad indices."""
    feed = feed_of(folder)
    s = session_of(library, 0, feed)
    s.run()
    expected, name = bits(s), "indices"
    good = s.tensors_in[s.inputs.index(name)].data
    bad_feed = {**feed, name: np.full_like(feed[name], 1 << 20)}
    held = s.kept, getattr(s, "memory", None)
    s.bind(bad_feed)
    bad, end, n, told = s.tensors_in[s.inputs.index(name)].data, time.monotonic() + seconds, 0, 0
    while not n or time.monotonic() < end:
        errors = 0
        for at in (good, bad, good, good):
            s.point(name, at)
            try:
                s.run()
            except braid_api.BraidError:
                errors += 1
        try:
            s.finish()
        except braid_api.BraidError:
            errors += 1
        if errors != 1:
            return {"blocks": s.model.stat(s.handle, UNITS), "sessions": 1, "runs": n, "failed": f"{errors} of the calls told of one fault"}
        told += errors
        s.point(name, good)
        s.run()
        if bits(s) != expected:
            return {"blocks": s.model.stat(s.handle, UNITS), "sessions": 1, "runs": n, "failed": "other bits behind a fault"}
        n += 5
    del held
    return {"blocks": s.model.stat(s.handle, UNITS), "sessions": 1, "runs": n, "faults": told}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "braid", "target", "models", "fault", "out":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--seconds", type=float, default=40, help="for the runs")
    args = p.parse_args()
    results = []

    def note(model, kind, function, *arguments):
        try:
            result = function(*arguments)
        except (braid_api.BraidError, OSError) as e:
            result = {"blocks": 0, "sessions": 0, "runs": 0, "failed": str(e)}
        results.append({"model": model, "kind": kind, **result})
        print(model, kind, *(f"{k} {v}" for k, v in result.items()), flush=True)
        with open(os.path.join(args.out, "stress.json.part"), "w") as f:
            json.dump(results, f)
        os.replace(f.name, os.path.join(args.out, "stress.json"))

    names = sorted(os.listdir(args.models))
    each = args.seconds / (4 * len(names) + 1)
    for name in names:
        folder = os.path.join(args.models, name)
        try:
            library, feed = compiled(args, folder, name), feed_of(folder)
        except subprocess.CalledProcessError as e:
            note(name, "compile", lambda why=e.stderr: {"blocks": 0, "sessions": 0, "runs": 0, "failed": why.strip()[-400:]})
            continue
        whole = session_of(library, 0, feed)
        most = whole.model.stat(whole.handle, UNITS)
        del whole
        for threads in sorted({2, most // 2, most} - {0, 1}) or [1]:
            note(name, "alone", alone, library, feed, threads, each)
        note(name, "together", together, library, feed, each)
    try:
        library = compiled(args, args.fault, "fault")
        note("fault", "behind a fault", behind_fault, library, args.fault, each)
    except subprocess.CalledProcessError as e:
        note("fault", "compile", lambda why=e.stderr: {"blocks": 0, "sessions": 0, "runs": 0, "failed": why.strip()[-400:]})
    failed = sum("failed" in r for r in results)
    print(f"{sum(r['runs'] for r in results)} runs, {failed} of {len(results)} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
