#!/usr/bin/env python3
"""Bad models and bad inputs: each is refused with exit code 1 and one line, in time, and nothing is written.

    hostile.py BRAID [--seed S] [--mutations N] [--target T] [--seconds S]

Mutated models run as backend test folders, a few hundred under one `braid test`, which reports a crash or a
limit that is hit; what they compute does not matter. The other cases are run one by one.
"""
import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from onnx import AttributeProto, TensorProto as TP, helper, load, numpy_helper

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
MODELS = ["loop", "scan", "if_ranks", "lstm", "sequence", "conv", "open"]
MEMORY = 3 << 30
F, I, BOOL = TP.FLOAT, TP.INT64, TP.BOOL


# ---- running
class Runner:
    def __init__(self, braid, seconds):
        self.braid, self.seconds, self.count, self.bad = braid, seconds, 0, 0
        with open(braid, "rb") as f:
            self.sanitized = b"__asan_init" in f.read()
        self.env = dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1:max_allocation_size_mb=%d:%s" % (
            MEMORY >> 20, os.environ.get("ASAN_OPTIONS", "")))

    def limits(self):
        resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.sanitized:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def run(self, args, seconds=None):
        return subprocess.run([self.braid] + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env,
                              errors="replace", preexec_fn=self.limits, timeout=seconds or self.seconds * 4,
                              stdin=subprocess.DEVNULL)

    def fail(self, what, r=None):
        self.bad += 1
        print("FAIL: " + what)
        if r:
            print("  exit code %d, stderr: %s" % (r.returncode, r.stderr[-1500:].strip()))

    def refused(self, what, model, inputs=(), message="", target="interp", args=(), code=1):
        """`braid run` says no: one line that holds `message`, no output."""
        self.count += 1
        out = os.path.join(os.path.dirname(model), "never")
        a = ["run", model, "--target", target, "-o", out] + list(args)
        for name, file in inputs:
            a += ["-i", "%s=%s" % (name, file)]
        try:
            r = self.run(a)
        except subprocess.TimeoutExpired:
            return self.fail(what + ": it hangs")
        lines = r.stderr.strip("\n").split("\n")
        if r.returncode != code or len(lines) != 1 or not lines[0].startswith("braid: ") or message not in lines[0]:
            self.fail("%s (%s): expected one line with '%s'" % (what, target, message), r)
        elif os.path.exists(out):
            self.fail(what + ": an output was written")
        shutil.rmtree(out, ignore_errors=True)

    def works(self, what, model, inputs=(), target="interp", args=()):
        self.count += 1
        a = ["run", model, "--target", target] + list(args)
        for name, file in inputs:
            a += ["-i", "%s=%s" % (name, file)]
        r = self.run(a)
        if r.returncode:
            self.fail(what + ": expected to work", r)

    def no_crash(self, what, args):
        """Exit code 0 or 1 is fine."""
        self.count += 1
        try:
            r = self.run(args)
        except subprocess.TimeoutExpired:
            return self.fail(what + ": it hangs")
        if r.returncode not in (0, 1) or (r.returncode == 1 and len(r.stderr.strip("\n").split("\n")) != 1):
            self.fail(what, r)


# ---- making models
def node(op, ins, outs, **attributes):
    return helper.make_node(op, ins, outs, name=op.lower(), **attributes)


def tensor(name, dims, dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def const(name, value, dtype=np.int64):
    return numpy_helper.from_array(np.array(value, dtype), name)


def model(nodes, ins, outs, inits=(), opset=17, **k):
    g = helper.make_graph(nodes, "main", ins, outs, list(inits))
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **k)


def varint(n):
    b = b""
    while n > 127:
        b += bytes([n & 127 | 128])
        n >>= 7
    return b + bytes([n])


def field(k, data):
    return varint(k << 3 | 2) + varint(len(data)) + data


