"""Random operators whose shape vectors are computed: of a length that only a run knows, and of a few whole numbers that
become a shape."""
import numpy as np

from random_model import Builder, Nope, least


class Shapes(Builder):
    def kinds(self):
        return super().kinds() + [self.open_length, self.open_length, self.sizes]

    # ---- vectors of unknown length
    def hidden(self, n):
        """[n], which no compiler can tell: a number that is always 0 is added."""
        v = self.scalar(self.need(lambda v: v.dtype == "i64" and v.data is None and v.bound < 1000))
        far = self.op("Less", [v, self.const("i64", -10 ** 9)], "bool", ())
        zero = self.op("Cast", [far], "i64", (), 0, 0, to="i64")
        s = self.op("Add", [zero, self.const("i64", n)], "i64", (), n)
        return self.op("Reshape", [s, self.const("i64", [1])], "i64", (1,), n)

    def open(self, data):
        """The vector `data`, of a length that only a run knows."""
        longer = self.const("i64", list(data) + [self.r.randint(0, 3) for _ in range(2)])
        ins = [longer, self.const("i64", [0]), self.hidden(len(data))]
        return self.op("Slice", ins, "i64", (self.fresh(len(data)),), longer.bound)

    def open_length(self):
        v = self.need(lambda v: v.dims is not None and v.data is None and len(v.dims) <= 3 and v.dtype != "bool")
        rank, dims = len(v.dims), v.dims
        kind = self.r.choice(["Reshape", "Expand", "Tile", "Squeeze", "SqueezeAll", "Unsqueeze", "ReduceSum", "Slice", "Pad",
                              "ConstantOfShape", "GatherND", "ReduceMax"])
        whole = lambda op, ins, dims=None, **attrs: self.op(op, [v] + ins, v.dtype, dims, v.bound, v.frac, **attrs)
        if kind == "Reshape":
            if not all(isinstance(d, int) and d for d in dims):
                raise Nope
            shape = self.r.choice([list(dims) + [1], [-1], [1] + list(dims), [int(np.prod(dims)), 1], [0, -1] if rank else [1]])
            return whole("Reshape", [self.open(shape)])
        if kind == "Expand":
            return whole("Expand", [self.open(self.r.choice([[2] + [1] * rank, [1] * rank, [3, 1] + [1] * rank]))])
        if kind == "Tile" and all(isinstance(d, int) for d in dims):
            times = [self.r.randint(1, 2) for _ in dims]
            return whole("Tile", [self.open(times)], [d * t for d, t in zip(dims, times)])
        if kind == "Squeeze" and 1 in dims:
            ones = [i for i, d in enumerate(dims) if d == 1]
            return whole("Squeeze", [self.open([i - self.r.choice([0, rank]) for i in self.r.sample(ones, self.r.randint(1, len(ones)))])])
        if kind == "SqueezeAll" and not all(isinstance(d, int) for d in dims):
            return whole("Squeeze", [])
        if kind == "Unsqueeze":
            n = self.r.randint(1, 2)
            axes = [a - self.r.choice([0, rank + n]) for a in self.r.sample(range(rank + n), n)]
            return whole("Unsqueeze", [self.open(axes)])
        if kind == "ReduceSum" and rank and v.dtype in ("f32", "f64", "i32", "i64"):
            bound = v.bound * self.numel(dims)
            return self.op("ReduceSum", [v, self.open(self.r.sample(range(rank), self.r.randint(1, rank)))], v.dtype, None, bound,
                           self.sum_frac(v.dtype, bound, v.frac), keepdims=self.r.randint(0, 1))
        if kind == "ReduceMax" and rank and self.opset >= 18 and v.dtype in ("f32", "i32", "i64") and all(least(d) > 0 for d in dims):
            return whole("ReduceMax", [self.open([self.r.randrange(-rank, rank)])], keepdims=0)
        if kind == "Slice" and rank:
            n = self.r.randint(1, rank)
            ins = [self.open([self.r.randint(-3, 2) for _ in range(n)]), self.open([self.r.randint(-2, 4) for _ in range(n)]),
                   self.open(self.r.sample(range(rank), n))][:2 + self.r.randint(0, 1)]
            if self.chance(.3) and len(ins) == 3:
                ins.append(self.open([self.r.choice([1, 2, -1]) for _ in range(n)]))
            return whole("Slice", ins, [self.fresh() for _ in dims])
        if kind == "Pad" and rank and v.dtype in ("f32", "i64"):
            pads = [self.r.randint(0, 2) for _ in range(2 * rank)]
            return whole("Pad", [self.open(pads)], [d + pads[i] + pads[rank + i] if isinstance(d, int) else self.fresh()
                                                    for i, d in enumerate(dims)])
        if kind == "ConstantOfShape":
            return self.op("ConstantOfShape", [self.open([self.r.randint(1, 3) for _ in range(self.r.randint(0, 3))])], "f32", None,
                           2, 1, value=np.array([1.5], np.float32))
        if kind == "GatherND" and rank and all(isinstance(d, int) and d for d in dims):
            k = self.r.randint(1, rank)
            at = self.op("Reshape", [self.open([self.r.randrange(-d, d) for d in dims[:k]]), self.const("i64", [1, -1])], "i64",
                         (1, self.fresh(1)), 4)
            return whole("GatherND", [at])
        raise Nope

    # ---- few whole numbers that become a shape
    def sizes(self):
        v = self.need(lambda v: v.dims and v.data is None and len(v.dims) <= 3)
        s = self.op("Shape", [v], "i64", (len(v.dims),), 300)
        for _ in range(self.r.randint(1, 4)):
            s = self.step(s)
        if len(s.dims) != 1 or not isinstance(s.dims[0], int) or not 0 < s.dims[0] <= 4:
            raise Nope
        s = self.op("Mod", [s, self.const("i64", 3)], "i64", s.dims, 2)
        if self.chance(.5):
            s = self.op("Add", [s, self.const("i64", 1)], "i64", s.dims, 3)
        x = self.pick(lambda w: w.dims == () and w.dtype != "bool") or self.random_const("f32", ())
        return self.op("Expand", [x, s], x.dtype, [self.fresh() for _ in range(s.dims[0])], x.bound, x.frac)

    def step(self, s):
        """A vector of whole numbers made of the vector s."""
        n = s.dims[0]
        kind = self.r.choice(["SplitToSequence", "Split", "CumSum", "ScatterElements", "TopK", "Where", "Tile", "float", "insert",
                              "Compress", "loop"])
        if kind == "SplitToSequence" and self.opset >= 14:
            q = self.seq_value(("i64", (1,)), n)
            self.add("SplitToSequence", [s], [q], axis=0)
            a = self.op("SequenceAt", [q, self.const("i64", self.r.randrange(-n, n))], "i64", (1,), s.bound)
            return self.op("Concat", [a, s], "i64", (n + 1,), s.bound, axis=0)
        if kind == "insert" and self.opset >= 14:
            q, more = self.seq_value(("i64", (n,)), 1), self.seq_value(("i64", (n,)), 2)
            self.add("SequenceConstruct", [s], [q])
            self.add("SequenceInsert", [q, self.random_const("i64", (n,)), self.const("i64", self.r.randint(0, 1))], [more])
            return self.op("ConcatFromSequence", [more], "i64", (2 * n,), max(s.bound, 8), axis=0)
        if kind == "Split" and n > 1:
            parts = [self.value("i64", (k,), s.bound, 0) for k in (1, n - 1)]
            self.add("Split", [s, self.const("i64", [1, n - 1])], parts, axis=0)
            return self.op("Concat", parts[::-1], "i64", (n,), s.bound, axis=0)
        if kind == "CumSum":
            return self.op("CumSum", [s, self.const("i64", 0)], "i64", (n,), s.bound * n, reverse=self.r.randint(0, 1),
                           exclusive=self.r.randint(0, 1))
        if kind == "ScatterElements":
            k = self.r.randint(1, n)
            at = self.op("Mod", [self.op("Slice", [s, self.const("i64", [0]), self.const("i64", [k])], "i64", (k,), s.bound),
                                 self.const("i64", n)], "i64", (k,), n) if self.chance(.3) and k == 1 else \
                self.const("i64", [i - self.r.choice([0, n]) for i in self.r.sample(range(n), k)])
            return self.op("ScatterElements", [s, at, self.random_const("i64", (k,))], "i64", (n,), max(s.bound, 8), axis=0)
        if kind == "TopK":
            k = self.r.randint(1, n)
            out = self.value("i64", (k,), s.bound, 0)
            self.add("TopK", [s, self.const("i64", [k])], [out, None], axis=0, largest=self.r.randint(0, 1))
            return out
        if kind == "Where":
            c = self.op("Greater", [s, self.const("i64", self.r.randint(0, 4))], "bool", (n,))
            return self.op("Where", [c, s, self.random_const("i64", (n,))], "i64", (n,), max(s.bound, 8))
        if kind == "Tile" and n < 3:
            return self.op("Tile", [s, self.const("i64", [2])], "i64", (2 * n,), s.bound)
        if kind == "float":
            x = self.op("Cast", [s], "f32", (n,), s.bound, 0, keep=True, to="f32")
            x = self.op("Mul", [x, self.const("f32", self.r.choice([.5, 1.5, 2]), 1)], "f32", (n,), 2 * s.bound, 1, keep=True)
            x = self.op(self.r.choice(["Floor", "Ceil"]), [x], "f32", (n,), 2 * s.bound, 0, keep=True)
            return self.op("Cast", [x], "i64", (n,), 2 * s.bound, 0, to="i64")
        if kind == "Compress" and n > 1:
            keep = [self.chance(.6) for _ in range(n - 1)] + [True]
            return self.op("Compress", [s, self.const("bool", keep)], "i64", (sum(keep),), s.bound, axis=0)
        if kind == "loop":
            return self.few_trips(s)
        raise Nope

    def few_trips(self, s):
        """A loop of few iterations that makes s longer."""
        n, trips = s.dims[0], self.r.randint(1, 2)
        outer = self.scope
        b = self.body([("i64", (), trips, 0), ("bool", (), 1, 0), ("i64", None, s.bound, 0)])
        at = self.op("Gather", [s, self.const("i64", [self.r.randrange(-n, n)])], "i64", (1,), s.bound)
        at = self.op("Add", [at, b.params[0]], "i64", (1,), s.bound + trips)
        b.results = [b.params[1], self.op("Concat", [b.params[2], at], "i64", None, s.bound + trips, axis=0)]
        self.scope = outer
        out = self.value("i64", (n + trips,), s.bound + trips, 0)
        self.add("Loop", [self.const("i64", trips), self.const("bool", True), s], [out]).subs["body"] = b
        return out
