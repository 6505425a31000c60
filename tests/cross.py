#!/usr/bin/env python3
"""Models written as C (braid compile --emit-c), built for AArch64 and run under qemu: equal to this machine's run.

    cross.py --braid BRAID [--only NAME]

Needs aarch64-linux-gnu-gcc and qemu-aarch64. Each model is written without any compiler in reach, built by its own
Makefile, and run with one and two threads. Its outputs are compared with those of `braid run` here, and of the models of
models/ with numpy's as well: floats within 1e-4 of the largest one (vectors have other widths, so sums have
another order), everything else, and casts, bit by bit. Also: the weights mapped from a file, models linked statically,
plain C on this machine, a fault's message, processors that lack something, and models for GPUs (needs hipcc).
"""
import argparse
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as TP, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = ["CC=aarch64-linux-gnu-gcc", "AR=aarch64-linux-gnu-ar"]
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
TOLERANCE = 1e-4
passed, problems = 0, []


def check(what, good, detail=""):
    global passed
    passed += bool(good)
    if not good:
        problems.append(what)
        print(f"FAIL {what}: {str(detail).strip()[-800:]}")
    return good


def command(args, cwd=None, **env):
    r = subprocess.run(args, cwd=cwd, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=300)
    return r.returncode, r.stdout


def outputs(folder):
    files = glob.glob(f"{folder}/output_*.npy")
    return [np.load(f"{folder}/output_{i}.npy") for i in range(len(files))]


def difference(got, want, exact):
    """What differs, or None."""
    if len(got) != len(want) or not want:
        return f"{len(got)} outputs, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.kind == "f":  # which NaN it is depends on the processor
            a, b = np.where(np.isnan(a), np.array(np.nan, a.dtype), a), np.where(np.isnan(b), np.array(np.nan, b.dtype), b)
        if exact or a.dtype.kind != "f":
            if a.tobytes() != b.tobytes():
                at = np.flatnonzero(a.reshape(-1).view(f"V{a.itemsize}") != b.reshape(-1).view(f"V{b.itemsize}"))
                return f"output {i}: {at.size} of {a.size} elements: {a.reshape(-1)[at[:4]]}, not {b.reshape(-1)[at[:4]]}"
        elif not np.allclose(a, b, rtol=0, atol=TOLERANCE * max(1e-3, np.abs(b).max(initial=0)), equal_nan=True):
            return f"output {i}: up to {np.abs(a - b).max()} of {np.abs(b).max()}"
    return None


class Case:
    def __init__(self, work, braid, name, model, feed, options=(), answers=None, exact=False):
        self.folder, self.braid, self.name, self.model = f"{work}/{name}", braid, name, model
        self.options, self.answers, self.exact = list(options), answers, exact
        os.makedirs(self.folder)
        self.files = []
        for k, v in feed.items():
            self.files.append(f"{self.folder}/{k}.npy")
            np.save(self.files[-1], v)
        self.feed = [a for k, f in zip(feed, self.files) for a in ("-i", f"{k}={f}")]

    def here(self):
        """The outputs of this machine."""
        code, text = command([self.braid, "run", self.model, *self.options, *self.feed, "--threads", "1",
                              "-o", f"{self.folder}/here"])
        check(f"{self.name}: run here", code == 0, text)
        return outputs(f"{self.folder}/here")

    def build(self, cpu="armv8-a", tools=TOOLS, target="cpu"):
        """Writes the folder with no compiler in reach and builds it; its path."""
        c = f"{self.folder}/{target}-{cpu}"
        processor = [] if cpu == "gpu" else ["--cpu", cpu]
        code, text = command([self.braid, "compile", self.model, *self.options, "--target", target, *processor,
                              "--emit-c", c], PATH="/nonexistent", CC="/nonexistent/cc")
        if check(f"{self.name}: written as C", code == 0, text):
            code, text = command(["make", "-C", c, *tools])
            check(f"{self.name}: make", code == 0 and "warning" not in text, text)
        return c

    def run(self, what, folder, want, program=("./example",), threads=(1, 2)):
        for n in threads:
            for f in glob.glob(f"{folder}/output_*"):
                os.remove(f)
            code, text = command([*program, *self.files], cwd=folder, THREADS=str(n))
            why = f"exit code {code}" if code else difference(outputs(folder), want, self.exact)
            check(f"{self.name}: {what}, {n} threads", why is None, f"{why} {text if code else ''}")

    def compare(self):
        want = self.here()
        if self.answers is not None:
            check(f"{self.name}: here, with numpy's answers", difference(want, self.answers, False) is None,
                  difference(want, self.answers, False))
        c = self.build()
        self.run("aarch64", c, want, [*QEMU, "./example"])
        return c, want


