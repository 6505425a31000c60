"""Three ways to write the same computation: as an expert would, as exporters do, and as a beginner would.

    expert    one packed product for all gates, Scan over inputs, normalization folded into a convolution
    exporter  what the exporters of PyTorch and TensorFlow write: a Gemm for each linear layer, Loop with Gather,
              sequences of results, sizes by Shape and Gather, normalization as its formula
    naive     a product for each gate and each head, Concat of all rows so far at each step, activations by their
              formulas, Expand before what broadcasts

A model takes its words from g.form, the form of its graph; PLAIN, when it has none, is how models/ writes
otherwise. Weights are names; the forms store them as they need them.
"""
import numpy as np
from onnx import TensorProto, helper

FORMS = ("expert", "exporter", "naive")


def stored(g, name, make):
    """A constant of this name, made by make() the first time."""
    if name not in g.root.arrays:
        g.const(make(), name)
    return name


def columns(g, w, n):
    """The n equal parts of a matrix or a bias along its last axis: constants, or in a function nodes."""
    if w not in g.root.arrays:
        return g.Split(w, axis=-1, num_outputs=n, outputs=n)
    parts = np.split(g.root.arrays[w], n, -1)
    return [stored(g, f"{w}.{k}of{n}", lambda part=part: part) for k, part in enumerate(parts)]


