"""JAX: jit over lax.scan, while_loop and cond; also unrolled.

Input products are hoisted, an embedding table that only feeds a product is folded into it, and batch
normalizations are folded into convolutions. Programs are compiled for the given sizes; dispatch is
synchronous, on the calling thread.
"""
import os

threads = os.environ.get("OMP_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = " ".join([
    os.environ.get("XLA_FLAGS", ""),
    f"--xla_cpu_multi_thread_eigen={'true' if int(threads) > 1 else 'false'}"]).strip()
os.environ.setdefault("NPROC", threads)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402: after the settings
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax, nn  # noqa: E402

from models import blockdrop, earlyexit, skipnet  # noqa: E402
from models.common import BN_EPSILON  # noqa: E402

from . import jax_trees  # noqa: E402

ORDER = [0, 1, 3, 2]


def version():
    return jax.__version__


def joined(w, order=None):
    return np.concatenate(list(w if order is None else w[order]), 1)


def gates(a, c):
    """h and c from the gates in order i, f, o, g."""
    n = c.shape[-1]
    s = nn.sigmoid(a[..., :3 * n])
    c = s[..., n:2 * n] * c + s[..., :n] * jnp.tanh(a[..., 3 * n:])
    return s[..., 2 * n:] * jnp.tanh(c), c


def lstm(work, unroll):
    w = work.weights
    layers = [(joined(i, ORDER), joined(h, ORDER), (b + d)[ORDER].reshape(-1))
              for i, h, b, d in zip(w["W_ih"], w["W_hh"], w["b_ih"], w["b_hh"])]

    def f(w, x):
        for w_ih, w_hh, b in w:
            def step(state, a):
                h, c = gates(a + state[0] @ w_hh, state[1])
                return (h, c), h
            zero = jnp.zeros_like(x[0])
            (h, _), x = lax.scan(step, (zero, zero), x @ w_ih + b, unroll=unroll)
        return h
    return f, layers


def nasrnn(work, unroll):
    order = [0, 2, 5, 7, 1, 3, 4, 6]
    weights = joined(work.weights["W_ih"], order), joined(work.weights["W_hh"], order)

    def f(w, x):
        n = x.shape[2]

        def step(state, a):
            c, m = state
            a = a + m @ w[1]
            s, r, t = nn.sigmoid(a[:, :4 * n]), nn.relu(a[:, 4 * n:6 * n]), jnp.tanh(a[:, 6 * n:])
            p0 = jnp.tanh(s[:, :n] * r[:, :n])
            p1 = jnp.tanh(s[:, n:2 * n] + r[:, n:])
            p2 = jnp.tanh(t[:, :n] * s[:, 2 * n:3 * n])
            p3 = nn.sigmoid(t[:, n:] + s[:, 3 * n:])
            c = jnp.tanh(p0 + c) * p1
            return (c, jnp.tanh(c * jnp.tanh(p2 + p3))), None
        zero = jnp.zeros_like(x[0])
        (c, m), _ = lax.scan(step, (zero, zero), x @ w[0], unroll=unroll)
        return c + m
    return f, weights


