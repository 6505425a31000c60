#!/usr/bin/env python3
"""Compiled libraries as others use them: weights of each size, moved files, memory that sessions take.

    library.py BRAID [--cc CC]

Runs examples/run_model.c, built with nothing of Braid but one header, on libraries with small, medium and
large weights (the last in a file beside the library, found again where both are moved, and missed
clearly); measures compiling silero_vad.onnx, a session of it, sessions of models with branches and with
state that grows, and loops of a million steps.
"""
import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as TP, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../eval"))
import braid_api

MB = 1 << 20
COMPILE_LIMIT, SESSION_LIMIT, LOOP_GROWTH = 300 * MB, 8 * MB, 2 * MB
F, I, BOOL = TP.FLOAT, TP.INT64, TP.BOOL
count = bad = 0


def check(what, good, detail=""):
    global count, bad
    count += 1
    if not good:
        bad += 1
        print("FAIL: %s %s" % (what, detail))


def command(args, **k):
    r = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **k)
    return r.returncode, r.stdout, r.stderr


# A child begins as a copy of its parent, and its peak with the parent's memory: so a small program is between.
PEAK = """
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct rusage u;
    int status = 1;
    pid_t pid = fork();
    if (pid == 0 && argc > 1) execv(argv[1], argv + 1);
    if (pid <= 0 || waitpid(pid, &status, 0) < 0 || getrusage(RUSAGE_CHILDREN, &u) != 0) return 1;
    fprintf(stderr, "%ld\\n", u.ru_maxrss * 1024);
    return status != 0;
}
"""


def peak(args):
    """Exit code and the most memory that a command, or one that it ran, had at once."""
    code, _, err = command([PEAK] + args)
    return code, int(err.rstrip().split("\n")[-1])


def save(path, nodes, ins, outs, inits=()):
    g = helper.make_graph(nodes, "main", ins, outs, list(inits))
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with open(path, "wb") as f:
        f.write(m.SerializeToString())
    return path


