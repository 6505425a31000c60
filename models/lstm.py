"""LSTM: ten layers over 64 steps, in the forms that exporters write.

form    the cell: "split" (a MatMul each for x and h, Split), "four" (two MatMuls per gate), "gemm"
        (Gemm with transB), "scan" (like split, but Scan instead of the inner Loop), "operator" (the
        LSTM operator)
order   "layers" (a Loop over layers around a Loop over time), "steps" (time around layers), "chain"
        (one Loop per layer, one after the other)
The three forms of models/words.py: "expert" is "operator"; the others have a loop per layer.
"""
import numpy as np

from .common import F, Graph, f32, lstm_cell, narrow, normal, uniform, wide

CASES = {
    "lstm_split": dict(form="split"),
    "lstm_four": dict(form="four"),
    "lstm_gemm": dict(form="gemm"),
    "lstm_scan": dict(form="scan"),
    "lstm_steps": dict(form="split", order="steps"),
    "lstm_chain": dict(form="split", order="chain"),
    "lstm_chain_four": dict(form="four", order="chain"),
    "lstm_chain_gemm": dict(form="gemm", order="chain"),
    "lstm_chain_scan": dict(form="scan", order="chain"),
    "lstm_operator": dict(form="operator", order="chain"),
}
FORMS = {"lstm": dict(expert=dict(form="operator", order="chain"), exporter=dict(form="exporter", order="chain"),
                      naive=dict(form="naive", order="chain"))}
SMALL = dict(batch=2, length=5, hidden=16, layers=3)


def weights(hidden, layers, seed, **_):
    r = np.random.default_rng(seed)
    return {
        "W_ih": uniform(r, layers, 4, hidden, hidden),
        "W_hh": uniform(r, layers, 4, hidden, hidden),
        "b_ih": uniform(r, layers, 4, hidden),
        "b_hh": uniform(r, layers, 4, hidden),
    }


def inputs(batch, length, hidden, seed, **_):
    return {"x": normal(np.random.default_rng(seed + 1), length, batch, hidden)}


def reference(x, w, **_):
    w = wide(w)
    seq = x["x"].astype(np.float64)
    for wi, wh, b in zip(w["W_ih"], w["W_hh"], w["b_ih"] + w["b_hh"]):
        wi, wh, b = np.concatenate(wi, 1), np.concatenate(wh, 1), b.reshape(-1)
        c = h = np.zeros_like(seq[0])
        out = []
        for x_t in seq:
            c, h = lstm_cell(x_t @ wi + h @ wh + b, c)
            out.append(h)
        seq = np.stack(out)
    return narrow(seq[-1])


def stored(w, form):
    """The weights of all layers, as this form needs them; axis 0 is the layer."""
    layers, _, hidden, _ = w["W_ih"].shape
    if form == "four":
        return {f"{k}{n}": w[k][:, n] for n in range(4) for k in ("W_ih", "W_hh", "b_ih", "b_hh")}
    flat = {k: w[k].reshape(layers, 4 * hidden) for k in ("b_ih", "b_hh")}
    for k in ("W_ih", "W_hh"):
        if form == "gemm":  # (4H, H), as torch stores it
            flat[k] = w[k].transpose(0, 1, 3, 2).reshape(layers, 4 * hidden, hidden)
        else:
            flat[k] = w[k].transpose(0, 2, 1, 3).reshape(layers, hidden, 4 * hidden)
    return flat


def cell(g, form, w, x, c, h):
    """Appends one step of one layer; returns c, h."""
    if form == "four":
        gates = []
        for n in range(4):
            ih = g.Add(g.MatMul(x, w[f"W_ih{n}"]), w[f"b_ih{n}"])
            hh = g.Add(g.MatMul(h, w[f"W_hh{n}"]), w[f"b_hh{n}"])
            gates.append(g.Add(ih, hh))
    else:
        if form == "gemm":
            a = g.Add(g.Gemm(x, w["W_ih"], w["b_ih"], transB=1),
                      g.Gemm(h, w["W_hh"], w["b_hh"], transB=1))
        else:
            a = g.Add(g.Add(g.MatMul(x, w["W_ih"]), w["b_ih"]),
                      g.Add(g.MatMul(h, w["W_hh"]), w["b_hh"]))
        gates = g.Split(a, axis=1, num_outputs=4, outputs=4)
    i, f, n, o = gates
    c = g.Add(g.Mul(g.Sigmoid(f), c), g.Mul(g.Sigmoid(i), g.Tanh(n)))
    return c, g.Mul(g.Sigmoid(o), g.Tanh(c))


