"""Networks with branches in PyTorch, and the others that have no loops."""
from typing import List, Tuple

import numpy as np
import torch
import torch.nn.functional as fn
from torch import Tensor, nn

from models import blockdrop, earlyexit, skipnet
from models.common import BN_EPSILON

import device

from .pytorch_loops import HOW, compiled, tensor


# In the layout in which the device's convolutions are fastest. Two functions: scripts cannot read the choice.
if device.here.channels_last:
    def arranged(x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)
else:
    def arranged(x: Tensor) -> Tensor:
        return x


def folded(work, name):
    """Weight and bias of a convolution with the batch normalization after it folded in."""
    w = work.weights
    k = w[f"{name}.scale"] / np.sqrt(w[f"{name}.var"] + np.float32(BN_EPSILON))
    weight = tensor(w[f"{name}.weight"] * k[:, None, None, None])
    bias = tensor(w[f"{name}.bias"] - w[f"{name}.mean"] * k)
    return arranged(weight), bias


class ConvBn(nn.Module):
    def __init__(self, work, name, stride=1, active=True):
        super().__init__()
        weight, bias = folded(work, name)
        out, cin, k, _ = weight.shape
        self.conv = nn.Conv2d(cin, out, k, stride, k // 2)
        self.conv.weight, self.conv.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return torch.relu(x) if self.active else x


class Linear(nn.Module):
    def __init__(self, work, name):
        super().__init__()
        self.weight = nn.Parameter(tensor(work.weights[f"{name}.weight"]), False)
        self.bias = nn.Parameter(tensor(work.weights[f"{name}.bias"]), False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


def frozen(module):
    """A scripted module, with weights as constants in oneDNN's layout."""
    return torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(module.eval())))


# ---- BlockDrop


class Residual(nn.Module):
    def __init__(self, work, name, cin, cout, stride):
        super().__init__()
        self.a, self.b = ConvBn(work, f"{name}.a", stride), ConvBn(work, f"{name}.b", 1, False)
        self.stride, self.more = stride, cout - cin

    def shortcut(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            x = fn.pad(fn.avg_pool2d(x, self.stride), (0, 0, 0, 0, 0, self.more))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.b(self.a(x)))


