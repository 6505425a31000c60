"""A random program of nested If, Loop and Scan, as a tree of nodes over values.

Values carry what is known about them, so that every program is valid and its numbers stay small:
their sizes, a bound of the absolute value, and (floats) how many binary places they may have. Numbers
with few places are computed exactly by everyone, so only those decide branches, become integers, or
are kept in float16. `emit` in random_graphs.py makes ONNX models of a program.
"""
import random

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64,
          "i32": np.int32, "u8": np.uint8, "bool": np.bool_}
FLOATS, INTS = ("f32", "f64", "f16"), ("i64", "i32")
LIMIT = 64          # floats beyond this are squeezed
MAX_ELEMS = 1000
HUGE = 1e6          # the ends of slices; not to be computed with


class Nope(Exception):
    """The thing that was drawn cannot be made here: draw again."""


class Sym:
    """A size that is not a constant. scope None: a size of the inputs."""

    def __init__(self, name, least, scope):
        self.name, self.least, self.scope = name, least, scope


class Val:
    def __init__(self, num, dtype, dims, bound, frac, scope):
        self.num, self.dtype, self.dims = num, dtype, dims      # dims None: rank not known
        self.bound, self.frac, self.scope = bound, frac, scope  # frac None: not exact
        self.data = None                                        # of a constant
        self.elem = None      # of a sequence (dtype "seq"): type and sizes of its items
        self.least = 0        # of a sequence: it has at least so many

    @property
    def exact(self):
        return self.frac is not None


class Node:
    def __init__(self, op, ins, outs, attrs):
        self.op, self.ins, self.outs, self.attrs = op, ins, outs, attrs
        self.subs = {}     # attribute: Scope


class Scope:
    def __init__(self, parent):
        self.parent = parent
        self.depth = parent.depth + 1 if parent else 0
        self.params, self.nodes, self.vals, self.inits, self.results = [], [], [], [], []
        self.shape_of_result = {}   # place among the results: sizes to declare to the oracle


