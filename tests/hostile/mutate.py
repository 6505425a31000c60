#!/usr/bin/env python3
"""Real model files with something broken in each: Braid must answer with a status and one message, soon, in little memory.

    mutate.py N [--seed S] [--braid PATH] [--jobs J] [--target T] [--keep DIR] FILE_OR_FOLDER...

Takes the .onnx files found, changes one to three places of a copy (a field of the structure, or bytes of the file), and
lowers and, for targets other than interp, schedules it. A copy passes when the exit status is 0 or 1, with one message where it is 1, within 10 s
and 2 GB of memory. Copies that fail are kept in DIR.
"""
import argparse
import concurrent.futures
import os
import random
import resource
import subprocess
import sys
import tempfile

import onnx

SECONDS, MEMORY = 10, 2 << 30
INTS = [0, 1, -1, 2, 3, 7, 64, 255, 1 << 20, 1 << 31, (1 << 31) - 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), -2]
LARGEST = 8 << 20  # of a file: larger ones are mostly weights


def graphs(graph):
    yield graph
    for n in graph.node:
        for a in n.attribute:
            if a.HasField("g"):
                yield from graphs(a.g)


def pick(rng, things):
    return rng.choice(things) if len(things) else None


def all_names(graph):
    return [o for n in graph.node for o in n.output] + [t.name for t in graph.initializer] + [v.name for v in graph.input]


def change_attribute(rng, a):
    if a.type == onnx.AttributeProto.INT:
        a.i = rng.choice(INTS)
    elif a.type == onnx.AttributeProto.INTS and a.ints:
        if rng.random() < 0.3:
            del a.ints[rng.randrange(len(a.ints))]
        else:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(INTS)
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = rng.choice([0.0, -1.0, 1e38, float("inf"), float("nan"), 0.5])
    elif a.type == onnx.AttributeProto.STRING:
        a.s = rng.choice([b"", b"nothing", b"\xff\xfe", a.s[:1]])
    elif a.type == onnx.AttributeProto.TENSOR:
        change_tensor(rng, a.t)
    else:
        a.name = "a" + a.name


def change_tensor(rng, t):
    kind = rng.randrange(5)
    if kind == 0 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(INTS)
    elif kind == 1:
        t.data_type = rng.randrange(30)
    elif kind == 2:
        t.dims.append(rng.choice(INTS))
    elif kind == 3 and t.raw_data and len(t.raw_data) < 1 << 16:
        b = bytearray(t.raw_data)
        b[rng.randrange(len(b))] = rng.randrange(256)
        t.raw_data = bytes(b)
    elif t.int64_data:
        t.int64_data[rng.randrange(len(t.int64_data))] = rng.choice(INTS)
    elif t.raw_data:
        t.raw_data = t.raw_data[:rng.randrange(len(t.raw_data))]


def change_node(rng, model, g, n):
    kind = rng.randrange(9)
    if kind == 0 and n.attribute:
        change_attribute(rng, pick(rng, n.attribute))
    elif kind == 1 and n.attribute:
        del n.attribute[rng.randrange(len(n.attribute))]
    elif kind == 2 and n.input:
        n.input[rng.randrange(len(n.input))] = rng.choice(all_names(g) + [""])
    elif kind == 3 and n.input:
        del n.input[rng.randrange(len(n.input))]
    elif kind == 4:
        n.input.append(rng.choice(all_names(g) + [""]))
    elif kind == 5:
        other = pick(rng, g.node)
        n.op_type, n.domain = other.op_type, other.domain
    elif kind == 6 and n.output:
        del n.output[rng.randrange(len(n.output))]
    elif kind == 7:
        n.output.append("new")
    else:
        n.op_type = rng.choice(["Loop", "If", "Scan", "LSTM", "Reshape", "Transpose", "Gather", "Squeeze", "Concat", "Slice", "Pad", "Resize", "TopK",
                                "Einsum", "Attention", "Conv", "MatMul", "Range", "ConstantOfShape", "Tile", "SequenceAt", "SplitToSequence"])


