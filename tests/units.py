#!/usr/bin/env python3
"""Libraries are compiled as several translation units, and long graphs of equal layers as few functions.

    units.py [--braid build/release/braid] [--cc cc]

1. An unrolled cell and a stack of layers with weights of their own, short and long: the text of the long one has as many
   functions as that of the short one, and its text outside the control flow is as long; values as NumPy computes them.
2. Layers of different sizes, enough for several units: values, and the same values from the text compiled as one unit.
3. Object files that are kept: made by several compilations at once, damaged, in a folder that cannot be written; the
   values are right in each case, and a damaged file is made again.

Prints "N passed, N failed"; exit status 1 if one failed.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

failures = 0
passes = 0


def check(what, good):
    global failures, passes
    passes += bool(good)
    failures += not good
    if not good:
        print("FAIL:", what)


def const(values, name):
    return numpy_helper.from_array(np.asarray(values), name)


def write(path, nodes, shapes, out, shape, constants):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "units", info, [helper.make_tensor_value_info(out, TensorProto.FLOAT, shape)], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def cell(path, steps, rng, size=20):
    """(inputs, output) of h = tanh(x[t] W + h U + b), unrolled: six nodes a step."""
    w, u, b = (rng.normal(size=s).astype(np.float32) * 0.2 for s in ((size, size), (size, size), (size,)))
    x, h = rng.normal(size=(steps, 1, size)).astype(np.float32), rng.normal(size=(1, size)).astype(np.float32)
    nodes, constants, last, value = [], [const(w, "w"), const(u, "u"), const(b, "b")], "h", h.astype(np.float64)
    for t in range(steps):
        constants.append(const(np.int64(t), f"t{t}"))
        nodes += [helper.make_node("Gather", ["x", f"t{t}"], [f"x{t}"]), helper.make_node("MatMul", [f"x{t}", "w"], [f"a{t}"]),
                  helper.make_node("MatMul", [last, "u"], [f"c{t}"]), helper.make_node("Add", [f"a{t}", f"c{t}"], [f"d{t}"]),
                  helper.make_node("Add", [f"d{t}", "b"], [f"e{t}"]), helper.make_node("Tanh", [f"e{t}"], [f"h{t}"])]
        last, value = f"h{t}", np.tanh(x[t] @ w + value @ u + b)
    write(path, nodes, {"x": x.shape, "h": h.shape}, last, h.shape, constants)
    return {"x": x, "h": h}, value


def stack(path, sizes, rng):
    """(inputs, output) of layers of those sizes, each with weights of its own: three nodes a layer."""
    x = rng.normal(size=(5, sizes[0])).astype(np.float32)
    nodes, constants, last, value = [], [], "x", x.astype(np.float64)
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        w, c = rng.normal(size=(a, b)).astype(np.float32) / a ** 0.5, rng.normal(size=b).astype(np.float32)
        constants += [const(w, f"w{i}"), const(c, f"b{i}")]
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"p{i}"]), helper.make_node("Add", [f"p{i}", f"b{i}"], [f"s{i}"]),
                  helper.make_node("Tanh", [f"s{i}"], [f"h{i}"])]
        last, value = f"h{i}", np.tanh(value @ w + c)
    write(path, nodes, {"x": x.shape}, last, value.shape, constants)
    return {"x": x}, value


def compile_to(a, model, so, cache, *options):
    return subprocess.run([a.braid, "compile", model, "-o", so, *options], env={**os.environ, "BRAID_CACHE": cache, "CC": a.cc},
                          capture_output=True, text=True)


def run(a, so, inputs):
    """The first output of a library."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [a.braid, "run", so, "-o", folder]
        for name, value in inputs.items():
            np.save(f"{folder}/{name}.npy", value)
            argv += ["-i", f"{name}={folder}/{name}.npy"]
        r = subprocess.run(argv, capture_output=True, text=True)
        return np.load(f"{folder}/output_0.npy") if r.returncode == 0 else r.stderr


def right(got, want):
    return isinstance(got, np.ndarray) and got.shape == want.shape and np.allclose(got, want, rtol=1e-3, atol=1e-4)