class Skipped(nn.Module):
    """A block that runs if m says so."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, m: Tensor, wanted: bool) -> Tensor:
        r = self.block.shortcut(x)
        if not wanted:
            return r
        y = self.block(x)
        return y if len(y) == 1 else torch.where(m.view(-1, 1, 1, 1), y, r)


class Policy(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.stem = ConvBn(work, "policy.stem")
        self.blocks = nn.ModuleList(Residual(work, f"policy.{n}", i, o, s)
                                    for n, i, o, s in blockdrop.stages(work.options["base"], 1))
        self.head = Linear(work, "policy.head")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(self.head(x.mean([2, 3])))


class BlockDrop(nn.Module):
    def __init__(self, work):
        super().__init__()
        o = work.options
        self.stem = ConvBn(work, "stem")
        self.blocks = nn.ModuleList(Skipped(Residual(work, *stage))
                                    for stage in blockdrop.stages(o["base"], o["blocks"]))
        self.head = Linear(work, "head")

    def forward(self, x: Tensor, probs: Tensor) -> Tensor:
        x = self.stem(arranged(x))
        m = probs >= 0.5
        wanted: List[bool] = m.any(0).tolist()
        for i, block in enumerate(self.blocks):
            x = block(x, m[:, i], wanted[i])
        return self.head(x.mean([2, 3]))


class BlockDropPolicy(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.policy, self.net = Policy(work), BlockDrop(work)

    def forward(self, x: Tensor) -> Tensor:
        x = arranged(x)
        return self.net(x, self.policy(x))


def blockdrop_net(work):
    return (BlockDropPolicy if work.options["form"] == "policy" else BlockDrop)(work).eval()


def blockdrop_compiled(work):
    net = blockdrop_net(work)
    trunk = net.net if work.options["form"] == "policy" else net
    for part in (trunk.stem, trunk.head):
        part.compile(**HOW)
    for block in trunk.blocks:
        block.block.compile(**HOW)
    if trunk is not net:
        net.policy.compile(**HOW)
    return net


# ---- SkipNet


class Bottleneck(nn.Module):
    def __init__(self, work, name, stride):
        super().__init__()
        self.a, self.b = ConvBn(work, f"{name}.a"), ConvBn(work, f"{name}.b", stride)
        self.c = ConvBn(work, f"{name}.c", 1, False)

    def forward(self, x: Tensor, prev: Tensor) -> Tensor:
        return torch.relu(self.c(self.b(self.a(x))) + prev)


class Gate(nn.Module):
    """The gate after a block: its own convolution, then a cell that all gates share."""

    def __init__(self, work, name):
        super().__init__()
        w = work.weights
        width = w[f"{name}.gate.weight"].shape[0]
        per = {
            # the convolution of a pooled feature is a product, and goes into the cell's
            "w": w[f"{name}.gate.weight"].reshape(width, -1).T @ w["gate.W_ih"],
            "b": w[f"{name}.gate.bias"] @ w["gate.W_ih"] + w["gate.bias"],
            "w_hh": w["gate.W_hh"],
            "w_out": w["gate.out.weight"].reshape(1, width).T, "b_out": w["gate.out.bias"]}
        for k, v in per.items():
            self.register_buffer(k, tensor(v))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        a = torch.addmm(torch.addmm(self.b, x.mean([2, 3]), self.w), h, self.w_hh)
        i, f, g, o = a.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c, torch.addmm(self.b_out, h, self.w_out) > 0  # sigmoid over a half


class Stage(nn.Module):
    def __init__(self, work, name, stride):
        super().__init__()
        has_down = f"{name}.down.weight" in work.weights
        self.down = ConvBn(work, f"{name}.down", stride, False) if has_down else nn.Identity()
        self.layer, self.gate = Bottleneck(work, name, stride), Gate(work, name)

    def forward(self, x: Tensor, m: Tensor, wanted: bool) -> Tensor:
        prev = self.down(x)
        if not wanted:
            return prev
        y = self.layer(x, prev)
        return y if len(y) == 1 else torch.where(m.view(-1, 1, 1, 1), y, prev)


class SkipNet(nn.Module):
    def __init__(self, work):
        super().__init__()
        o = work.options
        self.stem = ConvBn(work, "stem", 2)
        self.stages = nn.ModuleList(
            Stage(work, name, stride)
            for name, _, _, _, stride in skipnet.layers(o["width"], o["blocks"]))
        self.head = Linear(work, "head")
        self.register_buffer("zero", torch.zeros(1, skipnet.GATE, device=device.here.torch))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x = fn.max_pool2d(self.stem(arranged(x)), 3, 2, 1)
        h = c = self.zero.expand(len(x), -1)
        m = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        for stage in self.stages:
            x = stage(x, m, bool(m.any()))
            h, c, m = stage.gate(x, h, c)
        return self.head(x.mean([2, 3])), h, c


def skipnet_compiled(work):
    net = SkipNet(work).eval()
    net.stem.compile(**HOW)
    for stage in net.stages:
        stage.layer.compile(**HOW)
        stage.gate.compile(**HOW)
    return net


# ---- early exit


class ExitStage(nn.Module):
    def __init__(self, work, n):
        super().__init__()
        self.a = ConvBn(work, f"stage{n}.a", 2 if n else 1)
        self.b = ConvBn(work, f"stage{n}.b")
        self.exit = Linear(work, f"exit{n}")

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x = self.b(self.a(x))
        p = torch.softmax(self.exit(x.mean([2, 3])), 1)
        return x, p, p.amax(1).min()


class EarlyExit(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.stages = nn.ModuleList(ExitStage(work, n) for n in range(4))
        self.sure = earlyexit.SURE

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        x = arranged(x)
        p, n = x, 0
        go = True
        for i, stage in enumerate(self.stages):
            if go:
                x, p, least = stage(x)
                n = i
                go = not bool(least > self.sure)
        return p, torch.tensor(n)


def earlyexit_compiled(work):
    net = EarlyExit(work).eval()
    for stage in net.stages:
        stage.compile(**HOW)
    return net


# ---- experts


def experts_whole(x: Tensor, router: Tensor, up: Tensor, b_up: Tensor, down: Tensor,
                  b_down: Tensor) -> Tensor:
    best, which = torch.topk(x @ router, 2, 1)
    share = torch.softmax(best, 1)
    y = torch.zeros_like(x)
    if len(x) == 1:
        chosen: List[int] = which[0].tolist()
        for i, e in enumerate(chosen):
            v = torch.addmm(b_down[e], torch.relu(torch.addmm(b_up[e], x, up[e])), down[e])
            y = torch.addcmul(y, v, share[:, i:i + 1])
        return y
    for e in range(len(up)):
        tokens, place = torch.where(which == e)
        if len(tokens) > 0:
            v = torch.relu(torch.addmm(b_up[e], x[tokens], up[e]))
            v = torch.addmm(b_down[e], v, down[e])
            y.index_add_(0, tokens, v * share[tokens, place].unsqueeze(1))
    return y


def experts_eager(work, whole=experts_whole):
    w = [tensor(work.weights[k]) for k in ("router", "W_up", "b_up", "W_down", "b_down")]
    return lambda x: whole(x, *w)


def experts_gathered(x, router, up, b_up, down, b_down):
    """Indexes the weights of the chosen experts, without control flow."""
    best, which = torch.topk(x @ router, 2, 1)
    share = torch.softmax(best, 1)
    y = torch.zeros_like(x)
    for i in range(2):
        e = which[:, i]
        v = torch.relu(torch.bmm(x.unsqueeze(1), up[e]).squeeze(1) + b_up[e])
        v = torch.bmm(v.unsqueeze(1), down[e]).squeeze(1) + b_down[e]
        y = y + v * share[:, i:i + 1]
    return y


def experts_compiled(work):
    return experts_eager(work, compiled(experts_gathered))


# ---- BERT


class Bert(nn.Module):
    def __init__(self, work):
        super().__init__()
        self.heads, self.layers = work.options["heads"], work.options["layers"]
        w = dict(work.weights)
        for n in range(self.layers):
            for part in ("weight", "bias"):
                w[f"layer{n}.qkv.{part}"] = np.concatenate(
                    [w.pop(f"layer{n}.{p}.{part}") for p in ("query", "key", "value")], -1)
        for k, v in w.items():
            v = v.T if v.ndim == 2 and k.startswith("layer") else v
            self.register_buffer(k.replace(".", "_"), tensor(v))

    def __getitem__(self, name):
        return getattr(self, name.replace(".", "_"))

    def dense(self, v, name):
        return fn.linear(v, self[f"{name}.weight"], self[f"{name}.bias"])

    def norm(self, v, name):
        scale = self[f"{name}.scale"]
        return fn.layer_norm(v, scale.shape, scale, self[f"{name}.bias"], eps=1e-12)

    def forward(self, ids, mask, kinds):
        batch, length = ids.shape
        v = self["words"][ids] + self["kinds"][kinds] + self["positions"][:length]
        v = self.norm(v, "embedding")
        bias = (1 - mask.to(torch.float32))[:, None, None, :] * -1e4
        for n in range(self.layers):
            q, k, u = (t.reshape(batch, length, self.heads, -1).transpose(1, 2)
                       for t in self.dense(v, f"layer{n}.qkv").chunk(3, -1))
            a = fn.scaled_dot_product_attention(q, k, u, attn_mask=bias)
            a = a.transpose(1, 2).reshape(batch, length, -1)
            v = self.norm(v + self.dense(a, f"layer{n}.attended"), f"layer{n}.norm1")
            up = fn.gelu(self.dense(v, f"layer{n}.up"))
            v = self.norm(v + self.dense(up, f"layer{n}.down"), f"layer{n}.norm2")
        return v


def bert_traced(work):
    args = tuple(torch.from_numpy(v) for v in work.inputs.values())
    return torch.jit.trace(Bert(work).eval(), args)


FORMS = {
    "blockdrop": {"eager": blockdrop_net, "jit.script": lambda work: frozen(blockdrop_net(work)),
                  "torch.compile": blockdrop_compiled},
    "skipnet": {"eager": lambda work: SkipNet(work).eval(),
                "jit.script": lambda work: frozen(SkipNet(work)),
                "torch.compile": skipnet_compiled},
    "earlyexit": {"eager": lambda work: EarlyExit(work).eval(),
                  "jit.script": lambda work: frozen(EarlyExit(work)),
                  "torch.compile": earlyexit_compiled},
    "experts": {"eager": experts_eager,
                "jit.script": lambda work: experts_eager(work, torch.jit.script(experts_whole)),
                "torch.compile": experts_compiled},
    "bert": {"eager": lambda work: Bert(work).eval(), "jit.trace": bert_traced,
             "torch.compile": lambda work: compiled(Bert(work).eval())},
}
