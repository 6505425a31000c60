"""Nodes of com.microsoft to compare with ONNX Runtime: what random ones are made of, and what it gives for them."""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

ort.set_default_logger_severity(4)

F32, F16, F64 = np.float32, np.float16, np.float64
U8, I8, I32, I64 = np.uint8, np.int8, np.int32, np.int64
MS = "com.microsoft"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
TOLERANCE = {np.dtype(F32): (1e-4, 2e-5), np.dtype(F64): (1e-9, 1e-11), np.dtype(F16): (4e-3, 2e-3)}
onnx_type = helper.np_dtype_to_tensor_dtype


class Draws:
    """What random nodes are drawn by."""

    def __init__(self, seed):
        self.r = np.random.default_rng(seed)

    def pick(self, *v):
        return v[self.r.integers(len(v))]

    def chance(self, p=0.5):
        return self.r.random() < p

    def int(self, lo, hi):
        return int(self.r.integers(lo, hi + 1))


class Random(Draws):
    def __init__(self, seed):
        super().__init__(seed)
        self.half = self.chance(0.15)  # float32 values are such that float16 has them

    def shape(self, lo=0, hi=4, most=6):
        return [self.int(1, most) for _ in range(self.int(lo, hi))]

    def f(self, *shape, t=F32):
        v = self.r.standard_normal(shape).astype(t)
        return v.astype(F16).astype(t) if self.half else v

    def q(self, t, *shape):
        """8- or 16-bit integers of the whole range."""
        i = np.iinfo(t)
        return self.r.integers(i.min, i.max + 1, shape).astype(t)

    def number(self, v):
        """A number as a scalar or as a vector of one."""
        return np.asarray(v) if self.chance() else np.asarray(v).reshape(1)

    def scale(self, lo=0.003, hi=0.1):
        return self.number(F32(self.r.uniform(lo, hi)))

    def zero(self, t):
        return self.number(t(self.pick(0, np.iinfo(t).min, np.iinfo(t).max, 3, self.int(0, 100))))


class Case:
    """One node: its inputs (None: absent), attributes and what its outputs are (None: not wanted)."""

    def __init__(self, op, inputs, attrs=None, want=None, outs=1, near=None, tol=None, name=MS, wanted=None):
        self.op, self.inputs, self.attrs, self.domain = op, inputs, attrs or {}, name
        self.want = want if want is not None else run(op, inputs, self.attrs, outs, name)
        self.want = [w if wanted is None or k in wanted else None for k, w in enumerate(self.want)]
        self.near = near  # where the (only) output may differ by one step
        self.tol = tol
        self.seed = 0
        self.loose = None  # a tolerance that a few of such nodes may need
        self.flipped = False

    def __str__(self):
        text = lambda v: "-" if v is None else f"{v.dtype}{list(v.shape)}"
        return f"{self.op} {' '.join(map(text, self.inputs))} -> {' '.join(map(text, self.want))} {self.attrs}"

    def wrong(self, got):
        """None, or what is wrong."""
        for w, v in zip([w for w in self.want if w is not None], got):
            if v.dtype != w.dtype or v.shape != w.shape:
                return f"an output is {v.dtype} {v.shape}, not {w.dtype} {w.shape}"
            if np.issubdtype(w.dtype, np.floating):
                rtol, atol = self.tol or TOLERANCE[w.dtype]
                bad = ~np.isclose(v.astype(F64), w.astype(F64), rtol, atol, equal_nan=True)
                if self.loose and bad.any():
                    self.flipped, bad = True, ~np.isclose(v, w, 0, self.loose)
            else:
                off = np.abs(v.astype(I64) - w.astype(I64))
                bad = off > (0 if self.near is None else self.near)
            if bad.any():
                at = tuple(np.argwhere(bad)[0])
                return f"{bad.sum()} of {bad.size} values differ, the first at {at}: {v[at]}, not {w[at]}"
        return None


def halved(case):
    """The same in float16."""
    half = lambda v: v.astype(F16) if v is not None and v.dtype == F32 else v
    case.inputs, case.want, case.tol = [half(v) for v in case.inputs], [half(v) for v in case.want], None
    return case


def node_of(op, inputs, outputs, attrs, domain, prefix=""):
    names = [f"{prefix}x{i}" if v is not None else "" for i, v in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    return helper.make_node(op, names, outputs, domain=domain, **attrs)


def info(name, v, dynamic=False):
    shape = [f"{name}_{i}" for i in range(v.ndim)] if dynamic else v.shape
    return helper.make_tensor_value_info(name, onnx_type(v.dtype), shape)


def run(op, inputs, attrs, outs=1, domain=MS, threads=1):
    """What ONNX Runtime gives."""
    outputs = [f"y{i}" for i in range(outs)]
    feed = {f"x{i}": v for i, v in enumerate(inputs) if v is not None}
    graph = helper.make_graph([node_of(op, inputs, outputs, attrs, domain)], "g", [info(k, v) for k, v in feed.items()],
                              [onnx.ValueInfoProto(name=o) for o in outputs])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)
