"""Small PyTorch modules as both of PyTorch's exporters write them, each with tests at two sizes.

    python -m models.exports --out DIR [NAME...]

Writes DIR/NAME_script (torch.onnx.export of TorchScript) and DIR/NAME_dynamo (torch.export) in the layout of the ONNX
backend tests; the expected outputs are PyTorch's own. If an exporter refuses a module, the reason is printed. Optional:
needs torch and onnxscript. tests/conformance/exports/ holds the results.
"""
import argparse
import io
import os
import sys
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as fn
from onnx import numpy_helper
from torch import nn
from torch._higher_order_ops import scan, while_loop

MODULES = {}


def module(*sizes, dynamic=None, dynamo=True, script=True):
    """Registers a module with a function that makes its inputs from a size, and the open axes by input."""
    def add(cls):
        MODULES[cls.__name__.lower()] = (cls, sizes, dynamic or {}, script, dynamo)
        return cls
    return add


def rnd(*shape):
    return torch.randn(*shape)


# ---- recurrent -------------------------------------------------------------------------------------------------------
@module(5, 9, dynamic={"x": {0: "steps"}})
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, 2, bidirectional=True)

    def inputs(self, n):
        return {"x": rnd(n, 2, 6)}

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


@module(4, 7, dynamic={"x": {1: "steps"}})
class GruFirst(nn.Module):
    """A GRU, batch first, with an initial state; then a layer over all steps."""

    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 3)

    def inputs(self, n):
        return {"x": rnd(3, n, 5), "h": rnd(1, 3, 6)}

    def forward(self, x, h):
        y, h = self.gru(x, h)
        return fn.log_softmax(self.out(y), -1), h


@module(3, 6, dynamic={"x": {0: "steps"}}, dynamo=False)
class CellLoop(nn.Module):
    """A loop, which the script exporter keeps, that appends to a list."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def inputs(self, n):
        return {"x": rnd(n, 2, 4)}

    def forward(self, x):
        h, c = torch.zeros(2, 5), torch.zeros(2, 5)
        out = []
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
            out.append(h)
        return torch.stack(out), c


# ---- control flow ----------------------------------------------------------------------------------------------------
@module(3, 8, script=False)
class While(nn.Module):
    def inputs(self, n):
        return {"x": rnd(4), "limit": torch.tensor(n)}

    def forward(self, x, limit):
        def more(k, v):
            return (k < limit) & (v.abs().max() < 100)

        def step(k, v):
            return k + 1, v * 1.5 + 1

        return while_loop(more, step, (torch.tensor(0), x))


@module(1, -1, script=False)
class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def inputs(self, n):
        return {"x": torch.full((2, 4), float(n))}

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: torch.relu(self.a(v)), lambda v: self.b(v) - 1, (x,))


@module(4, 4, script=False)
class ScanSum(nn.Module):
    def inputs(self, n):
        return {"x": rnd(n, 3)}

    def forward(self, x):
        def step(s, v):
            s = s * 0.5 + v
            return s, s * 2

        return scan(step, torch.zeros(3), x)


@module(2, 5, dynamic={"x": {0: "n"}}, dynamo=False)
class ScriptIf(nn.Module):
    """Branches by a size and by a value."""

    def inputs(self, n):
        return {"x": rnd(n, 3)}

    def forward(self, x):
        if x.size(0) > 3:
            y = x[:3]
        else:
            y = torch.cat([x, x])
        if bool(y.sum() > 0):
            y = y * 2
        return y


@module(3, 5, dynamo=False)
class GreedyLoop(nn.Module):
    """A loop whose end depends on data; it appends tokens one by one."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(7, 6), nn.Linear(6, 7)

    def inputs(self, n):
        return {"start": torch.tensor([n])}

    def forward(self, start):
        tokens, at = start, 0
        while at < 6 and int(tokens[-1]) != 0:
            scores = self.out(self.table(tokens).mean(0))
            tokens = torch.cat([tokens, scores.argmax(0, keepdim=True)])
            at += 1
        return tokens


# ---- lengths that data decide ----------------------------------------------------------------------------------------
@module(4, 6, dynamic={"x": {0: "n"}, "times": {0: "n"}}, dynamo=False)
class Repeat(nn.Module):
    """A length regulator."""

    def inputs(self, n):
        return {"x": rnd(n, 3), "times": torch.randint(0, 4, (n,))}

    def forward(self, x, times):
        return torch.repeat_interleave(x, times, dim=0)


@module(5, 9, dynamic={"x": {0: "n"}}, dynamo=False)
class Masked(nn.Module):
    def inputs(self, n):
        return {"x": rnd(n, 3)}

    def forward(self, x):
        kept = x[x[:, 0] > 0]
        return kept * 2, torch.nonzero(x > 0.5), torch.masked_select(x, x < 0)


@module(5, 8, dynamic={"x": {1: "n"}})
class PadToEight(nn.Module):
    """Pads to a multiple of eight and cuts into blocks."""

    def inputs(self, n):
        return {"x": rnd(2, n)}

    def forward(self, x):
        n = x.shape[1]
        x = fn.pad(x, (0, (8 - n % 8) % 8))
        return x.reshape(2, -1, 8).sum(1)


