"""NASRNN: a recurrent cell found by architecture search, over 1000 steps.

form    "split" (a MatMul each for x and m, Split), "eight" (two MatMuls per gate), or one of models/words.py; there the
        expert computes the products of all x before the loop
"""
import numpy as np

from .common import F, Graph, f32, narrow, normal, relu, sigmoid, uniform, wide
from .words import FORMS as WAYS

CASES = {"nasrnn": dict(form="split"), "nasrnn_eight": dict(form="eight")}
FORMS = {"nasrnn": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, length=6, hidden=16)


def weights(hidden, seed, **_):
    r = np.random.default_rng(seed)
    return {"W_ih": uniform(r, 8, hidden, hidden), "W_hh": uniform(r, 8, hidden, hidden)}


def inputs(batch, length, hidden, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), length, batch, hidden)}


def reference(x, w, **_):
    w = wide(w)
    w_ih, w_hh = np.concatenate(w["W_ih"], 1), np.concatenate(w["W_hh"], 1)
    seq = x["x"].astype(np.float64)
    c = m = np.zeros_like(seq[0])
    for x_t in seq:
        s = np.split(x_t @ w_ih + m @ w_hh, 8, 1)
        p0 = np.tanh(sigmoid(s[0]) * relu(s[1]))
        p1 = np.tanh(sigmoid(s[2]) + relu(s[3]))
        p2 = np.tanh(np.tanh(s[4]) * sigmoid(s[5]))
        p3 = sigmoid(np.tanh(s[6]) + sigmoid(s[7]))
        c = np.tanh(p0 + c) * p1
        m = np.tanh(c * np.tanh(p2 + p3))
    return narrow(c + m)


def cell(g, s, c):
    """The next c and m from the products of the eight gates."""
    kinds = ("Sigmoid", "Relu", "Sigmoid", "Relu", "Tanh", "Sigmoid", "Tanh", "Sigmoid")
    gate = [g.form.act(g, kind, v) for kind, v in zip(kinds, s)]
    p0 = g.Tanh(g.Mul(gate[0], gate[1]))
    p1 = g.Tanh(g.Add(gate[2], gate[3]))
    p2 = g.Tanh(g.Mul(gate[4], gate[5]))
    p3 = g.form.act(g, "Sigmoid", g.Add(gate[6], gate[7]))
    c = g.Mul(g.Tanh(g.Add(p0, c)), p1)
    return [c, g.Tanh(g.Mul(c, g.Tanh(g.Add(p2, p3))))]


def export(batch=1, length=1000, hidden=256, form="split", seed=0):
    g = Graph("nasrnn", form=form)
    state = F(batch, hidden)
    x = g.input("x", F(length, batch, hidden))
    w = weights(hidden, seed)
    zero = g.const(f32(np.zeros((batch, hidden))), "zero")
    if form != "eight":
        names = g.weights({k: np.concatenate(v, 1) for k, v in w.items()})
    else:
        names = g.weights({f"{k}{n}": v[n] for k, v in w.items() for n in range(8)})

    def step(g, t, c, m):
        x_t = g.Gather(x, t, axis=0)
        if form == "split":
            s = g.form.gates(g, [(x_t, names["W_ih"]), (m, names["W_hh"])], 8)
        else:
            s = [g.Add(g.MatMul(x_t, names[f"W_ih{n}"]), g.MatMul(m, names[f"W_hh{n}"]))
                 for n in range(8)]
        return cell(g, s, c), []

    def now(g, c, m, x_t):
        terms = [x_t if form == "expert" else (x_t, names["W_ih"]), (m, names["W_hh"])]
        return cell(g, g.form.gates(g, terms, 8), c), []

    if form in WAYS:
        zero = g.form.zeros(g, x, 1, (batch, hidden))
        rows = (g.MatMul(x, names["W_ih"]), F(batch, 8 * hidden)) if form == "expert" else (x, state)
        c, m = g.form.over(g, {"c": (zero, state), "m": (zero, state)}, {"x_t": rows}, [], now)
    else:
        c, m = g.loop(length, {"c": (zero, state), "m": (zero, state)}, step, name="steps")
    g.output(g.Add(c, m, out="y"), state)
    return g.model()
