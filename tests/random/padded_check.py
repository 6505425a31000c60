#!/usr/bin/env python3
"""Compares random padding with ONNX Runtime: copies of it, repeated rows, and layers that store their results with it.

    padded_check.py COUNT [--target T] [--threads N] [--cpu NAME] [--seed S] [--braid PATH]

A model has a few copies: padding of every mode (with what is cut off on the other side, too), repeated and reversed
rows, of element types of 1 to 8 bytes and odd sizes, alone or with what is computed of them; and two images that go
through convolutions with uneven pads, whose results are also read by others: residual sums, pools, concatenations, what
is shifted, pointwise ones. Of the models for the CPU, half must have results in frames, else too little was tested.
"""
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import conv_check
import seeded

COPIES = 4


class Padded(conv_check.Model):
    def members(self):
        for _ in range(COPIES):
            self.copy()
        self.image(), self.image()

    def tensor(self, shape, known=None):
        """A new input; `known`: its sizes stand in the file."""
        x, dtype = self.name("x"), self.pick(np.float32, np.float32, np.uint8, np.int64)
        known = self.r.random() < 0.8 if known is None else known
        self.inputs.append(helper.make_tensor_value_info(x, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
                                                         shape if known else [f"{x}_{i}" for i in range(len(shape))]))
        self.feed[x] = self.r.integers(0, 100, shape).astype(dtype)
        return x

    def constant(self, value):
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    def copy(self):
        rank = self.pick(1, 2, 2, 3, 4)
        shape = [self.pick(2, 3, 7) for _ in range(rank - 1)] + [self.pick(3, 9, 16, 17, 31, 33, 56, 130)]
        x, kind = self.tensor(shape), self.pick("pad", "pad", "pad", "tile", "tile", "reverse")
        for _ in range(self.pick(1, 1, 2)):
            if kind == "tile":
                times = [self.pick(1, 2, 3) for _ in shape]
                x, shape = self.op("Tile", x, self.constant(times)), [n * t for n, t in zip(shape, times)]
            elif kind == "reverse":
                x = self.op("Slice", x, self.constant([-1]), self.constant([-1000]), self.constant([rank - 1]), self.constant([-1]))
            else:
                lo, hi = ([self.pick(0, 1, n // 2, n - 1, -1) for n in shape] for _ in range(2))
                lo = [a if n + a + b > 1 and n + min(a, 0) + min(b, 0) > max(a, b) else 0 for n, a, b in zip(shape, lo, hi)]
                hi = [b if n + a + b > 1 and n + min(a, 0) + min(b, 0) > max(a, b) else 0 for n, a, b in zip(shape, lo, hi)]
                x = self.op("Pad", x, self.constant(lo + hi), mode=self.pick("reflect", "reflect", "edge", "wrap", "constant"))
                shape = [n + a + b for n, a, b in zip(shape, lo, hi)]
        if self.r.random() < 0.3:
            x = self.op("Add", x, x)
        if self.r.random() < 0.3 and rank > 1:
            x = self.op("Transpose", x, perm=list(range(rank - 2)) + [rank - 1, rank - 2])
        self.outputs.append(helper.make_tensor_value_info(x, self.inputs[-1].type.tensor_type.elem_type, None))

    def image(self):
        """Convolutions that keep the size, and what else reads their results."""
        shape = [self.pick(1, 1, 2), self.pick(3, 8, 16, 24), self.pick(7, 13, 14, 28), self.pick(5, 14, 17, 33)]
        x, dims = self.name("x"), list(shape)
        if self.r.random() < 0.3:
            dims[0], dims[2] = f"{x}_0", f"{x}_2"
        self.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, dims))
        self.feed[x] = self.r.standard_normal(shape).astype(np.float32)
        y, c = self.layer(x, shape[1], self.pick(1, 3))
        for _ in range(self.pick(2, 3)):
            what, z = self.pick("", "sum", "sum", "pool", "concat", "pointwise", "shifted"), y
            y, c = self.layer(y, c, self.pick(3, 3, 5), c if what == "sum" else None)
            if what == "sum":
                y = self.between(self.op("Add", y, z), [1, c])
            if what == "pool":
                y = self.op("Add", y, self.op("GlobalAveragePool", self.op("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4)))
            if what == "concat":
                other, more = self.layer(y, c, 3)
                y, c = self.op("Concat", y, other, axis=1), c + more
            if what == "shifted":  # padded on one side and cut off on the other, beside what it is read from
                by = self.pick([1], [2, 3], [-2, 2])
                more = [self.op("Pad", y, self.constant([0, 0, 0, k, 0, 0, 0, -k])) for k in by]
                y, c = self.op("Concat", y, *more, axis=1), c * (1 + len(by))
            if what == "pointwise":
                y, c = self.layer(y, c, 1)
        self.outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))

    def layer(self, x, c, k, out=None):
        """A convolution to `out` channels with windows of k x k, and their number."""
        out, d = out or self.pick(4, 8, 16, 17, 40), self.pick(1, 1, 2)
        group = self.pick(1, 1, 1, c) if out % c == 0 else 1
        lo = [self.pick((k - 1) * d // 2, (k - 1) * d, 0) for _ in range(2)]
        weight = self.weight(out, c // group, k, k, scale=1 / np.sqrt(c // group * k * k))
        y = self.op("Conv", x, weight, self.weight(out), group=group, dilations=[d, d], pads=lo + [(k - 1) * d - p for p in lo])
        return self.between(y, [1, out]), out

    def proto(self):
        graph = helper.make_graph(self.nodes, "padding", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)])


def has_frames(args, folder):
    command = [args.braid, "explain", f"{folder}/model.onnx", "--threads", args.threads, *(["--cpu", args.cpu] if args.cpu else [])]
    return "chosen frame: " in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    args = seeded.options(__doc__)
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            model = Padded(seed)
            conv_check.write(folder, model, model.proto())
        if not args.target:
            frames = sum(has_frames(args, folder) for folder in made.values())
            print(f"{frames} of {args.count} models have results in frames")
            if frames * 2 < args.count:
                return 1
        return seeded.test(args, made.values())


if __name__ == "__main__":
    sys.exit(main())