def proto(path):
    t = onnx.TensorProto()
    t.ParseFromString(open(path, "rb").read())
    return numpy_helper.to_array(t)


def written(work, braid, name, as_name=None, options=(), size=()):
    """A model of models/, with its inputs and numpy's answers."""
    folder = f"{work}/models"
    code, text = command([sys.executable, "-m", "models", name, "--small", *size, "--out", folder], cwd=ROOT)
    check(f"exporting {name}", code == 0, text)
    model = onnx.load(f"{folder}/{name}/model.onnx")
    data = f"{folder}/{name}/test_data_set_0"
    feed = {x.name: proto(f"{data}/input_{i}.pb") for i, x in enumerate(model.graph.input)}
    answers = [proto(f"{data}/output_{i}.pb") for i in range(len(model.graph.output))]
    return Case(work, braid, as_name or name, f"{folder}/{name}/model.onnx", feed, options, answers)


def silero(work, braid):
    spec = importlib.util.find_spec("silero_vad")  # its code needs torch; its files do not
    r = np.random.default_rng(1)
    feed = {"input": r.normal(0, 0.1, (1, 576)).astype(np.float32),
            "state": r.normal(0, 0.5, (2, 1, 128)).astype(np.float32), "sr": np.array(16000, np.int64)}
    return Case(work, braid, "silero", f"{os.path.dirname(spec.origin)}/data/silero_vad.onnx", feed)


def save(work, name, nodes, ins, outs, inits=()):
    path = f"{work}/{name}.onnx"
    g = helper.make_graph(nodes, "main", [helper.make_tensor_value_info(*x) for x in ins],
                          [helper.make_tensor_value_info(*x) for x in outs], list(inits))
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def casts(work, braid):
    """Every conversion that processors do in their own way: out of range, halves, not a number, denormal."""
    x = np.array([0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-8, 6e-8, 1e-40, 65504, 65520, 1e10, -1e10, 3e38, 127.6, -128.5, 255.9,
                  256, -1, 2.0**31, 2.0**63, 2.0**64, -2.0**31, -2.0**63, -0.99, -1, np.inf, -np.inf, np.nan, 448, 464, 57344, 0.1], np.float32)
    x = np.concatenate([x] * 3)  # so many that loops have vectors
    kinds = [TP.FLOAT16, TP.BFLOAT16, TP.DOUBLE, TP.INT8, TP.UINT8, TP.INT16, TP.UINT16, TP.INT32, TP.UINT32, TP.INT64,
             TP.UINT64, TP.FLOAT8E4M3FN, TP.FLOAT8E5M2, TP.BOOL]
    nodes, outs = [], []
    for k in kinds:
        name = TP.DataType.Name(k).lower()
        back = TP.INT64 if k in (TP.INT64, TP.UINT64) else TP.DOUBLE if k == TP.DOUBLE else TP.FLOAT
        nodes += [helper.make_node("Cast", ["x"], [f"as_{name}"], to=k),
                  helper.make_node("Cast", [f"as_{name}"], [f"y_{name}"], to=back)]
        outs.append((f"y_{name}", back, [x.size]))
    for name in ("Round", "Floor", "Sqrt", "Exp", "Tanh", "Sigmoid"):
        nodes.append(helper.make_node(name, ["x"], [f"y_{name}"]))
        outs.append((f"y_{name}", TP.FLOAT, [x.size]))
    return Case(work, braid, "casts", save(work, "casts", nodes, [("x", TP.FLOAT, [x.size])], outs), {"x": x}, exact=True)


