"""The loop and branch models in PyTorch, exported by torch.onnx.export(dynamo=True), as users make
their files. Weights, inputs and references are those of the numpy exporters. Optional: needs torch
and onnxscript.

    python -m models.torch_export [NAME...] --out DIR [--small] [--OPTION VALUE ...]
"""
import argparse
import os
import sys

import torch
import torch.nn.functional as fn
from torch import nn
from torch._higher_order_ops import scan, while_loop

from . import build
from .__main__ import add_options, given, write
from .common import BN_EPSILON


class Net(nn.Module):
    """A network whose weights are buffers; self["layer0.weight"] is one."""

    def __init__(self, built):
        super().__init__()
        self.o = built.options
        for k, v in built.weights.items():
            self.register_buffer(k.replace(".", "_"), torch.from_numpy(v.copy()))

    def __getitem__(self, name):
        return getattr(self, name.replace(".", "_"))

    def conv_bn(self, name, x, stride=1):
        w = self[f"{name}.weight"]
        x = fn.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        mean, var, scale, bias = (self[f"{name}.{p}"] for p in ("mean", "var", "scale", "bias"))
        return fn.batch_norm(x, mean, var, scale, bias, eps=BN_EPSILON)


def lstm_state(a, c):
    i, f, g, o = a.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


class LstmModule(nn.Module):
    """nn.LSTM."""

    def __init__(self, built):
        super().__init__()
        o, w = built.options, built.weights
        self.lstm = nn.LSTM(o["hidden"], o["hidden"], o["layers"])
        with torch.no_grad():
            for n in range(o["layers"]):
                for k in ("ih", "hh"):
                    matrix = torch.from_numpy(w[f"W_{k}"][n].transpose(0, 2, 1).copy())
                    getattr(self.lstm, f"weight_{k}_l{n}").copy_(matrix.reshape(-1, o["hidden"]))
                    getattr(self.lstm, f"bias_{k}_l{n}").copy_(
                        torch.from_numpy(w[f"b_{k}"][n].reshape(-1)))

    def forward(self, x):
        return self.lstm(x)[1][0][-1]


class LstmScan(Net):
    """A scan for each layer."""

    def forward(self, x):
        for n in range(self.o["layers"]):
            w_ih, w_hh = (torch.cat(list(self[k][n]), 1) for k in ("W_ih", "W_hh"))
            bias = (self["b_ih"][n] + self["b_hh"][n]).reshape(-1)

            def step(state, x_t, w_ih=w_ih, w_hh=w_hh, bias=bias):
                h, c = lstm_state(x_t @ w_ih + state[0] @ w_hh + bias, state[1])
                return [h, c], h.clone()

            (h, _), x = scan(step, [torch.zeros_like(x[0]), torch.zeros_like(x[0])], x)
        return h


class NasRnn(Net):
    """while_loop over the steps."""

    def forward(self, x):
        w_ih, w_hh = (torch.cat(list(self[k]), 1) for k in ("W_ih", "W_hh"))
        steps = x.shape[0]

        def more(t, c, m):
            return t < steps

        def step(t, c, m):
            x_t = torch.index_select(x, 0, t.reshape(1)).squeeze(0)
            s = (x_t @ w_ih + m @ w_hh).chunk(8, 1)
            p0 = torch.tanh(torch.sigmoid(s[0]) * torch.relu(s[1]))
            p1 = torch.tanh(torch.sigmoid(s[2]) + torch.relu(s[3]))
            p2 = torch.tanh(torch.tanh(s[4]) * torch.sigmoid(s[5]))
            p3 = torch.sigmoid(torch.tanh(s[6]) + torch.sigmoid(s[7]))
            c = torch.tanh(p0 + c) * p1
            return t + 1, c, torch.tanh(c * torch.tanh(p2 + p3))

        zero = torch.zeros_like(x[0])
        _, c, m = while_loop(more, step, (torch.tensor(0), zero, zero.clone()))
        return c + m