def deep_if(depth):
    """Ifs in each other, written without the onnx package, which recurses."""
    result = field(12, field(1, b"r") + field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x02")))))
    leaf = field(1, field(1, b"x") + field(2, b"r") + field(4, b"Neg")) + field(2, b"g") + result
    g = leaf
    for _ in range(depth):
        arms = [field(5, field(1, name) + field(6, body) + b"\xa0\x01\x05")
                for name, body in ((b"then_branch", g), (b"else_branch", leaf))]
        g = field(1, field(1, b"c") + field(2, b"r") + field(4, b"If") + b"".join(arms)) + field(2, b"g") + result
    ins = [field(11, v.SerializeToString()) for v in (tensor("x", [2]), tensor("c", [], BOOL))]
    return b"\x08\x08" + field(7, g + b"".join(ins)) + field(8, b"\x10\x11")


class Folder:
    def __init__(self, path):
        self.path, self.n = path, 0

    def new(self, ending):
        self.n += 1
        return os.path.join(self.path, "%04d%s" % (self.n, ending))

    def save(self, m):
        path = self.new(".onnx")
        with open(path, "wb") as f:
            f.write(m if isinstance(m, bytes) else m.SerializeToString())
        return path

    def npy(self, value, dtype=np.float32):
        path = self.new(".npy")
        np.save(path, np.array(value, dtype))
        return path


# ---- mutations
def mutate(r, data):
    b = bytearray(data)
    kind = r.randrange(8)
    if kind == 0:
        return bytes(b[:r.randrange(len(b))])
    for _ in range(1 + r.randrange(3)):
        i = r.randrange(len(b))
        if kind == 1:
            b[i] ^= 1 << r.randrange(8)
        elif kind == 2:
            b[i] = r.choice([0, 1, 0x7f, 0x80, 0xff, r.randrange(256)])
        elif kind == 3:
            del b[i:i + 1 + r.randrange(8)]
        elif kind == 4:
            b[i:i] = bytes(r.randrange(256) for _ in range(1 + r.randrange(8)))
        elif kind == 5: # a part again, or elsewhere
            j = r.randrange(len(b))
            b[i:i + r.randrange(2) * 8] = b[j:j + r.randrange(64)]
        elif kind == 6: # small numbers in place: types, axes, sizes
            b[i] = (b[i] + r.choice([-2, -1, 1, 2])) % 256
        else: # a large number
            b[i:i + 1] = b"\xff" * r.choice([4, 8, 9]) + b"\x01"
        if len(b) < 2:
            break
    return bytes(b)


def mutate_parsed(r, m):
    """Changes what the file means, not its form: gets further than changed bytes."""
    graphs = [m.graph]
    for g in graphs:
        for n in g.node:
            graphs += [a.g for a in n.attribute if a.type == AttributeProto.GRAPH]
    g = r.choice(graphs)
    names = [v for h in graphs for n in h.node for v in list(n.input) + list(n.output) if v]
    n = r.choice(g.node) if g.node else None
    kind = r.randrange(10)
    if kind == 0 and n and n.input:
        n.input[r.randrange(len(n.input))] = r.choice(names + [""])
    elif kind == 1 and n and n.output:
        n.output[r.randrange(len(n.output))] = r.choice(names + [""])
    elif kind == 2 and n:
        n.op_type = r.choice([x.op_type for h in graphs for x in h.node] + ["Reshape", "Gather", "Div", "Loop", "If"])
    elif kind == 3 and n and n.attribute:
        a = r.choice(n.attribute)
        if a.type == AttributeProto.INT:
            a.i = r.choice([-1, 0, 1, 2, 1 << 40, -1 << 63])
        elif a.ints:
            a.ints[r.randrange(len(a.ints))] = r.choice([-1, 0, 3, 1 << 31, 1 << 62, -1 << 63])
        else:
            n.attribute.remove(a)
    elif kind == 4 and m.graph.initializer:
        t = r.choice(m.graph.initializer)
        if r.randrange(2):
            t.data_type = r.randrange(24)
        elif t.dims:
            t.dims[r.randrange(len(t.dims))] = r.choice([-1, 0, 1, 1 << 40, 7])
    elif kind == 5:
        io = r.choice(list(m.graph.input) + list(g.output))
        if io.type.HasField("tensor_type"):
            io.type.tensor_type.elem_type = r.randrange(24)
    elif kind == 6:
        io = r.choice(list(g.input) + list(g.output) or list(m.graph.input))
        d = io.type.tensor_type.shape.dim.add()
        d.dim_value = r.choice([-5, 0, 1, 2, 1 << 40])
    elif kind == 7 and len(g.node) > 1:
        del g.node[r.randrange(len(g.node))]
    elif kind == 8:
        for io in m.graph.input:
            if r.randrange(2):
                io.type.tensor_type.ClearField("shape")
    elif n:
        g.node.add().CopyFrom(n)
    return m.SerializeToString()


def test_folders(run, work, seed, count, target):
    """Mutated models, each with inputs as the model has them, under one `braid test`."""
    base = os.path.join(work, "mutated")
    total = 0
    for name in MODELS:
        with open(os.path.join(GOLDEN, name + ".onnx"), "rb") as f:
            data = f.read()
        m = load(os.path.join(GOLDEN, name + ".onnx"))
        for k in range(count):
            r = random.Random("%d %s %d" % (seed, name, k))
            d = os.path.join(base, "%s-%d" % (name, k))
            os.makedirs(d + "/test_data_set_0")
            c = type(m)()
            c.CopyFrom(m)
            with open(d + "/model.onnx", "wb") as f:
                f.write(mutate(r, data) if k % 2 else mutate_parsed(r, c))
            for i, x in enumerate(m.graph.input):
                t = x.type.tensor_type
                v = np.ones([q.dim_value or 3 for q in t.shape.dim], helper.tensor_dtype_to_np_dtype(t.elem_type))
                with open(d + "/test_data_set_0/input_%d.pb" % i, "wb") as f:
                    f.write(numpy_helper.from_array(v * 3 if t.elem_type == I else v).SerializeToString())
            for i in range(len(m.graph.output)):
                with open(d + "/test_data_set_0/output_%d.pb" % i, "wb") as f:
                    f.write(numpy_helper.from_array(np.zeros(1, np.float32)).SerializeToString())
            total += 1
    r = run.run(["test", "--target", target, "--max-iterations", "20000", base], seconds=3600)
    run.count += total
    for line in r.stdout.split("\n"):
        if any(x in line for x in ("crashed:", "not done after", "ended with exit code")):
            run.fail(line.replace(work, ""))
    if r.returncode not in (0, 1) or not r.stdout.rstrip().endswith("skipped"):
        run.fail("braid test over the mutated models", r)


# Sizes that no tensor can have: s is a constant of the model, or comes with the run.
SIZES = [
    ("ConstantOfShape", node("ConstantOfShape", ["s"], ["y"]), [const("s", [1 << 40, 1 << 40])], F),
    ("ConstantOfShape that wraps", node("ConstantOfShape", ["s"], ["y"]), [const("s", [1 << 31, 1 << 31])], F),
    ("ConstantOfShape in bytes", node("ConstantOfShape", ["s"], ["y"]), [const("s", [1 << 61, 2])], F),
    ("a negative ConstantOfShape", node("ConstantOfShape", ["s"], ["y"]), [const("s", [2, -1])], F),
    ("two negative sizes", node("ConstantOfShape", ["s"], ["y"]), [const("s", [-2, -3])], F),
    ("Expand", node("Expand", ["x", "s"], ["y"]), [const("s", [1 << 40, 1 << 40, 2])], F),
    ("Expand that wraps", node("Expand", ["x", "s"], ["y"]), [const("s", [1 << 32, 1 << 31, 2])], F),
    ("Tile", node("Tile", ["x", "s"], ["y"]), [const("s", [1 << 41])], F),
    ("Tile that wraps", node("Tile", ["x", "s"], ["y"]), [const("s", [-1 << 63])], F),
    ("Pad", node("Pad", ["x", "s"], ["y"]), [const("s", [1 << 61, 1 << 61])], F),
    ("Pad that wraps", node("Pad", ["x", "s"], ["y"]), [const("s", [(1 << 63) - 1, 3])], F),
    ("a negative Pad", node("Pad", ["x", "s"], ["y"]), [const("s", [-2, -3])], F),
    ("Range", node("Range", ["a", "s", "b"], ["y"]), [const("a", 0), const("s", 1 << 62), const("b", 1)], I),
    ("Resize", node("Resize", ["x", "", "", "s"], ["y"]), [const("s", [1 << 55])], F),
    ("OneHot", node("OneHot", ["a", "s", "b"], ["y"]), [const("a", [0]), const("s", [-3]), const("b", [0, 1])], I),
    ("OneHot that wraps", node("OneHot", ["a", "s", "b"], ["y"]), [const("a", [0, 1]), const("s", [1 << 62]), const("b", [0, 1])], I),
    ("Split", node("Split", ["x", "s"], ["y", "z"]), [const("s", [-1, 3])], F),
    ("Reshape", node("Reshape", ["x", "s"], ["y"]), [const("s", [-1, 0, -1])], F),
    ("Reshape to a negative size", node("Reshape", ["x", "s"], ["y"]), [const("s", [-2, -1])], F),
]


def test_sizes(run, dir, target):
    x2 = dir.npy([1, 2])
    for what, n, i, t in SIZES:
        s = next(k for k in i if k.name == "s")
        m = model([n], [tensor("x", [2]), tensor("s", list(s.dims), I)], [tensor("y", None, t)], [k for k in i if k.name != "s"])
        run.refused(what + " at run time", dir.save(m), [("x", x2), ("s", dir.npy(numpy_helper.to_array(s), np.int64))],
                    target=target)


# ---- inputs in files
def test_npy(run, dir, seed):
    m = dir.save(model([node("Neg", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)]))
    good = dir.npy(np.arange(6).reshape(2, 3))
    with open(good, "rb") as f:
        data = f.read()
    for k in range(80):
        r = random.Random("%d npy %d" % (seed, k))
        path = dir.new(".npy")
        with open(path, "wb") as f:
            f.write(mutate(r, data[:80]) + data[80:] if k % 2 else mutate(r, data))
        run.no_crash("a mutated .npy", ["run", m, "--target", "interp", "-i", "x=" + path])

    def header(text, elements=b"\0" * 24, version=b"\1\0"):
        path = dir.new(".npy")
        with open(path, "wb") as f:
            f.write(b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text.encode() + elements)
        return path
    for text, message in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }", ""),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }", ""),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }", "its shape needs 28 bytes"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }" % ("1," * 40), ""),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", ""),
            ("{'descr': '<f4', 'fortran_order': False, }", ""),
            ("{" * 200, ""), ("", "")]:
        run.refused("a .npy with the header " + text[:60], m, [("x", header(text))], message)
    run.refused("an empty .npy", m, [("x", header("", b"")[:-4] + ".npy")], "")
    pb = dir.new(".pb")
    with open(pb, "wb") as f:
        f.write(b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x10\x01")
    run.refused("a .pb with a huge size", m, [("x", pb)])


# ---- models that are wrong in one way
def test_files(run, dir):
    y = [tensor("y", None)]
    with open(os.path.join(GOLDEN, "loop.onnx"), "rb") as f:
        data = f.read()
    for n in (0, 1, 3, len(data) // 3, len(data) // 2, len(data) - 1):
        run.refused("a file cut at %d" % n, dir.save(data[:n]))

    # external data
    secret = os.path.join(os.path.dirname(dir.path), "secret.bin")
    with open(secret, "wb") as f:
        f.write(b"\1\2\3\4" * 4)
    os.symlink(secret, os.path.join(dir.path, "link.bin"))
    with open(os.path.join(dir.path, "own.bin"), "wb") as f:
        f.write(b"\1\2\3\4" * 4)

    def external(**entries):
        t = TP(name="w", data_type=F, dims=[4], data_location=TP.EXTERNAL)
        for k, v in entries.items():
            t.external_data.add(key=k, value=v)
        return dir.save(model([node("Neg", ["w"], ["y"])], [], y, [t]))
    run.works("data in its own folder", external(location="own.bin"))
    for e in [dict(location="../secret.bin"), dict(location=secret), dict(location="link.bin"),
              dict(location="./a/../../secret.bin"), dict(location="none.bin"), dict(location=""), dict(location="."),
              dict(location="/dev/zero"), dict(location="own.bin", offset="8"), dict(location="own.bin", offset="-4"),
              dict(location="own.bin", offset="18446744073709551615"), dict(location="own.bin", length="12"),
              dict(location="own.bin", offset="x"), {}]:
        run.refused("external data %s" % e, external(**e))

    # depth
    x2, true = dir.npy([1, 2]), dir.npy(True, bool)
    run.works("Ifs 40 deep", dir.save(deep_if(40)), [("x", x2), ("c", true)])
    run.refused("Ifs 1000 deep", dir.save(deep_if(1000)), [("x", x2), ("c", true)])
    bytes_of = tensor("x", [2]).type.SerializeToString()
    for _ in range(1000):
        bytes_of = field(4, field(1, bytes_of))
    run.refused("types 1000 deep", dir.save(field(7, field(11, field(1, b"x") + field(2, bytes_of))) + b"\x08\x08"))
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    calls = [helper.make_function("own", "F%d" % k, ["a"], ["b"], [
        helper.make_node("F%d" % (k + 1), ["a"], ["m"], domain="own"),
        helper.make_node("F%d" % (k + 1), ["m"], ["b"], domain="own")], ops) for k in range(60)]
    calls.append(helper.make_function("own", "F60", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], ops))
    g = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="own")], "main", [tensor("x", [2])], y)
    run.refused("2^60 calls", dir.save(helper.make_model(g, opset_imports=ops, functions=calls, ir_version=8)),
                [("x", x2)])
    chain = [helper.make_node("Neg" if k % 2 else "Tanh", ["v%d" % k], ["v%d" % (k + 1)]) for k in range(3000)]
    run.works("3000 nodes in a row", dir.save(model(chain, [tensor("v0", [2])], [tensor("v3000", [2])])), [("v0", x2)])

    # sizes
    big = 1 << 40
    run.refused("an initializer of 2^80", dir.save(model([node("Neg", ["w"], ["y"])], [], y, [
        TP(name="w", data_type=F, dims=[big, big], raw_data=b"\0" * 16)])))
    run.refused("an input of 2^80", dir.save(model([node("Neg", ["x"], ["y"])], [tensor("x", [big, big])], y)), [("x", x2)])
    for what, n, i, t in SIZES:
        out = [tensor("y", None, t)]
        run.refused(what, dir.save(model([n], [tensor("x", [2])], out, i)), [("x", x2)])


