#!/usr/bin/env python3
"""Convolutions whose input GPUs copy as it lies (scheduler/kernel/dots.h: span), compared with ONNX Runtime.

    spans_check.py COUNT FOLDER [--target T] [--threads N] [--seed S] [--braid PATH]

Writes random chains of convolutions to FOLDER, with channels that are multiples of four, strides, dilations and uneven
pads, the last one added to what the chain began with, and runs `braid test` on them. Fails also when less than half of
the texts have such a copy.
"""
import argparse
import os
import subprocess
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

ort.set_default_logger_severity(4)


def chain(seed):
    """A model, its input and its output."""
    r = np.random.default_rng(seed)
    pick = lambda *v: int(r.choice(v))
    nodes, weights = [], []
    batch, height, width = 1, pick(4, 7, 8, 8, 16), pick(4, 6, 8, 8, 12)

    def weight(*shape):
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array((r.standard_normal(shape) * 0.3).astype(np.float32), name))
        return name

    def conv(x, cin, cout, kernel, **attrs):
        out = f"c{len(nodes)}"
        nodes.append(helper.make_node("Conv", [x, weight(cout, cin, *kernel), weight(cout)], [out], **attrs))
        nodes.append(helper.make_node("Relu", [out], [out + "r"]))
        return out + "r"

    channels = pick(8, 12, 16, 20)
    x = first = conv("x", 3, channels, (1, 1))
    for _ in range(pick(1, 2)):
        kernel, more = (pick(2, 3, 3), pick(2, 3, 3)), pick(8, 12, 16)
        pads = [kernel[0] - 1, kernel[1] - 1, 0, 0] if pick(0, 1) else [kernel[0] // 2, kernel[1] // 2, kernel[0] // 2, kernel[1] // 2]
        x = conv(x, channels, more, kernel, strides=[pick(1, 1, 2), 1], dilations=[pick(1, 1, 2), 1], pads=pads)
        channels = more
    nodes.append(helper.make_node("Conv", [x, weight(8, channels, 3, 3)], ["last"], pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("ReduceMean", [first], ["mean"], axes=[1, 2, 3], keepdims=1))
    nodes.append(helper.make_node("Add", ["last", "mean"], ["y"]))
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    shape = [batch, 3, height, width]
    graph = helper.make_graph(nodes, "spans", [info("x", shape)], [info("y", [None] * 4)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = r.standard_normal(shape).astype(np.float32)
    y = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": data})
    return model, data, y


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("count", type=int)
    p.add_argument("folder")
    p.add_argument("--target", default="emulate:cuda")
    p.add_argument("--threads", default="3")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    folders, made = [], 0
    for seed in range(args.seed, args.seed + args.count):
        while True:
            try:
                model, x, y = chain(seed)
                break
            except ort.capi.onnxruntime_pybind11_state.InvalidArgument:  # a kernel larger than what it gets
                seed += 100000
        folders.append(os.path.join(args.folder, f"spans{seed}"))
        backend_test.write(folders[-1], model, [x], y)
        text = os.path.join(folders[-1], "text.cu")
        subprocess.run([args.braid, "compile", folders[-1] + "/model.onnx", "--target", args.target, "--emit", text, "-o",
                        folders[-1] + "/model.so"], check=True)
        with open(text) as f:
            made += "[=](int row)" in f.read()  # where a row of the copy begins
    done = subprocess.run([args.braid, "test", "--target", args.target, "--threads", args.threads, *folders])
    print(f"{made} of {args.count} models copy a span")
    return done.returncode or made * 6 < args.count


if __name__ == "__main__":
    sys.exit(main())
