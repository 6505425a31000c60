"""SkipNet: ResNet-101 with a recurrent gate that skips blocks.

After each block a gate (average pool, 1×1 convolution to 10, an LSTM cell that all gates share, 1×1
convolution to 1) decides whether the next block runs. The gates' biases make 23 of 33 blocks run at
the published size; the gates still read the features.
blocks  blocks per stage
width   inner channels of the first stage, a quarter of its output channels
form    in whose words, see models/words.py
"""
import numpy as np

from .common import (F, Graph, conv_bn, conv_bn_reference, conv_bn_weights, f32, lstm_cell, normal,
                     relu, sigmoid, windows)
from .words import FORMS as WAYS

CASES = {"skipnet": {}}
FORMS = {"skipnet": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, blocks=(1, 2, 3, 1), size=32, width=4, classes=10)
GATE = 10


def layers(width, blocks):
    """(name, channels in, inner channels, channels out, stride) of each block."""
    cin = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for n in range(count):
            yield f"stage{stage}.block{n}", cin, inner, 4 * inner, 2 if stage and n == 0 else 1
            cin = 4 * inner


def trace(count):
    """Which blocks run: the first, and 23 of 33, evenly distributed."""
    return [n * 23 // 33 != (n - 1) * 23 // 33 for n in range(count)]


def weights(blocks, width, classes, seed, **_):
    r = np.random.default_rng(seed)
    w = conv_bn_weights(r, "stem", 3, width, 7)
    runs = trace(sum(blocks))
    for i, (name, cin, inner, cout, stride) in enumerate(layers(width, blocks)):
        w.update(conv_bn_weights(r, f"{name}.a", cin, inner, 1))
        w.update(conv_bn_weights(r, f"{name}.b", inner, inner, 3))
        w.update(conv_bn_weights(r, f"{name}.c", inner, cout, 1, gain=0.3))
        if cin != cout or stride > 1:
            w.update(conv_bn_weights(r, f"{name}.down", cin, cout, 1))
        w[f"{name}.gate.weight"] = normal(r, GATE, cout, 1, 1, scale=0.1 / np.sqrt(cout))
        wanted = runs[i + 1] if i + 1 < len(runs) else True
        w[f"{name}.gate.bias"] = f32(np.full(GATE, 3 if wanted else -3) + r.normal(0, 0.3, GATE))
    # The cell forgets quickly and its candidate follows the mean of the gate's features.
    w["gate.W_ih"] = normal(r, GATE, 4 * GATE, scale=0.02)
    w["gate.W_ih"][:, 2 * GATE:3 * GATE] += f32(0.1)
    w["gate.W_hh"] = normal(r, GATE, 4 * GATE, scale=0.05)
    w["gate.bias"] = f32(np.repeat([1, -2, 0, 1], GATE))
    w["gate.out.weight"] = f32(r.uniform(0.5, 1, (1, GATE, 1, 1)))
    w["gate.out.bias"] = f32([0])
    last = 4 * width << (len(blocks) - 1)
    w["head.weight"] = normal(r, last, classes, scale=1 / np.sqrt(last))
    w["head.bias"] = normal(r, classes, scale=0.1)
    return w


def inputs(batch, size, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), batch, 3, size, size)}


def reference(x, w, blocks, width, **_):
    y = relu(conv_bn_reference(w, "stem", x["x"], 2))
    y = windows(y, 3, 2, 1, -np.inf).max((4, 5))
    h = c = np.zeros((len(y), GATE))
    m = None
    for name, _, _, _, stride in layers(width, blocks):
        r = conv_bn_reference(w, f"{name}.down", y, stride) if f"{name}.down.weight" in w else y
        if m is None or m.sum() > 0:
            z = relu(conv_bn_reference(w, f"{name}.a", y))
            z = relu(conv_bn_reference(w, f"{name}.b", z, stride))
            z = relu(conv_bn_reference(w, f"{name}.c", z) + r)
            y = z if m is None else z * m + r * (1 - m)
        else:
            y = r
        pooled = y.mean((2, 3))
        f = pooled @ w[f"{name}.gate.weight"][:, :, 0, 0].T + w[f"{name}.gate.bias"]
        c, h = lstm_cell(f @ w["gate.W_ih"] + h @ w["gate.W_hh"] + w["gate.bias"], c)
        p = sigmoid(h @ w["gate.out.weight"][0, :, 0, 0] + w["gate.out.bias"])
        m = f32(p > 0.5).reshape(-1, 1, 1, 1)
    logits = y.mean((2, 3)) @ w["head.weight"] + w["head.bias"]
    return [f32(logits), f32(h), f32(c)]


def export(batch=1, blocks=(3, 4, 23, 3), size=224, width=64, classes=1000, form="plain", seed=0):
    g = Graph("skipnet", form=form)
    image = g.input("x", F(batch, 3, size, size))
    w = g.weights(weights(blocks, width, classes, seed))
    x = g.form.act(g, "Relu", conv_bn(g, w, "stem", image, 7, 2))
    x = g.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    h = c = g.form.zeros(g, image, 0, (batch, GATE))
    m = None
    for i, (name, _, _, _, stride) in enumerate(layers(width, blocks)):
        prev = x
        if f"{name}.down.weight" in w:
            prev = conv_bn(g, w, f"{name}.down", x, 1, stride)

        def run(g, x=x, prev=prev, m=m, name=name, stride=stride):
            y = g.form.act(g, "Relu", conv_bn(g, w, f"{name}.a", x, 1))
            y = g.form.act(g, "Relu", conv_bn(g, w, f"{name}.b", y, 3, stride))
            y = g.form.act(g, "Relu", g.Add(conv_bn(g, w, f"{name}.c", y, 1), prev))
            if m is None:
                return [y]
            return [g.form.blend(g, m, y, prev)]

        if m is None:
            x, = run(g)
        else:
            wanted = g.Greater(g.ReduceSum(m, keepdims=0), 0.0)
            x, = g.branch(wanted, run, lambda g, prev=prev: [prev], name=f"block{i}")

        f = g.Conv(g.GlobalAveragePool(x), w[f"{name}.gate.weight"], w[f"{name}.gate.bias"])
        f = g.Reshape(f, [batch, GATE])
        terms = [(f, w["gate.W_ih"]), (h, w["gate.W_hh"]), w["gate.bias"]]
        c, h = g.form.lstm(g, g.form.gates(g, terms, 4), c)
        p = g.Conv(g.Reshape(h, [batch, GATE, 1, 1]), w["gate.out.weight"], w["gate.out.bias"])
        m = g.Cast(g.Greater(g.Sigmoid(p), 0.5), to=1)
    last = 4 * width << (len(blocks) - 1)
    x = g.form.linear(g, g.form.mean_image(g, x, batch, last), w["head.weight"], w["head.bias"])
    g.output(g.Identity(x, out="logits"), F(batch, classes))
    g.output(g.Identity(h, out="h"), F(batch, GATE))
    g.output(g.Identity(c, out="c"), F(batch, GATE))
    return g.model()
