#!/usr/bin/env python3
"""Ways to write what the compiler takes for something simpler, and ways that are nearly such, against numpy: products with
one-hot rows (numbers out of range, weights with infinities), with a second product, in a concatenation; rows put into a
carried tensor by Concat and by Where; rows that grow in a loop; products put together piece by piece; the logistic function by its formula.

    ways_check.py [COUNT] [--seed S] [--braid PATH] [--target T]...
"""
import os
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)
sys.path.insert(0, os.path.join(ROOT, "tests"))
import backend_test  # noqa: E402
import seeded  # noqa: E402
from models.common import F, Graph, I, f32  # noqa: E402

MEMBERS = 12  # of a model


class Model:
    def __init__(self, seed):
        self.r, self.g = np.random.default_rng(seed), Graph("ways")
        self.inputs, self.expected = [], []

    def input(self, x):
        self.inputs.append(x)
        return self.g.input(f"x{len(self.inputs)}", (I if x.dtype == np.int64 else F)(*x.shape))

    def output(self, v, x):
        self.g.output(self.g.Identity(v, out=f"y{len(self.expected)}"), (I if x.dtype == np.int64 else F)(*x.shape))
        self.expected.append(x)

    def size(self):
        return int(self.r.choice([1, 2, 7, 16, 33, 64]))

    def one_hot(self):
        """Rows of a table by a product: with numbers of the run, some out of range."""
        g, r = self.g, self.r
        n, m, rows = self.size() + 1, self.size(), self.size()
        w = r.normal(size=(n, m)).astype(np.float32)
        if r.random() < 0.2:
            w[r.integers(n), r.integers(m)] = r.choice([np.inf, np.nan])
        at = r.integers(-n - 2, n + 3, rows)
        kind = r.choice(["operator", "cast", "where"])
        index = self.input(at)
        hit = np.arange(n) == (np.where(at < 0, at + n, at) if kind == "operator" else at)[:, None]
        high = f32(r.choice([1, 1, 2.5])) if kind != "cast" else f32(1)
        if kind == "operator":
            hot = g.OneHot(index, n, np.float32([0, high]), axis=-1)
        else:
            equal = g.Equal(g.Unsqueeze(index, [1]), g.Range(0, n, 1))
            hot = g.Cast(equal, to=1) if kind == "cast" else g.Where(equal, high, np.float32(0))
        hot_rows = np.where(hit, high, f32(0))
        with np.errstate(all="ignore"):
            y, want = g.MatMul(hot, w), hot_rows @ w
            if r.random() < 0.6:  # the rows go through a product, perhaps beside others
                x = r.normal(size=(rows, self.size() + 8)).astype(np.float32)
                beside = r.random() < 0.5 and m >= 8
                w2 = r.normal(size=(m + (x.shape[1] if beside else 0), self.size())).astype(np.float32)
                if beside:
                    y, want = g.Concat(y, self.input(x), axis=1), np.concatenate([want, x], 1)
                y, want = g.MatMul(y, w2), want @ w2
        self.output(y, want)

    def rows_put(self):
        """A row at a time is put into a carried tensor, at or near the iteration's number."""
        g, r = self.g, self.r
        n, m = self.size() + 2, self.size()
        start, steps, wide = int(r.integers(0, n)), int(r.integers(1, n + 1)), int(r.choice([1, 1, 2]))
        steps = min(steps, (n - start) // wide)
        x, step = r.normal(size=(2, n, m)).astype(np.float32), r.normal(size=(1, m)).astype(np.float32)
        kind = r.choice(["concat", "where", "scatter"]) if wide == 1 else "concat"
        reads = r.random() < 0.3  # the old value is read again, after the row is put
        old = self.input(x)

        def body(g, i, cache):
            at = g.Add(g.Mul(i, wide), start)
            new = g.Expand(g.Mul(step, g.Cast(at, to=1)), [2, wide, m])
            if kind == "concat":
                a, b = g.Unsqueeze(at, [0]), g.Unsqueeze(g.Add(at, wide), [0])
                put = g.Concat(g.Slice(cache, [0], a, [1]), new, g.Slice(cache, b, [n], [1]), axis=1)
            elif kind == "where":
                mask = g.Unsqueeze(g.Equal(g.Range(0, n, 1), at), [0, 2])
                put = g.Where(g.Expand(mask, g.Shape(cache)), new, cache)
            else:
                put = g.ScatterElements(cache, g.Expand(at, [2, 1, m]), new, axis=1)
            return [g.Add(put, g.Mul(cache, 0.5)) if reads else put], []

        last, = g.loop(steps, {"cache": (old, F(2, n, m))}, body)
        want = x.copy()
        for i in range(steps):
            put, at = want.copy(), start + i * wide
            put[:, at:at + wide] = step * f32(at)
            want = put + want * f32(0.5) if reads else put
        self.output(last, want)

    def pieces(self):
        """Products that are computed one by one and put together; of some, one is not like the others."""
        g, r = self.g, self.r
        n, rows, inner, width = int(r.integers(3, 9)), self.size(), self.size(), int(r.choice([1, 3, 8, 16]))
        x = r.normal(size=(rows, n * inner)).astype(np.float32)
        odd = r.choice(["none", "none", "act", "wide", "used", "order"])
        each = r.choice(["slice", "same", "split"])
        value, found, want, used = self.input(x), [], [], None
        split = g.Split(value, axis=1, num_outputs=n, outputs=n)
        for k in range(n):
            at = (n - 1 - k if k < 2 else k) if odd == "order" else k
            a = x[:, :inner] if each == "same" else x[:, at * inner:(at + 1) * inner]
            part = split[at] if each == "split" else g.Slice(value, [0 if each == "same" else at * inner],
                                                             [inner if each == "same" else (at + 1) * inner], [1])
            w = r.normal(size=(inner, width + (odd == "wide" and k == 1))).astype(np.float32)
            b, scale = r.normal(size=w.shape[1]).astype(np.float32), f32(0.5 * k + 1.5)
            y, v = g.Mul(g.Add(g.MatMul(part, w), b), scale), (a @ w + b) * scale
            if odd == "act" and k == 1:
                y, v = g.Neg(y), -v
            if odd == "used" and k == 1:
                used = y, v
            y, v = g.Tanh(y), np.tanh(v)
            if inner == w.shape[1]:
                y, v = g.Mul(y, part), v * a
            found.append(y)
            want.append(v)
        axis = int(r.integers(0, 3))
        if axis < 2 and (axis or odd != "wide"):
            self.output(g.Concat(*found, axis=axis), np.concatenate(want, axis))
        elif odd != "wide":
            self.output(g.Concat(*(g.Unsqueeze(y, [1]) for y in found), axis=1), np.stack(want, 1))
        else:
            self.output(g.Concat(*found, axis=1), np.concatenate(want, 1))
        if used:
            self.output(*used)

    def rows_grown(self):
        """Rows that a loop appends one by one, and what is computed from all of them behind it."""
        g, r = self.g, self.r
        steps, m, first = int(r.integers(0, 7)), self.size(), int(r.integers(0, 3))
        x, row = r.normal(size=(first, m)).astype(np.float32), r.normal(size=(1, m)).astype(np.float32)
        dynamic = r.random() < 0.3
        count = self.input(np.int64(steps)) if dynamic else g.const(steps)
        twice = r.random() < 0.3  # two rows an iteration

        def body(g, i, rows):
            new = g.Mul(row, g.Cast(i, to=1))
            return [g.Concat(rows, *([new] * (1 + twice)), axis=0)], []

        w = r.normal(size=(m, 5)).astype(np.float32)
        rows, = g.loop(count, {"rows": (self.input(x), F(None, m))}, body)
        all_ = np.concatenate([x, *(row * f32(i) for i in range(steps) for _ in range(1 + twice))])
        self.output(g.MatMul(rows, w), all_ @ w)
        self.output(g.Shape(rows), np.int64([first + steps * (1 + twice), m]))

    def logistic(self):
        g, r = self.g, self.r
        x = np.float32([*r.normal(size=self.size()) * 5, 0, -0.0, 88, -88, 104, -104, 1e4, -1e4, np.inf, -np.inf, np.nan])
        v = self.input(x)
        power = g.Exp(g.Neg(v)) if r.random() < 0.5 else g.Exp(g.Mul(v, -1.0))
        top = r.choice(["one", "x", "two"])
        with np.errstate(all="ignore"):
            d = 1 + np.exp(-x.astype(np.float64))
            want = {"one": 1 / d, "x": x / d, "two": 2 / d}[top]
        divisor = g.Add(1.0, power) if r.random() < 0.5 else g.Add(power, 1.0)
        y = g.Div({"one": g.const(1.0), "x": v, "two": g.const(2.0)}[top], divisor)
        # x / (1 + exp(-x)) where x is -infinity is NaN in every way to write it.
        self.output(y, f32(want))


def model(seed):
    m = Model(seed)
    for kind in m.r.choice(["one_hot", "rows_put", "rows_grown", "pieces", "logistic"], MEMBERS):
        getattr(m, kind)()
    return m.g.model(), m.inputs, m.expected


def main():
    args = seeded.options(__doc__, 6)
    with seeded.folders(args) as made:
        for seed, folder in made.items():
            backend_test.write(folder, *model(seed))
        failed = seeded.test(args, made.values())
    print(f"{args.count} models of {MEMBERS} ways")
    sys.exit(failed or not args.count)


if __name__ == "__main__":
    main()