def gemm(work, braid, n):
    """y = x w + b with n by n small integers: exact in every order."""
    w = (np.arange(n * n, dtype=np.int64) * 7 % 5 - 2).astype(np.float32).reshape(n, n)
    b, x = np.arange(n, dtype=np.float32), (np.arange(n, dtype=np.float32) % 3 - 1)[None]
    path = save(work, f"gemm{n}", [helper.make_node("Gemm", ["x", "w", "b"], ["y"])], [("x", TP.FLOAT, [1, n])],
                [("y", TP.FLOAT, [1, n])], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    return Case(work, braid, f"gemm{n}", path, {"x": x}, answers=[x @ w + b], exact=True)


def small_integers(work, braid):
    """Sums of products of 8-bit integers: of both signs, at the ends of their ranges, of channels of their own."""
    r = np.random.default_rng(5)
    nodes, ins, outs, inits, feed = [], [], [], [], {}
    for x, w in ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)):
        name = f"{np.dtype(x).name}_{np.dtype(w).name}"
        weight = {"gemm": (37, 41), "conv": (19, 5, 3, 3), "each": (20, 1, 3, 3)}
        shape = {"gemm": (7, 37), "conv": (1, 5, 8, 9), "each": (1, 20, 7, 8)}
        for kind in weight:
            a, b, y = f"{kind}_{name}", f"w_{kind}_{name}", f"y_{kind}_{name}"
            ends = [np.iinfo(t) for t in (x, w)]
            feed[a] = r.choice([ends[0].min, ends[0].max, 5], shape[kind], p=[.2, .7, .1]).astype(x)
            zeros = np.array(ends[0].max, x), np.array(ends[1].min + 3, w)
            inits += [numpy_helper.from_array(r.choice([ends[1].min, ends[1].max, 7], weight[kind]).astype(w), b),
                      numpy_helper.from_array(zeros[0], f"zx_{a}"), numpy_helper.from_array(zeros[1], f"zw_{a}")]
            how = {} if kind == "gemm" else {"pads": [1] * 4, "group": 20 if kind == "each" else 1}
            nodes.append(helper.make_node("MatMulInteger" if kind == "gemm" else "ConvInteger", [a, b, f"zx_{a}", f"zw_{a}"], [y], **how))
            ins.append((a, helper.np_dtype_to_tensor_dtype(np.dtype(x)), shape[kind]))
            outs.append((y, TP.INT32, None))
    return Case(work, braid, "bytes", save(work, "bytes", nodes, ins, outs, inits), feed, exact=True)


def mapped(case):
    c, _ = case.compare()
    check("mapped weights: files", os.path.exists(f"{c}/model.so.weights") and not os.path.exists(f"{c}/model.a"))
    os.truncate(f"{c}/model.so.weights", 1000)
    code, text = command([*QEMU, "./example", *case.files], cwd=c)
    check("mapped weights, cut: refused", code == 1 and "no session" in text, text)


def linked_in(c, want, case):
    """The example with the model inside, and nothing that is loaded."""
    code, text = command([TOOLS[0][3:], "-std=c99", "-static", "-o", "static", "main.c", "model.a", "-lm", "-lpthread"], cwd=c)
    check(f"{case.name}: linked statically", code == 0, text)
    code, text = command(["nm", "-g", "--defined-only", "model.a"], cwd=c)
    names = [x.split()[-1] for x in text.splitlines() if " " in x]
    check(f"{case.name}: model.a defines one name", names == ["braid_model"], text)
    code, text = command([TOOLS[0][3:], "-w", "-c", "-Dbraid_model=other_model", "-o", "other.o", "model.c"], cwd=c)
    code, text = command(["nm", "-g", "--defined-only", "other.o"], cwd=c) if code == 0 else (code, text)
    check(f"{case.name}: under another name", code == 0 and text.split()[-1:] == ["other_model"], text)
    case.run("aarch64, static", c, want, ["qemu-aarch64", "./static"])


def fault(work, braid):
    path = save(work, "pick", [helper.make_node("Gather", ["x", "i"], ["y"])], [("x", TP.FLOAT, [4]), ("i", TP.INT64, [2])],
                [("y", TP.FLOAT, [2])])
    case = Case(work, braid, "pick", path, {"x": np.arange(4, dtype=np.float32), "i": np.array([3, 7])})
    code, text = command([*QEMU, "./example", *case.files], cwd=case.build())
    check("a fault", code == 1 and "index 7 is outside [-4, 4)" in text, text)


def processors(work, braid):
    """On a processor that lacks what a program was compiled for, it says so; it does not end in an illegal instruction."""
    case = gemm(work, braid, 61)
    tries = [(TOOLS, QEMU, "armv8.2-a+sve", "cortex-a57", "max", "LSE")]
    if os.uname().machine == "x86_64":
        here = ["CC=cc", "AR=ar"]
        tries += [(here, ["qemu-x86_64"], "x86-64-v2", "qemu64", "Nehalem", "SSSE3"),
                  (here, ["qemu-x86_64"], "x86-64-v3", "Nehalem", "Haswell", "MOVBE"),
                  (here, ["qemu-x86_64"], "x86-64-v4", "Haswell", None, "AVX-512F")]
    for tools, qemu, cpu, without, having, lacks in tries:
        c = case.build(cpu, tools)
        code, text = command([*qemu, "-cpu", without, "./example", *case.files], cwd=c)
        check(f"{cpu} on {without}: says what it lacks", code == 1 and f"a processor with {lacks}, which this one lacks" in text,
              f"exit code {code}: {text}")
        if having:
            case.run(f"{cpu} on {having}", c, case.answers, [*qemu, "-cpu", having, "./example"])


