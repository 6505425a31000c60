#!/usr/bin/env python3
"""Reductions, selections, scatters and scans, which the threads of a GPU's block share, against numpy: of one element and
of thousands, with ties, NaN and infinities, along any axis, of sizes that the compiler knows and does not know.

    reduce_check.py [COUNT] [--seed S] [--braid PATH] [--target T]... [--threads N]

Each of the COUNT models has NODES operators with inputs of their own.
"""
import os
import random
import sys

import numpy as np
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402

NODES = 20
SIZES = [1, 2, 3, 5, 16, 31, 33, 64, 65, 100, 257, 300, 1000, 3797]
TYPES = [np.float32, np.float32, np.float32, np.int64, np.int32, np.uint8, np.float64]


def shape_of(r, most=8000):
    while True:
        s = [r.choice(SIZES) for _ in range(r.randint(1, 3))]
        if np.prod(s) <= most:
            return s


def values(r, g, shape, t, numbers=False):
    """Often few different ones, so that there are ties."""
    if not np.issubdtype(t, np.floating):
        return g.integers(0, r.choice([2, 5, 200]), shape).astype(t)
    x = g.standard_normal(shape) if r.random() < .5 else g.integers(-3, 4, shape) * 1.0
    if not numbers and r.random() < .4:
        x.flat[g.integers(0, x.size, r.randint(1, 3))] = r.choice([np.nan, np.inf, -np.inf])
    return x.astype(t)


def places(r, g):
    x = values(r, g, shape_of(r), r.choice(TYPES))
    op, axis, last, keep = r.choice(["ArgMax", "ArgMin"]), r.randrange(x.ndim), r.randint(0, 1), r.randint(0, 1)
    f = np.argmax if op == "ArgMax" else np.argmin  # NaN first, as here
    y = x.shape[axis] - 1 - f(np.flip(x, axis), axis) if last else f(x, axis)
    y = np.expand_dims(y, axis) if keep else y
    return op, [x], [y.astype(np.int64)], dict(axis=axis, keepdims=keep, select_last_index=last)


def sums(r, g):
    t = r.choice([np.float32, np.int32, np.float64])
    x = values(r, g, shape_of(r), t, numbers=True)
    axes = sorted(r.sample(range(x.ndim), r.randint(1, x.ndim)))
    op, f = r.choice([("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMin", np.min)])
    return op, [x, np.array(axes, np.int64)], [f(x, tuple(axes), keepdims=True).astype(t)], dict(keepdims=1)


def softmax(r, g):
    x = values(r, g, shape_of(r), np.float32, numbers=True)
    axis = r.randrange(x.ndim)
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return "Softmax", [x], [(e / e.sum(axis, keepdims=True)).astype(np.float32)], dict(axis=axis)


def top(r, g):
    x = values(r, g, shape_of(r), r.choice([np.float32, np.int64, np.int32, np.float64]), numbers=r.random() < .6)
    axis, largest = r.randrange(x.ndim), r.randint(0, 1)
    n = x.shape[axis]
    k = min(n, r.choice([1, 2, 5, 40, 70, n]))
    order = rank(x, axis, largest)
    at = np.take(order, range(k), axis)
    return "TopK", [x, np.array([k], np.int64)], [np.take_along_axis(x, at, axis), at.astype(np.int64)], dict(axis=axis, largest=largest)


def rank(x, axis, largest):
    """The order of elements along an axis; of equal ones the lower place comes first, and NaN is above all."""
    key = np.unique(x, return_inverse=True)[1].reshape(x.shape).astype(np.int64)  # NaN is last, and one value
    return np.argsort(-key if largest else key, axis, kind="stable")


def nonzero(r, g):
    x = values(r, g, shape_of(r), r.choice(TYPES))
    x = np.where(g.random(x.shape) < r.choice([0, .1, .9]), x, np.zeros_like(x))
    return "NonZero", [x], [np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)], {}


def cumulate(r, g):
    t = r.choice([np.float32, np.int32, np.int64, np.float64])
    x = values(r, g, shape_of(r), t, numbers=True)
    axis, exclusive, reverse = r.randrange(x.ndim), r.randint(0, 1), r.randint(0, 1)
    y = np.flip(x, axis) if reverse else x
    y = np.cumsum(y, axis, dtype=np.float64 if x.dtype.kind == "f" else t)
    if exclusive:
        y = np.concatenate([np.zeros_like(np.take(y, [0], axis)), np.take(y, range(x.shape[axis] - 1), axis)], axis)
    y = np.flip(y, axis) if reverse else y
    return "CumSum", [x, np.array(axis, np.int64)], [y.astype(t)], dict(exclusive=exclusive, reverse=reverse)


def scatter(r, g):
    data = values(r, g, shape_of(r), r.choice([np.float32, np.int64, np.int32]), numbers=True)
    axis = r.randrange(data.ndim)
    dims = [r.randint(1, d) for d in data.shape]
    dims[axis] = r.choice([1, 3, 70])
    index = g.integers(-data.shape[axis], data.shape[axis], dims)
    upd, how = values(r, g, dims, data.dtype.type, numbers=True), r.choice(["none", "add", "max", "min"])
    y = data.copy()
    for at in np.ndindex(*dims):
        to = (*at[:axis], index[at], *at[axis + 1:])
        y[to] = combine(how, y[to], upd[at])
    return "ScatterElements", [data, index, upd], [y], dict(axis=axis, reduction=how)


def scatter_nd(r, g):
    data = values(r, g, shape_of(r), r.choice([np.float32, np.int64]), numbers=True)
    k, n, how = r.randint(1, data.ndim), r.choice([1, 4, 150]), r.choice(["none", "add", "max", "min"])
    index = np.stack([g.integers(-d, d, n) for d in data.shape[:k]], -1)
    upd, y = values(r, g, [n, *data.shape[k:]], data.dtype.type, numbers=True), data.copy()
    if upd.size > 40000:
        return scatter(r, g)
    for i, at in enumerate(index):
        y[tuple(at)] = combine(how, y[tuple(at)], upd[i])
    return "ScatterND", [data, index, upd], [y], dict(reduction=how)


def combine(how, a, b):
    return {"none": lambda: b, "add": lambda: a + b, "max": lambda: np.maximum(a, b), "min": lambda: np.minimum(a, b)}[how]()


KINDS = [places, places, sums, softmax, top, top, nonzero, cumulate, scatter, scatter_nd]


def model(seed):
    """(model, inputs, outputs)"""
    r, g = random.Random(seed), np.random.default_rng(seed)
    nodes, ins, outs, x, y = [], [], [], [], []
    for i in range(NODES):
        op, given, made, attributes = KINDS[i % len(KINDS)](r, g)
        names, results = [f"x{i}_{j}" for j in range(len(given))], [f"y{i}_{j}" for j in range(len(made))]
        nodes.append(helper.make_node(op, names, results, **attributes))
        known = r.random() < .7
        for name, v in zip(names, given):
            dims = v.shape if known or name[-1] != "0" else [f"{name}_{d}" if r.random() < .5 else n for d, n in enumerate(v.shape)]
            ins.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), dims))
        outs += [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
                 for name, v in zip(results, made)]
        x, y = x + given, y + made
    graph = helper.make_graph(nodes, "reductions", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), x, y


def main():
    args = seeded.options(__doc__, 4)
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            backend_test.write(folder, *model(seed))
        return seeded.test(args, made.values())


if __name__ == "__main__":
    sys.exit(main())