@module(6, 10, dynamic={"x": {0: "n"}})
class Sorted(nn.Module):
    def inputs(self, n):
        return {"x": rnd(n, 4)}

    def forward(self, x):
        v, i = torch.topk(x, 3, dim=0)
        s, j = torch.sort(x, dim=1, descending=True)
        return v, i, s, j, torch.cumsum(x, 0), x.argmin(1)


# ---- attention -------------------------------------------------------------------------------------------------------
@module(4, 7, dynamic={"x": {1: "n"}})
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def inputs(self, n):
        return {"x": rnd(2, n, 8)}

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, 8))


@module(0, 3, dynamic={"past_k": {2: "past"}, "past_v": {2: "past"}})
class Cached(nn.Module):
    """A decoder step whose caches grow."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def inputs(self, n):
        return {"x": rnd(1, 1, 8), "past_k": rnd(1, 2, n + 2, 4), "past_v": rnd(1, 2, n + 2, 4)}

    def forward(self, x, past_k, past_v):
        def heads(y):
            return y.reshape(1, 1, 2, 4).transpose(1, 2)

        k, v = torch.cat([past_k, heads(self.k(x))], 2), torch.cat([past_v, heads(self.v(x))], 2)
        w = torch.softmax(heads(self.q(x)) @ k.transpose(2, 3) / 2, -1)
        return (w @ v).transpose(1, 2).reshape(1, 1, 8), k, v


@module(3, 6, dynamic={"x": {1: "n"}}, script=False)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")

    def inputs(self, n):
        return {"x": rnd(2, n, 8)}

    def forward(self, x):
        return self.layer(x)


@module(4, 6, dynamic={"x": {0: "n"}})
class Experts(nn.Module):
    """The two best of four experts, weighted."""

    def __init__(self):
        super().__init__()
        self.gate, self.w = nn.Linear(6, 4), nn.Parameter(rnd(4, 6, 6))

    def inputs(self, n):
        return {"x": rnd(n, 6)}

    def forward(self, x):
        p, i = torch.topk(torch.softmax(self.gate(x), -1), 2)
        y = torch.einsum("nd,nkde->nke", x, self.w[i])
        return (y * p.unsqueeze(-1)).sum(1)


# ---- images and sound ------------------------------------------------------------------------------------------------
@module(8, 12, dynamic={"x": {2: "h", 3: "w"}})
class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.GroupNorm(2, 8),
                                 nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))

    def inputs(self, n):
        return {"x": rnd(1, 3, n, n + 2)}

    def forward(self, x):
        return self.net(x)


@module(6, 10, dynamic={"x": {2: "h", 3: "w"}})
class Pyramid(nn.Module):
    """Downsamples, upsamples to the size of another tensor, and concatenates."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(2, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 2, 2)

    def inputs(self, n):
        return {"x": rnd(1, 2, n, n)}

    def forward(self, x):
        y = torch.relu(self.down(x))
        z = fn.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        return torch.cat([x, z, self.up(y)[:, :, :x.shape[2], :x.shape[3]], fn.interpolate(y, scale_factor=2.0, mode="nearest")], 1)


@module(64, 96, dynamic={"x": {1: "samples"}})
class Spectrum(nn.Module):
    def inputs(self, n):
        return {"x": rnd(2, n)}

    def forward(self, x):
        s = torch.stft(x, 16, 8, 16, torch.hann_window(16), center=False, return_complex=False)
        return torch.log1p(s.pow(2).sum(-1))


@module(10, 16, dynamic={"x": {2: "n"}})
class Causal(nn.Module):
    """Dilated causal convolutions with gates."""

    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=d) for d in (1, 2, 4))

    def inputs(self, n):
        return {"x": rnd(1, 4, n)}

    def forward(self, x):
        for conv in self.a:
            d = conv.dilation[0]
            y, g = conv(fn.pad(x, (d, 0))).chunk(2, 1)
            x = x + torch.tanh(y) * torch.sigmoid(g)
        return x


@module(4, 6, dynamic={"x": {2: "h"}, "grid": {1: "h"}})
class Sampled(nn.Module):
    def inputs(self, n):
        return {"x": rnd(1, 2, n, 5), "grid": torch.rand(1, n, 3, 2) * 2 - 1}

    def forward(self, x, grid):
        return fn.grid_sample(x, grid, align_corners=False), fn.pixel_unshuffle(x[:, :, :4, :4], 2), fn.max_pool2d(x, 2, ceil_mode=True)


# ---- elements and indices --------------------------------------------------------------------------------------------
@module(3, 5, dynamic={"x": {0: "n"}, "i": {0: "n"}})
class Indexed(nn.Module):
    def inputs(self, n):
        return {"x": rnd(n, 6), "i": torch.randint(0, 6, (n, 2))}

    def forward(self, x, i):
        y = torch.scatter_add(x, 1, i, torch.ones_like(i, dtype=x.dtype))
        z = torch.zeros_like(x).scatter(1, i, 2.0)
        return y, z, torch.gather(x, 1, i), x.index_select(1, torch.tensor([4, 0])), torch.where(x > 0, x, x.exp() - 1)