def export(batch=1, length=64, hidden=256, layers=10, form="split", order="layers", seed=0):
    g = Graph("lstm", form=form)
    state, sequence = F(batch, hidden), F(length, batch, hidden)
    x = g.input("x", sequence)
    w = weights(hidden, layers, seed)
    zero = g.const(f32(np.zeros((batch, hidden))), "zero")

    def gathered(g, w, layer):
        return {k: g.Gather(v, layer, axis=0) for k, v in w.items()}

    def layer_over(g, w, seq):
        """One layer over the sequence; returns all h and the last h."""
        if form == "scan":
            def step(g, c, h, x_t):
                c, h = cell(g, form, w, x_t, c, h)
                return [c, h], [g.Identity(h)]
            r = g.scan({"c": (zero, state), "h": (zero, state)}, {"x_t": (seq, state)}, step)
        else:
            def step(g, t, c, h):
                c, h = cell(g, form, w, g.Gather(seq, t, axis=0), c, h)
                return [c, h], [g.Identity(h)]
            r = g.loop(length, {"c": (zero, state), "h": (zero, state)}, step, name="steps")
        return r[2], r[1]

    if form == "operator":
        for n in range(layers):
            last = operator(g, w, n, x, hidden)
            x = g.Squeeze(last[0], [1])
        last = g.Squeeze(last[1], [0], out="h")
    elif form in ("exporter", "naive"):
        for n in range(layers):
            x, last = in_words(g, w, n, x, batch, hidden)
        last = g.Identity(last, out="h")
    elif order == "chain":
        for n in range(layers):
            per = {f"layer{n}.{k}": v[n] for k, v in stored(w, form).items()}
            per = {k.partition(".")[2]: v for k, v in g.weights(per).items()}
            x, last = layer_over(g, per, x)
        last = g.Identity(last, out="h")
    elif order == "layers":
        names = g.weights(stored(w, form))

        def one_layer(g, n, seq, _):
            return layer_over(g, gathered(g, names, n), seq), []
        r = g.loop(layers, {"seq": (x, sequence), "last": (zero, state)}, one_layer, name="layers")
        last = g.Identity(r[1], out="h")
    elif order == "steps":
        names = g.weights(stored(w, form))
        zeros = g.const(f32(np.zeros((layers, batch, hidden))), "zeros")
        all_ = F(layers, batch, hidden)

        def step(g, t, cs, hs, _):
            def one_layer(g, n, x_n):
                c, h = g.Gather(cs, n, axis=0), g.Gather(hs, n, axis=0)
                c, h = cell(g, form, gathered(g, names, n), x_n, c, h)
                return [h], [c, g.Identity(h)]
            x_t = g.Gather(x, t, axis=0)
            h, cs, hs = g.loop(layers, {"x_n": (x_t, state)}, one_layer, name="layers")
            return [cs, hs, h], []
        r = g.loop(length, {"c": (zeros, all_), "h": (zeros, all_), "last": (zero, state)}, step,
                   name="steps")
        last = g.Identity(r[2], out="h")
    else:
        raise ValueError(f"unknown order {order}")
    g.output(last, state)
    return g.model()


def in_words(g, w, n, x, batch, hidden):
    """Layer n in the words of the form; returns all h and the last h."""
    per = g.weights({f"layer{n}.{k}": v[n] for k, v in stored(w, "packed").items()})
    w_ih, w_hh, b_ih, b_hh = (per[f"layer{n}.{k}"] for k in ("W_ih", "W_hh", "b_ih", "b_hh"))
    zero, state = g.form.zeros(g, x, 1, (batch, hidden)), F(batch, hidden)

    def step(g, c, h, x_t):
        c, h = g.form.lstm(g, g.form.gates(g, [(x_t, w_ih), b_ih, (h, w_hh), b_hh], 4), c)
        return [c, h], [h]
    _, last, every = g.form.over(g, {"c": (zero, state), "h": (zero, state)}, {"x_t": (x, state)}, [state], step)
    return every, last


def operator(g, w, n, x, hidden):
    """The LSTM operator of layer n, whose gates are in order i, o, f, c."""
    order = [0, 3, 1, 2]
    names = g.weights({
        f"layer{n}.W": w["W_ih"][n][order].transpose(0, 2, 1).reshape(1, 4 * hidden, hidden),
        f"layer{n}.R": w["W_hh"][n][order].transpose(0, 2, 1).reshape(1, 4 * hidden, hidden),
        f"layer{n}.B": np.concatenate(
            [w["b_ih"][n][order].reshape(1, -1), w["b_hh"][n][order].reshape(1, -1)], 1),
    })
    return g.LSTM(x, *names.values(), hidden_size=hidden, outputs=2)
