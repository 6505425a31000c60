"""BERT encoder; batch and sequence length are dynamic in the model.

length  the sequence length of the test's input
form    in whose words, see models/words.py: the expert has one product for query, key and value, the beginner products for
        each head
"""
import math

import numpy as np

from .common import F, Graph, I, f32, i64, normal, softmax
from .words import FORMS as WAYS, columns, stored

CASES = {"bert": {}}
FORMS = {"bert": {form: dict(form=form) for form in WAYS}}
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


def export(batch=1, length=128, layers=12, width=768, heads=12, vocabulary=30522, form="plain", seed=0):
    del batch, length  # of the inputs only
    g = Graph("bert", form=form)
    shape = I("batch", "sequence")
    ids, mask, kinds = (g.input(n, shape) for n in INPUTS)
    w = g.weights(weights(layers, width, vocabulary, seed))

    def norm(v, name):
        return g.form.norm(g, v, w[f"{name}.scale"], w[f"{name}.bias"], EPSILON)

    def dense(v, name):
        return g.Add(g.MatMul(v, w[f"{name}.weight"]), w[f"{name}.bias"])

    length_of = g.Shape(ids, start=1, end=2)
    positions = g.Slice(w["positions"], [0], length_of, [0])
    v = g.Add(g.Add(g.Gather(w["words"], ids), g.Gather(w["kinds"], kinds)), positions)
    v = norm(v, "embedding")
    bias = g.Mul(g.Sub(1.0, g.Cast(g.Unsqueeze(mask, [1, 2]), to=1)), -1e4)
    by_head = g.const([0, 0, heads, width // heads], "by_head")
    joined = g.const([0, 0, width], "joined")
    depth = width // heads

    def packed(v, n):
        """Query, key and value of one product."""
        for k in ("weight", "bias"):
            stored(g, f"layer{n}.qkv.{k}",
                   lambda k=k: np.concatenate([g.arrays[f"layer{n}.{p}.{k}"] for p in ("query", "key", "value")], -1))
        y = g.Add(g.MatMul(v, f"layer{n}.qkv.weight"), f"layer{n}.qkv.bias")
        return g.Split(y, axis=2, num_outputs=3, outputs=3)

    def sized(v, *last):
        """v by a shape that is put together from its own: (batch, sequence, *last)."""
        sizes = [g.Unsqueeze(g.Gather(g.Shape(v), g.const(axis), axis=0), [0]) for axis in (0, 1)]
        return g.Reshape(v, g.Concat(*sizes, *(g.const([size]) for size in last), axis=0))

    def each_head(v, n, bias):
        """The attention of each head by products of its own, put together."""
        found = []
        parts = {(p, k): columns(g, w[f"layer{n}.{p}.{k}"], heads)
                 for p in ("query", "key", "value") for k in ("weight", "bias")}
        mask = g.Squeeze(bias, [1])
        for h in range(heads):
            q, k, u = (g.Add(g.MatMul(v, parts[p, "weight"][h]), parts[p, "bias"][h]) for p in ("query", "key", "value"))
            scores = g.Div(g.MatMul(q, g.Transpose(k, perm=[0, 2, 1])), g.Sqrt(float(depth)))
            found.append(g.MatMul(g.form.softmax(g, g.Add(scores, mask)), u))
        return g.Concat(*found, axis=2)

    def attended(v, n, bias):
        """The attention of all heads, (batch, sequence, width)."""
        if form == "naive":
            return each_head(v, n, bias)
        exporter = form == "exporter"
        if form == "expert":
            q, k, u = (g.Reshape(t, by_head) for t in packed(v, n))
        else:
            q, k, u = (dense(v, f"layer{n}.{p}") for p in ("query", "key", "value"))
            q, k, u = (sized(t, heads, depth) if exporter else g.Reshape(t, by_head) for t in (q, k, u))
        q, u = (g.Transpose(t, perm=[0, 2, 1, 3]) for t in (q, u))
        k = g.Transpose(k, perm=[0, 2, 3, 1])
        scores = g.Add(g.Div(g.MatMul(q, k), float(np.sqrt(depth))), bias)
        a = g.Transpose(g.MatMul(g.form.softmax(g, scores), u), perm=[0, 2, 1, 3])
        return sized(a, width) if exporter else g.Reshape(a, joined)

    for n in range(layers):
        v = norm(g.Add(v, dense(attended(v, n, bias), f"layer{n}.attended")), f"layer{n}.norm1")
        up = g.form.gelu(g, dense(v, f"layer{n}.up"))
        v = norm(g.Add(v, dense(up, f"layer{n}.down")), f"layer{n}.norm2")
    g.output(g.Identity(v, out="last_hidden_state"), F("batch", "sequence", width))
    return g.model()
