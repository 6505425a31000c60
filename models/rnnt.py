"""RNN-T greedy search: at each frame of the encoder, emit labels until blank or ten of them.

joint = tanh(W_e·frame + W_p·prediction + b), label = argmax(W_o·joint + b_o). A label that is not
blank (0) goes through an embedding and an LSTM cell, which are the prediction network. A batch emits
its labels in the same steps; a sequence that has emitted blank waits for the others.
length  the number of frames
form    in whose words, see models/words.py; the expert multiplies all frames before the loop
"""
import numpy as np

from .common import B, F, Graph, I, i64, lstm_cell, normal, uniform, wide
from .words import FORMS as WAYS

CASES = {"rnnt": {}}
FORMS = {"rnnt": {form: dict(form=form) for form in WAYS}}
SMALL = dict(batch=2, length=6, encoder=12, hidden=16, vocabulary=30)
MOST = 10  # labels a frame


def weights(encoder, hidden, vocabulary, seed, **_):
    r = np.random.default_rng(seed)
    w_o = normal(r, hidden, vocabulary, scale=1 / np.sqrt(hidden))
    w_o[:, 0] *= 1.5
    b_o = normal(r, vocabulary, scale=0.1)
    # Blank wins somewhat more often than not: its score is near the largest of the others.
    b_o[0] = 0.9 * np.sqrt(2 * np.log(vocabulary))
    return {
        "embedding": normal(r, vocabulary, hidden),
        "W_ih": uniform(r, hidden, 4 * hidden, fan=hidden),
        "W_hh": uniform(r, hidden, 4 * hidden, fan=hidden),
        "b": uniform(r, 4 * hidden, fan=hidden),
        "W_e": normal(r, encoder, hidden, scale=1 / np.sqrt(encoder)),
        "W_p": normal(r, hidden, hidden, scale=2 / np.sqrt(hidden)),
        "b_j": normal(r, hidden, scale=0.1),
        "W_o": w_o,
        "b_o": b_o,
    }


def inputs(batch, length, encoder, seed, **_):
    return {"frames": normal(np.random.default_rng(seed + 1), length, batch, encoder)}


def reference(x, w, **_):
    w, frames = wide(w), x["frames"].astype(np.float64)
    length, batch = frames.shape[:2]
    out = np.zeros((batch, length * MOST + 1), np.int64)
    count = np.zeros(batch, np.int64)
    hidden = w["W_hh"].shape[0]
    h, c = np.zeros((batch, hidden)), np.zeros((batch, hidden))
    for frame in frames:
        active, n = np.ones(batch, bool), 0
        while active.any() and n < MOST:
            joint = np.tanh(frame @ w["W_e"] + h @ w["W_p"] + w["b_j"])
            label = np.argmax(joint @ w["W_o"] + w["b_o"], 1)
            active &= label != 0
            a = w["embedding"][label] @ w["W_ih"] + h @ w["W_hh"] + w["b"]
            c_new, h_new = lstm_cell(a, c)
            c = np.where(active[:, None], c_new, c)
            h = np.where(active[:, None], h_new, h)
            out[np.arange(batch), count] = np.where(active, label, 0)
            count += active
            n += 1
    return [out, count]


def export(batch=1, length=100, encoder=256, hidden=320, vocabulary=512, form="plain", seed=0):
    g = Graph("rnnt", form=form)
    frames = g.input("frames", F(length, batch, encoder))
    w = g.weights(weights(encoder, hidden, vocabulary, seed))
    room = length * MOST + 1
    state, labels, flags = F(batch, hidden), I(batch), B(batch)
    zero = g.form.zeros(g, frames, 1, (batch, hidden))
    projected = g.MatMul(frames, w["W_e"]) if form == "expert" else None
    none = g.const(np.zeros((batch, room), np.int64), "none")
    zeros = g.const(i64(np.zeros(batch)), "zeros")
    everyone = g.const(np.ones(batch, bool), "everyone")
    rows = g.const(i64(np.arange(batch)), "rows")

    def frame_step(g, t, h, c, out, count):
        frame = g.Gather(projected or frames, t, axis=0)

        def emit(g, n, active, h, c, out, count):
            terms = [frame if projected else (frame, w["W_e"]), (h, w["W_p"]), w["b_j"]]
            joint, = g.form.gates(g, terms, act="Tanh")
            scores, = g.form.gates(g, [(joint, w["W_o"]), w["b_o"]])
            label = g.ArgMax(scores, axis=1, keepdims=0)
            active = g.And(active, g.Not(g.Equal(label, 0)))
            out_at = g.Concat(g.Unsqueeze(rows, [1]), g.Unsqueeze(count, [1]), axis=1)
            out = g.ScatterND(out, out_at, g.Where(active, label, 0))
            count = g.Add(count, g.Cast(active, to=7))
            any_ = g.Cast(g.ReduceMax(g.Cast(active, to=7), keepdims=0), to=9)
            more = g.And(any_, g.Less(g.Add(n, 1), MOST))

            def predict(g):
                x = g.form.rows(g, w["embedding"], label)
                gates = g.form.gates(g, [(x, w["W_ih"]), (h, w["W_hh"]), w["b"]], 4)
                c_new, h_new = g.form.lstm(g, gates, c)
                who = g.Unsqueeze(active, [1])
                return [g.Where(who, h_new, h), g.Where(who, c_new, c)]

            h, c = g.branch(any_, predict, lambda g: [h, c], name="predict")
            return [active, h, c, out, count], [], more

        r = g.loop(None, {"active": (everyone, flags), "h": (h, state), "c": (c, state),
                          "out": (out, I(batch, room)), "count": (count, labels)},
                   emit, cond=g.const(True), name="emit")
        return r[1:], []

    r = g.loop(length, {"h": (zero, state), "c": (zero, state), "out": (none, I(batch, room)),
                        "count": (zeros, labels)}, frame_step, name="frames")
    g.output(g.Identity(r[2], out="labels"), I(batch, room))
    g.output(g.Identity(r[3], out="count"), labels)
    return g.model()
