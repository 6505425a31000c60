"""A plain evaluator of ONNX models with If, Loop, Scan and ai.braid:Invoke, by numpy: of each pair of function and
arguments that a run meets it computes one activation, and it knows how many there would be without that, and how deep.

It knows the operators that recursive_model.py uses, in their newest form.
"""
import functools

import numpy as np
from onnx import helper, numpy_helper

DTYPE = helper.tensor_dtype_to_np_dtype
BY_VALUE = 64    # elements of an argument above which equal arrays are those that are one


DEEPEST = 1000    # of what is no fault


class Fault(Exception):
    """What a run ends with: an index that is outside, or a function that needs itself. The text is part of the message."""


def fault(model, inputs, visits):
    """Part of the message that a run ends with, or None if it does not, or if the plain recursion visits more nodes before."""
    reference = Reference(model)
    try:
        reference.run(inputs)
    except Fault as e:
        return str(e) if reference.total < visits else None
    except RecursionError:    # the plain recursion takes too long to find out
        return None
    return None


def gather(x, i, axis=0):
    n = x.shape[axis]
    if i.size and (i.min() < -n or i.max() >= n):
        bad = i[(i < -n) | (i >= n)]
        raise Fault("index %d is outside [%d, %d)" % (bad.flat[0], -n, n))
    return np.take(x, i, axis)


def split(x, axis=0, num_outputs=1):
    return tuple(np.split(x, num_outputs, axis))


def slice_(x, begin, end, axes):
    at = [slice(None)] * x.ndim
    for b, e, a in zip(begin, end, axes):
        at[a] = slice(b, e)
    return x[tuple(at)]


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def reduce_by(f):
    return lambda x, axes=None, keepdims=1: f(x, None if axes is None else tuple(axes), keepdims=bool(keepdims)).astype(x.dtype)


def gemm(a, b, c=None, transB=0):
    y = a @ (b.T if transB else b)
    return y if c is None else y + c


OPERATORS = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a // b if a.dtype.kind == "i" else a / b, "Mod": lambda a, b: np.mod(a, b),
    "Max": lambda *a: functools.reduce(np.maximum, a), "Min": lambda *a: functools.reduce(np.minimum, a),
    "Neg": lambda a: -a, "Abs": np.abs, "Tanh": np.tanh, "Sin": np.sin, "Relu": lambda a: np.maximum(a, a.dtype.type(0)),
    "Sigmoid": lambda a: 1 / (1 + np.exp(-a)), "Softmax": softmax, "MatMul": np.matmul, "Gemm": gemm,
    "Identity": lambda a: a, "Cast": lambda a, to: a.astype(DTYPE(to)),
    "Equal": lambda a, b: a == b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b,
    "LessOrEqual": lambda a, b: a <= b, "GreaterOrEqual": lambda a, b: a >= b,
    "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Where": np.where,
    "Gather": gather, "Concat": lambda *a, axis: np.concatenate(a, axis), "Split": split, "Slice": slice_,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)), "Squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes)),
    "Reshape": lambda x, shape: np.reshape(x, shape), "Transpose": lambda x, perm: np.transpose(x, perm),
    "ReduceSum": reduce_by(np.sum), "ReduceMean": reduce_by(np.mean), "ReduceMax": reduce_by(np.max),
    "Shape": lambda x: np.array(x.shape, np.int64), "Size": lambda x: np.array(x.size, np.int64),
    "Constant": lambda value: numpy_helper.to_array(value),
    "RandomNormal": lambda shape, dtype=1: np.ones(shape, DTYPE(dtype)),    # models multiply it by zero
}


