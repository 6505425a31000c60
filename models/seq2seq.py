"""Seq2seq: a greedy decoder whose number of steps depends on the data.

form    "buffer" (tokens are scattered into a loop-carried buffer), "scan" (tokens are a scan output,
        so the result's length is the number of steps), "gemm" (like buffer, but Gemm with transB)
        or one of models/words.py: "expert" (scan output), "exporter" (a sequence of tokens), "naive" (Where by position into a
        buffer, the embedding by a product with rows that have one 1)
length  the mean number of tokens of a sentence; the input std has 1e6 at the tokens to choose
"""
import numpy as np
from onnx import helper

from .common import F, Graph, I, i64, lstm_cell, normal, uniform, wide
from .words import FORMS as WAYS

CASES = {
    "seq2seq": dict(form="buffer"),
    "seq2seq_scan": dict(form="scan"),
    "seq2seq_gemm": dict(form="gemm"),
}
FORMS = {"seq2seq": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, length=4, hidden=16, vocabulary=40, limit=8)


def weights(hidden, vocabulary, seed, **_):
    r = np.random.default_rng(seed)
    return {
        "embedding": normal(r, vocabulary, hidden),
        "W_ih": uniform(r, 4 * hidden, hidden),
        "W_hh": uniform(r, 4 * hidden, hidden),
        "b_ih": uniform(r, 4 * hidden),
        "b_hh": uniform(r, 4 * hidden),
        "W_out": uniform(r, vocabulary, hidden),
        "b_out": uniform(r, vocabulary, fan=hidden),
    }


def inputs(batch, length, hidden, vocabulary, limit, seed, **_):
    r = np.random.default_rng(seed + 1)
    std = np.zeros((limit, batch, vocabulary), np.float32)
    ends = np.full(1, length) if batch == 1 else r.poisson(length, batch)
    for b, end in enumerate(np.clip(ends, 1, limit)):
        wish = r.integers(1, vocabulary, limit)
        wish[end - 1:] = 0  # the last token of a sentence, and all after it
        std[np.arange(limit), b, wish] = 1e6
    return {"std": std, "h": normal(r, batch, hidden), "c": normal(r, batch, hidden)}


def reference(x, w, limit, form, **_):
    w, x = wide(w), wide(x)
    h, c, std = x["h"], x["c"], x["std"]
    tok = np.ones(len(h), np.int64)
    out = np.zeros((limit, len(h)), np.int64)
    n = 0
    while n == 0 or tok.max() > 0 and n < limit:
        a = w["embedding"][tok] @ w["W_ih"].T + w["b_ih"] + h @ w["W_hh"].T + w["b_hh"]
        c, h = lstm_cell(a, c)
        tok = np.argmax(h @ w["W_out"].T + w["b_out"] + std[n], 1)
        out[n] = tok
        n += 1
    return [out[:n] if form in ("scan", "expert", "exporter") else out]


def export(batch=1, length=10, hidden=256, vocabulary=3797, limit=50, form="buffer", seed=0):
    del length  # of the inputs only
    g = Graph("seq2seq", form=form)
    state = F(batch, hidden)
    std = g.input("std", F(limit, batch, vocabulary))
    h, c = g.input("h", state), g.input("c", state)
    w = weights(hidden, vocabulary, seed)
    if form != "gemm":
        w = {k: v.T if k.startswith("W_") else v for k, v in w.items()}
    w = g.weights(w)
    first = g.const(i64(np.ones(batch)), "first")
    buffer = g.const(i64(np.zeros((limit, batch))), "buffer")

    def product(g, x, matrix, bias):
        if form == "gemm":
            return g.Gemm(x, w[matrix], w[bias], transB=1)
        return g.Add(g.MatMul(x, w[matrix]), w[bias])

    def step_in_words(g, i, tok, h, c, *out):
        x = g.form.rows(g, w["embedding"], tok)
        gates = g.form.gates(g, [(x, w["W_ih"]), w["b_ih"], (h, w["W_hh"]), w["b_hh"]], 4)
        c, h = g.form.lstm(g, gates, c)
        scores = g.Add(g.form.linear(g, h, w["W_out"], w["b_out"]), g.Gather(std, i, axis=0))
        tok = g.ArgMax(scores, axis=1, keepdims=0)
        more = g.And(g.Greater(g.ReduceMax(tok, keepdims=0), 0), g.Less(g.Add(i, 1), limit))
        if form == "expert":
            return [tok, h, c], [g.Identity(tok)], more
        if form == "exporter":
            return [tok, h, c, g.SequenceInsert(out[0], tok)], [], more
        here = g.Unsqueeze(g.Equal(g.Range(0, limit, 1), i), [1])
        out = g.Where(here, g.Expand(g.Unsqueeze(tok, [0]), g.Shape(out[0])), out[0])
        return [tok, h, c, out], [], more

    def step(g, i, tok, h, c, *out):
        x = g.Gather(w["embedding"], tok, axis=0)
        a = g.Add(product(g, x, "W_ih", "b_ih"), product(g, h, "W_hh", "b_hh"))
        a_i, a_f, a_g, a_o = g.Split(a, axis=1, num_outputs=4, outputs=4)
        c = g.Add(g.Mul(g.Sigmoid(a_f), c), g.Mul(g.Sigmoid(a_i), g.Tanh(a_g)))
        h = g.Mul(g.Sigmoid(a_o), g.Tanh(c))
        scores = g.Add(product(g, h, "W_out", "b_out"), g.Gather(std, i, axis=0))
        tok = g.ArgMax(scores, axis=1, keepdims=0)
        more = g.And(g.Greater(g.ReduceMax(tok, keepdims=0), 0), g.Less(g.Add(i, 1), limit))
        if form == "scan":
            return [tok, h, c], [g.Identity(tok)], more
        at = g.Reshape(i, [1, 1])
        out = g.ScatterND(out[0], at, g.Unsqueeze(tok, [0]))
        return [tok, h, c, out], [], more

    carried = {"tok": (first, I(batch)), "h": (h, state), "c": (c, state)}
    if form == "exporter":
        carried["out"] = (g.SequenceEmpty(dtype=7), helper.make_sequence_type_proto(I(batch)))
    elif form not in ("scan", "expert"):
        carried["out"] = (buffer, I(limit, batch))
    r = g.loop(None, carried, step_in_words if form in WAYS else step, cond=g.const(True, "go"), name="tokens")
    if form == "exporter":
        tokens = g.ConcatFromSequence(r[3], axis=0, new_axis=1, out="tokens")
    else:
        tokens = g.Identity(r[3], out="tokens")
    g.output(tokens, I(None if form in ("scan", "expert", "exporter") else limit, batch))
    return g.model()
