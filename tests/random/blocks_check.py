#!/usr/bin/env python3
"""Compares random blocks of networks, computed strip by strip, with ONNX Runtime.

    blocks_check.py COUNT [--threads N] [--cpu NAME] [--seed S] [--schedule TEXT] [--braid PATH] [--keep FOLDER]

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed. A model is a chain of
what images go through in networks: convolutions with odd sizes, strides, dilations and uneven pads, depthwise and
pointwise ones, pools, enlargements, activations, sums with what came before. Of COUNT models, a quarter must have
groups that are computed strip by strip (a barrier may part them), else too little was tested. --keep leaves the models' folders there.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from onnx import TensorProto, helper

import conv_check


class Block(conv_check.Model):
    """A chain over one image, or over a few."""

    def members(self):
        shape = [self.pick(1, 1, 1, 2), self.pick(3, 8, 16, 17, 32), self.pick(7, 14, 23, 31, 40), self.pick(5, 14, 17, 32)]
        x = self.name("x")
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, shape))
        self.feed[x] = self.r.standard_normal(shape).astype("float32")
        y, kept = x, None
        for _ in range(self.pick(2, 3, 4, 5)):
            before, old = shape, y
            y, shape = self.layer(y, shape)
            if kept and kept[1] == shape and self.r.random() < 0.5:
                y = self.op("Add", y, kept[0])
            if before == shape and self.r.random() < 0.5:
                y = self.op("Add", y, old)
            if self.r.random() < 0.5:
                y = self.op(self.pick("Relu", "Sigmoid"), y)
            kept = self.pick(kept, (y, shape))
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def layer(self, y, shape):
        kind = self.pick("same", "same", "conv", "depthwise", "pointwise", "pointwise", "pool", "resize")
        rank = len(shape) - 2
        if kind == "same":
            return self.conv(y, shape, keep=True)
        if kind == "conv":
            return self.conv(y, shape)
        if kind == "depthwise":
            return self.depthwise(y, shape)
        if kind == "pool" and min(shape[2:]) >= 3:
            k, s = self.pick(2, 3), self.pick(1, 2)
            y = self.op(self.pick("MaxPool", "AveragePool"), y, kernel_shape=[k] * rank, strides=[s] * rank, pads=[k // 2] * 2 * rank)
            return y, shape[:2] + [(n + 2 * (k // 2) - k) // s + 1 for n in shape[2:]]
        if kind == "resize" and max(shape[2:]) <= 23:
            scales = self.name("s")
            self.weights.append(conv_check.numpy_helper.from_array(conv_check.np.array([1, 1] + [2] * rank, "float32"), scales))
            y = self.op("Resize", y, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            return y, shape[:2] + [2 * n for n in shape[2:]]
        c = self.pick(8, 16, 24, 33)
        return self.op("Conv", y, self.weight(c, shape[1], *[1] * rank, scale=shape[1] ** -0.5), self.weight(c)), [shape[0], c] + shape[2:]


def has_strips(args, folder):
    """Whether the model's text has groups that are computed strip by strip."""
    command = [args.braid, "compile", os.path.join(folder, "model.onnx"), "--threads", args.threads, "--emit", folder + "/emitted.c",
               "-o", folder + "/model.so", "--schedule", args.schedule] + (["--cpu", args.cpu] if args.cpu else [])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(folder + "/emitted.c") as f:
        return "bk_strip_bound(" in f.read().split("bk_strip_bound(int64_t", 1)[-1]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("count", type=int)
    ap.add_argument("--threads", default="1")
    ap.add_argument("--cpu")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--schedule", default="strips=on,strip-rows=2")
    ap.add_argument("--braid", default="build/braid")
    ap.add_argument("--keep")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as d:
        folders, strips = [], 0
        for seed in range(args.seed, args.seed + args.count):
            model = Block(seed)
            folders.append(f"{args.keep or d}/seed_{seed}")
            conv_check.write(folders[-1], model, model.proto())
            strips += has_strips(args, folders[-1])
        print(f"{strips} of {args.count} models have groups that are computed strip by strip")
        command = [args.braid, "test", "--threads", args.threads, "--schedule", args.schedule] + (["--cpu", args.cpu] if args.cpu else [])
        bad = subprocess.run(command + folders).returncode
        return bad or (1 if strips * 4 < args.count else 0)


if __name__ == "__main__":
    sys.exit(main())
