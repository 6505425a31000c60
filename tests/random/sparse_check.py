#!/usr/bin/env python3
"""Products, recurrent steps and convolutions whose weights are mostly zero, by the kernels that store and multiply only
the other elements, against ONNX Runtime: densities from nothing to a half, in no order, by whole rows or columns, in
blocks; sizes that fill tiles and do not.

    sparse_check.py [COUNT] [--seed S] [--braid PATH]

Fails if a model has no such kernel (where its weights are not all zero).
"""
import os
import random
import subprocess
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
import seeded  # noqa: E402


def pruned(r, g, *shape):
    """Random weights, of which some share is zero."""
    x = g.standard_normal(shape).astype(np.float32) / np.float32(np.prod(shape[1:])) ** np.float32(.5)
    how = r.choice(["any", "any", "rows", "blocks"])
    share = r.choice([0, .01, .15, .15, .3, .48])
    if how == "any":
        keep = g.random(shape) < share
    elif how == "rows":
        axis = r.randrange(len(shape))
        keep = np.broadcast_to((g.random(shape[axis]) < share).reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)
    else:
        keep = np.kron(g.random([-(-n // 4) for n in shape]) < share, np.ones([4] * len(shape)))[tuple(slice(n) for n in shape)] > 0
    return np.where(keep, x, np.float32(0))


def product(r, g):
    """[batch,] rows x k by k x n, or its transpose, with a bias and a function."""
    m, k, n = r.choice([1, 2, 5, 16, 33, 64, 130]), r.choice([32, 48, 67, 256, 300, 1030]), r.choice([16, 24, 64, 131])
    x = g.standard_normal(r.choice([(m, k), (3, m, k)])).astype(np.float32)
    w, b = pruned(r, g, k, n), g.standard_normal(n).astype(np.float32)
    turn = r.random() < .4
    nodes = [helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0])] if turn else []
    nodes += [helper.make_node("MatMul", ["x", "wt" if turn else "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]),
              helper.make_node(r.choice(["Tanh", "Relu", "Identity"]), ["s"], ["y"])]
    return nodes, {"w": np.ascontiguousarray(w.T) if turn else w, "b": b}, {"x": x}


def recurrent(r, g):
    kind, steps, batch = r.choice(["LSTM", "GRU", "RNN"]), r.randint(1, 4), r.choice([1, 3, 16, 40])
    n, m = r.choice([32, 48, 70]), r.choice([32, 41, 64])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    w = {"w": pruned(r, g, 1, gates * m, n), "r": pruned(r, g, 1, gates * m, m), "b": g.standard_normal((1, 2 * gates * m)).astype(np.float32)}
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y", "h"], hidden_size=m)
    return [node], w, {"x": g.standard_normal((steps, batch, n)).astype(np.float32)}


def convolution(r, g):
    c, m, k, stride = r.choice([1, 3, 8, 20, 44]), r.choice([1, 4, 17, 32]), r.choice([1, 3, 5]), r.choice([1, 1, 1, 2])
    group = r.choice([1, 1, 2]) if c % 2 == 0 and m % 2 == 0 else 1
    size = [r.choice([5, 16, 21, 40, 56]) for _ in range(r.choice([1, 2, 2]))]
    pad = r.choice([0, k // 2])
    w = {"w": pruned(r, g, m, c // group, *[k] * len(size)), "b": g.standard_normal(m).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["s"], pads=[pad] * 2 * len(size), strides=[stride] * len(size), group=group),
             helper.make_node("Relu", ["s"], ["y"])]
    return nodes, w, {"x": g.standard_normal([r.choice([1, 2]), c] + size).astype(np.float32)}


def main():
    args = seeded.options(__doc__, 36, where=False)
    failed = sparse = 0
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            r, g = random.Random(seed), np.random.default_rng(seed)
            nodes, weights, feed = [product, recurrent, convolution][seed % 3](r, g)
            graph = helper.make_graph(nodes, "sparse", [helper.make_tensor_value_info(k, TP.FLOAT, list(v.shape)) for k, v in feed.items()],
                                      [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(v, k) for k, v in weights.items()])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)
            del model.graph.output[:]
            model.graph.output.append(helper.make_tensor_value_info("y", TP.FLOAT, list(want[0].shape)))
            backend_test.write(folder, model, list(feed.values()), want)
            options = ["--schedule", "sparse=on", "--threads", str(r.randint(1, 3))] + r.choice([[], ["--cpu", "x86-64-v3"], ["--cpu", "x86-64-v2"]])
            done = subprocess.run([args.braid, "explain", f"{folder}/model.onnx", "--json", *options], capture_output=True, text=True)
            sparse += '"kind": "sparse"' in done.stdout
            wrong = seeded.failure(args.braid, folder, *options)
            if wrong:
                failed += 1
                print(f"FAIL: seed {seed}, {nodes[-2 if len(nodes) > 1 else 0].op_type} {[v.shape for v in weights.values()]} "
                      f"{list(feed.values())[0].shape}, {options}: {wrong}")
    print(f"{args.count} models, {sparse} with sparse kernels, {failed} failed")
    return failed > 0 or sparse < args.count / 2


if __name__ == "__main__":
    sys.exit(main())