def functions(text):
    """(number of functions with a number in the name, bytes of their text)"""
    found = re.findall(r"^[^\n]* f\d+_\w*\([^\n]*\) \{\n.*?^\}\n", text, re.S | re.M)
    return len(found), sum(map(len, found))


def check_long(a, work, name, make, few, many, rng):
    size = []
    for n in (few, many):
        model, so = f"{work}/{name}{n}.onnx", f"{work}/{name}{n}.so"
        inputs, want = make(model, n, rng)
        r = compile_to(a, model, so, f"{work}/cache", "--emit", so + ".c")
        check(f"{name} {n} compiles: {r.stderr}", r.returncode == 0)
        check(f"{name} {n}: values", right(run(a, so, inputs), want))
        with open(so + ".c") as f:
            size.append(functions(f.read()))
    check(f"{name}: {size[0]} functions and bytes at {few}, {size[1]} at {many}",
          0 < size[1][0] <= size[0][0] + 1 and size[1][1] <= size[0][1] * 1.5)


def check_units(a, work, rng):
    model, so = f"{work}/many.onnx", f"{work}/many.so"
    inputs, want = stack(model, [3 + 7 * i % 61 for i in range(80)], rng)
    r = compile_to(a, model, so, f"{work}/cache", "--emit", f"{work}/many.c")
    check(f"many sizes compile: {r.stderr}", r.returncode == 0)
    got = run(a, so, inputs)
    check("many sizes: values", right(got, want))
    with open(f"{work}/many.c") as f:
        check("there is enough for several units", functions(f.read())[1] > 3 * 32768)
    r = subprocess.run([a.braid, "compile", model, "--emit-c", f"{work}/c"], capture_output=True, text=True)
    r = r if r.returncode else subprocess.run(["make", "-s", "-C", f"{work}/c", "CC=" + a.cc, "CFLAGS=-O1", "model.so"], capture_output=True, text=True)
    check(f"as one unit: {r.stderr}", r.returncode == 0)
    check("as one unit: values", right(run(a, f"{work}/c/model.so", inputs), want))


def objects(cache):
    return sorted(glob.glob(cache + "/objects/*"))


def check_kept(a, work, rng):
    model, cache = f"{work}/kept.onnx", f"{work}/kept"
    inputs, want = stack(model, [4, 9, 2], rng)

    def compiled(what, so):
        r = compile_to(a, model, so, cache)
        check(f"{what}: {r.stderr}", r.returncode == 0 and right(run(a, so, inputs), want))

    env = {**os.environ, "BRAID_CACHE": cache, "CC": a.cc}
    several = [subprocess.Popen([a.braid, "compile", model, "-o", f"{work}/at_once{i}.so"], env=env) for i in range(4)]
    check("several at once", all(p.wait() == 0 for p in several))
    check("several at once: values", all(right(run(a, f"{work}/at_once{i}.so", inputs), want) for i in range(4)))
    kept = objects(cache)
    check(f"one object file is kept: {kept}", len(kept) == 1 and kept[0].endswith(".o"))
    whole = open(kept[0], "rb").read()
    for what, data in (("cut", whole[:999]), ("changed", whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:]), ("empty", b"")):
        with open(kept[0], "wb") as f:
            f.write(data)
        compiled("an object file that is " + what, f"{work}/damaged.so")
        check(what + ": it is made again", abs(os.path.getsize(kept[0]) - len(whole)) < 64 and open(kept[0], "rb").read() != data)
    before = os.stat(kept[0]).st_mtime_ns
    compiled("the object file as it is", f"{work}/again.so")
    check("it is not made again", os.stat(kept[0]).st_mtime_ns == before and objects(cache) == kept)
    os.remove(kept[0])
    os.rmdir(f"{cache}/objects")
    with open(f"{cache}/objects", "w"):
        pass  # no folder, not even for the superuser
    compiled("nothing can be kept", f"{work}/unkept.so")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--cc", default=os.environ.get("CC") or "cc")
    a = p.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as work:
        check_long(a, work, "cell", cell, 20, 1000, rng)
        check_long(a, work, "stack", lambda path, n, rng: stack(path, [24] * (n + 1), rng), 20, 2000, rng)
        check_units(a, work, rng)
        check_kept(a, work, rng)
    print(f"{passes} passed, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