def slice_size(d, start, end, step):
    """As ONNX has it: going backwards, a start before the first element is the first."""
    start, end = (x + d if x < 0 else x for x in (start, end))
    low, high = (0, d) if step > 0 else (-1, d - 1)
    start, end = min(max(start, 0), high), min(max(end, low), high)
    return max(0, -((start - end) // step)) if d else 0


def least(d):
    return d if isinstance(d, int) else d.least


def guess(d):
    return d if isinstance(d, int) else 4


def join_dims(a, b):
    """Sizes of a and b broadcast together, or None."""
    n, r = max(len(a), len(b)), []
    a, b = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    for x, y in zip(a, b):
        if x is not y and x != y and 1 not in (x, y):
            return None
        r.append(y if x == 1 else x)
    return tuple(r)


class Builder:
    """Adds nodes to the present scope."""

    def __init__(self, seed):
        self.r = r = random.Random(seed)
        self.seed, self.count = seed, 0
        self.opset = r.randint(13, 21)
        self.scope = self.top = Scope(None)
        self.budget = r.choice([25, 40, 60, 90])
        self.syms = [Sym("N", 1, None), Sym("M", 1, None)]
        if r.random() < .3:
            self.syms.append(Sym("Z", 0, None))

    # ---- small helpers
    def chance(self, p):
        return self.r.random() < p

    def value(self, dtype, dims, bound=None, frac="default"):
        if bound is None:
            bound = {"bool": 1, "u8": 255}.get(dtype, 8)
        if frac == "default":
            frac = 3 if dtype in FLOATS else 0
        self.count += 1
        v = Val(self.count, dtype, None if dims is None else tuple(dims), bound, frac, self.scope)
        self.scope.vals.append(v)
        return v

    def fresh(self, low=0, scope=None):
        self.count += 1
        return Sym("?%d" % self.count, low, scope or self.scope)

    def some_dims(self, rank=None, syms=False):
        rank = self.r.choice([0, 1, 1, 2, 2, 3]) if rank is None else rank
        large = self.chance(.1)     # once in a while sizes beyond a vector's width
        return tuple(self.r.choice(self.syms) if syms and self.chance(.3) else
                     self.r.choice([5, 7, 8, 9, 16, 17, 33]) if large and i == rank - 1 else self.r.randint(1, 4)
                     for i in range(rank))

    def visible(self):
        s, out = self.scope, []
        while s:
            out += s.vals
            s = s.parent
        return out

    def pick(self, test):
        usable = lambda v: v.dtype != "seq" and v.bound < HUGE and test(v)
        near = [v for v in self.scope.vals if usable(v)]
        if near and self.chance(.7):
            return self.r.choice(near[-8:] if self.chance(.5) else near)
        every = [v for v in self.visible() if usable(v)]
        return self.r.choice(every) if every else None

    def pick_seq(self, test):
        every = [v for v in self.visible() if v.dtype == "seq" and test(v)]
        return self.r.choice(every) if every else None

    def need(self, test):
        v = self.pick(test)
        if not v:
            raise Nope
        return v

    def const(self, dtype, data, frac=0):
        data = np.asarray(data, DTYPES[dtype])
        v = self.value(dtype, data.shape, frac=frac)
        v.bound = float(np.max(np.abs(data.astype(np.float64)))) if data.size else 0
        v.data = data
        if self.chance(.3):
            self.scope.inits.append(v)
        else:
            self.scope.nodes.append(Node("Constant", [], [v], {"value": data}))
        return v

    def random_array(self, dtype, shape):
        n = int(np.prod(shape)) if shape else 1
        if dtype in FLOATS:
            x = [self.r.randint(-16, 16) / 8 for _ in range(n)]
        elif dtype == "bool":
            x = [self.chance(.5) for _ in range(n)]
        else:
            x = [self.r.randint(0 if dtype == "u8" else -5, 7) for _ in range(n)]
        return np.array(x, DTYPES[dtype]).reshape(shape)

    def random_const(self, dtype, shape):
        return self.const(dtype, self.random_array(dtype, shape), 3 if dtype in FLOATS else 0)

    def op(self, name, ins, dtype, dims, bound=None, frac="default", keep=False, **attrs):
        """Adds a node; the result is squeezed unless keep."""
        self.budget -= 1
        if dims is not None:
            n = 1
            for d in dims:
                n *= guess(d)
            if n > MAX_ELEMS or len(dims) > 5:
                raise Nope
        v = self.value(dtype, dims, bound, frac)
        self.scope.nodes.append(Node(name, ins, [v], attrs))
        return v if keep else self.squeeze(v)

    def add(self, name, ins, outs, **attrs):
        """A node as it is, whose outputs there are."""
        self.budget -= 1
        self.scope.nodes.append(Node(name, ins, outs, attrs))
        return self.scope.nodes[-1]

    def squeeze(self, v):
        """v, or v brought back into range."""
        if v.dtype in FLOATS:
            cap = {"f16": 3, "f32": 12, "f64": 20}[v.dtype]
            if v.exact and v.frac > cap:
                if v.dtype != "f16":
                    v.frac = None
                else:
                    v = self.op("Floor", [v], v.dtype, v.dims, v.bound + 1, 0, keep=True)
            if v.bound > LIMIT:
                if v.exact or self.chance(.5):
                    lo, hi = self.const(v.dtype, -8), self.const(v.dtype, 8)
                    ins = [[v, lo, hi]] if v.exact else [[v, lo, hi], [v, lo], [v, None, hi]][:1]
                    return self.op("Clip", ins[0], v.dtype, v.dims, 8, v.frac, keep=True)
                return self.op("Tanh", [v], v.dtype, v.dims, 1, None, keep=True)
        elif v.dtype in INTS and v.bound > 1000:
            m = self.const(v.dtype, self.r.choice([7, 23, -11]))
            return self.op("Mod", [v, m], v.dtype, v.dims, abs(int(m.data)), keep=True)
        return v

    def numel(self, dims):
        n = 1
        for d in dims if dims is not None else (32,):
            n *= guess(d) if isinstance(d, int) or d.scope is None else 16
        return n

    # ---- conversions
    def cast(self, v, dtype):
        if v.dtype == dtype:
            return v
        bound, frac = v.bound, v.frac
        if dtype == "bool":
            if not v.exact:
                raise Nope
            return self.op("Cast", [v], dtype, v.dims, 1, 0, to=dtype)
        if dtype in FLOATS:
            if dtype == "f16" and (not v.exact or v.frac > 3 or v.bound > 64):
                if not v.exact:
                    raise Nope
                if v.dtype == "u8":
                    v = self.cast(v, "i64")
                if v.dtype in INTS:
                    v = self.op("Mod", [v, self.const(v.dtype, 31)], v.dtype, v.dims, 31)
                else:
                    v = self.op("Floor", [v], v.dtype, v.dims, v.bound + 1, 0)
                    v = self.op("Clip", [v, self.const(v.dtype, -9), self.const(v.dtype, 9)], v.dtype, v.dims, 9, 0)
                bound, frac = v.bound, v.frac
            return self.op("Cast", [v], dtype, v.dims, bound, frac, to=dtype)
        if v.dtype in FLOATS:
            if not v.exact:
                raise Nope
            lo, hi = (0, 200) if dtype == "u8" else (-200, 200)
            if dtype == "u8" or v.bound > 1e5:
                v = self.op("Clip", [v, self.const(v.dtype, lo), self.const(v.dtype, hi)], v.dtype, v.dims, hi, v.frac,
                            keep=True)
            bound = v.bound
        return self.op("Cast", [v], dtype, v.dims, min(bound, 255) if dtype == "u8" else bound, 0, to=dtype)

    def axes_op(self, name, v, axes, keep, dims, bound, frac):
        late = name == "ReduceSum" or self.opset >= 18
        attrs = {"keepdims": int(keep)}
        ins = [v]
        if axes is not None:
            if late:
                ins.append(self.const("i64", axes))
            else:
                attrs["axes"] = list(axes)
        return self.op(name, ins, v.dtype, dims, bound, frac, **attrs)

    def reduce(self, v):
        if v.dtype in ("bool", "u8"):
            v = self.cast(v, "i32")
        name = self.r.choice(["ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"])
        rank = len(v.dims)
        if name != "ReduceSum" and any(least(d) < 1 for d in v.dims):
            name = "ReduceSum"
        axes = None if rank == 0 or self.chance(.3) else self.r.sample(range(rank), self.r.randint(1, rank))
        keep = self.chance(.5)
        over = set(range(rank)) if axes is None else set(axes)
        dims = tuple(1 if i in over else d for i, d in enumerate(v.dims) if keep or i not in over)
        n = self.numel([v.dims[i] for i in over])
        if name == "ReduceMean" and v.dtype in INTS:
            name = "ReduceMax" if all(least(d) > 0 for d in v.dims) else "ReduceSum"
        if name in ("ReduceMax", "ReduceMin"):
            bound, frac = v.bound, v.frac
        elif name == "ReduceMean":
            bound, frac = v.bound, None
        else:
            bound, frac = v.bound * n, v.frac
        frac = self.sum_frac(v.dtype, bound, frac)
        if axes:
            axes = [a - rank if self.chance(.3) else a for a in axes]
        return self.axes_op(name, v, axes, keep, dims, bound, frac)

    def sum_frac(self, dtype, bound, frac):
        if dtype not in FLOATS:
            return frac
        room = {"f16": 11, "f32": 22, "f64": 45}[dtype]
        if frac is None or bound * 2 ** frac >= 2 ** room:
            if dtype == "f16":
                raise Nope
            return None
        return frac

    def scalar(self, v):
        """A scalar made of v, whatever its shape."""
        if v.dims == ():
            return v
        t = v.dtype
        if v.dtype in ("bool", "u8"):
            v = self.cast(v, "i32")
        if v.dtype == "f16":
            v = self.cast(v, "f32")
        bound = v.bound * self.numel(v.dims)
        v = self.axes_op("ReduceSum", v, None, False, (), bound, self.sum_frac(v.dtype, bound, v.frac))
        return self.cast(v, t)

    def flag(self):
        """A bool of one element."""
        ready = lambda v: v.dtype == "bool" and v.dims in ((), (1,)) and v.data is None
        v = self.pick(ready) if self.chance(.4) else None
        if not v:
            v = self.need(lambda v: v.data is None and (v.exact or v.dtype in ("f32", "f64")))
            s = self.scalar(v)
            v = s if s.dtype == "bool" else self.compare_const(s)
        if self.chance(.15):
            v = self.op("Not", [v], "bool", v.dims)
        if self.chance(.2) and v.dims == ():
            v = self.op("Unsqueeze", [v, self.const("i64", [0])], "bool", (1,))
        return v

    def compare_const(self, v):
        if v.exact:
            c = self.r.randint(-2, 3) if v.dtype != "u8" else self.r.randint(0, 200)
            name = self.r.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
        else:
            c, name = self.r.uniform(-1, 1), self.r.choice(["Less", "Greater"])
        if v.dtype == "u8" and name != "Equal":
            v = self.cast(v, "i32")
        return self.op(name, [v, self.const(v.dtype, c, None)], "bool", v.dims)

    def like(self, v, t):
        """A value with the type and the sizes of t, made of v."""
        if v.dtype != t.dtype:
            v = self.cast(v, t.dtype)
        if v.dims == t.dims:
            return v
        if v.dims is None or join_dims(v.dims, t.dims) != t.dims:
            v = self.scalar(v)
        if v.dims != ():
            pass
        elif t.dtype in FLOATS and self.chance(.5):
            half = self.op("Mul", [t, self.const(t.dtype, self.r.choice([1, -1]))], t.dtype, t.dims, t.bound, t.frac)
            return self.arith("Add", half, v)
        return self.op("Expand", [v, self.shape_of(t)], t.dtype, t.dims, v.bound, v.frac)

    def shape_of(self, t):
        if all(isinstance(d, int) for d in t.dims) and self.chance(.7):
            return self.const("i64", np.array(t.dims, np.int64))
        return self.op("Shape", [t], "i64", (len(t.dims),), 300)

    def within(self, v, bound, exact):
        """v with a bound (of carried values), as exact as asked."""
        if exact and not v.exact:
            raise Nope
        if exact and v.dtype in FLOATS and v.frac > 3:
            v = self.op("Floor", [v], v.dtype, v.dims, v.bound + 1, 0)
        if v.dtype in FLOATS and v.bound > bound:
            if exact or self.chance(.3):
                lo, hi = self.const(v.dtype, -bound), self.const(v.dtype, bound)
                return self.op("Clip", [v, lo, hi], v.dtype, v.dims, bound, v.frac)
            return self.op("Tanh", [v], v.dtype, v.dims, 1, None)
        if v.dtype in INTS and v.bound > bound:
            return self.op("Mod", [v, self.const(v.dtype, bound + 1)], v.dtype, v.dims, bound)
        return v

    # ---- plain operators
    def kinds(self):
        return [self.unary, self.unary, self.unary, self.binary, self.binary, self.binary, self.binary,
                self.matmul, self.matmul, self.reduction, self.sequence,
                self.gather, self.concat, self.slice, self.where, self.compare, self.shape, self.layout,
                self.convert, self.rare]

    def fill(self, n):
        kinds, done = self.kinds(), 0
        for _ in range(n * 6):
            if done == n:
                return
            try:
                self.r.choice(kinds)()
                done += 1
            except Nope:
                pass

    def unary(self):
        v = self.pick(lambda v: v.dtype == "f32" and v.data is None) if self.chance(.5) else None
        v = v or self.need(lambda v: v.dtype != "u8" and v.data is None)
        if v.dtype == "bool":
            return self.op("Not", [v], "bool", v.dims)
        if v.dtype in INTS or v.dtype == "f16":
            return self.op(self.r.choice(["Neg", "Abs"]), [v], v.dtype, v.dims, v.bound, v.frac)
        name = self.r.choice(["Tanh", "Sigmoid", "Relu", "Abs", "Neg", "Sin", "Cos", "Sqrt", "Exp", "Erf", "Softplus"])
        if v.dtype == "f64" and name in ("Erf", "Softplus"):
            name = "Tanh"
        if name in ("Relu", "Abs", "Neg"):
            return self.op(name, [v], v.dtype, v.dims, v.bound, v.frac)
        if name == "Sqrt":
            v = self.op("Abs", [v], v.dtype, v.dims, v.bound, v.frac)
            if v.exact:
                return self.op("Sqrt", [v], v.dtype, v.dims, v.bound + 1, None)
            name = "Sin"
        if name == "Exp" and v.bound > 4:
            name = "Sigmoid"
        return self.op(name, [v], v.dtype, v.dims, {"Exp": 55, "Softplus": v.bound + 1}.get(name, 1), None)

    def partner(self, v):
        """Something to combine with v elementwise."""
        if v.dims is not None and self.chance(.75):
            fit = lambda w: (w.dtype == v.dtype and w.dims is not None and w is not v and
                             join_dims(v.dims, w.dims) is not None)
            w = self.pick(fit)
            if w:
                return w
        if self.chance(.2):
            return v
        return self.random_const(v.dtype, self.r.choice([(), (1,)]) if v.dims else ())

    def arith(self, name, a, b):
        dims = a.dims if b.dims == () else b.dims if a.dims == () else \
            None if a.dims is None or b.dims is None else join_dims(a.dims, b.dims)
        if dims is None and not (a.dims is None and (b is a or b.dims == ()) or b.dims is None and a.dims == ()):
            raise Nope
        frac = None
        if name in ("Add", "Sub"):
            bound = a.bound + b.bound
            frac = max(a.frac, b.frac) if a.exact and b.exact else None
        elif name == "Mul":
            bound = a.bound * b.bound
            frac = a.frac + b.frac if a.exact and b.exact else None
        else:
            bound = max(a.bound, b.bound)
            frac = max(a.frac, b.frac) if a.exact and b.exact else None
        if a.dtype == "u8":
            bound = 255
        if a.dtype == "f16" and (frac is None or bound * 2 ** frac > 2000):
            raise Nope
        return self.op(name, [a, b], a.dtype, dims, bound, frac)

    def binary(self):
        v = self.need(lambda v: v.data is None)
        w = self.partner(v)
        if self.chance(.3):
            v, w = w, v
        if v.dtype == "bool":
            dims = w.dims if v.dims == () else v.dims if w.dims == () or v is w else join_dims(v.dims, w.dims)
            return self.op(self.r.choice(["And", "Or", "Xor"]), [v, w], "bool", dims)
        if v.dtype in INTS and self.chance(.25):
            d = self.const(v.dtype, self.r.choice([2, 3, -3, 5]))
            name = self.r.choice(["Div", "Mod"])
            return self.op(name, [v, d], v.dtype, v.dims, v.bound if name == "Div" else 5)
        if v.dtype == "u8":
            return self.arith(self.r.choice(["Add", "Sub", "Mul"]), v, w)
        if v.dtype in ("f32", "f64") and self.chance(.15):
            d = self.op("Abs", [w], w.dtype, w.dims, w.bound, w.frac)
            d = self.op("Add", [d, self.const(w.dtype, 1)], w.dtype, w.dims, w.bound + 1, None)
            q = self.arith("Max", v, d)
            q = self.op("Div", [v, d], v.dtype, q.dims, v.bound, None)
            return q
        return self.arith(self.r.choice(["Add", "Sub", "Mul", "Max", "Min"]), v, w)

    def compare(self):
        v = self.need(lambda v: v.data is None and (v.exact or v.dtype != "f16") and v.dtype not in ("bool", "u8"))
        if v.exact and v.dims is not None:
            w = self.pick(lambda w: w.dtype == v.dtype and w.exact and w.dims is not None and
                          join_dims(v.dims, w.dims) is not None)
            if w:
                return self.op(self.r.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), [v, w],
                               "bool", join_dims(v.dims, w.dims))
        return self.compare_const(v)

    def matmul(self):
        t = self.r.choice(["f32", "f32", "f32", "f64", "i32"])
        a = self.need(lambda v: v.dtype == t and v.dims is not None and 1 <= len(v.dims) <= 3 and v.data is None)
        k, n = a.dims[-1], self.r.randint(1, 4)
        if self.chance(.5) and isinstance(k, int):
            n = k
        b = self.pick(lambda v: v.dtype == t and v.dims is not None and len(v.dims) == 2 and v.dims[0] == k)
        if not b:
            if not isinstance(k, int) or k == 0:
                raise Nope
            b = self.random_const(t, (k, n))
        frac = a.frac + b.frac if a.exact and b.exact else None
        bound = a.bound * b.bound * guess(k)
        frac = self.sum_frac(t, bound, frac)
        if t == "f32" and len(a.dims) == 2 and self.chance(.3):
            c = self.random_const(t, (b.dims[1],)) if isinstance(b.dims[1], int) else None
            return self.op("Gemm", [a, b] + ([c] if c else []), t, (a.dims[0], b.dims[1]), bound + 2, None)
        return self.op("MatMul", [a, b], t, a.dims[:-1] + (b.dims[1],), bound, frac)

    def reduction(self):
        v = self.need(lambda v: v.data is None)
        if v.dims is None:
            return self.scalar(v)
        return self.reduce(v)

    def index(self, n, dims):
        """Indices within [0, n)."""
        if self.chance(.4):
            return self.const("i64", np.array([self.r.randrange(-n, n) for _ in range(int(np.prod(dims)))],
                                              np.int64).reshape(dims))
        v = self.need(lambda v: v.dtype in INTS and v.dims is not None and
                      (v.dims == dims or dims == () or all(least(d) > 0 for d in v.dims)))
        if v.dims != dims and dims == ():
            v = self.scalar(v)
        return self.op("Mod", [v, self.const(v.dtype, n)], v.dtype, v.dims, n - 1)

    def gather(self):
        v = self.need(lambda v: v.dims and v.data is None and any(isinstance(d, int) and d > 0 for d in v.dims))
        axis = self.r.choice([i for i, d in enumerate(v.dims) if isinstance(d, int) and d > 0])
        i = self.index(v.dims[axis], self.r.choice([(), (), (1,), (2,)]))
        if self.chance(.2) and i.dims == () and len(v.dims) == 1 and v.dtype not in ("bool",):
            # An element replaced: what code generators' loops do.
            i = self.op("Reshape", [i, self.const("i64", [1])], i.dtype, (1,), i.bound)
            u = self.pick(lambda w: w.dtype == v.dtype and w.dims == ()) or self.random_const(v.dtype, ())
            u = self.op("Reshape", [u, self.const("i64", [1])], u.dtype, (1,), u.bound, u.frac)
            frac = max(v.frac, u.frac) if v.exact and u.exact else None
            return self.op("ScatterElements", [v, i, u], v.dtype, v.dims, max(v.bound, u.bound), frac, axis=0)
        return self.op("Gather", [v, i], v.dtype, v.dims[:axis] + i.dims + v.dims[axis + 1:], v.bound, v.frac,
                       axis=axis - len(v.dims) if self.chance(.3) else axis)

    def concat(self):
        v = self.need(lambda v: v.dims)
        axis = self.r.randrange(len(v.dims))
        parts = [v]
        for _ in range(self.r.randint(1, 2)):
            fit = lambda w: (w.dtype == v.dtype and w.dims is not None and len(w.dims) == len(v.dims) and
                             all(x == y for i, (x, y) in enumerate(zip(w.dims, v.dims)) if i != axis))
            parts.insert(self.r.randint(0, len(parts)), self.need(fit))
        sizes = [p.dims[axis] for p in parts]
        n = sum(sizes) if all(isinstance(s, int) for s in sizes) else self.fresh(max(map(least, sizes)))
        fracs = [p.frac for p in parts]
        return self.op("Concat", parts, v.dtype, v.dims[:axis] + (n,) + v.dims[axis + 1:],
                       max(p.bound for p in parts), None if None in fracs else max(fracs), axis=axis)

    def slice(self):
        v = self.need(lambda v: v.dims and v.data is None)
        axis = self.r.randrange(len(v.dims))
        d = v.dims[axis]
        a, b, step = self.r.randint(-5, 5), self.r.randint(-5, 5), self.r.choice([1, 1, 2, -1, -2])
        ends = self.r.choice([b, 2 ** 31, 2 ** 63 - 1] if step > 0 else [b, -2 ** 31, -2 ** 63])
        start = self.const("i64", [a])
        n = slice_size(d, a, ends, step) if isinstance(d, int) else self.fresh()
        if self.chance(.3):
            start = self.pick(lambda w: w.dtype == "i64" and w.dims == (1,)) or start
            n = self.fresh() if start.data is None else n
            if start.data is not None and isinstance(d, int):
                n = slice_size(d, int(start.data[0]), ends, step)
        ins = [v, start, self.const("i64", [ends]), self.const("i64", [axis - len(v.dims) if self.chance(.3) else axis])]
        if step != 1 or self.chance(.3):
            ins.append(self.const("i64", [step]))
        return self.op("Slice", ins, v.dtype, v.dims[:axis] + (n,) + v.dims[axis + 1:], v.bound, v.frac)

    def where(self):
        a = self.need(lambda v: v.dims is not None)
        b = self.partner(a)
        c = self.pick(lambda v: v.dtype == "bool" and v.dims is not None and join_dims(v.dims, a.dims) is not None)
        if not c:
            c = self.flag()
        dims = join_dims(a.dims, b.dims)
        dims = dims if dims is None else join_dims(c.dims, dims)
        if dims is None:
            raise Nope
        frac = max(a.frac, b.frac) if a.exact and b.exact else None
        return self.op("Where", [c, a, b], a.dtype, dims, max(a.bound, b.bound), frac)

    def shape(self):
        v = self.need(lambda v: v.data is None)
        kind = self.r.choice(["Shape", "Size", "Reshape", "Flatten", "Identity"])
        if kind == "Shape":
            return self.op("Shape", [v], "i64", (self.fresh(0),) if v.dims is None else (len(v.dims),), 300)
        if kind == "Size":
            return self.op("Size", [v], "i64", (), 1000)
        if kind == "Identity":
            return self.op("Identity", [v], v.dtype, v.dims, v.bound, v.frac)
        n = self.fresh() if v.dims is None or not all(isinstance(d, int) for d in v.dims) else int(np.prod(v.dims))
        if isinstance(n, Sym) and v.dims is not None:
            n.least = int(np.prod([least(d) for d in v.dims]))
        if kind == "Flatten":
            return self.op("Flatten", [v], v.dtype, (1, n), v.bound, v.frac, axis=0)
        if self.chance(.2) and v.dims is not None and n != 0:
            return self.op("Reshape", [v, self.const("i64", [-1, 1])], v.dtype, (n, 1), v.bound, v.frac)
        return self.op("Reshape", [v, self.const("i64", [-1])], v.dtype, (n,), v.bound, v.frac)

    def layout(self):
        v = self.need(lambda v: v.dims is not None and v.data is None)
        rank = len(v.dims)
        kind = self.r.choice(["Transpose", "Unsqueeze", "Squeeze", "Expand", "Tile", "Split"])
        if kind == "Transpose" and rank > 1:
            p = self.r.sample(range(rank), rank)
            return self.op("Transpose", [v], v.dtype, [v.dims[i] for i in p], v.bound, v.frac, perm=p)
        if kind == "Unsqueeze":
            a = self.r.randint(0, rank)
            return self.op("Unsqueeze", [v, self.const("i64", [a])], v.dtype, v.dims[:a] + (1,) + v.dims[a:], v.bound,
                           v.frac)
        if kind == "Squeeze" and 1 in v.dims:
            a = v.dims.index(1)
            return self.op("Squeeze", [v, self.const("i64", [a])], v.dtype, v.dims[:a] + v.dims[a + 1:], v.bound, v.frac)
        if kind == "Expand":
            n = self.r.randint(2, 3)
            return self.op("Expand", [v, self.const("i64", [n] + [1] * rank)], v.dtype, (n,) + v.dims, v.bound, v.frac)
        if kind == "Tile" and rank and isinstance(v.dims[0], int):
            return self.op("Tile", [v, self.const("i64", [2] + [1] * (rank - 1))], v.dtype,
                           (2 * v.dims[0],) + v.dims[1:], v.bound, v.frac)
        if kind == "Split" and rank and isinstance(v.dims[-1], int) and v.dims[-1] >= 2:
            d = v.dims[-1]
            k = self.r.randint(1, d - 1)
            outs = [self.value(v.dtype, v.dims[:-1] + (n,), v.bound, v.frac) for n in (k, d - k)]
            self.budget -= 1
            self.scope.nodes.append(Node("Split", [v, self.const("i64", [k, d - k])], outs, {"axis": -1}))
            return outs[0]
        raise Nope

    def convert(self):
        v = self.need(lambda v: v.data is None)
        return self.cast(v, self.r.choice([t for t in DTYPES if t != v.dtype]))

    def rare(self):
        kind = self.r.choice(["TopK", "CumSum", "NonZero", "Range", "Compress", "Softmax", "Pad", "ArgMax", "recurrent"])
        if kind == "recurrent":
            return self.recurrent()
        if kind == "TopK":    # only the values: which of two equal ones comes first is not asked here
            v = self.need(lambda v: v.dtype in ("f32", "i64") and v.dims and isinstance(v.dims[-1], int) and
                          v.dims[-1] > 0 and v.data is None)
            k = self.r.randint(1, v.dims[-1])
            out = self.value(v.dtype, v.dims[:-1] + (k,), v.bound, v.frac)
            self.scope.nodes.append(Node("TopK", [v, self.const("i64", [k])], [out, None], {"axis": -1}))
            return out
        if kind == "CumSum":
            v = self.need(lambda v: v.dtype in ("f32", "f64", "i32", "i64") and v.dims and v.data is None)
            a = self.r.randrange(len(v.dims))
            bound = v.bound * guess(v.dims[a]) * 2
            return self.op("CumSum", [v, self.const("i64", a)], v.dtype, v.dims, bound,
                           self.sum_frac(v.dtype, bound, v.frac), reverse=self.r.randint(0, 1),
                           exclusive=self.r.randint(0, 1))
        if kind == "NonZero":
            v = self.need(lambda v: v.dtype in ("bool", "i64", "i32") and v.dims and v.data is None)
            return self.op("NonZero", [v], "i64", (len(v.dims), self.fresh()), 64)
        if kind == "Range":
            v = self.scalar(self.need(lambda v: v.dtype == "i64"))
            v = self.op("Mod", [v, self.const("i64", 5)], "i64", (), 5)
            return self.op("Range", [self.const("i64", 0), v, self.const("i64", 1)], "i64", (self.fresh(),), 5)
        if kind == "Compress":
            v = self.need(lambda v: v.dims and v.data is None)
            m = self.need(lambda w: w.dtype == "bool" and w.dims is not None and len(w.dims) == 1 and
                          w.dims[0] == v.dims[0])
            return self.op("Compress", [v, m], v.dtype, (self.fresh(),) + v.dims[1:], v.bound, v.frac, axis=0)
        if kind == "Softmax":
            v = self.need(lambda v: v.dtype == "f32" and v.dims and all(least(d) > 0 for d in v.dims))
            return self.op("Softmax", [v], v.dtype, v.dims, 1, None, axis=self.r.randrange(len(v.dims)))
        if kind == "Pad":
            v = self.need(lambda v: v.dtype in ("f32", "i64") and v.dims is not None and len(v.dims) == 1)
            n = v.dims[0]
            n = n + 1 if isinstance(n, int) else self.fresh(1)
            return self.op("Pad", [v, self.const("i64", [1, 0])], v.dtype, (n,), v.bound, v.frac)
        v = self.need(lambda v: v.exact and v.dtype in ("f32", "i32") and v.dims and
                      all(least(d) > 0 for d in v.dims))
        a = self.r.randrange(len(v.dims))
        return self.op("ArgMax", [v], "i64", v.dims[:a] + v.dims[a + 1:], max(guess(v.dims[a]), 8), axis=a, keepdims=0)

    def recurrent(self):
        x = self.need(lambda v: v.dtype == "f32" and v.dims is not None and len(v.dims) == 2 and v.data is None and
                      isinstance(v.dims[1], int) and v.dims[1] > 0 and least(v.dims[0]) > 0)
        name, gates = self.r.choice([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
        hidden, k = self.r.randint(1, 3), x.dims[1]
        x = self.op("Unsqueeze", [x, self.const("i64", [1])], "f32", (x.dims[0], 1, k), x.bound, x.frac)
        ins = [x] + [self.random_const("f32", (1, gates * hidden, n)) for n in (k, hidden)]
        y = self.value("f32", (x.dims[0], 1, 1, hidden), 1, None)
        last = self.value("f32", (1, 1, hidden), 1, None)
        self.budget -= 3
        self.scope.nodes.append(Node(name, ins, [y, last], {"hidden_size": hidden,
                                                            "direction": self.r.choice(["forward", "reverse"])}))
        return last

    def seq_value(self, elem, low):
        v = self.value("seq", None, 0, 0)
        v.elem, v.least = elem, low
        return v

    def item(self, elem):
        v = self.pick(lambda v: v.dtype == elem[0] and v.dims == elem[1])
        return v or self.random_const(*elem)

    def sequence(self):
        if self.opset < 14:     # no Identity of sequences, which the tame model needs
            raise Nope
        kind = self.r.choice(["new", "insert", "insert", "insert", "length", "at", "stack", "erase"])
        q = self.pick_seq(lambda v: True)
        if kind == "new" or not q:
            elem = (self.r.choice(["f32", "i64", "bool", "f16"]), self.some_dims(self.r.choice([0, 1, 1, 2])))
            n = self.r.randint(0, 2)
            ins = [self.item(elem) for _ in range(n)]
            out = self.seq_value(elem, n)
            self.scope.nodes.append(Node("SequenceConstruct", ins, [out], {}) if n else
                                    Node("SequenceEmpty", [], [out], {"dtype": elem[0]}))
            return out
        self.budget -= 1
        if kind == "insert":
            ins = [q, self.item(q.elem)]
            if self.chance(.3):
                ins.append(self.const("i64", self.r.randint(-q.least, q.least)))
            out = self.seq_value(q.elem, q.least + 1)
            self.scope.nodes.append(Node("SequenceInsert", ins, [out], {}))
            return out
        if kind == "length":
            return self.op("SequenceLength", [q], "i64", (), 30)
        if q.least == 0:
            raise Nope
        place = self.const("i64", self.r.randrange(-q.least, q.least))
        bound = {"bool": 1, "i64": 1000}.get(q.elem[0], LIMIT)
        frac = {"f16": 3, "f32": None}.get(q.elem[0], 0)
        if kind == "erase":
            out = self.seq_value(q.elem, q.least - 1)
            self.scope.nodes.append(Node("SequenceErase", [q, place], [out], {}))
            return out
        if kind == "at":
            return self.op("SequenceAt", [q, place], q.elem[0], q.elem[1], bound, frac)
        a = self.r.randint(0, len(q.elem[1]))
        return self.op("ConcatFromSequence", [q], q.elem[0], q.elem[1][:a] + (self.fresh(q.least),) + q.elem[1][a:],
                       bound, frac, axis=a, new_axis=1)