class Attention(Net):
    """while_loop with index_copy into the caches."""

    def forward(self, x, k, v):
        length = self.o["length"]
        scale = self.o["width"] ** -0.5
        w_q, w_k, w_v, w_o = (self[f"W_{n}"] for n in "qkvo")

        def more(g, x, k, v):
            return g < length

        def step(g, x, k, v):
            at = g.reshape(1)
            k = torch.index_copy(k, 2, at, x @ w_k)
            v = torch.index_copy(v, 2, at, x @ w_v)
            a = torch.softmax(scale * ((x @ w_q) @ k.transpose(2, 3)), -1)
            return g + 1, a @ v @ w_o, k, v

        _, x, k, v = while_loop(more, step, (torch.tensor(length // 2), x, k, v))
        return k, v, x


class Seq2Seq(Net):
    """while_loop whose end depends on the tokens."""

    def forward(self, std, h, c):
        limit = self.o["limit"]
        embedding = self["embedding"]
        w_ih, w_hh, w_out = self["W_ih"], self["W_hh"], self["W_out"]
        b_ih, b_hh, b_out = self["b_ih"], self["b_hh"], self["b_out"]

        def more(n, tok, h, c, out):
            return ((tok.max() > 0) | (n == 0)) & (n < limit)

        def step(n, tok, h, c, out):
            x = embedding[tok]
            h, c = lstm_state(fn.linear(x, w_ih, b_ih) + fn.linear(h, w_hh, b_hh), c)
            at = n.reshape(1)
            scores = fn.linear(h, w_out, b_out) + torch.index_select(std, 0, at).squeeze(0)
            tok = torch.argmax(scores, 1)
            return n + 1, tok, h, c, torch.index_copy(out, 0, at, tok.unsqueeze(0))

        batch = h.shape[0]
        first = torch.ones(batch, dtype=torch.int64)
        out = torch.zeros(limit, batch, dtype=torch.int64)
        return while_loop(more, step, (torch.tensor(0), first, h, c, out))[4]


class Mamba(Net):
    """scan."""

    def forward(self, x):
        rank, state = self.o["rank"], self.o["state"]
        dt, b, c = (x @ self["W_x"]).split([rank, state, state], -1)
        dt = fn.softplus(dt @ self["W_dt"] + self["b_dt"])
        a, d = self["A"], self["D"]

        def step(h, now):
            x, dt, b, c = now
            h = torch.exp(dt[:, :, None] * a) * h + (dt * x)[:, :, None] * b[:, None, :]
            return h, (h * c[:, None, :]).sum(2) + d * x

        zero = torch.zeros(x.shape[1], x.shape[2], state)
        h, y = scan(step, zero, (x, dt, b, c))
        return y, h


class Bert(Net):
    """With scaled_dot_product_attention and dynamic sizes."""

    def dense(self, v, name):
        return v @ self[f"{name}.weight"] + self[f"{name}.bias"]

    def norm(self, v, name):
        scale, bias = self[f"{name}.scale"], self[f"{name}.bias"]
        return fn.layer_norm(v, scale.shape, scale, bias, eps=1e-12)

    def forward(self, input_ids, attention_mask, token_type_ids):
        heads, width = self.o["heads"], self.o["width"]
        batch, length = input_ids.shape
        v = self["words"][input_ids] + self["kinds"][token_type_ids] + self["positions"][:length]
        v = self.norm(v, "embedding")
        bias = (1 - attention_mask.to(torch.float32))[:, None, None, :] * -1e4
        for n in range(self.o["layers"]):
            q, k, u = (self.dense(v, f"layer{n}.{p}").reshape(batch, length, heads, width // heads)
                       .transpose(1, 2) for p in ("query", "key", "value"))
            a = fn.scaled_dot_product_attention(q, k, u, attn_mask=bias)
            a = a.transpose(1, 2).reshape(batch, length, width)
            v = self.norm(v + self.dense(a, f"layer{n}.attended"), f"layer{n}.norm1")
            up = fn.gelu(self.dense(v, f"layer{n}.up"))
            v = self.norm(v + self.dense(up, f"layer{n}.down"), f"layer{n}.norm2")
        return v

    @staticmethod
    def dynamic():
        batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=128)
        return {k: {0: batch, 1: length}
                for k in ("input_ids", "attention_mask", "token_type_ids")}


class BlockDrop(Net):
    """cond for each block."""

    def forward(self, x, probs):
        from .blockdrop import stages
        x = torch.relu(self.conv_bn("stem", x))
        for i, (name, cin, cout, stride) in enumerate(stages(self.o["base"], self.o["blocks"])):
            m = torch.where(probs[:, i] < 0.5, 0.0, 1.0).reshape(-1, 1, 1, 1)
            r = x
            if stride > 1:
                r = fn.pad(fn.avg_pool2d(x, stride), (0, 0, 0, 0, 0, cout - cin))

            def run(x, r, m, name=name, stride=stride):
                y = torch.relu(self.conv_bn(f"{name}.a", x, stride))
                y = torch.relu(r + self.conv_bn(f"{name}.b", y))
                return (y * m + r * (1 - m),)

            x, = torch.cond(m.sum() > 0, run, lambda x, r, m: (r.clone(),), (x, r, m))
        return x.mean((2, 3)) @ self["head.weight"] + self["head.bias"]


class SkipNet(Net):
    """cond for each block; a recurrent gate decides."""

    def forward(self, x):
        from .skipnet import GATE, layers
        x = fn.max_pool2d(torch.relu(self.conv_bn("stem", x, 2)), 3, 2, 1)
        h = c = torch.zeros(x.shape[0], GATE)
        m = None
        for name, cin, _, cout, stride in layers(self.o["width"], self.o["blocks"]):
            prev = self.conv_bn(f"{name}.down", x, stride) if cin != cout or stride > 1 else x

            def layer(x, prev, name=name, stride=stride):
                y = torch.relu(self.conv_bn(f"{name}.a", x))
                y = torch.relu(self.conv_bn(f"{name}.b", y, stride))
                return torch.relu(self.conv_bn(f"{name}.c", y) + prev)

            if m is None:
                x = layer(x, prev)
            else:
                def run(x, prev, m, layer=layer):
                    return (layer(x, prev) * m + (1 - m) * prev,)

                def skip(x, prev, m):
                    return (prev.clone(),)

                x, = torch.cond(m.sum() > 0, run, skip, (x, prev, m))
            f = fn.conv2d(x.mean((2, 3), keepdim=True), self[f"{name}.gate.weight"],
                          self[f"{name}.gate.bias"]).flatten(1)
            h, c = lstm_state(f @ self["gate.W_ih"] + h @ self["gate.W_hh"] + self["gate.bias"], c)
            p = fn.conv2d(h[:, :, None, None], self["gate.out.weight"], self["gate.out.bias"])
            m = (torch.sigmoid(p) > 0.5).to(torch.float32)
        return x.mean((2, 3)) @ self["head.weight"] + self["head.bias"], h, c


class EarlyExit(Net):
    """Nested cond."""

    def stage(self, n, x):
        from .earlyexit import SURE
        x = torch.relu(self.conv_bn(f"stage{n}.a", x, 2 if n else 1))
        x = torch.relu(self.conv_bn(f"stage{n}.b", x))
        p = torch.softmax(x.mean((2, 3)) @ self[f"exit{n}.weight"] + self[f"exit{n}.bias"], 1)
        if n == 3:
            return p, torch.full((), n, dtype=torch.int64)
        return torch.cond(
            p.amax(1).min() > SURE,
            lambda x, p: (p.clone(), torch.full((), n, dtype=torch.int64)),
            lambda x, p: self.stage(n + 1, x), (x, p))

    def forward(self, x):
        return self.stage(0, x)


class Experts(Net):
    """cond for each expert."""

    def forward(self, x):
        best, which = torch.topk(x @ self["router"], 2, dim=1)
        dense = torch.zeros(x.shape[0], 8).scatter(1, which, torch.softmax(best, 1))
        y = torch.zeros_like(x)
        for e in range(8):
            def run(x, y, k, e=e):
                up = torch.relu(x @ self["W_up"][e] + self["b_up"][e])
                return (y + (up @ self["W_down"][e] + self["b_down"][e]) * k,)

            k = dense[:, e:e + 1]
            y, = torch.cond(k.sum() > 0, run, lambda x, y, k: (y.clone(),), (x, y, k))
        return y


# name: (the numpy exporter's model, the network)
NETS = {
    "lstm_torch": ("lstm_split", LstmModule),
    "lstm_torch_scan": ("lstm_split", LstmScan),
    "nasrnn_torch": ("nasrnn", NasRnn),
    "attention_torch": ("attention", Attention),
    "seq2seq_torch": ("seq2seq", Seq2Seq),
    "mamba_torch": ("mamba", Mamba),
    "bert_torch": ("bert", Bert),
    "blockdrop_torch": ("blockdrop", BlockDrop),
    "skipnet_torch": ("skipnet", SkipNet),
    "earlyexit_torch": ("earlyexit_2", EarlyExit),
    "experts_torch": ("experts", Experts),
}


def export(name, small=False, **options):
    """The same as build() returns, with the model that PyTorch's exporter makes."""
    base, net = NETS[name]
    built = build(base, small, **options)
    module = net(built).eval()
    args = tuple(torch.from_numpy(v.copy()) for v in built.inputs.values())
    dynamic = net.dynamic() if hasattr(net, "dynamic") else None
    with torch.no_grad():
        program = torch.onnx.export(module, args, dynamo=True, verbose=False,
                                    input_names=list(built.inputs), dynamic_shapes=dynamic)
    built.model = program.model_proto
    return built


def main():
    p = argparse.ArgumentParser(prog="python -m models.torch_export", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter,
                                allow_abbrev=False)
    p.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NETS)} (all)")
    p.add_argument("--small", action="store_true", help="sizes for tests")
    p.add_argument("--out", metavar="DIR", required=True)
    add_options(p)
    a = p.parse_args()
    for name in a.names or NETS:
        if name not in NETS:
            p.error(f"no model {name}; there are {', '.join(NETS)}")
        write(export(name, a.small, **given(a)), os.path.join(a.out, name))
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
