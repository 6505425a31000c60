"""Loops in PyTorch."""
from typing import List, Tuple

import numpy as np
import torch
import torch.nn.functional as fn
from torch import Tensor, nn

import device

HOW = {"dynamic": False}  # of torch.compile
CHUNK = 20  # steps that are compiled together
ORDER = [0, 1, 3, 2]  # gates i, f, o, g


def tensor(a):
    t = torch.from_numpy(np.ascontiguousarray(a)).to(device.here.torch)
    if HOW.get("mode") == "reduce-overhead":  # its graphs need not copy what stays where it is
        torch._dynamo.mark_static_address(t, guard=False)
    return t


def joined(w, order=None):
    """(G, N, M) as (N, G·M)."""
    return tensor(np.concatenate(list(w if order is None else w[order]), 1))


def compiled(f):
    return torch.compile(f, **HOW)


def chunks(length, size):
    return [(at, min(at + size, length)) for at in range(0, length, size)]


# ---- LSTM


def lstm_gates(a: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
    """h and c from the gates in order i, f, o, g."""
    n = c.shape[1]
    s = torch.sigmoid(a[:, :3 * n])
    c = s[:, n:2 * n] * c + s[:, :n] * torch.tanh(a[:, 3 * n:])
    return s[:, 2 * n:] * torch.tanh(c), c


def lstm_steps(a: List[Tensor], h: Tensor, c: Tensor, w: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    out: List[Tensor] = []
    for x in a:
        h, c = lstm_gates(torch.addmm(x, h, w), c)
        out.append(h)
    return torch.stack(out), h, c


def lstm_weights(work):
    w = work.weights
    return [(joined(i, ORDER), joined(h, ORDER), tensor((b + d)[ORDER].reshape(-1)))
            for i, h, b, d in zip(w["W_ih"], w["W_hh"], w["b_ih"], w["b_hh"])]


def lstm_module(work):
    o, w = work.options, work.weights
    m = nn.LSTM(o["hidden"], o["hidden"], o["layers"]).eval()
    for n in range(o["layers"]):
        for k in ("ih", "hh"):
            matrix = tensor(w[f"W_{k}"][n].transpose(0, 2, 1).reshape(-1, o["hidden"]))
            getattr(m, f"weight_{k}_l{n}").copy_(matrix)
            getattr(m, f"bias_{k}_l{n}").copy_(tensor(w[f"b_{k}"][n].reshape(-1)))
    return m.to(device.here.torch)


def lstm_fused(work):
    m = lstm_module(work)
    return lambda x: m(x)[1][0][-1]


def lstm_layers(x: Tensor, layers: List[Tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    length, batch, hidden = x.shape
    h = x[0]
    for w_ih, w_hh, b in layers:
        a = torch.addmm(b, x.view(length * batch, hidden), w_ih).view(length, batch, -1)
        h, c = torch.zeros_like(h), torch.zeros_like(h)
        x, h, c = lstm_steps(a.unbind(0), h, c, w_hh)
    return h


def lstm_eager(work, whole=lstm_layers):
    w = lstm_weights(work)
    return lambda x: whole(x, w)


def lstm_compiled(work):
    layers = lstm_weights(work)
    project = compiled(lambda x, w, b: (x.view(-1, x.shape[2]) @ w + b).view(*x.shape[:2], -1))
    steps = compiled(lambda a, h, c, w: lstm_steps(a.unbind(0), h, c, w))

    def forward(x):
        for w_ih, w_hh, b in layers:
            a = project(x, w_ih, b)
            h = c = torch.zeros_like(x[0])
            out = []
            for begin, end in chunks(len(x), 16):
                y, h, c = steps(a[begin:end], h, c.clone() if c is h else c, w_hh)
                out.append(y)
            x = torch.cat(out)
        return h
    return forward


# ---- NASRNN


def nas_steps(a: List[Tensor], c: Tensor, m: Tensor, w: Tensor) -> Tuple[Tensor, Tensor]:
    """The gates are in order sigmoid 0 2 5 7, relu 1 3, tanh 4 6."""
    n = c.shape[1]
    for x in a:
        x = torch.addmm(x, m, w)
        s, r = torch.sigmoid(x[:, :4 * n]), torch.relu(x[:, 4 * n:6 * n])
        t = torch.tanh(x[:, 6 * n:])
        p0 = torch.tanh(s[:, :n] * r[:, :n])
        p1 = torch.tanh(s[:, n:2 * n] + r[:, n:])
        p2 = torch.tanh(t[:, :n] * s[:, 2 * n:3 * n])
        p3 = torch.sigmoid(t[:, n:] + s[:, 3 * n:])
        c = torch.tanh(p0 + c) * p1
        m = torch.tanh(c * torch.tanh(p2 + p3))
    return c, m


def nas_whole(x: Tensor, w_ih: Tensor, w_hh: Tensor) -> Tensor:
    a = (x.view(-1, x.shape[2]) @ w_ih).view(x.shape[0], x.shape[1], -1)
    c, m = nas_steps(a.unbind(0), torch.zeros_like(x[0]), torch.zeros_like(x[0]), w_hh)
    return c + m


def nas_weights(work):
    order = [0, 2, 5, 7, 1, 3, 4, 6]
    return joined(work.weights["W_ih"], order), joined(work.weights["W_hh"], order)


def nas_eager(work, whole=nas_whole):
    w_ih, w_hh = nas_weights(work)
    return lambda x: whole(x, w_ih, w_hh)


def nas_compiled(work):
    w_ih, w_hh = nas_weights(work)
    steps = compiled(lambda a, c, m, w: nas_steps(a.unbind(0), c, m, w))

    def forward(x):
        a = (x.view(-1, x.shape[2]) @ w_ih).view(*x.shape[:2], -1)
        c, m = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        for begin, end in chunks(len(x), CHUNK):
            c, m = steps(a[begin:end], c, m, w_hh)
        return c + m
    return forward


# ---- attention


def attention_step(x: Tensor, k: Tensor, v: Tensor, w_qkv: Tensor, w_o: Tensor, g: int,
                   seen: int) -> Tensor:
    """x (heads, batch, width). Writes position g of the caches, and attends to `seen`."""
    q, k_g, v_g = torch.bmm(x, w_qkv).chunk(3, 2)
    k[:, :, g] = k_g.transpose(0, 1)
    v[:, :, g] = v_g.transpose(0, 1)
    q = q.transpose(0, 1).unsqueeze(2)
    a = torch.softmax(torch.matmul(q, k[:, :, :seen].transpose(2, 3)), -1)
    a = torch.matmul(a, v[:, :, :seen])
    return torch.bmm(a.squeeze(2).transpose(0, 1), w_o)


def attention_whole(x: Tensor, k: Tensor, v: Tensor, w_qkv: Tensor, w_o: Tensor, start: int,
                    length: int, grows: bool) -> Tuple[Tensor, Tensor, Tensor]:
    x = x.squeeze(2).transpose(0, 1)
    for g in range(start, length):
        x = attention_step(x, k, v, w_qkv, w_o, g, g + 1 if grows else length)
    return k, v, x.transpose(0, 1).unsqueeze(2)


def attention_weights(work):
    w = work.weights
    w_q = w["W_q"] * np.float32(1 / np.sqrt(w["W_q"].shape[-1]))
    return tensor(np.concatenate([w_q, w["W_k"], w["W_v"]], 2)), tensor(w["W_o"])


def caches(k, v, length):
    """Caches of the full size that begin with k and v."""
    if k.shape[2] == length:
        return k.clone(), v.clone()
    return (fn.pad(k, (0, 0, 0, length - k.shape[2])), fn.pad(v, (0, 0, 0, length - v.shape[2])))


def attention_form(make):
    def build(work):
        w_qkv, w_o = attention_weights(work)
        length, grows = work.options["length"], work.options["form"] == "grow"
        whole = make(length, grows)

        def forward(x, k, v):
            k, v = caches(k, v, length)
            return whole(x, k, v, w_qkv, w_o, length // 2, length, grows)
        return forward
    return build


def attention_fused(length, grows):
    """Attention by scaled_dot_product_attention."""
    def whole(x, k, v, w_qkv, w_o, start, length, grows):
        x = x.squeeze(2).transpose(0, 1)
        for g in range(start, length):
            q, k_g, v_g = torch.bmm(x, w_qkv).chunk(3, 2)
            k[:, :, g], v[:, :, g] = k_g.transpose(0, 1), v_g.transpose(0, 1)
            seen = g + 1 if grows else length
            a = fn.scaled_dot_product_attention(
                q.transpose(0, 1).unsqueeze(2), k[:, :, :seen], v[:, :, :seen], scale=1.0)
            x = torch.bmm(a.squeeze(2).transpose(0, 1), w_o)
        return k, v, x.transpose(0, 1).unsqueeze(2)
    return whole


def attention_compiled(length, grows):
    """A compiled step whose position is a tensor; later positions are masked."""
    positions = torch.arange(length, device=device.here.torch)
    at = [positions[g:g + 1] for g in range(length)]

    def step(x, k, v, w_qkv, w_o, g):
        q, k_g, v_g = torch.bmm(x, w_qkv).chunk(3, 2)
        k.index_copy_(2, g, k_g.transpose(0, 1).unsqueeze(2))
        v.index_copy_(2, g, v_g.transpose(0, 1).unsqueeze(2))
        scores = torch.matmul(q.transpose(0, 1).unsqueeze(2), k.transpose(2, 3))
        if grows:
            scores = torch.where(positions <= g, scores, float("-inf"))
        a = torch.matmul(torch.softmax(scores, -1), v)
        return torch.bmm(a.squeeze(2).transpose(0, 1), w_o)

    step = compiled(step)

    def whole(x, k, v, w_qkv, w_o, start, length, grows):
        x = x.squeeze(2).transpose(0, 1).contiguous()
        for g in range(start, length):
            x = step(x, k, v, w_qkv, w_o, at[g])
        return k, v, x.transpose(0, 1).unsqueeze(2)
    return whole


# ---- seq2seq


def seq2seq_weights(work):
    """The input product is applied to the embedding table beforehand."""
    w = work.weights
    width = w["W_hh"].shape[1]

    def rows(m):
        return m.reshape(4, width, -1)[ORDER].reshape(4 * width, -1)
    table = w["embedding"] @ rows(w["W_ih"]).T + rows(w["b_ih"] + w["b_hh"])[:, 0]
    return (tensor(table), tensor(rows(w["W_hh"]).T), tensor(w["W_out"].T), tensor(w["b_out"]))


def seq2seq_token(tok: Tensor, std: Tensor, h: Tensor, c: Tensor, table: Tensor, w_hh: Tensor,
                  w_out: Tensor, b_out: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    h, c = lstm_gates(torch.addmm(table[tok], h, w_hh), c)
    return torch.argmax(torch.addmm(b_out, h, w_out) + std, 1), h, c


def seq2seq_whole(std: Tensor, h: Tensor, c: Tensor, table: Tensor, w_hh: Tensor, w_out: Tensor,
                  b_out: Tensor) -> Tuple[Tensor, int]:
    limit, batch = std.shape[0], std.shape[1]
    out = torch.zeros(limit, batch, dtype=torch.int64, device=std.device)
    tok = torch.ones(batch, dtype=torch.int64, device=std.device)
    n = 0
    more = True
    while more:
        tok, h, c = seq2seq_token(tok, std[n], h, c, table, w_hh, w_out, b_out)
        out[n] = tok
        n += 1
        more = n < limit and bool(tok.max() > 0)
    return out, n


def seq2seq_eager(work, whole=seq2seq_whole):
    w = seq2seq_weights(work)
    return lambda std, h, c: whole(std, h, c, *w)[0]


def seq2seq_compiled(work):
    w, step = seq2seq_weights(work), compiled(seq2seq_token)

    def forward(std, h, c):
        out = torch.zeros(*std.shape[:2], dtype=torch.int64, device=std.device)
        tok = torch.ones(std.shape[1], dtype=torch.int64, device=std.device)
        for n in range(len(std)):
            tok, h, c = step(tok, std[n], h, c, *w)
            out[n] = tok
            if not tok.max() > 0:
                break
        return out
    return forward


# ---- Mamba


def mamba_project(x: Tensor, w_x: Tensor, w_dt: Tensor, b_dt: Tensor, state: int
                  ) -> Tuple[Tensor, Tensor, Tensor]:
    p = x @ w_x
    rank = p.shape[2] - 2 * state
    dt = fn.softplus(p[:, :, :rank] @ w_dt + b_dt)
    return dt, p[:, :, rank:rank + state], p[:, :, rank + state:]


def mamba_steps(x: Tensor, dt: Tensor, b: Tensor, c: Tensor, h: Tensor, a: Tensor, d: Tensor
                ) -> Tuple[Tensor, Tensor]:
    decay = torch.exp(dt.unsqueeze(3) * a)
    enters = (dt * x).unsqueeze(3) * b.unsqueeze(2)
    out: List[Tensor] = []
    for t in range(x.shape[0]):
        h = torch.addcmul(enters[t], decay[t], h)
        out.append(h)
    hs = torch.stack(out)
    return (hs * c.unsqueeze(2)).sum(3) + d * x, h


def mamba_whole(x: Tensor, w_x: Tensor, w_dt: Tensor, b_dt: Tensor, a: Tensor, d: Tensor,
                chunk: int) -> Tuple[Tensor, Tensor]:
    """Works in chunks, so that what is computed ahead stays in the cache."""
    dt, b, c = mamba_project(x, w_x, w_dt, b_dt, a.shape[1])
    h = torch.zeros(x.shape[1], x.shape[2], a.shape[1], device=x.device)
    out: List[Tensor] = []
    for t in range(0, x.shape[0], chunk):
        e = t + chunk
        y, h = mamba_steps(x[t:e], dt[t:e], b[t:e], c[t:e], h, a, d)
        out.append(y)
    return torch.cat(out), h


def mamba_weights(work):
    return [tensor(work.weights[k]) for k in ("W_x", "W_dt", "b_dt", "A", "D")]


def mamba_eager(work, whole=mamba_whole):
    w = mamba_weights(work)
    return lambda x: whole(x, *w, CHUNK)


def mamba_unrolled(x, dt, b, c, h, a, d):
    """Channels are the last axis of h and a, so that the sum over the state works on whole vectors."""
    out = []
    for x_t, dt_t, b_t, c_t in zip(x.unbind(0), dt.unbind(0), b.unbind(0), c.unbind(0)):
        h = torch.exp(dt_t[:, None, :] * a) * h + (dt_t * x_t)[:, None, :] * b_t[:, :, None]
        out.append((h * c_t[:, :, None]).sum(1) + d * x_t)
    return torch.stack(out), h


def mamba_compiled(work):
    w_x, w_dt, b_dt, a, d = mamba_weights(work)
    a = a.t().contiguous()
    project, steps = compiled(mamba_project), compiled(mamba_unrolled)

    def forward(x):
        dt, b, c = project(x, w_x, w_dt, b_dt, len(a))
        h = torch.zeros(x.shape[1], *a.shape, device=x.device)
        out = []
        for t, e in chunks(len(x), CHUNK):
            y, h = steps(x[t:e], dt[t:e], b[t:e], c[t:e], h, a, d)
            out.append(y)
        return torch.cat(out), h.transpose(1, 2)
    return forward


# ---- RNN-T


def rnnt_weights(work):
    """Joins both products of the prediction's state; applies that of the embedding beforehand."""
    w = work.weights
    n = w["W_p"].shape[0]
    columns = np.concatenate([np.arange(n) + k * n for k in ORDER])
    table = (w["embedding"] @ w["W_ih"] + w["b"])[:, columns]
    state = np.concatenate([w["W_p"], w["W_hh"][:, columns]], 1)
    return [tensor(v) for v in (w["W_e"], w["b_j"], state, table, w["W_o"], w["b_o"])]


def rnnt_whole(frames: Tensor, w_e: Tensor, b_j: Tensor, w_state: Tensor, table: Tensor,
               w_o: Tensor, b_o: Tensor, most: int) -> Tuple[Tensor, Tensor]:
    length, batch, width = frames.shape
    hidden = w_state.shape[0]
    encoded = torch.addmm(b_j, frames.view(-1, width), w_e).view(length, batch, -1)
    h = torch.zeros(batch, hidden, device=frames.device)
    c = torch.zeros_like(h)
    of_state = torch.zeros(batch, w_state.shape[1], device=frames.device)
    out = torch.zeros(batch, length * most + 1, dtype=torch.int64, device=frames.device)
    count = torch.zeros(batch, dtype=torch.int64, device=frames.device)
    rows = torch.arange(batch, device=frames.device)
    for frame in encoded.unbind(0):
        active = torch.ones(batch, dtype=torch.bool, device=frames.device)
        for _ in range(most):
            joint = torch.tanh(frame + of_state[:, :hidden])
            label = torch.argmax(torch.addmm(b_o, joint, w_o), 1)
            active = active & (label != 0)
            if not bool(active.any()):
                break
            h_new, c_new = lstm_gates(table[label] + of_state[:, hidden:], c)
            if batch == 1:
                h, c = h_new, c_new
            else:
                h = torch.where(active.unsqueeze(1), h_new, h)
                c = torch.where(active.unsqueeze(1), c_new, c)
            of_state = h @ w_state
            out[rows, count] = torch.where(active, label, 0)
            count += active
    return out, count


def rnnt_eager(work, whole=rnnt_whole):
    w = rnnt_weights(work)
    return lambda frames: whole(frames, *w, 10)


def rnnt_compiled(work):
    """The joint and the prediction are compiled. For a single sequence, Python loops over the labels."""
    w_e, b_j, w_state, table, w_o, b_o = rnnt_weights(work)
    hidden = w_state.shape[0]

    def join(frame, of_state, active):
        joint = torch.tanh(frame + of_state[:, :hidden])
        label = torch.argmax(joint @ w_o + b_o, 1)
        active = active & (label != 0)
        return label, active

    def predict(label, active, h, c, of_state, out, count):
        h_new, c_new = lstm_gates(table[label] + of_state[:, hidden:], c)
        who = active.unsqueeze(1)
        h, c = torch.where(who, h_new, h), torch.where(who, c_new, c)
        out.scatter_(1, count.unsqueeze(1), torch.where(active, label, 0).unsqueeze(1))
        return h, c, h @ w_state, count + active

    join, predict = compiled(join), compiled(predict)

    def forward(frames):
        length, batch, width = frames.shape
        encoded = torch.addmm(b_j, frames.view(-1, width), w_e).view(length, batch, -1)
        h = torch.zeros(batch, hidden, device=frames.device)
        c = torch.zeros_like(h)
        of_state = torch.zeros(batch, w_state.shape[1], device=frames.device)
        out = torch.zeros(batch, length * 10 + 1, dtype=torch.int64, device=frames.device)
        count = torch.zeros(batch, dtype=torch.int64, device=frames.device)
        everyone = torch.ones(batch, dtype=torch.bool, device=frames.device)
        for frame in encoded.unbind(0):
            active = everyone
            for _ in range(10):
                label, active = join(frame, of_state, active)
                if not active.any():
                    break
                h, c, of_state, count = predict(label, active, h, c, of_state, out, count)
        return out, count
    return forward


# ---- trips


def trips_plain(x: Tensor, a: Tensor, b: Tensor, c: Tensor, length: int) -> Tensor:
    for _ in range(length):
        x = torch.abs(x * a + b) - c
    return x


def trips_if(x: Tensor, a: Tensor, b: Tensor, c: Tensor, length: int) -> Tensor:
    for _ in range(length):
        x = x * a + b
        if bool(x[0] > 0):
            x = c - torch.abs(x)
        else:
            x = torch.abs(x) - c
    return x


def trips_form(make):
    def build(work):
        whole = make(trips_plain if work.options["form"] == "plain" else trips_if)
        w = [tensor(work.weights[k]) for k in "abc"]
        return lambda x: whole(x, *w, work.options["length"])
    return build


def trips_compiled(work):
    w = [tensor(work.weights[k]) for k in "abc"]
    length = work.options["length"]
    if work.options["form"] == "plain":
        steps = compiled(lambda x, a, b, c: trips_plain(x, a, b, c, CHUNK))
    else:
        def steps(x, a, b, c):
            for _ in range(CHUNK):
                x = x * a + b
                y = torch.abs(x) - c
                x = torch.where(x[0] > 0, -y, y)
            return x
        steps = compiled(steps)

    def forward(x):
        for _ in range(length // CHUNK):
            x = steps(x, *w)
        return x
    return forward


FORMS = {
    "lstm": {"nn.LSTM": lstm_fused,
             "jit.script": lambda work: lstm_eager(work, torch.jit.script(lstm_layers)),
             "torch.compile": lstm_compiled},
    "nasrnn": {"eager": nas_eager,
               "jit.script": lambda work: nas_eager(work, torch.jit.script(nas_whole)),
               "torch.compile": nas_compiled},
    "attention": {"eager": attention_form(lambda *_: attention_whole),
                  "eager, sdpa": attention_form(attention_fused),
                  "jit.script": attention_form(lambda *_: torch.jit.script(attention_whole)),
                  "torch.compile": attention_form(attention_compiled)},
    "seq2seq": {"eager": seq2seq_eager,
                "jit.script": lambda work: seq2seq_eager(work, torch.jit.script(seq2seq_whole)),
                "torch.compile": seq2seq_compiled},
    "mamba": {"eager": mamba_eager,
              "jit.script": lambda work: mamba_eager(work, torch.jit.script(mamba_whole)),
              "torch.compile": mamba_compiled},
    "rnnt": {"eager": rnnt_eager,
             "jit.script": lambda work: rnnt_eager(work, torch.jit.script(rnnt_whole)),
             "torch.compile": rnnt_compiled},
    "trips": {"eager": trips_form(lambda f: f), "jit.script": trips_form(torch.jit.script),
              "torch.compile": trips_compiled},
}
