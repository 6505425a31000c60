"""Autoregressive attention: each step appends a key and a value and attends to the cache.

form    how the cache is written: "elements" (ScatterElements at a number that is expanded), "added" (at
        constant indices plus the number), "nd" (ScatterND), "where" (Where by position), "chosen"
        (Where by a row of a constant matrix of bools), "grow" (Concat: the caches have only the positions seen so far)
length  the cache's size; half of it is filled at the start, and each step fills one position
"""
import numpy as np

from .common import F, Graph, f32, i64, narrow, normal, softmax, uniform, wide

CASES = {
    "attention": dict(form="elements"),
    "attention_added": dict(form="added"),
    "attention_nd": dict(form="nd"),
    "attention_where": dict(form="where"),
    "attention_chosen": dict(form="chosen"),
    "attention_grow": dict(form="grow"),
}
SMALL = dict(batch=2, length=8, heads=3, width=8)


def weights(heads, width, seed, **_):
    r = np.random.default_rng(seed)
    return {f"W_{n}": uniform(r, heads, width, width) * f32(2) for n in "qkvo"}


def inputs(batch, length, heads, width, form, seed, **_):
    r = np.random.default_rng(seed + 1)
    x = normal(r, batch, heads, 1, width)
    cache = normal(r, 2, batch, heads, length, width)
    cache[..., length // 2:, :] = 0
    if form == "grow":
        cache = cache[..., :length // 2, :]
    return {"x": x, "k": cache[0], "v": cache[1]}


def reference(x, w, length, form, **_):
    w, x = wide(w), wide(x)
    x, k, v = x["x"], x["k"].copy(), x["v"].copy()
    scale = 1 / np.sqrt(x.shape[-1])
    for g in range(length // 2, length):
        if form == "grow":
            k = np.concatenate([k, x @ w["W_k"]], 2)
            v = np.concatenate([v, x @ w["W_v"]], 2)
        else:
            k[:, :, g:g + 1] = x @ w["W_k"]
            v[:, :, g:g + 1] = x @ w["W_v"]
        a = softmax(scale * (x @ w["W_q"]) @ k.transpose(0, 1, 3, 2))
        x = a @ v @ w["W_o"]
    return narrow(k, v, x)


def export(batch=1, length=64, heads=12, width=64, form="elements", seed=0):
    g = Graph("attention")
    start = length // 2
    one, full = F(batch, heads, 1, width), F(batch, heads, length, width)
    cache = F(batch, heads, None, width) if form == "grow" else full
    x = g.input("x", one)
    k, v = (g.input(n, F(batch, heads, start, width) if form == "grow" else full) for n in "kv")
    w = g.weights(weights(heads, width, seed))
    if form == "elements":
        shape = g.const(i64([batch, heads, 1, width]), "update_shape")
    elif form == "added":
        zeros = g.const(i64(np.zeros((batch, heads, 1, width))), "zeros")
    elif form == "chosen":
        rows = g.const(np.eye(length, dtype=bool), "rows")
    elif form == "nd":
        b, h = np.meshgrid(np.arange(batch), np.arange(heads), indexing="ij")
        rows = g.const(i64(np.stack([b, h, 0 * b], -1))[:, :, None], "rows")
        last = g.const(i64([0, 0, 1]), "last")
    elif form == "where":
        positions = g.const(i64(np.arange(length)).reshape(length, 1), "positions")

    def store(g, cache, value, at):
        if form == "elements":
            return g.ScatterElements(cache, g.Expand(at, shape), value, axis=2)
        if form == "added":
            return g.ScatterElements(cache, g.Add(zeros, at), value, axis=2)
        if form == "chosen":
            return g.Where(g.Unsqueeze(g.Gather(rows, at, axis=0), [1]), value, cache)
        if form == "nd":
            return g.ScatterND(cache, g.Add(rows, g.Mul(at, last)), value)
        if form == "where":
            return g.Where(g.Equal(positions, at), value, cache)
        return g.Concat(cache, value, axis=2)

    def step(g, i, x, k, v):
        at = g.Add(i, start) if form != "grow" else None
        q = g.MatMul(x, w["W_q"])
        k = store(g, k, g.MatMul(x, w["W_k"]), at)
        v = store(g, v, g.MatMul(x, w["W_v"]), at)
        scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
        a = g.Softmax(g.Mul(scores, float(1 / np.sqrt(width))), axis=-1)
        return [g.MatMul(g.MatMul(a, v), w["W_o"]), k, v], []

    r = g.loop(length - start, {"x": (x, one), "k": (k, cache), "v": (v, cache)}, step,
               name="steps")
    for value, name, type_ in zip((r[1], r[2], r[0]), ("k_out", "v_out", "x_out"),
                                  (full, full, one)):
        g.output(g.Identity(value, out=name), type_)
    return g.model()