def test_runs(run, dir, target):
    """Faults that only a run can find."""
    y = [tensor("y", None)]
    yi = [tensor("y", None, I)]
    x2, x3 = dir.npy([1, 2]), dir.npy([1, 2, 3])

    def refuse(what, nodes, ins, files, message, args=(), outs=y):
        run.refused(what, dir.save(model(nodes, ins, outs)), files, message, target, args)
    x, i = tensor("x", ["n"]), tensor("i", ["k"], I)
    index = dir.npy([0, 5], np.int64)
    refuse("Gather out of range", [node("Gather", ["x", "i"], ["y"])], [x, i], [("x", x3), ("i", index)], "gather")
    refuse("GatherElements out of range", [node("GatherElements", ["x", "i"], ["y"])], [x, i],
           [("x", x3), ("i", dir.npy([-4], np.int64))], "gatherelements")
    refuse("ScatterElements out of range", [node("ScatterElements", ["x", "i", "x"], ["y"])], [x, i],
           [("x", x2), ("i", index)], "scatterelements")
    a, b = tensor("a", ["n"], I), tensor("b", ["n"], I)
    zero, one = dir.npy([1, 0], np.int64), dir.npy([7, -1 << 63], np.int64)
    for op in ("Div", "Mod"):
        refuse(op + " by zero", [node(op, ["a", "b"], ["y"])], [a, b], [("a", one), ("b", zero)], op.lower(), outs=yi)
    run.works("the least integer by -1", dir.save(model([node("Div", ["a", "b"], ["y"])], [a, b], yi)),
              [("a", one), ("b", dir.npy([2, -1], np.int64))], target)
    body = helper.make_graph([node("Identity", ["c"], ["go"]), node("Neg", ["v"], ["w"])], "b",
                             [tensor("k", [], I), tensor("c", [], BOOL), tensor("v", [2])],
                             [tensor("go", [], BOOL), tensor("w", [2])])
    loop = [node("Loop", ["", "t", "x"], ["y"], body=body)]
    refuse("a loop without end", loop, [tensor("x", [2]), tensor("t", [], BOOL)],
           [("x", x2), ("t", dir.npy(True, bool))], "loop", ["--max-iterations", "1000"])
    m1, m2 = tensor("a", ["n", "m"]), tensor("b", ["p", "q"])
    sq = dir.npy(np.ones((2, 3)))
    refuse("MatMul of shapes that do not fit", [node("MatMul", ["a", "b"], ["y"])], [m1, m2], [("a", sq), ("b", sq)], "matmul")
    refuse("two sizes of one name", [node("Add", ["a", "b"], ["y"])], [tensor("a", ["n"]), tensor("b", ["n"])],
           [("a", x2), ("b", x3)], "")
    refuse("broadcasting that does not fit", [node("Add", ["a", "b"], ["y"])], [tensor("a", ["n"]), tensor("b", ["m"])],
           [("a", x2), ("b", x3)], "add")
    refuse("a rank that is not declared", [node("Neg", ["x"], ["y"])], [tensor("x", ["n", 3])], [("x", x3)], "input 'x'")
    refuse("Reshape to another count", [node("Reshape", ["x", "i"], ["y"])], [x, tensor("i", [2], I)],
           [("x", x3), ("i", dir.npy([2, 2], np.int64))], "reshape")