class Plain:
    """How models/ writes where no form is asked for."""

    @staticmethod
    def act(g, kind, x):
        """An activation, by the name of its operator."""
        return g.node(kind, [x])

    @classmethod
    def gates(cls, g, terms, n=1, act=None):
        """The n equal parts of the sum of the terms, (rows, matrix) or a value, after act if it is given."""
        y = None
        for term in terms:
            v = g.MatMul(*term) if isinstance(term, tuple) else term
            y = v if y is None else g.Add(y, v)
        y = cls.act(g, act, y) if act else y
        return [y] if n == 1 else g.Split(y, axis=1, num_outputs=n, outputs=n)

    @staticmethod
    def softmax(g, x):
        """Over the last axis."""
        return g.Softmax(x, axis=-1)

    @staticmethod
    def norm(g, x, scale, bias, epsilon):
        """Layer normalization over the last axis."""
        return g.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon)

    @staticmethod
    def gelu(g, x):
        return g.Mul(x, g.Mul(g.Add(g.Erf(g.Div(x, float(np.sqrt(2)))), 1.0), 0.5))

    @staticmethod
    def conv_bn(g, x, weight, norm, k, stride, epsilon):
        """A convolution, padded by k/2, and the batch normalization after it: norm are names of scale, bias, mean, variance."""
        y = g.Conv(x, weight, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4)
        return g.BatchNormalization(y, *norm, epsilon=epsilon)

    @staticmethod
    def mean_image(g, x, rows, channels):
        """The mean of each channel of images: (rows, channels)."""
        return g.Reshape(g.GlobalAveragePool(x), [rows, channels])

    @staticmethod
    def linear(g, x, w, b):
        """x·w + b for rows (n, in)."""
        return g.Gemm(x, w, b)

    @classmethod
    def lstm(cls, g, gates, c):
        """The next c and h from the gates i, f, g, o."""
        i, f, n, o = (cls.act(g, kind, v) for kind, v in zip(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"), gates))
        c = g.Add(g.Mul(f, c), g.Mul(i, n))
        return c, g.Mul(o, cls.act(g, "Tanh", c))

    @staticmethod
    def zeros(g, like, axis, shape):
        """Zeros of a shape whose first size is that of `like` at an axis."""
        del like, axis
        return g.const(np.zeros(shape, np.float32))

    @staticmethod
    def rows(g, table, at):
        """The rows of a table at some numbers."""
        return g.Gather(table, at, axis=0)

    @staticmethod
    def blend(g, m, yes, no):
        """yes where m is 1, no where it is 0."""
        return g.Add(g.Mul(yes, m), g.Mul(no, g.Sub(1.0, m)))


class Expert(Plain):

    @classmethod
    def gates(cls, g, terms, n=1, act=None):
        pairs = [t for t in terms if isinstance(t, tuple)]
        rest = [t for t in terms if not isinstance(t, tuple)]
        if len(pairs) > 1:
            names = [w for _, w in pairs]
            if all(w in g.root.arrays for w in names):
                w = stored(g, "+".join(names), lambda: np.concatenate([g.root.arrays[w] for w in names]))
            else:
                w = g.Concat(*names, axis=0)
            pairs = [(g.Concat(*(x for x, _ in pairs), axis=1), w)]
        return super().gates(g, pairs + rest, n, act)

    @staticmethod
    def gelu(g, x):
        return g.Gelu(x)

    @staticmethod
    def conv_bn(g, x, weight, norm, k, stride, epsilon):
        w, scale, bias, mean, var = (g.root.arrays[v].astype(np.float64) for v in (weight, *norm))
        by = scale / np.sqrt(var + epsilon)
        w = stored(g, f"{weight}.folded", lambda: np.float32(w * by[:, None, None, None]))
        b = stored(g, f"{weight}.shift", lambda: np.float32(bias - mean * by))
        return g.Conv(x, w, b, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4)

    @staticmethod
    def blend(g, m, yes, no):
        return g.Where(g.Cast(m, to=TensorProto.BOOL), yes, no)

    @staticmethod
    def over(g, state, xs, outs, body):
        """Runs body(g, *state, *rows) -> (next state, results) over axis 0 of all xs.

        state {name: (value, type)}, xs {name: (value, type of a row)}, outs [type of a result]. Returns the last
        states, then the results of all steps on a new axis 0."""
        del outs
        return g.scan(state, xs, lambda g, *args: [[g.Identity(v) for v in part] for part in body(g, *args)])


class Exporter(Plain):

    @classmethod
    def gates(cls, g, terms, n=1, act=None):
        pairs = [t for t in terms if isinstance(t, tuple)]
        rest = [t for t in terms if not isinstance(t, tuple)]
        y = None
        for x, w in pairs:
            v = cls.linear(g, x, w, rest.pop(0) if rest and rest[0] in g.root.arrays else None)
            y = v if y is None else g.Add(y, v)
        for v in rest:
            y = v if y is None else g.Add(y, v)
        y = cls.act(g, act, y) if act else y
        if n == 1:
            return [y]
        # chunk: the size from the shape, then slices
        size = g.Div(g.Gather(g.Shape(y), g.const(1), axis=0), n)
        bounds = [g.Unsqueeze(g.Mul(size, k), [0]) for k in range(n + 1)]
        return [g.Slice(y, bounds[k], bounds[k + 1], [1]) for k in range(n)]

    @staticmethod
    def linear(g, x, w, b):
        if w not in g.root.arrays:
            return g.Gemm(x, w, b)
        return g.Gemm(x, stored(g, f"{w}.T", lambda: g.root.arrays[w].T), b, transB=1)

    @staticmethod
    def norm(g, x, scale, bias, epsilon):
        d = g.Sub(x, g.ReduceMean(x, [-1]))
        spread = g.Sqrt(g.Add(g.ReduceMean(g.Pow(d, 2.0), [-1]), float(epsilon)))
        return g.Add(g.Mul(g.Div(d, spread), scale), bias)

    @staticmethod
    def softmax(g, x):
        return g.Cast(g.Softmax(g.Cast(x, to=TensorProto.FLOAT), axis=-1), to=TensorProto.FLOAT)

    @staticmethod
    def mean_image(g, x, rows, channels):
        y = g.ReduceMean(x, [-1, -2])
        size = g.Unsqueeze(g.Gather(g.Shape(y), g.const(0), axis=0), [0])
        return g.Reshape(y, g.Concat(size, g.const([-1]), axis=0))

    @staticmethod
    def zeros(g, like, axis, shape):
        first = g.Unsqueeze(g.Gather(g.Shape(like), g.const(axis), axis=0), [0])
        return g.ConstantOfShape(g.Concat(first, g.const(list(shape[1:])), axis=0))

    @staticmethod
    def rows(g, table, at):
        return g.Gather(table, g.Cast(at, to=TensorProto.INT64), axis=0)

    @staticmethod
    def over(g, state, xs, outs, body):
        count = g.Gather(g.Shape(next(iter(xs.values()))[0]), g.const(0), axis=0)
        kept = {f"rows{n}": (g.SequenceEmpty(dtype=TensorProto.FLOAT), helper.make_sequence_type_proto(t))
                for n, t in enumerate(outs)}

        def step(g, t, *args):
            now, so_far = args[:len(state)], args[len(state):]
            nexts, results = body(g, *now, *(g.Gather(v, t, axis=0) for v, _ in xs.values()))
            return [*nexts, *(g.SequenceInsert(s, v) for s, v in zip(so_far, results))], []

        r = g.loop(count, {**state, **kept}, step, cond=g.const(True), name="steps")
        return [*r[:len(state)], *(g.ConcatFromSequence(v, axis=0, new_axis=1) for v in r[len(state):])]


class Naive(Plain):

    @staticmethod
    def act(g, kind, x):
        if kind == "Sigmoid":
            return g.Div(1.0, g.Add(1.0, g.Exp(g.Neg(x))))
        if kind == "Relu":
            return g.Max(x, 0.0)
        if kind == "Softplus":
            return g.Log(g.Add(g.Exp(x), 1.0))
        return g.node(kind, [x])

    @classmethod
    def gates(cls, g, terms, n=1, act=None):
        if n == 1:
            return super().gates(g, terms, n, act)
        parts = [[(t[0], w) for w in columns(g, t[1], n)] if isinstance(t, tuple) else columns(g, t, n) for t in terms]
        return [super(Naive, cls).gates(g, own, 1, act)[0] for own in zip(*parts)]

    @staticmethod
    def softmax(g, x):
        e = g.Exp(g.Sub(x, g.ReduceMax(x, [-1])))
        return g.Div(e, g.ReduceSum(e, [-1]))

    @staticmethod
    def norm(g, x, scale, bias, epsilon):
        shape = g.Shape(x)
        d = g.Sub(x, g.Expand(g.ReduceMean(x, [-1]), shape))
        spread = g.Sqrt(g.Add(g.ReduceMean(g.Mul(d, d), [-1]), float(epsilon)))
        return g.Add(g.Mul(g.Div(d, g.Expand(spread, shape)), g.Expand(scale, shape)), g.Expand(bias, shape))

    @staticmethod
    def gelu(g, x):
        return g.Div(g.Mul(x, g.Add(1.0, g.Erf(g.Div(x, g.Sqrt(2.0))))), 2.0)

    @staticmethod
    def conv_bn(g, x, weight, norm, k, stride, epsilon):
        if k > 1:
            x = g.Pad(x, [0, 0, k // 2, k // 2] * 2, 0.0)
        y = g.Conv(x, weight, kernel_shape=[k, k], strides=[stride] * 2)
        scale, bias, mean, var = (g.Unsqueeze(v, [0, 2, 3]) for v in norm)
        y = g.Div(g.Sub(y, mean), g.Sqrt(g.Add(var, float(epsilon))))
        return g.Add(g.Mul(y, scale), bias)

    @staticmethod
    def mean_image(g, x, rows, channels):
        sums = g.ReduceSum(g.ReduceSum(x, [3], keepdims=0), [2], keepdims=0)
        area = g.ReduceProd(g.Slice(g.Shape(x), [2], [4]), keepdims=0)
        return g.Div(sums, g.Cast(area, to=TensorProto.FLOAT))

    @staticmethod
    def linear(g, x, w, b):
        return g.Add(g.MatMul(x, w), b)

    @staticmethod
    def rows(g, table, at):
        """By a product with rows that have a one at that place."""
        size = g.root.arrays[table].shape[0]
        return g.MatMul(g.OneHot(at, size, np.float32([0, 1]), axis=-1), table)

    @staticmethod
    def blend(g, m, yes, no):
        m = g.Expand(m, g.Shape(yes))
        return g.Where(g.Greater(m, 0.5), yes, no)

    @staticmethod
    def over(g, state, xs, outs, body):
        count = g.Squeeze(g.Slice(g.Shape(next(iter(xs.values()))[0]), [0], [1]), [0])
        sizes = [[d.dim_value for d in t.tensor_type.shape.dim] for t in outs]
        kept = {f"rows{n}": (g.const(np.zeros((0, *size), np.float32)),
                             helper.make_tensor_type_proto(TensorProto.FLOAT, (None, *size)))
                for n, size in enumerate(sizes)}

        def step(g, t, *args):
            now, so_far = args[:len(state)], args[len(state):]
            at = g.Unsqueeze(t, [0])
            rows = (g.Squeeze(g.Slice(v, at, g.Add(at, 1), [0]), [0]) for v, _ in xs.values())
            nexts, results = body(g, *now, *rows)
            return [*nexts, *(g.Concat(s, g.Unsqueeze(v, [0]), axis=0) for s, v in zip(so_far, results))], []

        return g.loop(count, {**state, **kept}, step, name="steps")


def of_form(form):
    """The words of a form; of any other name, Plain."""
    return {"expert": Expert, "exporter": Exporter, "naive": Naive}.get(form, Plain)