def change(rng, model):
    g = pick(rng, list(graphs(model.graph)))
    kind = rng.randrange(10)
    if kind < 5 and g.node:
        change_node(rng, model, g, pick(rng, g.node))
    elif kind == 5 and g.initializer:
        small = [t for t in g.initializer if len(t.raw_data) < 4096] or list(g.initializer)
        change_tensor(rng, pick(rng, small))
    elif kind == 6 and g.node:
        del g.node[rng.randrange(len(g.node))]
    elif kind == 7 and len(model.opset_import):
        model.opset_import[0].version = rng.choice([1, 5, 7, 9, 11, 13, 18, 21, 28, 0, -1, 1 << 40])
    elif kind == 8:
        v = pick(rng, list(g.input) + list(g.output) + list(g.value_info))
        if v is not None:
            t = v.type.tensor_type
            choice = rng.randrange(4)
            if choice == 0:
                t.elem_type = rng.randrange(30)
            elif choice == 1:
                t.ClearField("shape")
            elif choice == 2 and t.shape.dim:
                t.shape.dim[rng.randrange(len(t.shape.dim))].dim_value = rng.choice(INTS)
            else:
                t.shape.dim.add().dim_param = "extra"
    elif g.output:
        g.output[0].name = rng.choice(all_names(g) + ["nowhere"])


def broken(rng, path):
    with open(path, "rb") as f:
        data = f.read()
    if rng.random() < 0.25:
        b = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(min(len(b), 1 << 16)) if rng.random() < 0.7 else rng.randrange(len(b))
            if rng.random() < 0.2:
                del b[at:at + rng.randrange(1, 64)]
            else:
                b[at:at + 1] = bytes([rng.randrange(256)])
        return bytes(b)
    model = onnx.load_model_from_string(data)
    for _ in range(rng.randrange(1, 4)):
        try:
            change(rng, model)
        except (ValueError, IndexError, TypeError):  # a field that does not take the value
            pass
    return model.SerializeToString()


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def trial(number, seed, files, braid, target, keep):
    """None, or what was wrong."""
    rng = random.Random(seed * 1000003 + number)
    source = rng.choice(files)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "m.onnx")
        with open(path, "wb") as f:
            f.write(broken(rng, source))
        try:
            r = subprocess.run([braid, "explain", "--target", target, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                               timeout=SECONDS, preexec_fn=limits)
            wrong = None
            if r.returncode not in (0, 1):
                wrong = f"exit status {r.returncode}: {r.stderr[-300:]}"
            elif r.returncode == 1 and (not r.stderr.startswith("braid: ") or "out of memory" in r.stderr):
                wrong = f"message: {r.stderr[-300:]!r}"
        except subprocess.TimeoutExpired:
            wrong = f"more than {SECONDS} s"
        if wrong and keep:
            os.makedirs(keep, exist_ok=True)
            os.rename(path, os.path.join(keep, f"{number}.onnx"))
    return wrong and f"{number} ({os.path.basename(source)}): {wrong}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("n", type=int)
    p.add_argument("paths", nargs="+")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--target", default="interp")
    p.add_argument("--keep")
    a = p.parse_args()
    files = []
    for path in a.paths:
        if os.path.isdir(path):
            files += [os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs if f.endswith(".onnx")]
        else:
            files.append(path)
    files = sorted(f for f in files if os.path.getsize(f) <= LARGEST)
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        todo = [pool.submit(trial, k, a.seed, files, a.braid, a.target, a.keep) for k in range(a.first, a.first + a.n)]
        for t in todo:
            wrong = t.result()
            if wrong:
                failed += 1
                print(wrong, flush=True)
    print(f"{a.n - failed} passed, {failed} failed")
    return failed > 0 or not files


if __name__ == "__main__":
    sys.exit(main())
