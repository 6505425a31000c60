"""Autoregressive attention: each step appends a key and a value and attends to the cache.

form    how the cache is written: "elements" (ScatterElements at a number that is expanded), "added" (at
        constant indices plus the number), "nd" (ScatterND), "where" (Where by position), "chosen"
        (Where by a row of a constant matrix of bools), "grow" (Concat: the caches have only the positions seen so far)
        or one of models/words.py: "expert" (one product for q, k and v, ScatterND), "exporter" (the cache is put together
        by Slice and Concat, sizes from shapes), "naive" (Where by position, a product for each head)
length  the cache's size; half of it is filled at the start, and each step fills one position
"""
import numpy as np

from .common import F, Graph, f32, i64, narrow, normal, softmax, uniform, wide
from .words import FORMS as WAYS

CASES = {
    "attention": dict(form="elements"),
    "attention_added": dict(form="added"),
    "attention_nd": dict(form="nd"),
    "attention_where": dict(form="where"),
    "attention_chosen": dict(form="chosen"),
    "attention_grow": dict(form="grow"),
}
FORMS = {"attention": {form: dict(form=form) for form in WAYS}}
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
    g = Graph("attention", form=form)
    start = length // 2
    one, full = F(batch, heads, 1, width), F(batch, heads, length, width)
    cache = F(batch, heads, None, width) if form == "grow" else full
    x = g.input("x", one)
    k, v = (g.input(n, F(batch, heads, start, width) if form == "grow" else full) for n in "kv")
    w = weights(heads, width, seed)
    if form == "expert":
        w = {"W_qkv": np.concatenate([w["W_q"] / np.sqrt(f32(width)), w["W_k"], w["W_v"]], 2), "W_o": w["W_o"]}
    elif form == "naive":
        w = {f"{k}{h}": v[h] for k, v in w.items() for h in range(heads)}
    w = g.weights(w)
    if form == "elements":
        shape = g.const(i64([batch, heads, 1, width]), "update_shape")
    elif form == "added":
        zeros = g.const(i64(np.zeros((batch, heads, 1, width))), "zeros")
    elif form == "chosen":
        rows = g.const(np.eye(length, dtype=bool), "rows")
    elif form in ("nd", "expert"):
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
        if form in ("nd", "expert"):
            return g.ScatterND(cache, g.Add(rows, g.Mul(at, last)), value)
        if form == "naive":
            mask = g.Equal(g.Range(0, length, 1), at)
            return g.Where(g.Expand(g.Unsqueeze(mask, [0, 1, 3]), g.Shape(cache)), value, cache)
        if form == "exporter":
            at = g.Unsqueeze(at, [0])
            before, after = g.Slice(cache, [0], at, [2]), g.Slice(cache, g.Add(at, 1), [2**63 - 1], [2])
            return g.Concat(before, value, after, axis=2)
        if form == "where":
            return g.Where(g.Equal(positions, at), value, cache)
        return g.Concat(cache, value, axis=2)

    def by_head(g, x, name):
        """A product for each head, put together."""
        parts = g.Split(x, axis=1, num_outputs=heads, outputs=heads)
        parts = [g.MatMul(g.Squeeze(part, [1]), w[f"{name}{h}"]) for h, part in enumerate(parts)]
        return g.Concat(*(g.Unsqueeze(part, [1]) for part in parts), axis=1)

    def step_in_words(g, i, x, k, v):
        at = g.Add(i, start)
        if form == "expert":
            q, k_new, v_new = g.Split(g.MatMul(x, w["W_qkv"]), axis=3, num_outputs=3, outputs=3)
        elif form == "naive":
            q, k_new, v_new = (by_head(g, x, f"W_{n}") for n in "qkv")
        else:
            q, k_new, v_new = (g.MatMul(x, w[f"W_{n}"]) for n in "qkv")
        k, v = store(g, k, k_new, at), store(g, v, v_new, at)
        scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
        if form != "expert":
            scores = g.Div(scores, g.Sqrt(g.Cast(g.Gather(g.Shape(q), g.const(3), axis=0), to=1)))
        a = g.MatMul(g.form.softmax(g, scores), v)
        return [by_head(g, a, "W_o") if form == "naive" else g.MatMul(a, w["W_o"]), k, v], []

    def step(g, i, x, k, v):
        at = g.Add(i, start) if form != "grow" else None
        q = g.MatMul(x, w["W_q"])
        k = store(g, k, g.MatMul(x, w["W_k"]), at)
        v = store(g, v, g.MatMul(x, w["W_v"]), at)
        scores = g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2]))
        a = g.Softmax(g.Mul(scores, float(1 / np.sqrt(width))), axis=-1)
        return [g.MatMul(g.MatMul(a, v), w["W_o"]), k, v], []

    r = g.loop(length - start, {"x": (x, one), "k": (k, cache), "v": (v, cache)}, step_in_words if form in WAYS else step,
               name="steps")
    for value, name, type_ in zip((r[1], r[2], r[0]), ("k_out", "v_out", "x_out"),
                                  (full, full, one)):
        g.output(g.Identity(value, out=name), type_)
    return g.model()
