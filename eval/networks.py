#!/usr/bin/env python3
"""Whole networks as PyTorch's exporter writes them, with random weights: the layers that users' models have around loops.

    networks.py [--only TEXT] [--time] [--threads N] [--out FILE.json] [--work build/networks] [--braid build/release/braid]

Each is exported by torch.onnx.export (once, into WORK), compiled, and compared with ONNX Runtime and timed as real.py
does it. Needs torch and onnxscript. Exit status 1 if one failed.
"""
import os
import sys


def networks():
    """{name: (module, inputs)}"""
    import torch
    from torch import nn
    from torch.nn import functional as fn

    class ConvNorm(nn.Sequential):
        def __init__(self, c, m, k=3, stride=1, group=1, act=nn.ReLU):
            super().__init__(nn.Conv2d(c, m, k, stride, k // 2, groups=group, bias=False), nn.BatchNorm2d(m), *([act()] if act else []))

    class Residual(nn.Module):
        """A block of ResNet-18."""

        def __init__(self, c, m, stride):
            super().__init__()
            self.body = nn.Sequential(ConvNorm(c, m, 3, stride), ConvNorm(m, m, act=None))
            self.skip = ConvNorm(c, m, 1, stride, act=None) if stride > 1 or c != m else nn.Identity()

        def forward(self, x):
            return fn.relu(self.body(x) + self.skip(x))

    class Inverted(nn.Module):
        """A block of MobileNetV2."""

        def __init__(self, c, m, stride, grow):
            super().__init__()
            h = c * grow
            layers = [ConvNorm(c, h, 1, act=nn.ReLU6)] if grow > 1 else []
            self.body = nn.Sequential(*layers, ConvNorm(h, h, 3, stride, h, nn.ReLU6), ConvNorm(h, m, 1, act=None))
            self.sum = stride == 1 and c == m

        def forward(self, x):
            return x + self.body(x) if self.sum else self.body(x)

    def mobile(widths=((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))):
        layers, c = [ConvNorm(3, 32, 3, 2, act=nn.ReLU6)], 32
        for grow, m, n, stride in widths:
            for i in range(n):
                layers.append(Inverted(c, m, stride if i == 0 else 1, grow))
                c = m
        return layers

    def resnet():
        layers = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        for c, m in ((64, 64), (64, 128), (128, 256), (256, 512)):
            layers += [Residual(c, m, 1 if c == m else 2), Residual(m, m, 1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

    class Detector(nn.Module):
        """SSDlite's shape: a mobile body, heads on two maps, boxes decoded from a grid of anchors."""

        def __init__(self, classes=21, anchors=6):
            super().__init__()
            layers = mobile()
            self.first, self.second = nn.Sequential(*layers[:14]), nn.Sequential(*layers[14:])
            self.heads = nn.ModuleList(nn.Sequential(ConvNorm(c, c, 3, 1, c, nn.ReLU6), nn.Conv2d(c, anchors * (classes + 4), 1))
                                       for c in (96, 320))
            self.classes = classes
            for k, n in enumerate((20, 10)):
                centers = (torch.arange(n) + .5) / n
                y, x = torch.meshgrid(centers, centers, indexing="ij")
                self.register_buffer(f"anchor{k}", torch.stack([x, y], -1).reshape(-1, 1, 2).repeat(1, anchors, 1).reshape(-1, 2))

        def forward(self, x):
            a = self.first(x)
            boxes, scores = [], []
            for head, map_, anchor in zip(self.heads, (a, self.second(a)), (self.anchor0, self.anchor1)):
                y = head(map_).permute(0, 2, 3, 1).reshape(map_.shape[0], -1, self.classes + 4)
                center, size = y[..., :2] * .1 + anchor, torch.exp(y[..., 2:4] * .2) * .1
                boxes.append(torch.cat([center - size / 2, center + size / 2], -1))
                scores.append(torch.softmax(y[..., 4:], -1))
            return torch.cat(boxes, 1), torch.cat(scores, 1)

    class UNet(nn.Module):
        def __init__(self, widths=(32, 64, 128, 256)):
            super().__init__()

            def double(c, m):
                return nn.Sequential(ConvNorm(c, m), ConvNorm(m, m))
            self.down = nn.ModuleList(double(c, m) for c, m in zip((3,) + widths[:-2], widths[:-1]))
            self.bottom = double(widths[-2], widths[-1])
            self.up = nn.ModuleList(nn.ConvTranspose2d(m, c, 2, 2) for c, m in zip(widths[-2::-1], widths[:0:-1]))
            self.join = nn.ModuleList(double(2 * c, c) for c in widths[-2::-1])
            self.last = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            kept = []
            for layer in self.down:
                x = layer(x)
                kept.append(x)
                x = fn.max_pool2d(x, 2)
            x = self.bottom(x)
            for up, join in zip(self.up, self.join):
                x = join(torch.cat([kept.pop(), up(x)], 1))
            return self.last(x)

    class SelfAttention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x, mask=None, cache=None):
            b, t, c = x.shape
            q, k, v = (y.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            if cache is not None:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            a = torch.softmax(q @ k.transpose(-1, -2) / (c // self.heads) ** .5 + (0 if mask is None else mask), -1)
            return self.out((a @ v).transpose(1, 2).reshape(b, t, c)), k, v

    class Layer(nn.Module):
        """A transformer's layer, normalized behind the sums (BERT) or in front (GPT)."""

        def __init__(self, width, heads, front):
            super().__init__()
            self.attend, self.front = SelfAttention(width, heads), front
            self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, mask=None, cache=None):
            if self.front:
                y, k, v = self.attend(self.norm[0](x), mask, cache)
                x = x + y
                return x + self.mlp(self.norm[1](x)), k, v
            x = self.norm[0](x + self.attend(x, mask)[0])
            return self.norm[1](x + self.mlp(x))

    class Bert(nn.Module):
        def __init__(self, layers, width=768, heads=12, words=5000):
            super().__init__()
            self.word, self.place, self.norm = nn.Embedding(words, width), nn.Embedding(512, width), nn.LayerNorm(width)
            self.layers = nn.ModuleList(Layer(width, heads, False) for _ in range(layers))

        def forward(self, ids, mask):
            x = self.norm(self.word(ids) + self.place(torch.arange(ids.shape[1])))
            for layer in self.layers:
                x = layer(x, (1 - mask[:, None, None, :].float()) * -1e4)
            return x

    class GptStep(nn.Module):
        """One token, with the keys and values of those before it."""

        def __init__(self, layers=6, width=512, heads=8, words=5000):
            super().__init__()
            self.word, self.norm, self.out = nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.layers = nn.ModuleList(Layer(width, heads, True) for _ in range(layers))

        def forward(self, ids, keys, values):
            x, k, v = self.word(ids), [], []
            for i, layer in enumerate(self.layers):
                x, ki, vi = layer(x, None, (keys[i], values[i]))
                k.append(ki)
                v.append(vi)
            return self.out(self.norm(x[:, -1])), torch.stack(k), torch.stack(v)

    class Conformer(nn.Module):
        """One block: half a feed-forward, attention, a gated depthwise convolution, the other half."""

        def __init__(self, width=256, heads=4, taps=31):
            super().__init__()

            def half():
                return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            self.first, self.second, self.attend = half(), half(), SelfAttention(width, heads)
            self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.open, self.close = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
            self.depth, self.batch = nn.Conv1d(width, width, taps, padding=taps // 2, groups=width), nn.BatchNorm1d(width)

        def forward(self, x):
            x = x + self.first(x) / 2
            x = x + self.attend(self.norm[0](x))[0]
            y = fn.glu(self.open(self.norm[1](x).transpose(1, 2)), 1)
            x = x + self.close(fn.silu(self.batch(self.depth(y)))).transpose(1, 2)
            return self.norm[2](x + self.second(x) / 2)

    class Crnn(nn.Module):
        """A text recognizer: convolutions over a line, two bidirectional LSTMs along it."""

        def __init__(self, symbols=96):
            super().__init__()
            self.body = nn.Sequential(ConvNorm(1, 64), nn.MaxPool2d(2), ConvNorm(64, 128), nn.MaxPool2d(2), ConvNorm(128, 256), ConvNorm(256, 256),
                                      nn.MaxPool2d((2, 1)), ConvNorm(256, 512), nn.MaxPool2d((2, 1)), nn.Conv2d(512, 512, (2, 1)), nn.ReLU())
            self.lstm, self.out = nn.LSTM(512, 256, 2, bidirectional=True), nn.Linear(512, symbols)

        def forward(self, x):
            return self.out(self.lstm(self.body(x)[:, :, 0].permute(2, 0, 1))[0]).log_softmax(-1)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(128, 256, 2, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    def image(*shape):
        return (torch.randn(1, *shape),)
    ids, mask = torch.randint(0, 5000, (1, 128)), torch.ones(1, 128, dtype=torch.int64)
    cache = torch.randn(6, 1, 8, 128, 64)
    torch.manual_seed(0)
    return {
        "resnet18": (resnet(), image(3, 224, 224)),
        "mobilenet_v2": (nn.Sequential(*mobile(), ConvNorm(320, 1280, 1, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)),
                         image(3, 224, 224)),
        "ssdlite": (Detector(), image(3, 320, 320)),
        "unet": (UNet(), image(3, 128, 128)),
        "bert4": (Bert(4), (ids, mask)),
        "bert_base": (Bert(12), (ids, mask)),
        "gpt_step": (GptStep(), (torch.tensor([[7]]), cache, cache)),
        "conformer": (Conformer(), (torch.randn(1, 200, 256),)),
        "crnn": (Crnn(), image(1, 32, 160)),
        "lstm": (Lstm(), (torch.randn(1, 50, 128),)),
    }


OPEN = {  # for each input the axes whose sizes are open in the second form of a network
    "bert4": ((0, 1), (0, 1)), "bert_base": ((0, 1), (0, 1)), "gpt_step": ((0,), (1, 3), (1, 3)), "conformer": ((0, 1),), "crnn": ((0, 3),),
    "lstm": ((0, 1),), "resnet18": ((0, 2, 3),)}


def export_open(work, only):
    """[(name, path)] of the networks of OPEN with these sizes open; those that are there already are not exported again."""
    os.makedirs(work, exist_ok=True)
    wanted = {n: os.path.join(work, n + ".onnx") for n in OPEN if only in n}
    missing = [n for n, path in wanted.items() if not os.path.exists(path)]
    if missing:
        import torch
        known = networks()
        for name in missing:
            module, inputs = known[name]
            axes = tuple(dict.fromkeys(a, torch.export.Dim.DYNAMIC) for a in OPEN[name])
            for i, open_axes in enumerate(axes):  # sizes of 1 are taken for fixed ones
                for axis in open_axes:
                    if inputs[i].shape[axis] == 1:
                        inputs = inputs[:i] + (torch.cat([inputs[i], inputs[i]], axis),) + inputs[i + 1:]
            module.eval()
            with torch.no_grad():
                torch.onnx.export(module, inputs, wanted[name], dynamo=True, opset_version=18, external_data=False, verbose=False, dynamic_shapes=axes)
    return sorted(wanted.items())


def export(work, only):
    """[(name, path)] of the networks; those that are there already are not exported again."""
    os.makedirs(work, exist_ok=True)
    known = {os.path.splitext(f)[0]: os.path.join(work, f) for f in os.listdir(work) if f.endswith(".onnx")}
    listed = os.path.join(work, "complete")
    if not os.path.exists(listed):
        import torch
        for name, (module, inputs) in networks().items():
            path = os.path.join(work, name + ".onnx")
            module.eval()
            with torch.no_grad():
                torch.onnx.export(module, inputs, path, dynamo=True, opset_version=18, external_data=False, verbose=False)
            known[name] = path
        open(listed, "w").close()
    return [(n, p) for n, p in sorted(known.items()) if only in n]


def main():
    import real  # here, for export() needs torch and not what real.py needs
    p = real.options(__doc__, "build/networks")
    p.add_argument("--time", action="store_true")
    a = p.parse_args()
    return real.summary([real.report(real.check(name, path, a)) for name, path in export(a.work, a.only)], a.out)


if __name__ == "__main__":
    sys.exit(main())
