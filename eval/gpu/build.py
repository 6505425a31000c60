#!/usr/bin/env python3
"""Writes and compiles the models that the GPU check runs: those of eval/tasks.py, with their data.

    build.py --braid BRAID --target T --pack PACK --out WORK [--models NAME,…] [--small] [--jobs N]

    WORK/data/bBATCH/NAME    model.onnx, data.npz, options.json, test_data_set_0
    WORK/libs/bBATCH/NAME.so its library, with its weights, beside its text (.cu) and code object (.cubin); NAME.log
                             says why there is none
    WORK/check/bBATCH/NAME   links to these, as model.so and test_data_set_0: a folder for `braid test`
    WORK/traced/NAME.so      the same models for batch 1 with a trace (traced.py), those in TRACED
    WORK/build.json          the result of each, rewritten after each

Forms of a model that are not timed are made only for batch 1. The folders in PACK/extra are
compiled, too, with the options in their file `options`. Each is made by a process of its own.
"""
import argparse
import concurrent.futures
import json
import os
import struct
import subprocess
import sys
import time

EVAL = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [EVAL, os.path.dirname(EVAL)]

from gpu import code_object  # noqa: E402: after the paths

LONGEST = ("skipnet", "bert", "nasrnn", "mamba")  # first, as they take longest
TRACED = ("lstm", "nasrnn", "seq2seq", "attention", "mamba", "rnnt", "blockdrop", "earlyexit", "experts", "treelstm", "trips", "trips_if")
EM_CUDA = 190
PATIENCE = 200  # seconds for one


