"""BERT encoder; batch and sequence length are dynamic in the model.

length  the sequence length of the test's input
"""
import math

import numpy as np

from .common import F, Graph, I, f32, i64, normal, softmax

CASES = {"bert": {}}
SMALL = dict(batch=2, length=7, layers=2, width=16, heads=2, vocabulary=50)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POSITIONS, KINDS, EPSILON = 128, 2, 1e-12


def weights(layers, width, vocabulary, seed, **_):
    r = np.random.default_rng(seed)
    w = {}

    def norm(name):
        w[f"{name}.scale"] = f32(1 + 0.1 * r.standard_normal(width))
        w[f"{name}.bias"] = normal(r, width, scale=0.1)

    def dense(name, n, m):
        w[f"{name}.weight"] = normal(r, n, m, scale=1 / np.sqrt(n))
        w[f"{name}.bias"] = normal(r, m, scale=0.1)

    w["words"] = normal(r, vocabulary, width)
    w["positions"] = normal(r, POSITIONS, width)
    w["kinds"] = normal(r, KINDS, width)
    norm("embedding")
    for n in range(layers):
        for part in ("query", "key", "value", "attended"):
            dense(f"layer{n}.{part}", width, width)
        norm(f"layer{n}.norm1")
        dense(f"layer{n}.up", width, 4 * width)
        dense(f"layer{n}.down", 4 * width, width)
        norm(f"layer{n}.norm2")
    return w


def inputs(batch, length, vocabulary, seed, **_):
    r = np.random.default_rng(seed + 1)
    mask = np.ones((batch, length), np.int64)
    for b in range(1, batch):  # the first sequence is the longest
        mask[b, r.integers(1, length + 1):] = 0
    ids = i64(r.integers(0, vocabulary, (batch, length)))
    kinds = i64(r.integers(0, KINDS, (batch, length)))
    return dict(zip(INPUTS, (ids, mask, kinds)))


def erf(x):
    """erf to 1e-7 (Abramowitz and Stegun 7.1.26, but not in Horner form)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    p = 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429
    return np.sign(x) * (1 - sum(k * t ** (n + 1) for n, k in enumerate(p)) * np.exp(-x * x))


def reference(x, w, layers, heads, **_):
    ids, mask, kinds = (x[n] for n in INPUTS)
    batch, length = ids.shape
    width = w["words"].shape[1]

    def norm(v, name):
        v = v - v.mean(-1, keepdims=True)
        v = v / np.sqrt((v * v).mean(-1, keepdims=True) + EPSILON)
        return v * w[f"{name}.scale"] + w[f"{name}.bias"]

    def dense(v, name):
        return v @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def split(v):
        return v.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)

    v = norm(w["words"][ids] + w["positions"][:length] + w["kinds"][kinds], "embedding")
    bias = f32(1 - mask)[:, None, None, :] * f32(-1e4)
    for n in range(layers):
        q, k, u = (split(dense(v, f"layer{n}.{p}")) for p in ("query", "key", "value"))
        a = softmax(q @ k.transpose(0, 1, 3, 2) / f32(np.sqrt(width // heads)) + bias) @ u
        a = a.transpose(0, 2, 1, 3).reshape(batch, length, width)
        v = norm(v + dense(a, f"layer{n}.attended"), f"layer{n}.norm1")
        up = dense(v, f"layer{n}.up").astype(np.float64)
        up = f32(0.5 * up * (1 + erf(up / math.sqrt(2))))
        v = norm(v + dense(up, f"layer{n}.down"), f"layer{n}.norm2")
    return [f32(v)]


def export(batch=1, length=128, layers=12, width=768, heads=12, vocabulary=30522, seed=0):
    del batch, length  # of the inputs only
    g = Graph("bert")
    shape = I("batch", "sequence")
    ids, mask, kinds = (g.input(n, shape) for n in INPUTS)
    w = g.weights(weights(layers, width, vocabulary, seed))

    def norm(v, name):
        return g.LayerNormalization(v, w[f"{name}.scale"], w[f"{name}.bias"], axis=-1,
                                    epsilon=EPSILON)

    def dense(v, name):
        return g.Add(g.MatMul(v, w[f"{name}.weight"]), w[f"{name}.bias"])

    length_of = g.Shape(ids, start=1, end=2)
    positions = g.Slice(w["positions"], [0], length_of, [0])
    v = g.Add(g.Add(g.Gather(w["words"], ids), g.Gather(w["kinds"], kinds)), positions)
    v = norm(v, "embedding")
    bias = g.Mul(g.Sub(1.0, g.Cast(g.Unsqueeze(mask, [1, 2]), to=1)), -1e4)
    by_head = g.const([0, 0, heads, width // heads], "by_head")
    joined = g.const([0, 0, width], "joined")
    for n in range(layers):
        q, k, u = (g.Reshape(dense(v, f"layer{n}.{p}"), by_head)
                   for p in ("query", "key", "value"))
        q, u = (g.Transpose(t, perm=[0, 2, 1, 3]) for t in (q, u))
        k = g.Transpose(k, perm=[0, 2, 3, 1])
        scores = g.Add(g.Div(g.MatMul(q, k), float(np.sqrt(width // heads))), bias)
        a = g.MatMul(g.Softmax(scores, axis=-1), u)
        a = g.Reshape(g.Transpose(a, perm=[0, 2, 1, 3]), joined)
        v = norm(g.Add(v, dense(a, f"layer{n}.attended")), f"layer{n}.norm1")
        up = dense(v, f"layer{n}.up")
        half = g.Mul(g.Add(g.Erf(g.Div(up, float(np.sqrt(2)))), 1.0), 0.5)
        v = norm(g.Add(v, dense(g.Mul(up, half), f"layer{n}.down")), f"layer{n}.norm2")
    g.output(g.Identity(v, out="last_hidden_state"), F("batch", "sequence", width))
    return g.model()