@module(4, 7, dynamic={"ids": {1: "n"}, "mask": {1: "n"}})
class Pooled(nn.Module):
    """Sentence embedding: the mean of the words that the mask keeps, normalized."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(11, 6), nn.LayerNorm(6)

    def inputs(self, n):
        mask = torch.ones(2, n, dtype=torch.int64)
        mask[1, n // 2:] = 0
        return {"ids": torch.randint(0, 11, (2, n)), "mask": mask}

    def forward(self, ids, mask):
        x, m = self.norm(self.table(ids)), mask.unsqueeze(-1).to(torch.float32)
        return fn.normalize((x * m).sum(1) / m.sum(1).clamp(min=1e-9), dim=-1)


@module(3, 4, dynamic={"x": {0: "n"}})
class Mixed(nn.Module):
    """Integers, halves, remainders and rounding."""

    def inputs(self, n):
        return {"x": rnd(n, 4) * 5}

    def forward(self, x):
        k = x.round().to(torch.int32)
        return (k % 3, torch.div(k, 2, rounding_mode="floor"), k << 1, x.half() * 2, torch.fmod(x, 1.5), torch.remainder(x, 1.5),
                x.clamp(-1, 1), fn.one_hot(k.abs().long() % 5, 5), torch.tril(x @ x.T), x.norm(dim=1), x.var(1), torch.logsumexp(x, 0))


# ---- writing ---------------------------------------------------------------------------------------------------------
def outputs_of(result):
    return [t.detach().numpy() for t in (result if isinstance(result, (tuple, list)) else [result])]


def save(folder, model, runs):
    os.makedirs(folder, exist_ok=True)
    for init in model.graph.initializer:
        init.doc_string = ""
    for n in model.graph.node:  # where in whose file it stood
        n.doc_string = ""
        del n.metadata_props[:]
    for v in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
        del v.metadata_props[:]
    for f in model.functions:
        f.doc_string = ""
        del f.metadata_props[:]
        for n in f.node:
            n.doc_string = ""
            del n.metadata_props[:]
    del model.graph.metadata_props[:]
    model.graph.doc_string = ""
    onnx.save(model, os.path.join(folder, "model.onnx"))
    for i, (ins, outs) in enumerate(runs):
        data = os.path.join(folder, f"test_data_set_{i}")
        os.makedirs(data, exist_ok=True)
        named = {k: v.numpy() for k, v in ins.items()}
        for kind, arrays in (("input", [named[v.name] for v in model.graph.input]), ("output", outs)):
            for k, x in enumerate(arrays):
                with open(os.path.join(data, f"{kind}_{k}.pb"), "wb") as f:
                    f.write(numpy_helper.from_array(np.asarray(x)).SerializeToString())


def by_script(net, ins, dynamic, keep_control):
    f = io.BytesIO()
    target = torch.jit.script(net) if keep_control else net
    torch.onnx.export(target, tuple(ins.values()), f, input_names=list(ins), dynamic_axes=dynamic, opset_version=17, dynamo=False)
    return onnx.load_model_from_string(f.getvalue())


def by_dynamo(net, ins, dynamic):
    shapes = {n: {a: torch.export.Dim(d) for a, d in dynamic.get(n, {}).items()} or None for n in ins} if dynamic else None
    # Dims of one name are one Dim.
    if shapes:
        dims = {}
        shapes = {n: {a: dims.setdefault(d, torch.export.Dim(d, min=2)) for a, d in dynamic.get(n, {}).items()} or None for n in ins}
    program = torch.onnx.export(net, kwargs=ins, input_names=list(ins), dynamic_shapes=shapes, dynamo=True, verbose=False, external_data=False)
    return program.model_proto


def main():
    p = argparse.ArgumentParser(prog="python -m models.exports", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    written = refused = 0
    for name, (cls, sizes, dynamic, script, dynamo) in MODULES.items():
        if a.names and name not in a.names:
            continue
        torch.manual_seed(1)
        net = cls().eval()
        cases = [net.inputs(n) for n in sizes]
        runs = [(ins, outputs_of(net(**ins))) for ins in cases]
        for way, wanted in (("script", script), ("dynamo", dynamo)):
            if not wanted:
                continue
            try:
                with torch.no_grad():
                    model = by_script(net, cases[1], dynamic, not dynamo) if way == "script" else by_dynamo(net, cases[1], dynamic)
                save(os.path.join(a.out, f"{name}_{way}"), model, runs)
                written += 1
            except Exception as e:  # the exporters raise many kinds
                refused += 1
                print(f"{name}_{way}: {type(e).__name__}: {str(e).strip().splitlines()[0][:200]}", file=sys.stderr)
    print(f"{written} models written, {refused} refused by an exporter")
    return written == 0


if __name__ == "__main__":
    sys.exit(main())
