#!/usr/bin/env python3
"""Convolutions whose input GPUs copy as it lies (scheduler/kernel/dots.h: span), compared with ONNX Runtime.

    spans_check.py COUNT FOLDER [--target T] [--threads N] [--seed S] [--braid PATH]

Writes random chains of convolutions over 1 to 3 dimensions to FOLDER, with channels that are multiples of four, strides,
dilations and uneven pads, some by Pad operators, the last one added to what the chain began with, and runs `braid test`
on them, scheduled for UNITS units too, which share images along two axes, and run by fewer. One more has copies of both
kinds on all targets. Fails also when an input is padded by a pass of its own.
"""
import argparse
import os
import re
import subprocess
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.dirname(TESTS) + "/eval"]
import backend_test  # noqa: E402
import braid_api  # noqa: E402

ort.set_default_logger_severity(4)
UNITS, FEWER = 24, (24, 13, 3)
BOTH = 104  # its model has spans and boxes on all targets


def chain(seed):
    """A model, its input and its output."""
    r = np.random.default_rng(seed)
    pick = lambda *v: int(r.choice(v))
    nodes, weights = [], []
    rank = pick(1, 2, 2, 2, 3)
    sizes = [pick(4, 6, 7, 8, 8, 12, 16) for _ in range(rank)] if rank < 3 else [pick(3, 4, 5) for _ in range(rank)]

    def weight(*shape):
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array((r.standard_normal(shape) * 0.3).astype(np.float32), name))
        return name

    def conv(x, cin, cout, kernel, **attrs):
        out = f"c{len(nodes)}"
        nodes.append(helper.make_node("Conv", [x, weight(cout, cin, *kernel), weight(cout)], [out], **attrs))
        nodes.append(helper.make_node("Relu", [out], [out + "r"]))
        return out + "r"

    def padded(x, pads):
        out = f"p{len(nodes)}"
        weights.append(numpy_helper.from_array(np.array([0, 0, *pads[:rank], 0, 0, *pads[rank:]], np.int64), out + "s"))
        nodes.append(helper.make_node("Pad", [x, out + "s"], [out]))
        return out

    channels = pick(8, 12, 16, 20)
    x = first = conv("x", 3, channels, (1,) * rank)
    for _ in range(pick(1, 2)):
        kernel, more = [pick(2, 3, 3) for _ in range(rank)], pick(8, 12, 16)
        pads = [k - 1 for k in kernel] + [0] * rank if pick(0, 1) else [k // 2 for k in kernel] * 2
        ways = dict(strides=[pick(1, 1, 2)] + [1] * (rank - 1), dilations=[pick(1, 1, 2)] + [1] * (rank - 1))
        x = conv(padded(x, pads), channels, more, kernel, **ways) if pick(0, 0, 1) else conv(x, channels, more, kernel, pads=pads, **ways)
        channels = more
    nodes.append(helper.make_node("Conv", [x, weight(8, channels, *[3] * rank)], ["last"], pads=[1] * (2 * rank)))
    nodes.append(helper.make_node("ReduceMean", [first], ["mean"], axes=list(range(1, rank + 2)), keepdims=1))
    nodes.append(helper.make_node("Add", ["last", "mean"], ["y"]))
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    shape = [1, 3, *sizes]
    graph = helper.make_graph(nodes, "spans", [info("x", shape)], [info("y", [None] * (rank + 2))], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = r.standard_normal(shape).astype(np.float32)
    y = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": data})
    return model, data, y


def by_units(args, file, x, y):
    """Whether units share along two axes where the model is scheduled for UNITS, and whether results are wrong."""
    text, library = file + ".units.cu", file + ".units.so"
    subprocess.run([args.braid, "compile", file, "--target", args.target, "--threads", str(UNITS), "--emit", text, "-o", library], check=True)
    bad = False
    for units in FEWER:
        session = braid_api.Compiled(library, units)
        session.bind({"x": x})
        session.run()
        session.finish()
        bad |= not np.allclose(session.out("y"), y, rtol=1e-3, atol=1e-4)
    with open(text) as f:
        return "const int ways" in f.read(), bad


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("count", type=int)
    p.add_argument("folder")
    p.add_argument("--target", default="emulate:cuda")
    p.add_argument("--threads", default="3")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    folders, made, boxes, passes, twice, wrong = [], 0, 0, 0, 0, 0
    for seed in (BOTH, *range(args.seed, args.seed + args.count)):
        while True:
            try:
                model, x, y = chain(seed)
                break
            except ort.capi.onnxruntime_pybind11_state.InvalidArgument:  # a kernel larger than what it gets
                seed += 100000
        folders.append(os.path.join(args.folder, f"spans{seed}"))
        backend_test.write(folders[-1], model, [x], y)
        text, file = os.path.join(folders[-1], "text.cu"), folders[-1] + "/model.onnx"
        how = [file, "--target", args.target]
        subprocess.run([args.braid, "compile", *how, "--emit", text, "-o", folders[-1] + "/model.so"], check=True)
        with open(text) as f:
            said = f.read()
        made += "[=](int row)" in said  # where a row of the copy begins
        boxes += re.search(r"const int64_t c\d = \(uint32_t\)at / ", said) is not None
        tree = subprocess.run([args.braid, "explain", *how], check=True, capture_output=True, text=True).stdout
        passes += re.search(r"^\s*= select\(", tree, re.M) is not None
        two, bad = by_units(args, file, x, y[0])
        twice += two
        wrong += bad
    done = subprocess.run([args.braid, "test", "--target", args.target, "--threads", args.threads, *folders])
    print(f"{made} of {len(folders)} models copy a span, {boxes} one of a padded input; {passes} pad by a pass of its own; "
          f"{twice} are shared along two axes; {wrong} are wrong by {UNITS} units or fewer")
    return int(done.returncode != 0 or not made or not boxes or not twice or passes + wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
