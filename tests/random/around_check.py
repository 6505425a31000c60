#!/usr/bin/env python3
"""Compares operators around networks with the interpreter: Fourier transforms (and with numpy's in float64), choices of the
largest, suppression of boxes, reads at fractional positions, 16-bit arithmetic.

    around_check.py COUNT [--threads N] [--cpu NAME] [--seed S] [--schedule TEXT] [--braid PATH]

Models are made and compared as by layers_check.py. What is chosen must be equal, ties and NaN included.
"""
import sys

import numpy as np
from onnx import TensorProto, helper

import layers_check


class Model(layers_check.Model):
    def makers(self):
        return [self.transform, self.transform, self.inverse, self.frames, self.top, self.top, self.suppression, self.unique,
                self.grid, self.regions, self.half, self.half, self.half, self.repeat]

    def ops(self, kind, count, *inputs, **attributes):
        outs = [f"t{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outs, name=f"{kind}_{self.member}", **attributes))
        return outs

    def length(self):
        return int(self.pick(32, 33, 45, 49, 60, 64, 77, 80, 97, 100, 120, 128, 143, 169, 256, 289, 400, 961, 1024))

    def transform(self):
        n, rank = self.length(), int(self.pick(1, 2, 3))
        axis, parts, onesided = int(self.r.integers(0, rank)), int(self.pick(1, 1, 2)), bool(self.r.random() < 0.5)
        shape = [int(self.pick(1, 2, 3, 5, 33)) if rank < 3 else int(self.pick(1, 2, 7)) for _ in range(rank)]
        shape[axis] = n
        size = int(self.pick(n, n, n - 5, n + 7))
        onesided = onesided and parts == 1
        x = self.input(shape + [parts])
        y = self.op("DFT", x, self.constant(np.int64(size)), self.constant(np.int64(axis)), onesided=int(onesided))
        a = self.feed[x].astype(np.float64)
        a = a[..., 0] + (1j * a[..., 1] if parts == 2 else 0)
        z = np.fft.rfft(a, size, axis) if onesided else np.fft.fft(a, size, axis)
        self.output(y, False, f"DFT {size} of {shape}, axis {axis}, {parts} parts", (np.stack([z.real, z.imag], -1), 2e-4))

    def inverse(self):
        n, rows = self.length(), int(self.pick(1, 2, 17, 40))
        half = bool(self.r.random() < 0.5)
        x = self.input([rows, n // 2 + 1 if half else n, 2])
        y = self.op("DFT", x, self.constant(np.int64(n)), self.constant(np.int64(1)), inverse=1, onesided=int(half))
        a = self.feed[x].astype(np.float64)
        a = a[..., 0] + 1j * a[..., 1]
        z = np.fft.irfft(a, n, 1)[..., None] if half else np.fft.ifft(a, n, 1)
        self.output(y, False, f"inverse DFT {n} of {rows} rows{' half' * half}", (z if half else np.stack([z.real, z.imag], -1), 2e-4))

    def frames(self):
        n, step, count, batch = self.length(), int(self.pick(1, 10, 64, 100)), int(self.pick(1, 3, 35)), int(self.pick(1, 2))
        onesided, window = int(self.pick(0, 1)), self.r.random(n).astype(np.float32)
        x = self.input([batch, n + step * (count - 1) + int(self.r.integers(0, step)), 1])
        y = self.op("STFT", x, self.constant(np.int64(step)), self.constant(window), self.constant(np.int64(n)), onesided=onesided)
        a = self.feed[x][..., 0].astype(np.float64)
        rows = np.stack([a[:, i * step:i * step + n] * window for i in range(count)], 1)
        z = np.fft.rfft(rows) if onesided else np.fft.fft(rows)
        self.output(y, False, f"STFT {n} step {step} of {a.shape}", (np.stack([z.real, z.imag], -1), 2e-4))

    def top(self):
        dtype = self.pick(np.float32, np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64, np.float64)
        n = int(self.pick(1, 2, 7, 15, 16, 17, 64, 100, 1000, 5000, 70000))
        rank = int(self.pick(1, 2, 3)) if n < 5000 else 1
        shape, axis = [int(self.pick(1, 3, 17)) for _ in range(rank)], int(self.r.integers(0, rank))
        shape[axis] = n
        k = min(n, int(self.pick(1, 2, 5, 10, 100, n)))
        x = self.input(shape, dtype)
        flat = self.feed[x].reshape(-1)
        if dtype == np.float32 and self.r.random() < 0.4:
            flat[self.r.integers(0, flat.size, 4)] = [np.nan, np.inf, -np.inf, -0.0]
        if self.r.random() < 0.3: # many are equal
            flat[:] = np.round(flat / dtype(2))
        y = self.ops("TopK", 2, x, self.constant(np.array([k])), axis=axis, largest=int(self.pick(0, 1)))
        for i in range(2):
            self.output(y[i], True, f"TopK {k} of {shape}, axis {axis}, {np.dtype(dtype).name}")

    def suppression(self):
        n, classes, batch = int(self.pick(1, 5, 40, 300, 2000)), int(self.pick(1, 3)), int(self.pick(1, 2))
        low = self.r.random((batch, n, 2))
        center = int(self.pick(0, 1))
        boxes, scores = self.input([batch, n, 4]), self.input([batch, classes, n], low=0.0, high=1.0)
        far = self.r.random((batch, n, 2)) * 0.3
        self.feed[boxes] = np.concatenate([low, far if center else low + far - 0.02], 2).astype(np.float32)
        if self.r.random() < 0.4:
            self.feed[scores] = np.round(self.feed[scores] * 4) / np.float32(4)
        if self.r.random() < 0.3:
            self.feed[scores].reshape(-1)[0] = np.nan
        rest = [self.constant(np.array([int(self.pick(1, 3, 20, 100, n))])), self.constant(np.array([self.r.random() * 0.6], np.float32))]
        if self.r.random() < 0.7:
            rest.append(self.constant(np.array([0.3], np.float32)))
        y = self.op("NonMaxSuppression", boxes, scores, *rest, center_point_box=center)
        want = kept(self.feed[boxes], self.feed[scores], *[self.constant_value(c) for c in rest], center=center)
        self.output(y, False, f"NonMaxSuppression of {batch} {classes} {n}", (want, 1e-9))

    def constant_value(self, name):
        from onnx import numpy_helper
        return numpy_helper.to_array(next(c for c in self.constants if c.name == name))

    def unique(self):
        dtype = self.pick(np.float32, np.int64, np.int32, np.uint8, np.float64)
        x = self.input([int(self.pick(1, 7, 100, 3000))], dtype)
        self.feed[x] = np.round(self.feed[x]).astype(dtype)
        for i, y in enumerate(self.ops("Unique", 4, x, sorted=int(self.pick(0, 1)))):
            self.output(y, True, f"Unique {i} of {self.feed[x].shape} {np.dtype(dtype).name}")

    def grid(self):
        n, c, size = int(self.pick(1, 2)), int(self.pick(1, 3, 20)), self.sizes(2, 1000)
        where = self.sizes(2, 1000)
        x, at = self.input([n, c] + size), self.input([n] + where + [2], low=-1.3, high=1.3)
        how = {"mode": self.pick("linear", "nearest", "cubic"), "padding_mode": self.pick("zeros", "border", "reflection"),
               "align_corners": int(self.pick(0, 1))}
        self.output(self.op("GridSample", x, at, **how), False, f"GridSample {size} at {where} {how}")

    def regions(self):
        n, c, size, count = int(self.pick(1, 2)), int(self.pick(1, 5, 16, 19)), [int(self.pick(9, 20)), int(self.pick(7, 30))], int(self.pick(1, 4, 9))
        x, rois = self.input([n, c] + size), self.input([count, 4])
        low = self.r.uniform(-4, 40, (count, 2))
        self.feed[rois] = np.hstack([low, low + self.r.uniform(0, 50, (count, 2))]).astype(np.float32)
        how = {"output_height": int(self.pick(1, 3, 7)), "output_width": int(self.pick(2, 7)), "sampling_ratio": int(self.pick(0, 1, 2, 3)),
               "spatial_scale": float(self.pick(0.25, 1.0)), "mode": self.pick("avg", "max"),
               "coordinate_transformation_mode": self.pick("half_pixel", "output_half_pixel")}
        y = self.op("RoiAlign", x, rois, self.constant(self.r.integers(0, n, count)), **how)
        self.output(y, False, f"RoiAlign {count} of {n} {c} {size} {how}")

    def half(self):
        shape, kind = self.sizes(int(self.pick(1, 2, 3))), self.pick("Add", "Mul", "Relu", "Sigmoid", "Softmax", "Cast", "chain", "row")
        dtype = np.float16
        x = self.input(shape, dtype)
        flat = self.feed[x].reshape(-1)
        if kind in ("Add", "Mul", "Relu", "Cast") and self.r.random() < 0.5:
            flat[self.r.integers(0, flat.size, 5)] = np.array([np.nan, np.inf, -np.inf, 6e-8, -0.0], dtype)
        if kind in ("Add", "Mul"):
            y = self.op(kind, x, self.input(shape, dtype))
        elif kind == "row":
            y = self.op("Add", x, self.input([shape[-1]], dtype))
        elif kind == "chain":
            y = self.op("Relu", self.op("Sub", self.op("Mul", x, x), self.input(shape, dtype)))
        elif kind == "Cast":
            y = self.op("Cast", self.op("Cast", x, to=TensorProto.FLOAT), to=int(self.pick(TensorProto.FLOAT16, TensorProto.FLOAT)))
        else:
            y = self.op(kind, x)
        self.output(y, kind not in ("Sigmoid", "Softmax"), f"{kind} of {shape} float16")

    def repeat(self):
        shape = self.sizes(int(self.pick(1, 2, 3)), 2000)
        dtype = self.pick(np.float32, np.float16, np.int64, np.uint8)
        x, times = self.input(shape, dtype), [int(self.pick(1, 2, 3, 5)) for _ in shape]
        if self.r.random() < 0.5:
            y = self.op("Tile", x, self.constant(np.array(times)))
        else:
            pads = [int(self.r.integers(0, max(1, s // 2))) for s in shape + shape]
            y = self.op("Pad", x, self.constant(np.array(pads)), mode=self.pick("reflect", "edge", "wrap"))
        self.output(y, True, f"Tile or Pad of {shape} {np.dtype(dtype).name}")


def kept(boxes, scores, most, threshold, least=None, center=0):
    """What NonMaxSuppression selects, in float32, box by box."""
    rows, half = [], np.float32(0.5)
    for b in range(boxes.shape[0]):
        box = boxes[b]
        if center:
            low, high = box[:, :2] - box[:, 2:] * half, box[:, :2] + box[:, 2:] * half
        else:
            low, high = np.minimum(box[:, :2], box[:, 2:]), np.maximum(box[:, :2], box[:, 2:])
        area = (high - low).prod(1)
        for c in range(scores.shape[1]):
            s, have = scores[b, c], []
            for i in sorted((i for i in range(len(s)) if s[i] == s[i] and (least is None or s[i] > least[0])), key=lambda i: (-s[i], i)):
                if len(have) == most[0]:
                    break
                common = np.maximum(np.minimum(high[have], high[i]) - np.maximum(low[have], low[i]), 0).prod(1)
                if not (common / np.maximum(area[have] + area[i] - common, np.float32(1e-30)) > threshold[0]).any():
                    have.append(i)
            rows += [[b, c, i] for i in have]
    return np.array(rows, np.int64).reshape(-1, 3)


if __name__ == "__main__":
    sys.exit(layers_check.main(Model, __doc__))
