"""What the exporters share: a builder of ONNX graphs, and functions for the references."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .words import of_form

OPSET = 21
IR_VERSION = 10
DOMAIN = "models"  # of local functions


def F(*shape):
    """The type of a float32 tensor."""
    return helper.make_tensor_type_proto(TensorProto.FLOAT, shape)


def I(*shape):
    """The type of an int64 tensor."""
    return helper.make_tensor_type_proto(TensorProto.INT64, shape)


def B(*shape):
    """The type of a bool tensor."""
    return helper.make_tensor_type_proto(TensorProto.BOOL, shape)


def f32(v):
    return np.asarray(v, np.float32)


def i64(v):
    return np.asarray(v, np.int64)


class Graph:
    """A graph under construction; values are names.

    g.MatMul(a, b, axis=1) appends a node and returns its output; outputs=N asks for a list of N. An
    argument that is an array or a number becomes a constant (int: int64, float: float32). None is an
    optional input that is left out. Constants are initializers of the model, or nodes in a function.
    form: in which words the model is written, see models/words.py.
    """

    def __init__(self, name, outer=None, form=None):
        self.name = name
        self.root = outer.root if outer else self
        self.form = outer.form if outer else of_form(form)
        self.nodes, self.params, self.results = [], [], []
        if not outer:
            self.counter = 0
            self.initializers = []
            self.arrays = {}  # the named constants
            self.functions = []
            self.constant_nodes = False

    def fresh(self, stem):
        self.root.counter += 1
        return f"{stem}_{self.root.counter}"

    def const(self, value, name=None):
        """A constant. A name is used as given; weights have one."""
        if isinstance(value, (bool, np.bool_)):
            value = np.asarray(value, bool)
        elif isinstance(value, (int, list)):
            value = i64(value)
        elif isinstance(value, float):
            value = f32(value)
        if name:
            self.root.arrays[name] = value
        name = name or self.fresh("const")
        t = numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
        if self.root.constant_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=t))
        else:
            self.root.initializers.append(t)
        return name

    def weights(self, w):
        """Adds initializers of these names. Returns {name: name}, for use as arguments."""
        return {k: self.const(v, k) for k, v in w.items()}

    def input(self, name, type_):
        self.params.append(helper.make_value_info(name, type_))
        return name

    def output(self, value, type_=None):
        if type_ is None:
            self.results.append(helper.make_empty_tensor_value_info(value))
        else:
            self.results.append(helper.make_value_info(value, type_))

    def node(self, op, inputs, outputs=1, out=None, domain="", **attrs):
        args = ["" if v is None else v if isinstance(v, str) else self.const(v) for v in inputs]
        names = [out] if out else [self.fresh(op.lower()) for _ in range(outputs)]
        name = out or self.fresh(op)
        self.nodes.append(helper.make_node(op, args, names, name=name, domain=domain, **attrs))
        return names[0] if out or outputs == 1 else names

    def __getattr__(self, op):
        if not op[0].isupper():
            raise AttributeError(op)
        return lambda *inputs, **k: self.node(op, inputs, **k)

    def proto(self):
        return helper.make_graph(self.nodes, self.name, self.params, self.results,
                                 self.used_initializers() if self is self.root else [])

    def used_initializers(self):
        """A form may store weights in other ways than they were given."""
        def names(nodes):
            for n in nodes:
                yield from n.input
                for a in n.attribute:
                    yield from names(a.g.node)
                    yield from (v.name for v in a.g.output)
        used = {*names(self.nodes), *(v.name for v in self.results)}
        return [t for t in self.initializers if t.name in used]

    # ---- control flow ----

    def loop(self, trip, state, body, cond=None, name="loop"):
        """A Loop. state: {name: (value, type)}. body(g, i, *state) returns the next values and the
        values of scan outputs, each a list of (value, type), and optionally the condition to go
        on. Returns the final values, then the scan outputs."""
        g = Graph(self.fresh(name), self)
        i = g.input(g.fresh("i"), I())
        more = g.input(g.fresh("more"), B())
        args = [g.input(g.fresh(k), t) for k, (_, t) in state.items()]
        nexts, scans, *again = body(g, i, *args)
        g.output(again[0] if again else g.Identity(more), B())
        for v, (_, t) in zip(nexts, state.values(), strict=True):
            g.output(v if v not in args else g.Identity(v), t)
        for v in scans:
            g.output(*v if isinstance(v, tuple) else (v,))
        r = self.node("Loop", [trip, cond, *(v for v, _ in state.values())],
                      outputs=len(nexts) + len(scans), body=g.proto())
        return r if isinstance(r, list) else [r]

    def scan(self, state, xs, body, name="scan"):
        """A Scan over axis 0 of xs {name: (value, type of an element)}; otherwise like loop."""
        g = Graph(self.fresh(name), self)
        args = [g.input(g.fresh(k), t) for k, (_, t) in {**state, **xs}.items()]
        nexts, scans = body(g, *args)
        for v, (_, t) in zip(nexts, state.values(), strict=True):
            g.output(v, t)
        for v in scans:
            g.output(*v if isinstance(v, tuple) else (v,))
        r = self.node("Scan", [v for v, _ in (*state.values(), *xs.values())],
                      outputs=len(nexts) + len(scans), body=g.proto(), num_scan_inputs=len(xs))
        return r if isinstance(r, list) else [r]

    def branch(self, cond, then, otherwise, name="if"):
        """An If. Each arm is a function of its graph that returns the list of results."""
        arms = []
        for which, arm in (("then", then), ("else", otherwise)):
            g = Graph(self.fresh(f"{name}_{which}"), self)
            for v in arm(g):
                # What an arm takes from outside needs a name of its own here.
                g.output(v if any(v in n.output for n in g.nodes) else g.Identity(v))
            arms.append(g)
        r = self.node("If", [cond], outputs=len(arms[0].results), then_branch=arms[0].proto(),
                      else_branch=arms[1].proto())
        return r if isinstance(r, list) else [r]

    # ---- functions ----

    def function(self, name, params, body):
        """Adds a local function: body(g, *params) returns the list of results."""
        g = Graph(name)
        g.form = self.form
        g.constant_nodes = True
        results = body(g, *params)
        f = helper.make_function(
            DOMAIN, name, params, results, g.nodes,
            [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.braid", 1)])
        self.root.functions.append(f)

    def invoke(self, function, *args, outputs=1):
        """Calls a local function by Invoke, the operator that may recurse."""
        return self.node("Invoke", args, outputs=outputs, domain="ai.braid", function=function)

    def model(self):
        opsets = [helper.make_opsetid("", OPSET)]
        if self.functions:
            opsets += [helper.make_opsetid("ai.braid", 1), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(self.proto(), opset_imports=opsets, ir_version=IR_VERSION,
                                 functions=self.functions, producer_name="braid-models")


# ---- mathematics of the references ----


def wide(w):
    """Floats as float64, in which the references of long recurrences compute."""
    return {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in w.items()}


def narrow(*arrays):
    """Results in the model's types: float64 becomes float32."""
    return [f32(a) if a.dtype == np.float64 else a for a in map(np.asarray, arrays)]


