"""Mamba: a selective state space layer, scanned over the sequence.

    h[d,n] = exp(Δ[d]·A[d,n])·h[d,n] + Δ[d]·x[d]·B[n];   y[d] = Σn h[d,n]·C[n] + D[d]·x[d]

where Δ, B, C are projections of x.
form    "scan" (projections of the whole sequence before a Scan), "inside" (projections in the
        Scan's body), "loop" (like scan, but a Loop), "hoisted" (all that does not depend on h before
        the Scan, for all steps), or one of models/words.py; there the beginner has all in the loop
"""
import numpy as np

from .common import F, Graph, f32, narrow, normal, softplus, uniform, wide
from .words import FORMS as WAYS

CASES = {
    "mamba": dict(form="scan"),
    "mamba_inside": dict(form="inside"),
    "mamba_loop": dict(form="loop"),
    "mamba_hoisted": dict(form="hoisted"),
}
FORMS = {"mamba": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, length=6, width=16, state=4, rank=3)


def weights(width, state, rank, seed, **_):
    r = np.random.default_rng(seed)
    step = np.exp(r.uniform(np.log(1e-3), np.log(1e-1), width))  # Δ at x = 0
    return {
        "A": f32(-np.tile(np.arange(1, state + 1), (width, 1))),
        "D": f32(np.ones(width)),
        "W_x": uniform(r, width, rank + 2 * state, fan=width),
        "W_dt": uniform(r, rank, width, fan=rank),
        "b_dt": f32(np.log(np.expm1(step))),
    }


def inputs(batch, length, width, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), length, batch, width)}


def reference(x, w, state, rank, **_):
    w = wide(w)
    seq = x["x"].astype(np.float64)
    h = np.zeros((seq.shape[1], seq.shape[2], state))
    ys = []
    for x_t in seq:
        dt, b, c = np.split(x_t @ w["W_x"], [rank, rank + state], 1)
        dt = softplus(dt @ w["W_dt"] + w["b_dt"])
        h = np.exp(dt[:, :, None] * w["A"]) * h + (dt * x_t)[:, :, None] * b[:, None, :]
        ys.append((h * c[:, None, :]).sum(2) + w["D"] * x_t)
    return narrow(np.stack(ys), h)


def export(batch=1, length=1000, width=256, state=16, rank=16, form="scan", seed=0):
    g = Graph("mamba", form=form)
    h_type, x_type = F(batch, width, state), F(batch, width)
    n_type = F(batch, state)
    x = g.input("x", F(length, batch, width))
    w = g.weights(weights(width, state, rank, seed))
    zero = g.const(f32(np.zeros((batch, width, state))), "zero")
    parts = g.const([rank, state, state], "parts")

    def project(g, x):
        dt, b, c = g.Split(g.MatMul(x, w["W_x"]), parts, axis=-1, outputs=3)
        return g.form.act(g, "Softplus", g.Add(g.MatMul(dt, w["W_dt"]), w["b_dt"])), b, c

    def advance(g, h, x, dt, b, c):
        decay = g.Exp(g.Mul(g.Unsqueeze(dt, [2]), w["A"]))
        enters = g.Mul(g.Unsqueeze(g.Mul(dt, x), [2]), g.Unsqueeze(b, [1]))
        h = g.Add(g.Mul(decay, h), enters)
        y = g.ReduceSum(g.Mul(h, g.Unsqueeze(c, [1])), [2], keepdims=0)
        return h, g.Add(y, g.Mul(w["D"], x))

    if form in WAYS:
        inside = form == "naive"
        xs = {"x_t": (x, x_type)}
        if not inside:
            xs.update(zip(("dt_t", "b_t", "c_t"), zip(project(g, x), (x_type, n_type, n_type))))

        def step(g, h, x_t, *now):
            h, y = advance(g, h, x_t, *(project(g, x_t) if inside else now))
            return [h], [y]
        h, y = g.form.over(g, {"h": (g.form.zeros(g, x, 1, (batch, width, state)), h_type)}, xs, [x_type], step)
    elif form == "inside":
        def step(g, h, x_t):
            h, y = advance(g, h, x_t, *project(g, x_t))
            return [h], [y]
        h, y = g.scan({"h": (zero, h_type)}, {"x_t": (x, x_type)}, step)
    else:
        dt, b, c = project(g, x)
        if form == "scan":
            def step(g, h, *now):
                h, y = advance(g, h, *now)
                return [h], [y]
            xs = {"x_t": (x, x_type), "dt_t": (dt, x_type), "b_t": (b, n_type),
                  "c_t": (c, n_type)}
            h, y = g.scan({"h": (zero, h_type)}, xs, step)
        elif form == "hoisted":
            decay = g.Exp(g.Mul(g.Unsqueeze(dt, [3]), w["A"]))
            enters = g.Mul(g.Unsqueeze(g.Mul(dt, x), [3]), g.Unsqueeze(b, [2]))

            def step(g, h, decay, enters, c):
                h = g.Add(g.Mul(decay, h), enters)
                return [h], [g.ReduceSum(g.Mul(h, g.Unsqueeze(c, [1])), [2], keepdims=0)]
            xs = {"decay_t": (decay, h_type), "enters_t": (enters, h_type), "c_t": (c, n_type)}
            h, y = g.scan({"h": (zero, h_type)}, xs, step)
            y = g.Add(y, g.Mul(w["D"], x))
        else:
            def step(g, t, h):
                h, y = advance(g, h, *(g.Gather(v, t, axis=0) for v in (x, dt, b, c)))
                return [h], [y]
            h, y = g.loop(length, {"h": (zero, h_type)}, step, name="steps")
    g.output(g.Identity(y, out="y"), F(length, batch, width))
    g.output(g.Identity(h, out="h"), h_type)
    return g.model()
