"""A loop of many iterations that do almost nothing, to measure the cost of an iteration.

    x = |x·a + b| − c, four elementwise operators on a few floats
form    "plain", "if" (the last two operators are in the arms of an If that depends on the data), or one of models/words.py:
        as "plain", the absolute value written in other ways
"""
import numpy as np

from .common import F, Graph, f32, narrow, normal
from .words import FORMS as WAYS

CASES = {"trips": dict(form="plain"), "trips_if": dict(form="if")}
FORMS = {"trips": {form: dict(form=form) for form in WAYS}}
SMALL = dict(length=20)


def weights(width, seed, **_):
    r = np.random.default_rng(seed)
    # Small b and negative c: with "if", the sign changes at each trip.
    return {"a": f32(r.uniform(0.4, 0.6, width)), "b": f32(r.uniform(-0.1, 0.1, width)),
            "c": f32(r.uniform(-0.5, -0.3, width))}


def inputs(width, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), width)}


def reference(x, w, length, form, **_):
    # In the model's own precision: the branch taken depends on it.
    x = x["x"]
    for _ in range(length):
        x = x * w["a"] + w["b"]
        if form == "if" and x[0] > 0:
            x = w["c"] - np.abs(x)
        else:
            x = np.abs(x) - w["c"]
    return narrow(x)


def export(length=10000, width=4, form="plain", seed=0):
    g = Graph("trips", form=form)
    type_ = F(width)
    x = g.input("x", type_)
    w = g.weights(weights(width, seed))
    first = g.const(0, "first")

    def step(g, _, x):
        if form == "naive":
            x = g.Add(g.Mul(x, g.Expand(w["a"], g.Shape(x))), g.Expand(w["b"], g.Shape(x)))
            return [g.Sub(g.Where(g.Less(x, 0.0), g.Neg(x), x), w["c"])], []
        x = g.Add(g.Mul(x, w["a"]), w["b"])
        if form == "exporter":
            return [g.Sub(g.Cast(g.Abs(g.Cast(x, to=1)), to=1), w["c"])], []
        if form != "if":
            return [g.Sub(g.Abs(x), w["c"])], []
        positive = g.Greater(g.Gather(x, first, axis=0), 0.0)
        return g.branch(positive, lambda g: [g.Sub(w["c"], g.Abs(x))],
                        lambda g: [g.Sub(g.Abs(x), w["c"])], name="sign"), []

    x, = g.loop(length, {"x": (x, type_)}, step, name="trips")
    g.output(g.Identity(x, out="y"), type_)
    return g.model()