def tensor(name, dims, dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def gemm(path, n):
    """y = x w + b, w n by n of small integers."""
    w = (np.arange(n * n, dtype=np.int64) * 7 % 5 - 2).astype(np.float32).reshape(n, n)
    b = np.arange(n, dtype=np.float32)
    save(path, [helper.make_node("Gemm", ["x", "w", "b"], ["y"])], [tensor("x", [1, n])], [tensor("y", [1, n])],
         [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    return w.sum(0) + b


def weights(braid, work, run_model):
    for what, n in (("small", 8), ("medium", 300), ("large", 4200)):
        folder, other = os.path.join(work, what), os.path.join(work, what + "-moved")
        os.makedirs(folder)
        want = gemm(os.path.join(work, what + ".onnx"), n)
        so = os.path.join(folder, "m.so")
        code, _, err = command([braid, "compile", os.path.join(work, what + ".onnx"), "-o", so])
        check(what + " weights compile", code == 0, err)
        files = ["m.so", "m.so.weights"] if what == "large" else ["m.so"]
        check(what + " weights: files", sorted(os.listdir(folder)) == files, os.listdir(folder))
        os.rename(folder, other)
        so = os.path.join(other, "m.so")
        code, out, err = command([run_model, so])
        got = [float(v) for v in out.split(":")[1].split()[:8]] if code == 0 else []
        check(what + " weights, moved: result", code == 0 and np.array_equal(got, want[:8]), err + out)
        if what != "large":
            continue
        np.save(os.path.join(work, "x.npy"), np.ones((1, n), np.float32))
        code, out, err = command([braid, "run", so, "-i", "x=" + os.path.join(work, "x.npy"), "-o", other + "/out"])
        check("large weights: braid run", code == 0 and
              np.array_equal(np.load(other + "/out/output_0.npy")[0], want), err)
        shutil.rmtree(other + "/out", ignore_errors=True)
        for damage in ("cut", "missing"):
            if damage == "cut":
                os.truncate(so + ".weights", 1000)
            else:
                os.remove(so + ".weights")
            code, out, err = command([run_model, so])
            check("large weights %s: run_model" % damage, code == 1 and "file of weights is missing" in err and not out, err)
            code, out, err = command([braid, "run", so, "-i", "x=" + os.path.join(work, "x.npy"), "-o", other + "/out"])
            check("large weights %s: braid run" % damage, code == 1 and "weights" in err and err.count("\n") == 1
                  and not os.path.exists(other + "/out"), err)


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def silero(braid, work):
    spec = importlib.util.find_spec("silero_vad")  # its code needs torch; its files do not
    onnx = os.path.join(os.path.dirname(spec.origin), "data", "silero_vad.onnx")
    so = os.path.join(work, "silero.so")
    code, most = peak([braid, "compile", onnx, "-o", so])
    print("compiling silero_vad.onnx takes %.1f MB" % (most / MB))
    check("memory of compiling silero", code == 0 and most < COMPILE_LIMIT, "%d bytes" % most)
    x = {"input": np.zeros((1, 576), np.float32), "state": np.zeros((2, 1, 128), np.float32),
         "sr": np.array(16000, np.int64)}
    for name, value in x.items():
        np.save(os.path.join(work, name + ".npy"), value)
    files = [a for name in x for a in ("-i", "%s=%s" % (name, os.path.join(work, name + ".npy")))]
    code, out, err = command([braid, "bench", so, "--json", "--threads", "1"] + files)
    check("braid bench", code == 0, err)
    own = json.loads(out)["bytes"] if code == 0 else SESSION_LIMIT
    before = rss()
    model = braid_api.Compiled(so) # the library's own pages are counted as well
    model.bind(x)
    for _ in range(3):
        model.run()
    took = rss() - before
    print("a session of it takes %.2f MB of working memory; the process grew by %.2f MB" % (own / MB, took / MB))
    check("memory of a silero session", own < SESSION_LIMIT and took < SESSION_LIMIT, "%d, %d bytes" % (own, took))


def loops(braid, work):
    """A loop with state of a fixed size, one whose state and temporaries have sizes that depend on data."""
    def body(nodes, dims):
        return helper.make_graph([helper.make_node("Identity", ["c"], ["go"])] + nodes, "body",
                                 [tensor("k", [], I), tensor("c", [], BOOL), tensor("v", dims)],
                                 [tensor("go", [], BOOL), tensor("w", dims)])
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    one = numpy_helper.from_array(np.array([1], np.int64), "one")
    two, three = [numpy_helper.from_array(np.array(n, np.int64), s) for n, s in ((2, "two"), (3, "three"))]
    fixed = [helper.make_node("Mul", ["v", "half"], ["h"]), helper.make_node("MatMul", ["h", "m"], ["w"])]
    sizes = [helper.make_node("Mod", ["k", "three"], ["r"]), helper.make_node("Add", ["r", "two"], ["r2"]),
             helper.make_node("Reshape", ["r2", "one"], ["n"]), helper.make_node("ReduceMax", ["v"], ["top"], keepdims=0),
             helper.make_node("Expand", ["top", "n"], ["e"]), helper.make_node("Compress", ["v", "p"], ["z"]),
             helper.make_node("ReduceSum", ["z"], ["s"], keepdims=0), helper.make_node("Add", ["e", "s"], ["f"]),
             helper.make_node("Mul", ["f", "half"], ["w"])]
    for what, nodes, dims, first in (("fixed", fixed, [16, 16], (16, 16)), ("changing", sizes, ["d"], (3,))):
        model = save(os.path.join(work, what + ".onnx"), [helper.make_node("Loop", ["n_steps", "", "v0"], ["y"],
                     body=body(nodes, dims))],
                     [tensor("n_steps", [], I), tensor("v0", dims), tensor("m", [16, 16]), tensor("p", [1], BOOL)],
                     [tensor("y", dims)], [half, one, two, three])
        np.save(work + "/v0.npy", np.ones(first, np.float32))
        np.save(work + "/m.npy", np.eye(16, dtype=np.float32))
        np.save(work + "/p.npy", np.array([True]))
        for target in ("cpu", "interp"):
            most = []
            for n in (1000, 1000000):
                np.save(work + "/n.npy", np.array(n, np.int64))
                code, m = peak([braid, "run", model, "--target", target, "-i", "n_steps=%s/n.npy" % work] +
                               [a for s in ("v0", "m", "p") for a in ("-i", "%s=%s/%s.npy" % (s, work, s))])
                check("a loop of %d steps, %s sizes (%s)" % (n, what, target), code == 0)
                # The first run of the cpu target also holds the C compiler: its library is in the cache now.
                if n == 1000 and target == "cpu":
                    m = peak([braid, "run", model, "--target", target, "-i", "n_steps=%s/n.npy" % work] +
                             [a for s in ("v0", "m", "p") for a in ("-i", "%s=%s/%s.npy" % (s, work, s))])[1]
                most.append(m)
            print("%s sizes, %s: %.1f MB for 1000 steps, %.1f MB for a million" % (
                what, target, most[0] / MB, most[1] / MB))
            check("a loop does not grow: %s sizes (%s)" % (what, target), most[1] - most[0] < LOOP_GROWTH, most)


def sessions(braid, work):
    """What a session takes besides inputs: little more than the weights and what is alive at once; of state that
    grows no more than twice what it comes to."""
    for name, size in (("skipnet", ["--width", "32", "--size", "64", "--blocks", "(2,2,6,2)"]), ("attention_grow", [])):
        code, _, err = command([sys.executable, "-m", "models", name, "--out", work + "/models"] + size,
                               cwd=os.path.join(HERE, ".."))
        check("exporting " + name, code == 0, err)
        folder = os.path.join(work, "models", name)
        file = folder + "/model.onnx"
        model = onnx.load(file)
        feed = [a for i, x in enumerate(model.graph.input)
                for a in ("-i", "%s=%s/test_data_set_0/input_%d.pb" % (x.name, folder, i))]
        code, out, err = command([braid, "bench", file, "--json", "--threads", "1"] + feed)
        check("braid bench of " + name, code == 0, err)
        took = json.loads(out)["bytes"] if code == 0 else 0
        code, out, err = command([braid, "explain", file, "--json"])
        check("braid explain of " + name, code == 0, err)
        plan = json.loads(out) if code == 0 else {"weights_bytes": 0, "live_bytes": 0}
        if name == "skipnet":
            own = sum(numpy_helper.to_array(x).nbytes for x in model.graph.initializer)
            took += plan["weights_bytes"]
            limit = 1.2 * (own + plan["live_bytes"])
            # Blocks that may be skipped change their value in place: a few of them, not as many as there are blocks.
            check("memory of a chain of blocks", 0 < plan["live_bytes"] < 2.5 * 16 * 16 * 128 * 4, plan["live_bytes"])
        else:
            out = [numpy_helper.to_array(onnx.load_tensor("%s/test_data_set_0/output_%d.pb" % (folder, i))) for i in range(2)]
            limit = 2 * sum(x.nbytes for x in out)
        print("a session of %s takes %.2f MB, at most %.2f MB" % (name, took / MB, limit / MB))
        check("memory of a session of " + name, 0 < took <= limit, "%d, not %d bytes" % (took, limit))


def main():
    global PEAK
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("braid")
    ap.add_argument("--cc", default=os.environ.get("CC") or "cc")
    o = ap.parse_args()
    braid = os.path.abspath(o.braid)
    work = tempfile.mkdtemp(prefix="braid-library-")
    os.environ["BRAID_CACHE"] = work + "/cache"
    try:
        run_model = os.path.join(work, "run_model")
        code, _, err = command([o.cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", HERE + "/../include",
                                HERE + "/../examples/run_model.c", "-o", run_model, "-ldl"])
        check("run_model.c compiles", code == 0, err)
        with open(work + "/peak.c", "w") as f:
            f.write(PEAK)
        PEAK = work + "/peak"
        code, _, err = command([o.cc, work + "/peak.c", "-o", PEAK])
        check("peak.c compiles", code == 0, err)
        silero(braid, work)
        sessions(braid, work)
        loops(braid, work)
        weights(braid, work, run_model)
    finally:
        shutil.rmtree(work)
    print("%d passed, %d failed" % (count - bad, bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