def write_tests(folder, inputs, outputs):
    """Writes folder/test_data_set_0 from [(name, array)]s, in the layout of the ONNX backend tests."""
    from onnx import numpy_helper
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    for kind, arrays in ("input", inputs), ("output", outputs):
        for n, (name, array) in enumerate(arrays):
            with open(os.path.join(data, f"{kind}_{n}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(array, name).SerializeToString())


def export(out, name, file, batch, small):
    """Writes DATA/bBATCH/NAME with its test; returns that folder."""
    import numpy as np
    import onnx
    import tasks
    at = os.path.join(out, "data", f"b{batch}")
    os.makedirs(at, exist_ok=True)
    at = tasks.prepare(at, name, tasks.TASKS[name], file, batch, small=small)
    graph = onnx.load(os.path.join(at, "model.onnx")).graph
    with np.load(os.path.join(at, "data.npz")) as data:
        write_tests(at, [(v.name, data[f"in.{v.name}"]) for v in graph.input],
                    [(v.name, data[f"out.{n}"]) for n, v in enumerate(graph.output)])
    return at


def keep_code(library):
    """Writes the GPU's code object in a library beside it."""
    code = code_object.find(library, EM_CUDA)
    if code is None:
        return
    # its headers are what comes last: of segments, and of sections
    places, sizes = struct.unpack_from("<QQ", code, 32), struct.unpack_from("<HHHH", code, 54)
    end = max(place + size * n for place, size, n in zip(places, sizes[::2], sizes[1::2]))
    with open(library.removesuffix(".so") + ".cubin", "wb") as f:
        f.write(code[:end])


def compile_one(args, folder, place, options=()):
    """Compiles folder/model.onnx to LIBS/place.so, and makes a folder of CHECK with it."""
    library = os.path.join(args.out, "libs", place + ".so")
    check = os.path.join(args.out, "check", place)
    os.makedirs(os.path.dirname(library), exist_ok=True)
    text = library.removesuffix(".so") + (".cu" if ":" in args.target else ".c")
    done = subprocess.run([args.braid, "compile", os.path.join(folder, "model.onnx"), "--target",
                           args.target, "-o", library, "--emit", text, *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"braid ended with {done.returncode}")
    keep_code(library)
    os.makedirs(check)
    os.symlink(os.path.abspath(library), os.path.join(check, "model.so"))
    weights = os.path.abspath(library) + ".weights"
    if os.path.exists(weights):  # those of large models, which are looked for beside the library
        os.symlink(weights, os.path.join(check, "model.so.weights"))
    os.symlink(os.path.abspath(os.path.join(folder, "test_data_set_0")),
               os.path.join(check, "test_data_set_0"))


def make_one(args):
    """Makes one model; runs in a process of its own."""
    if args.extra:
        folder = os.path.join(args.pack, "extra", args.extra)
        with open(os.path.join(folder, "options")) as f:
            compile_one(args, folder, "extra/" + args.extra, f.read().split())
        return
    name, file, batch = args.one
    folder = export(args.out, name, file, int(batch), args.small)
    compile_one(args, folder, os.path.relpath(folder, os.path.join(args.out, "data")))
    import tasks
    if batch == "1" and name in TRACED and file in tasks.TASKS[name].main:
        trace_one(args, folder)


def trace_one(args, folder):
    """Where the target is no GPU, the emulator traces."""
    from gpu import traced
    target = args.target if ":" in args.target else "emulate:cuda"
    try:
        traced.compile(args.braid, os.path.join(folder, "model.onnx"), target,
                       os.path.join(args.out, "traced", os.path.basename(folder) + ".so"))
    except subprocess.CalledProcessError as e:
        sys.exit(f"with a trace: {e.stderr.strip()}")


def jobs(args):
    """(name to print, arguments) of all models, those that take longest first."""
    import tasks
    found = []
    for name in args.models:
        task = tasks.TASKS[name]
        for batch in task.batches:
            for file in task.files if batch == 1 else task.main:
                found.append((f"{file if file.startswith(name) else name}, batch {batch}",
                              ["--one", name, file, str(batch)]))
    found.sort(key=lambda job: next((i for i, n in enumerate(LONGEST) if job[0].startswith(n)),
                                    len(LONGEST)))
    extra = os.path.join(args.pack, "extra")
    found += [(name, ["--extra", name]) for name in sorted(os.listdir(extra))]
    return found


def run(args, job):
    name, arguments = job
    begin = time.monotonic()
    command = [sys.executable, os.path.abspath(__file__), "--braid", args.braid, "--target",
               args.target, "--pack", args.pack, "--out", args.out, *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    try:
        done = subprocess.run(command + ["--small"] * args.small, capture_output=True, text=True,
                              timeout=PATIENCE, env=environment)
        failed = (done.stderr.strip() or f"ended with {done.returncode}") if done.returncode else None
    except subprocess.TimeoutExpired:
        failed = f"not done after {PATIENCE} s"
    result = {"name": name, "seconds": round(time.monotonic() - begin, 1)}
    if failed:
        result["failed"] = failed[-1500:]
    return result, arguments


def explain(args, arguments, failed):
    """Writes why there is no library to the log where times.py looks."""
    if arguments[0] == "--extra":
        return
    import tasks
    name, file, batch = arguments[1:]
    place = os.path.join(args.out, "libs", f"b{batch}", tasks.place(name, file))
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place + ".log", "w") as f:
        f.write(failed)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "braid", "target", "pack", "out":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--models", default="all", metavar="NAME,…", help="models or groups of eval/tasks.py")
    p.add_argument("--small", action="store_true", help="sizes for tests")
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 2))
    p.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    p.add_argument("--extra", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one or args.extra:
        make_one(args)
        return 0
    import tasks
    args.models = tasks.chosen(args.models)
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, args, job) for job in jobs(args)]
        for done in concurrent.futures.as_completed(waiting):
            result, arguments = done.result()
            results.append(result)
            if "failed" in result:
                explain(args, arguments, result["failed"])
            print(f"{result['seconds']:6.1f} s  {result['name']}  {result.get('failed', '')}")
            with open(os.path.join(args.out, "build.json.part"), "w") as f:
                json.dump({"wanted": len(waiting), "done": results}, f)
            os.replace(f.name, os.path.join(args.out, "build.json"))
    failed = sum("failed" in r for r in results)
    print(f"{len(results) - failed} compiled, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
