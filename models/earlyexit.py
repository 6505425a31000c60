"""Early exit: a convolutional network with an exit after each of four stages.

The result is that of the first exit whose largest softmax is over 0.9 for every image, else of the
last exit.
form    in whose words, see models/words.py
leaves  the exit (0 to 3) where the test's inputs leave; the weights make it confident
"""
import numpy as np

from .common import (F, Graph, I, conv_bn, conv_bn_reference, conv_bn_weights, i64, f32, normal,
                     relu, softmax)
from .words import FORMS as WAYS

CASES = {f"earlyexit_{n}": dict(leaves=n) for n in range(4)}
FORMS = {"earlyexit": {form: dict(leaves=1, form=form) for form in WAYS}}
SMALL = dict(batch=2, size=16, base=4)
CLASSES, SURE = 10, 0.9


def widths(base):
    return [base, 2 * base, 3 * base, 4 * base]


def weights(base, leaves, seed, **_):
    r = np.random.default_rng(seed)
    w, cin = {}, 3
    for n, cout in enumerate(widths(base)):
        w.update(conv_bn_weights(r, f"stage{n}.a", cin, cout, 3))
        w.update(conv_bn_weights(r, f"stage{n}.b", cout, cout, 3))
        scale = 1.0 if n == leaves else 0.02
        w[f"exit{n}.weight"] = normal(r, cout, CLASSES, scale=scale)
        w[f"exit{n}.bias"] = f32(scale * 10 * (np.arange(CLASSES) == n))
        cin = cout
    return w


def inputs(batch, size, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), batch, 3, size, size)}


def reference(x, w, base, **_):
    y = x["x"]
    for n in range(4):
        y = relu(conv_bn_reference(w, f"stage{n}.a", y, 2 if n else 1))
        y = relu(conv_bn_reference(w, f"stage{n}.b", y))
        p = softmax(y.mean((2, 3)) @ w[f"exit{n}.weight"] + w[f"exit{n}.bias"])
        if n == 3 or p.max(1).min() > SURE:
            return [f32(p), i64(n)]


def export(batch=1, size=32, base=32, leaves=2, form="plain", seed=0):
    g = Graph("earlyexit", form=form)
    image = g.input("x", F(batch, 3, size, size))
    w = g.weights(weights(base, leaves, seed))

    def stage(g, n, x):
        """Stage n, and the later ones if its exit is not confident; returns probabilities and exit."""
        x = g.form.act(g, "Relu", conv_bn(g, w, f"stage{n}.a", x, 3, 2 if n else 1))
        x = g.form.act(g, "Relu", conv_bn(g, w, f"stage{n}.b", x, 3))
        y = g.form.mean_image(g, x, batch, widths(base)[n])
        p = g.form.softmax(g, g.form.linear(g, y, w[f"exit{n}.weight"], w[f"exit{n}.bias"]))
        if n == 3:
            return [p, g.Identity(g.const(n))]
        least = g.ReduceMin(g.ReduceMax(p, [1], keepdims=0), keepdims=0)
        sure = g.Greater(least, SURE)
        return g.branch(sure, lambda g: [p, g.const(n)], lambda g: stage(g, n + 1, x),
                        name=f"exit{n}")

    p, n = stage(g, 0, image)
    g.output(g.Identity(p, out="probabilities"), F(batch, CLASSES))
    g.output(g.Identity(n, out="exit"), I())
    return g.model()
