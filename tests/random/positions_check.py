#!/usr/bin/env python3
"""Constants that are functions of their position, and ones that nearly are: read whole, through a Transpose, a Gather at
positions of the run and in a Loop, and summed over axes of the run, in every type, against numpy.

    positions_check.py [COUNT] [--seed S] [--braid PATH]
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

TYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_]
CONSTANTS = 24  # of a model


def form(r, g):
    """A constant of one of the forms; of every fourth one element is another one."""
    shape = [r.choice([1, 2, 3, 5, 8, 33]) for _ in range(r.randint(1, 3))]
    index = np.meshgrid(*[np.arange(n) for n in shape], indexing="ij")
    a, b = r.randrange(len(shape)), r.randrange(len(shape))
    at, across = r.randint(-2, shape[a]), index[b] if b != a else 0
    low, high = r.choice([(0, 1), (-1e4, 0), (1, 0), (3, 3), (-5, 7)])
    kind = r.choice(["equal", "range", "strides", "one", "below", "above", "halves"])
    x = {"equal": np.full(shape, high), "range": index[a] + at, "one": np.where(index[a] == across + at, high, low),
         "strides": sum(i * r.choice([0, 1, -1, 3, 64]) for i in index) + at,
         "below": np.where(index[a] <= across + at, high, low), "above": np.where(index[a] > across + at, high, low),
         "halves": index[a] * 0.5 + at}[kind]
    x = x.astype(r.choice(TYPES))
    if r.random() < 0.25:
        where = tuple(r.randrange(n) for n in shape)
        x[where] = not x[where] if x.dtype == np.bool_ else x[where] + x.dtype.type(1)
    if x.dtype.kind == "f" and r.random() < 0.2:
        x = x * x.dtype.type(-0.0) if r.random() < 0.5 else x + x.dtype.type(np.inf)
    return x


def model(r, g):
    nodes, constants, inputs, outputs, expected, infos = [], [], [], [], [], []

    def give(name, value):
        outputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)))
        expected.append(value)

    for k in range(CONSTANTS):
        c = form(r, g)
        constants.append(numpy_helper.from_array(c, f"c{k}"))
        how = r.choice(["whole", "turned", "gathered", "chosen", "loop", "summed"])
        if how == "summed" and c.dtype not in (np.float32, np.float64, np.int32, np.int64):
            how = "gathered"
        if how in ("whole", "turned"):
            perm = r.sample(range(c.ndim), c.ndim)
            x = c if c.dtype == np.bool_ else g.integers(0, 5, c.shape).astype(c.dtype)
            infos.append(helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(c.dtype), list(x.shape)))
            inputs.append(x)
            nodes.append(helper.make_node("Or" if c.dtype == np.bool_ else "Add", [f"c{k}", f"x{k}"], [f"s{k}"]))
            nodes.append(helper.make_node("Transpose", [f"s{k}"], [f"y{k}"], perm=perm if how == "turned" else list(range(c.ndim))))
            with np.errstate(all="ignore"):
                y = np.logical_or(c, x) if c.dtype == np.bool_ else (c + x).astype(c.dtype)
            give(f"y{k}", np.transpose(y, perm) if how == "turned" else y)
            continue
        axis = r.randrange(c.ndim)
        if how == "summed":
            infos.append(helper.make_tensor_value_info(f"x{k}", TP.INT64, [1]))
            inputs.append(np.array([axis]))
            nodes.append(helper.make_node("ReduceSum", [f"c{k}", f"x{k}"], [f"y{k}"], keepdims=1))
            give(f"y{k}", c.sum(axis, keepdims=True, dtype=c.dtype))
            continue
        at = g.integers(-c.shape[axis], c.shape[axis], r.choice([1, 4]))
        if how == "chosen":
            at = at[:1]
        infos.append(helper.make_tensor_value_info(f"x{k}", TP.INT64, list(at.shape)))
        inputs.append(at)
        if how != "loop":
            nodes.append(helper.make_node("Gather", [f"c{k}", f"x{k}"], [f"y{k}"], axis=axis))
            give(f"y{k}", np.take(c, at, axis))
            continue
        # Rows of it, joined by a Loop.
        t = helper.np_dtype_to_tensor_dtype(c.dtype)
        body = helper.make_graph(
            [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Gather", [f"c{k}", "i"], ["row"], axis=axis)], "body",
            [helper.make_tensor_value_info("i", TP.INT64, []), helper.make_tensor_value_info("go", TP.BOOL, [])],
            [helper.make_tensor_value_info("again", TP.BOOL, []), helper.make_tensor_value_info("row", t, None)])
        nodes.append(helper.make_node("Constant", [], [f"n{k}"], value=numpy_helper.from_array(np.array(c.shape[axis]))))
        nodes.append(helper.make_node("Loop", [f"n{k}", ""], [f"l{k}"], body=body))
        nodes.append(helper.make_node("Gather", [f"l{k}", f"x{k}"], [f"y{k}"], axis=0))
        give(f"y{k}", np.take(np.moveaxis(c, axis, 0), at, 0))
    graph = helper.make_graph(nodes, "positions", infos, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), inputs, expected


def main():
    a = seeded.options(__doc__, 8, where=False)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        for i in range(a.count):
            folder = f"{work}/{i}"
            backend_test.write(folder, *model(random.Random(a.seed + i), np.random.default_rng(a.seed + i)))
            done = subprocess.run([a.braid, "test", folder], capture_output=True, text=True)
            if done.returncode:
                failed += 1
                print(f"FAIL: seed {a.seed + i}: {done.stdout[-400:]}{done.stderr[-400:]}")
    print(f"{a.count} models of {CONSTANTS} constants, {failed} failed")
    sys.exit(failed > 0 or not a.count)


if __name__ == "__main__":
    main()