def uniform(rng, *shape, fan=None):
    """Weights as frameworks initialize them: uniform in ±1/sqrt(fan). The default fan is the last axis."""
    k = 1 / np.sqrt(fan or shape[-1])
    return f32(rng.uniform(-k, k, shape))


def normal(rng, *shape, scale=1.0):
    return f32(rng.standard_normal(shape) * scale)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def softplus(x):
    return np.logaddexp(x, 0)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def lstm_cell(a, c):
    """Gates a (…, 4H) in order i, f, g, o; returns c and h."""
    i, f, g, o = np.split(a, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


def conv(x, w, stride=1, pad=0, bias=None):
    """2-D convolution of (N,C,H,W) by (O,C,K,K)."""
    o, _, k, _ = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    v = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::stride, ::stride]
    n, c, h, wd = v.shape[:4]
    cols = v.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * wd, c * k * k)
    y = (cols @ w.reshape(o, -1).T).reshape(n, h, wd, o).transpose(0, 3, 1, 2)
    return y if bias is None else y + bias[:, None, None]


def windows(x, k, stride, pad=0, fill=0.0):
    """Pooling windows of x: (N,C,H,W,k,k)."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::stride, ::stride]


BN_EPSILON = 1e-5


def batchnorm(x, scale, bias, mean, var):
    k = scale / np.sqrt(var + BN_EPSILON)
    return x * k[:, None, None] + (bias - mean * k)[:, None, None]


def conv_bn_weights(rng, name, cin, cout, k, gain=1.0):
    """Weights of a convolution and of the batch normalization after it."""
    return {
        f"{name}.weight": normal(rng, cout, cin, k, k, scale=np.sqrt(2 / (cin * k * k))),
        f"{name}.scale": f32(gain * rng.uniform(0.8, 1.2, cout)),
        f"{name}.bias": normal(rng, cout, scale=0.1),
        f"{name}.mean": normal(rng, cout, scale=0.1),
        f"{name}.var": f32(rng.uniform(0.8, 1.2, cout)),
    }


BN_PARTS = ("scale", "bias", "mean", "var")


def conv_bn(g, w, name, x, k, stride=1):
    """Appends the convolution (padded by k/2) and its batch normalization."""
    norm = [w[f"{name}.{p}"] for p in BN_PARTS]
    return g.form.conv_bn(g, x, w[f"{name}.weight"], norm, k, stride, BN_EPSILON)


def conv_bn_reference(w, name, x, stride=1):
    k = w[f"{name}.weight"].shape[-1]
    y = conv(x, w[f"{name}.weight"], stride, k // 2)
    return batchnorm(y, *(w[f"{name}.{p}"] for p in BN_PARTS))