class Reference:
    """run(inputs) gives the outputs; then visits is the number of activations of the plain recursion, depth that of the
    deepest one, and nodes the number of activations that differ."""

    def __init__(self, model):
        self.graph = model.graph
        self.functions = {f.name: f for f in model.functions}
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.attributes = {}    # of nodes, as keyword arguments

    def run(self, inputs):
        self.known, self.alive, self.active = {}, [], {}
        self.visits = self.depth = self.below = self.total = 0
        with np.errstate(all="ignore"):
            out = self.results(self.graph, {**self.constants, **inputs})
        self.depth, self.nodes = self.below, len(self.known)
        return out

    def results(self, graph, values):
        self.nodes_of(graph.node, values)
        return [values[v.name] for v in graph.output]

    def nodes_of(self, nodes, values):
        for n in nodes:
            args = [values[k] if k else None for k in n.input]
            while args and args[-1] is None:
                args.pop()
            out = self.one(n, args, values)
            for name, v in zip(n.output, out if isinstance(out, (tuple, list)) else [out], strict=True):
                values[name] = np.asarray(v)

    def one(self, n, args, values):
        if n.op_type in CONTROL:
            attrs = {a.name: helper.get_attribute_value(a) for a in n.attribute}
            return CONTROL[n.op_type](self, attrs, args, values)
        key = id(n)
        if key not in self.attributes:
            self.attributes[key] = {a.name: helper.get_attribute_value(a) for a in n.attribute}, n
        y = OPERATORS[n.op_type](*args, **self.attributes[key][0])
        if isinstance(y, np.ndarray) and args and y.dtype.kind == "f" and isinstance(args[-1], np.ndarray) and args[-1].dtype.kind == "f":
            y = y.astype(args[-1].dtype, copy=False)
        return y

    def if_(self, attrs, args, values):
        return self.results(attrs["then_branch" if args[0].item() else "else_branch"], dict(values))

    def loop(self, attrs, args, values):
        body = attrs["body"]
        trips, more, *state = args + [None] * (2 - len(args))
        i, go, scans = 0, more is None or bool(more.item()), None
        carried = len(body.input) - 2
        stacks = [[] for _ in body.output[1 + carried:]]
        while go and (trips is None or i < trips.item()):
            inner = {**values, body.input[0].name: np.array(i, np.int64), body.input[1].name: np.array(True)}
            inner.update(zip((v.name for v in body.input[2:]), state))
            go, *out = self.results(body, inner)
            go, state, scans = bool(go.item()), out[:carried], out[carried:]
            for s, v in zip(stacks, scans):
                s.append(v)
            i += 1
        return state + [self.stacked(s, v) for s, v in zip(stacks, body.output[1 + carried:])]

    @staticmethod
    def stacked(parts, declared):
        t = declared.type.tensor_type
        return np.stack(parts) if parts else np.zeros([0] + [d.dim_value for d in t.shape.dim], DTYPE(t.elem_type))

    def scan(self, attrs, args, values):
        body, m = attrs["body"], attrs["num_scan_inputs"]
        state, xs = args[:-m], args[-m:]
        stacks = [[] for _ in body.output[len(state):]]
        for row in zip(*xs):
            inner = {**values, **dict(zip((v.name for v in body.input), state + [np.asarray(v) for v in row]))}
            out = self.results(body, inner)
            state = out[:len(state)]
            for s, v in zip(stacks, out[len(state):]):
                s.append(v)
        return state + [self.stacked(s, v) for s, v in zip(stacks, body.output[len(state):])]

    def invoke(self, attrs, args, values):
        f = self.functions[attrs["function"].decode()]
        self.alive.append(args)    # so that no two have one id
        key = (f.name, *((a.shape, a.dtype.char, a.tobytes()) if a.size <= BY_VALUE else id(a) for a in args))
        if key in self.active or len(self.active) > DEEPEST:    # most of the visits have to lead deeper
            deeper, since = self.active.get(key, (0, 0))
            if self.total - since > 1.3 * (len(self.active) - deeper):
                raise RecursionError
            raise Fault("needs a depth of more than")
        if key not in self.known:
            self.active[key] = len(self.active), self.total
            self.total += 1
            before, self.visits = self.visits, 1
            outer, self.below = self.below, 0
            inner = dict(zip(f.input, args))
            self.nodes_of(f.node, inner)
            self.known[key] = [inner[k] for k in f.output], self.visits, self.below + 1
            self.visits, self.below = before, outer
            del self.active[key]
        else:
            self.total += self.known[key][1]
        out, visits, depth = self.known[key]
        self.visits += visits
        self.below = max(self.below, depth)
        return out


CONTROL = {"If": Reference.if_, "Loop": Reference.loop, "Scan": Reference.scan, "Invoke": Reference.invoke}