def gpus(work, braid):
    """Models for GPUs that are not here: hipcc makes of the folder the code that `braid compile` makes; the command
    for nvcc and the text are right."""
    case = gemm(work, braid, 60)
    c, so = case.build("gpu", ["all"], "hip:gfx90a"), f"{case.folder}/hip.so"
    code, text = command([braid, "compile", case.model, "--target", "hip:gfx90a", "-o", so], HIPIFY="own")
    check("hip: braid compile", code == 0, text)
    check("hip: the same code", os.path.exists(f"{c}/model.code") and open(f"{c}/model.code", "rb").read() in open(so, "rb").read())
    code, text = command(["./example"], cwd=c)
    check("hip: without a GPU it says so", code == 0 or "no session: " in text and len(text) > 25, text)
    c = case.build("gpu", ["-n"], "cuda:sm_90")
    code, text = command(["make", "-C", c, "-n", "model.so"])
    check("cuda: the command", "nvcc -arch=sm_90 -cubin" in text and " -o model.code model.cu" in text, text)
    command([braid, "compile", case.model, "--target", "cuda:sm_90", "-o", so, "--emit", f"{case.folder}/own.cu"])
    check("cuda: the text", open(f"{c}/model.cu").read() == open(f"{case.folder}/own.cu").read())


def refused(work, braid, model):
    for what, options, message in (
            ("with -o", ["-o", "x.so"], "without -o and --emit"), ("for an emulator", ["--target", "emulate:cuda"], "are not written as C"),
            ("to a file", [], "Not a directory")):
        to = f"{work}/file" if what == "to a file" else f"{work}/none"
        open(f"{work}/file", "w").close()
        code, text = command([braid, "compile", model, "--emit-c", to, *options], cwd=work)
        check(f"--emit-c {what}", code in (1, 2) and message in text and not os.path.exists(f"{work}/none"), text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", required=True)
    p.add_argument("--only", default="")
    o = p.parse_args()
    braid, work = os.path.abspath(o.braid), tempfile.mkdtemp(prefix="braid-cross-")
    os.environ["BRAID_CACHE"] = f"{work}/cache"
    recursive = ["--schedule", "linearize=off,batch=off"]
    cases = {"silero": lambda: silero(work, braid), "lstm": lambda: written(work, braid, "lstm_operator"),
             "seq2seq": lambda: written(work, braid, "seq2seq"), "treelstm": lambda: written(work, braid, "treelstm"),
             "recursion": lambda: written(work, braid, "treelstm", "recursion", recursive),
             "casts": lambda: casts(work, braid), "bytes": lambda: small_integers(work, braid), "gemm300": lambda: gemm(work, braid, 300)}
    try:
        for name, make in cases.items():
            if o.only not in name:
                continue
            case = make()
            c, want = case.compare()
            if name == "recursion":
                with open(f"{c}/model.c") as f:
                    check("the recursion has a stack of its own", "#define BK_FRAME_BYTES" in f.read())
            if name == "lstm":
                linked_in(c, want, case)
                wide = case.build("x86-64-v4", [*TOOLS, "ARCH=-march=armv8-a"])
                case.run("aarch64, laid out for vectors of 16", wide, want, [*QEMU, "./example"])
                case.run("plain C, here", case.build("x86-64", [], "plain") if os.uname().machine == "x86_64" else c, want, threads=[1])
            if name == "bytes":
                for cpu in ("armv8.2-a+dotprod", "armv8.2-a+dotprod+i8mm"):
                    case.run(cpu, case.build(cpu), want, [*QEMU, "-cpu", "max", "./example"])
            if name == "seq2seq":
                refused(work, braid, case.model)
        if o.only in "mapped":
            mapped(gemm(work, braid, 4200))
        if o.only in "processors":
            processors(work, braid)
        if o.only in "gpus":
            gpus(work, braid)
        if o.only in "fault":
            fault(work, braid)
    finally:
        shutil.rmtree(work)
    print(f"{passed} passed, {len(problems)} failed")
    return 1 if problems or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
