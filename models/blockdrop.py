"""BlockDrop: a residual network where a policy decides which blocks run.

form    "probs" (the policy's probabilities are an input), "policy" (the policy network is in the
        model: a trunk with one block per stage)
        or one of models/words.py (with "probs")
blocks  blocks per stage
On the test's inputs blocks 1, 3, 5, … run: seven of fifteen.
"""
import numpy as np

from .common import (F, Graph, conv_bn, conv_bn_reference, conv_bn_weights, f32, normal, relu,
                     sigmoid)
from .words import FORMS as WAYS

CASES = {"blockdrop": dict(form="probs"), "blockdrop_policy": dict(form="policy")}
FORMS = {"blockdrop": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, blocks=2, size=16, base=4)
CLASSES = 10


def stages(base, blocks):
    """(name, channels in, channels out, stride) of each block."""
    cin = base
    for stage, cout in enumerate((base, 2 * base, 4 * base)):
        for n in range(blocks):
            yield f"stage{stage}.block{n}", cin, cout, 2 if stage and n == 0 else 1
            cin = cout


def trunk_weights(r, base, blocks, prefix=""):
    w = conv_bn_weights(r, f"{prefix}stem", 3, base, 3)
    for name, cin, cout, _ in stages(base, blocks):
        w.update(conv_bn_weights(r, f"{prefix}{name}.a", cin, cout, 3))
        w.update(conv_bn_weights(r, f"{prefix}{name}.b", cout, cout, 3, gain=0.5))
    return w


def weights(blocks, base, form, seed, **_):
    r = np.random.default_rng(seed)
    w = trunk_weights(r, base, blocks)
    w["head.weight"] = normal(r, 4 * base, CLASSES, scale=1 / np.sqrt(4 * base))
    w["head.bias"] = normal(r, CLASSES, scale=0.1)
    if form == "policy":
        w.update(trunk_weights(r, base, 1, "policy."))
        w["policy.head.weight"] = normal(r, 4 * base, 3 * blocks, scale=0.1 / np.sqrt(4 * base))
        w["policy.head.bias"] = f32(np.where(np.arange(3 * blocks) % 2, 1, -1))
    return w


def inputs(batch, blocks, size, form, seed, **_):
    r = np.random.default_rng(seed + 1)
    x = {"x": normal(r, batch, 3, size, size)}
    if form != "policy":
        runs = np.arange(3 * blocks) % 2
        wanted, unwanted = r.uniform(0.2, 1, (batch, 3 * blocks)), r.uniform(0, 0.4, 3 * blocks)
        probs = np.where(runs, wanted, unwanted)
        probs[0] = np.where(runs, 0.9, 0.1)  # the first image wants every block of the trace
        x["probs"] = f32(probs)
    return x


def shortcut_reference(x, cin, cout, stride):
    if stride == 1:
        return x
    n, _, h, w = x.shape
    x = x.reshape(n, cin, h // stride, stride, w // stride, stride).mean((3, 5))
    return np.concatenate([x, np.zeros((n, cout - cin, *x.shape[2:]), x.dtype)], 1)


def block_reference(w, name, x, stride):
    y = relu(conv_bn_reference(w, f"{name}.a", x, stride))
    return conv_bn_reference(w, f"{name}.b", y)


def reference(x, w, blocks, base, form, **_):
    image = x["x"]
    if form == "policy":
        y = relu(conv_bn_reference(w, "policy.stem", image))
        for name, cin, cout, stride in stages(base, 1):
            y = relu(shortcut_reference(y, cin, cout, stride)
                     + block_reference(w, f"policy.{name}", y, stride))
        probs = sigmoid(y.mean((2, 3)) @ w["policy.head.weight"] + w["policy.head.bias"])
    else:
        probs = x["probs"]
    y = relu(conv_bn_reference(w, "stem", image))
    for i, (name, cin, cout, stride) in enumerate(stages(base, blocks)):
        m = f32(probs[:, i] >= 0.5).reshape(-1, 1, 1, 1)
        r = shortcut_reference(y, cin, cout, stride)
        if m.sum() > 0:
            y = relu(r + block_reference(w, name, y, stride)) * m + r * (1 - m)
        else:
            y = r
    return [f32(y.mean((2, 3)) @ w["head.weight"] + w["head.bias"])]


def shortcut(g, x, batch, cin, cout, stride, size):
    if stride == 1:
        return x
    x = g.AveragePool(x, kernel_shape=[stride] * 2, strides=[stride] * 2)
    zeros = g.const(np.zeros((batch, cout - cin, size, size), np.float32))
    return g.Concat(x, zeros, axis=1)


def block(g, w, name, x, stride):
    y = g.form.act(g, "Relu", conv_bn(g, w, f"{name}.a", x, 3, stride))
    return conv_bn(g, w, f"{name}.b", y, 3)


def head(g, w, name, x, width):
    return g.form.linear(g, g.form.mean_image(g, x, -1, width), w[f"{name}.weight"], w[f"{name}.bias"])


def export(batch=1, blocks=5, size=32, base=16, form="probs", seed=0):
    g = Graph("blockdrop", form=form)
    image = g.input("x", F(batch, 3, size, size))
    if form != "policy":
        probs = g.input("probs", F(batch, 3 * blocks))
    w = g.weights(weights(blocks, base, form, seed))
    if form == "policy":
        y, s = g.Relu(conv_bn(g, w, "policy.stem", image, 3)), size
        for name, cin, cout, stride in stages(base, 1):
            s //= stride
            r = shortcut(g, y, batch, cin, cout, stride, s)
            y = g.Relu(g.Add(r, block(g, w, f"policy.{name}", y, stride)))
        probs = g.Sigmoid(head(g, w, "policy.head", y, 4 * base))

    x, s = g.form.act(g, "Relu", conv_bn(g, w, "stem", image, 3)), size
    for i, (name, cin, cout, stride) in enumerate(stages(base, blocks)):
        s //= stride
        m = g.Where(g.Less(g.Gather(probs, i, axis=1), 0.5), 0.0, 1.0)
        r = shortcut(g, x, batch, cin, cout, stride, s)

        def run(g, x=x, r=r, m=m, name=name, stride=stride):
            y = g.form.act(g, "Relu", g.Add(r, block(g, w, name, x, stride)))
            return [g.form.blend(g, g.Reshape(m, [batch, 1, 1, 1]), y, r)]

        wanted = g.Greater(g.ReduceSum(m, keepdims=0), 0.0)
        x, = g.branch(wanted, run, lambda g, r=r: [r], name=f"block{i}")
    g.output(g.Identity(head(g, w, "head", x, 4 * base), out="logits"), F(batch, CLASSES))
    return g.model()