# Names that mean something to a C compiler, to printf, or to a shell.
NAMES = ["*/ } int x; /*", "\"\n#include </etc/passwd>\n", "a\\", "??/", "%s%n%d", "/*", "//", "\u00e9\u4e2d", "a\tb", "$(x)", "`"]


def test_names(run, dir, target):
    nodes, last = [], "x"
    for n in NAMES:
        nodes.append(helper.make_node("MatMul", [last, n + "w"], [n], name=n + "node"))
        last = n
    nodes.append(helper.make_node("Gather", [last, "i"], ["y"], name=NAMES[0]))
    m = dir.save(model(nodes, [tensor("x", [2, 2]), tensor("i", [NAMES[1]], I)], [tensor("y", None)],
                       [const(n + "w", np.eye(2), np.float32) for n in NAMES]))
    x = dir.npy(np.ones((2, 2)))
    run.works("odd names", m, [("x", x), ("i", dir.npy([0, 1], np.int64))], target)
    run.refused("odd names in a message", m, [("x", x), ("i", dir.npy([2], np.int64))], NAMES[0], target)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("braid")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--mutations", type=int, default=60, help="of each model")
    p.add_argument("--target", default="interp", help="of the mutated models")
    p.add_argument("--seconds", type=int, default=10, help="of processor time for each run")
    o = p.parse_args()
    run = Runner(os.path.abspath(o.braid), o.seconds)
    work = tempfile.mkdtemp(prefix="braid-hostile-")
    try:
        os.makedirs(work + "/one")
        os.environ["BRAID_CACHE"] = run.env["BRAID_CACHE"] = work + "/cache"
        dir = Folder(work + "/one")
        test_files(run, dir)
        test_npy(run, dir, o.seed)
        for target in ("interp", "cpu"):
            test_sizes(run, dir, target)
            test_runs(run, dir, target)
            test_names(run, dir, target)
        test_folders(run, work, o.seed, o.mutations, o.target)
    finally:
        shutil.rmtree(work)
    print("%d passed, %d failed" % (run.count - run.bad, run.bad))
    return 1 if run.bad else 0


if __name__ == "__main__":
    sys.exit(main())