def attention(work, unroll):
    w, o = work.weights, work.options
    scale = np.float32(1 / np.sqrt(o["width"]))
    weights = np.concatenate([w["W_q"] * scale, w["W_k"], w["W_v"]], 2), w["W_o"]
    length, grows = o["length"], o["form"] == "grow"

    def f(w, x, k, v):
        if grows:
            k, v = (jnp.pad(t, ((0, 0), (0, 0), (0, length - length // 2), (0, 0))) for t in (k, v))

        def step(g, state):
            x, k, v = state
            q, k_g, v_g = jnp.split(jnp.einsum("bhqi,hij->bhqj", x, w[0]), 3, 3)
            k = lax.dynamic_update_slice_in_dim(k, k_g, g, 2)
            v = lax.dynamic_update_slice_in_dim(v, v_g, g, 2)
            s = jnp.einsum("bhqi,bhki->bhqk", q, k)
            if grows:
                s = jnp.where(jnp.arange(length) <= g, s, -jnp.inf)
            a = jnp.einsum("bhqk,bhki->bhqi", nn.softmax(s, -1), v)
            return jnp.einsum("bhqi,hij->bhqj", a, w[1]), k, v
        x, k, v = lax.fori_loop(length // 2, length, step, (x, k, v))
        return k, v, x
    return f, weights


def seq2seq(work, unroll):
    w, o = work.weights, work.options
    width = o["hidden"]

    def rows(m):
        return m.reshape(4, width, -1)[ORDER].reshape(4 * width, -1)
    table = w["embedding"] @ rows(w["W_ih"]).T + rows(w["b_ih"] + w["b_hh"])[:, 0]
    weights = table, rows(w["W_hh"]).T.copy(), w["W_out"].T.copy(), w["b_out"]

    def f(w, std, h, c):
        table, w_hh, w_out, b_out = w

        def step(state):
            n, tok, h, c, out = state
            h, c = gates(table[tok] + h @ w_hh, c)
            tok = jnp.argmax(h @ w_out + b_out + std[n], 1)
            return n + 1, tok, h, c, out.at[n].set(tok)

        def more(state):
            return (state[0] < len(std)) & (state[1].max() > 0)
        out = jnp.zeros(std.shape[:2], jnp.int64)
        tok = jnp.ones(std.shape[1], jnp.int64)
        return lax.while_loop(more, step, (0, tok, h, c, out))[4]
    return f, weights


def mamba(work, unroll):
    o = work.options
    weights = {k: work.weights[k] for k in ("W_x", "W_dt", "b_dt", "A", "D")}

    def f(w, x):
        dt, b, c = jnp.split(x @ w["W_x"], [o["rank"], o["rank"] + o["state"]], -1)
        dt = nn.softplus(dt @ w["W_dt"] + w["b_dt"])

        def step(h, now):
            enters, dt, b, c = now
            h = jnp.exp(dt[:, :, None] * w["A"]) * h + enters[:, :, None] * b[:, None]
            return h, jnp.einsum("bdn,bn->bd", h, c)
        zero = jnp.zeros((x.shape[1], *w["A"].shape), x.dtype)
        h, y = lax.scan(step, zero, (dt * x, dt, b, c), unroll=unroll)
        return y + w["D"] * x, h
    return f, weights


def rnnt(work, unroll):
    w = work.weights
    n = w["W_p"].shape[0]
    columns = np.concatenate([np.arange(n) + k * n for k in ORDER])
    weights = dict(e=w["W_e"], b_j=w["b_j"], o=w["W_o"], b_o=w["b_o"],
                   table=(w["embedding"] @ w["W_ih"] + w["b"])[:, columns],
                   state=np.concatenate([w["W_p"], w["W_hh"][:, columns]], 1))

    def f(w, frames):
        length, batch, _ = frames.shape
        rows = jnp.arange(batch)

        def frame_step(state, frame):
            def more(s):
                return s[1].any() & (s[0] < 10)

            def emit(s):
                k, active, (h, c, of_state, out, count) = s
                label = jnp.argmax(jnp.tanh(frame + of_state[:, :n]) @ w["o"] + w["b_o"], 1)
                active = active & (label != 0)

                def predict(state):
                    h, c, of_state, out, count = state
                    h_new, c_new = gates(w["table"][label] + of_state[:, n:], c)
                    who = active[:, None]
                    h, c = jnp.where(who, h_new, h), jnp.where(who, c_new, c)
                    out = out.at[rows, count].set(jnp.where(active, label, 0))
                    return h, c, h @ w["state"], out, count + active
                return k + 1, active, lax.cond(active.any(), predict, lambda s: s,
                                               (h, c, of_state, out, count))
            return lax.while_loop(more, emit, (0, jnp.ones(batch, bool), state))[2], None
        zero = jnp.zeros((batch, n), frames.dtype)
        state = (zero, zero, jnp.zeros((batch, w["state"].shape[1]), frames.dtype),
                 jnp.zeros((batch, length * 10 + 1), jnp.int64), jnp.zeros(batch, jnp.int64))
        state, _ = lax.scan(frame_step, state, frames @ w["e"] + w["b_j"])
        return state[3], state[4]
    return f, weights


# ---- convolutions, in the layout NHWC


def folded(work):
    """Each convolution with its batch normalization: kernel (H, W, I, O), bias."""
    w, found = work.weights, {}
    for name in (k[:-4] for k in w if k.endswith(".var")):
        k = w[f"{name}.scale"] / np.sqrt(w[f"{name}.var"] + np.float32(BN_EPSILON))
        kernel = (w[f"{name}.weight"] * k[:, None, None, None]).transpose(2, 3, 1, 0).copy()
        found[name] = kernel, w[f"{name}.bias"] - w[f"{name}.mean"] * k
    rest = {k: v for k, v in w.items() if k.rpartition(".")[0] not in found}
    return {**found, **rest}


def conv(w, name, x, stride=1):
    kernel, bias = w[name]
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(x, kernel, (stride, stride), [(pad, pad)] * 2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias


def linear(w, name, x):
    return x.mean((1, 2)) @ w[f"{name}.weight"] + w[f"{name}.bias"]


def residual(w, name, x, cin, cout, stride):
    r = x
    if stride > 1:
        n, h, wd, _ = x.shape
        r = x.reshape(n, h // stride, stride, wd // stride, stride, cin).mean((2, 4))
        r = jnp.pad(r, ((0, 0), (0, 0), (0, 0), (0, cout - cin)))

    def block(x, r):
        y = nn.relu(conv(w, f"{name}.a", x, stride))
        return nn.relu(r + conv(w, f"{name}.b", y))
    return r, block


def blockdrop_net(work, unroll):
    o = work.options

    def f(w, x, probs=None):
        image = x.transpose(0, 2, 3, 1)
        if probs is None:
            y = nn.relu(conv(w, "policy.stem", image))
            for name, cin, cout, stride in blockdrop.stages(o["base"], 1):
                r, block = residual(w, f"policy.{name}", y, cin, cout, stride)
                y = block(y, r)
            probs = nn.sigmoid(linear(w, "policy.head", y))
        y = nn.relu(conv(w, "stem", image))
        for i, (name, cin, cout, stride) in enumerate(blockdrop.stages(o["base"], o["blocks"])):
            m = probs[:, i] >= 0.5
            r, block = residual(w, name, y, cin, cout, stride)

            def run(y, r, m, block=block):
                return jnp.where(m[:, None, None, None], block(y, r), r)
            y = lax.cond(m.any(), run, lambda y, r, m: r, y, r, m)
        return linear(w, "head", y)
    return f, folded(work)


def skipnet_net(work, unroll):
    o = work.options

    def f(w, x):
        y = nn.relu(conv(w, "stem", x.transpose(0, 2, 3, 1), 2))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1),
                              [(0, 0), (1, 1), (1, 1), (0, 0)])
        h = c = jnp.zeros((len(y), skipnet.GATE), y.dtype)
        m = None
        for name, _, _, _, stride in skipnet.layers(o["width"], o["blocks"]):
            r = conv(w, f"{name}.down", y, stride) if f"{name}.down" in w else y

            def layer(y, r, name=name, stride=stride):
                z = nn.relu(conv(w, f"{name}.a", y))
                z = nn.relu(conv(w, f"{name}.b", z, stride))
                return nn.relu(conv(w, f"{name}.c", z) + r)
            if m is None:
                y = layer(y, r)
            else:
                def run(y, r, m, layer=layer):
                    return jnp.where(m[:, None, None, None], layer(y, r), r)
                y = lax.cond(m.any(), run, lambda y, r, m: r, y, r, m)
            a = y.mean((1, 2)) @ w[f"{name}.gate.weight"][:, :, 0, 0].T + w[f"{name}.gate.bias"]
            a = a @ w["gate.W_ih"] + h @ w["gate.W_hh"] + w["gate.bias"]
            i, g, n, t = jnp.split(a, 4, 1)
            c = nn.sigmoid(g) * c + nn.sigmoid(i) * jnp.tanh(n)
            h = nn.sigmoid(t) * jnp.tanh(c)
            m = h @ w["gate.out.weight"][0, :, 0, 0] + w["gate.out.bias"] > 0
        return linear(w, "head", y), h, c
    return f, folded(work)


def earlyexit_net(work, unroll):
    def f(w, x):
        def stage(n, x):
            x = nn.relu(conv(w, f"stage{n}.a", x, 2 if n else 1))
            x = nn.relu(conv(w, f"stage{n}.b", x))
            p = nn.softmax(linear(w, f"exit{n}", x), 1)
            if n == 3:
                return p, jnp.int64(n)
            return lax.cond(p.max(1).min() > earlyexit.SURE, lambda x: (p, jnp.int64(n)),
                            lambda x: stage(n + 1, x), x)
        return stage(0, x.transpose(0, 2, 3, 1))
    return f, folded(work)


def experts(work, unroll):
    def f(w, x):
        best, which = lax.top_k(x @ w["router"], 2)
        share = nn.softmax(best, 1)
        if len(x) == 1:
            y = jnp.zeros_like(x)
            for i in range(2):
                up, b_up, down, b_down = (lax.dynamic_index_in_dim(w[k], which[0, i], 0, False)
                                          for k in ("W_up", "b_up", "W_down", "b_down"))
                y += (nn.relu(x @ up + b_up) @ down + b_down) * share[:, i:i + 1]
            return y
        dense = jnp.zeros((len(x), 8), x.dtype).at[jnp.arange(len(x))[:, None], which].set(share)

        def expert(y, e):
            k = dense[:, e][:, None]

            def run(y):
                v = nn.relu(x @ w["W_up"][e] + w["b_up"][e]) @ w["W_down"][e] + w["b_down"][e]
                return y + v * k
            return lax.cond(k.sum() > 0, run, lambda y: y, y)
        y = jnp.zeros_like(x)
        for e in range(8):
            y = expert(y, e)
        return y
    return f, work.weights


def bert(work, unroll):
    o = work.options

    def f(w, ids, mask, kinds):
        batch, length = ids.shape

        def norm(v, name):
            v = v - v.mean(-1, keepdims=True)
            v = v * lax.rsqrt((v * v).mean(-1, keepdims=True) + 1e-12)
            return v * w[f"{name}.scale"] + w[f"{name}.bias"]

        def dense(v, name):
            return v @ w[f"{name}.weight"] + w[f"{name}.bias"]

        def split(v):
            return v.reshape(batch, length, o["heads"], -1).transpose(0, 2, 1, 3)
        v = norm(w["words"][ids] + w["kinds"][kinds] + w["positions"][:length], "embedding")
        bias = (1 - mask.astype(v.dtype))[:, None, None] * -1e4
        for n in range(o["layers"]):
            q, k, u = (split(dense(v, f"layer{n}.{p}")) for p in ("query", "key", "value"))
            a = nn.softmax(q @ k.swapaxes(2, 3) / np.float32(np.sqrt(q.shape[3])) + bias, -1) @ u
            a = a.transpose(0, 2, 1, 3).reshape(batch, length, -1)
            v = norm(v + dense(a, f"layer{n}.attended"), f"layer{n}.norm1")
            up = nn.gelu(dense(v, f"layer{n}.up"), approximate=False)
            v = norm(v + dense(up, f"layer{n}.down"), f"layer{n}.norm2")
        return v
    return f, work.weights


def trips(work, unroll):
    def f(w, x):
        def step(_, x):
            x = x * w["a"] + w["b"]
            if work.options["form"] == "plain":
                return jnp.abs(x) - w["c"]
            return lax.cond(x[0] > 0, lambda x: w["c"] - jnp.abs(x),
                            lambda x: jnp.abs(x) - w["c"], x)
        return lax.fori_loop(0, work.options["length"], step, x, unroll=unroll)
    return f, work.weights


UNROLL = 8
LOOPS = {"jit": 1, f"jit, unrolled by {UNROLL}": UNROLL}
PROGRAMS = {"lstm": lstm, "nasrnn": nasrnn, "attention": attention, "seq2seq": seq2seq,
            "mamba": mamba, "rnnt": rnnt, "blockdrop": blockdrop_net, "skipnet": skipnet_net,
            "earlyexit": earlyexit_net, "experts": experts, "bert": bert, "trips": trips,
            "tree": jax_trees.tree}
FORMS = {kind: {"jit": 1} for kind in PROGRAMS}
FORMS.update({kind: LOOPS for kind in ("lstm", "nasrnn", "mamba", "trips")})
FORMS["tree"] = jax_trees.FORMS
NODE_BY_NODE = ()  # compiled as a whole: its loop over nodes is in the other table


def program(work, form, options=None):
    """A function that computes the outputs; `options` are XLA's."""
    jax.config.update("jax_enable_x64", True)  # models have int64
    f, weights = PROGRAMS[work.kind](work, FORMS[work.kind][form])
    weights = jax.tree.map(jnp.asarray, weights)
    inputs = [jnp.asarray(v) for v in work.inputs.values()]
    compiled = jax.jit(f).lower(weights, *inputs).compile(options)
    return lambda: compiled(weights, *inputs)


def fetch(result):
    return [np.array(v) for v in (result if isinstance(result, tuple) else (result,))]


def build(work, form):
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    compute = program(work, form)
    return (lambda: jax.block_until_ready(compute())), fetch
