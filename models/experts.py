"""Mixture of experts: each token goes through the best two of eight MLPs.

form    "branch" (an If for each expert, which skips it if no token chose it), "gather" (a Loop
        over the choices, which gathers the weights of the chosen experts), "dispatch" (a Loop over
        the experts, which gathers their tokens), or one of models/words.py: the expert as "gather", the exporter as "dispatch",
        the beginner as "branch"
"""
import numpy as np

from .common import F, Graph, narrow, normal, relu, softmax, wide
from .words import FORMS as WAYS

LIKE = dict(zip(WAYS, ("gather", "dispatch", "branch")))
CASES = {
    "experts": dict(form="branch"),
    "experts_gather": dict(form="gather"),
    "experts_dispatch": dict(form="dispatch"),
}
FORMS = {"experts": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=3, width=16, hidden=24)
EXPERTS, CHOSEN = 8, 2
PARTS = ("W_up", "b_up", "W_down", "b_down")


def weights(width, hidden, seed, **_):
    r = np.random.default_rng(seed)
    return {
        "router": normal(r, width, EXPERTS, scale=1 / np.sqrt(width)),
        "W_up": normal(r, EXPERTS, width, hidden, scale=np.sqrt(2 / width)),
        "b_up": normal(r, EXPERTS, hidden, scale=0.1),
        "W_down": normal(r, EXPERTS, hidden, width, scale=1 / np.sqrt(hidden)),
        "b_down": normal(r, EXPERTS, width, scale=0.1),
    }


def inputs(batch, width, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), batch, width)}


def reference(x, w, **_):
    w, x = wide(w), x["x"].astype(np.float64)
    scores = x @ w["router"]
    y = np.zeros_like(x)
    for b, row in enumerate(scores):
        best = np.argsort(-row, kind="stable")[:CHOSEN]
        for e, k in zip(best, softmax(row[best])):
            up = relu(x[b] @ w["W_up"][e] + w["b_up"][e])
            y[b] += k * (up @ w["W_down"][e] + w["b_down"][e])
    return narrow(y)


def export(batch=1, width=256, hidden=1024, form="branch", seed=0):
    g = Graph("experts", form=form)
    form = LIKE.get(form, form)
    rows = F(batch, width)
    x = g.input("x", rows)
    w = weights(width, hidden, seed)
    if form == "branch":
        w = {"router": w["router"], **{f"expert{e}.{k}": w[k][e] for e in range(EXPERTS)
                                       for k in PARTS}}
    w = g.weights(w)
    zero = g.const(np.zeros((batch, width), np.float32), "zero")
    best, which = g.TopK(g.MatMul(x, w["router"]), [CHOSEN], axis=1, outputs=2)
    share = g.form.softmax(g, best)

    def mlp(g, x, up, b_up, down, b_down):
        return g.Add(g.MatMul(g.form.act(g, "Relu", g.Add(g.MatMul(x, up), b_up)), down), b_down)

    if form == "gather":
        def choice(g, n, y):
            e, k = g.Gather(which, n, axis=1), g.Gather(share, n, axis=1)
            up, b_up, down, b_down = (g.Gather(w[v], e, axis=0) for v in PARTS)
            out = mlp(g, g.Unsqueeze(x, [1]), up, g.Unsqueeze(b_up, [1]), down,
                      g.Unsqueeze(b_down, [1]))
            out = g.Mul(g.Squeeze(out, [1]), g.Unsqueeze(k, [1]))
            return [g.Add(y, out)], []
        y, = g.loop(CHOSEN, {"y": (zero, rows)}, choice, name="choices")
    else:
        none = g.const(np.zeros((batch, EXPERTS), np.float32), "none")
        dense = g.ScatterElements(none, which, share, axis=1)
        if form == "branch":
            y = zero
            for e in range(EXPERTS):
                k = g.Gather(dense, g.const([e]), axis=1)

                def run(g, y=y, e=e, k=k):
                    parts = (w[f"expert{e}.{v}"] for v in PARTS)
                    return [g.Add(y, g.Mul(mlp(g, x, *parts), k))]
                wanted = g.Greater(g.ReduceSum(k, keepdims=0), 0.0)
                y, = g.branch(wanted, run, lambda g, y=y: [y], name=f"expert{e}")
        else:
            def expert(g, e, y):
                k = g.Gather(dense, e, axis=1)
                tokens = g.Reshape(g.NonZero(k), [-1])
                parts = (g.Gather(w[v], e, axis=0) for v in PARTS)
                out = mlp(g, g.Gather(x, tokens, axis=0), *parts)
                out = g.Mul(out, g.Unsqueeze(g.Gather(k, tokens, axis=0), [1]))
                return [g.ScatterND(y, g.Unsqueeze(tokens, [1]), out, reduction="add")], []
            y, = g.loop(EXPERTS, {"y": (zero, rows)}, expert, name="experts")
    g.output(g.Identity(y, out="y"), rows)
    return g.model()
