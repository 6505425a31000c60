#!/usr/bin/env python3
"""Element types of 8 bits and less that are only moved and converted: floats of 8, 6 and 4 bits, integers of 4 and 2.

    small_types.py [--braid PATH] [--targets interp,cpu,emulate:cuda]

Casts: all codes of every type, all float16 and bfloat16 values, ties and their neighbours in float32 and float64, and
integers, against tables made here, which are themselves compared with ml_dtypes and with onnx's reference. Movement,
quantization, the forms of files, and what has to be refused.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as TP, helper, numpy_helper

F32, F64 = np.float32, np.float64


class Small:
    """A type: its number and NumPy's; floats: values of all codes without the sign up to the largest finite one."""

    def __init__(self, number, name, bits, dtype, is_float=True, inf=None, nan=None, fnuz=False):
        self.number, self.name, self.bits, self.dtype, self.is_float = number, name, bits, np.dtype(dtype), is_float
        self.inf, self.nan, self.fnuz, self.mask = inf, nan, fnuz, 2 ** bits - 1
        self.codes = np.arange(2 ** bits, dtype=np.uint8)
        self.values = self.codes.view(self.dtype).astype(F64)
        if is_float and number != 24:
            half = self.values[:2 ** (bits - 1)]
            self.grid = half[np.isfinite(half)]

    def low_high(self):
        signed = self.name.startswith("int")
        return (-2 ** (self.bits - 1), 2 ** (self.bits - 1) - 1) if signed else (0, 2 ** self.bits - 1)


TYPES = [Small(17, "float8e4m3fn", 8, ml_dtypes.float8_e4m3fn, nan=0x7f),
         Small(18, "float8e4m3fnuz", 8, ml_dtypes.float8_e4m3fnuz, nan=0x80, fnuz=True),
         Small(19, "float8e5m2", 8, ml_dtypes.float8_e5m2, inf=0x7c, nan=0x7e),
         Small(20, "float8e5m2fnuz", 8, ml_dtypes.float8_e5m2fnuz, nan=0x80, fnuz=True),
         Small(21, "uint4", 4, ml_dtypes.uint4, False), Small(22, "int4", 4, ml_dtypes.int4, False),
         Small(23, "float4e2m1", 4, ml_dtypes.float4_e2m1fn), Small(24, "float8e8m0", 8, ml_dtypes.float8_e8m0fnu),
         Small(25, "uint2", 2, ml_dtypes.uint2, False), Small(26, "int2", 2, ml_dtypes.int2, False),
         Small(27, "float6e2m3", 6, ml_dtypes.float6_e2m3fn), Small(28, "float6e3m2", 6, ml_dtypes.float6_e3m2fn)]
SCALE = TYPES[7]


# ---- conversions by tables --------------------------------------------------------------------------------------------
def round_float(t, x, saturate=True):
    """Codes of the float64 values x: nearest, ties to the even code; beyond the largest by the tables of Cast."""
    a, nan = np.abs(x), np.isnan(x)
    grid = np.append(t.grid, 2 * t.grid[-1] - t.grid[-2])  # and the number that would follow
    hi = np.clip(np.searchsorted(grid, a), 1, len(grid) - 1)
    lo = hi - 1
    with np.errstate(invalid="ignore", over="ignore"):
        up, tie = 2 * a > grid[lo] + grid[hi], 2 * a == grid[lo] + grid[hi]
    code = np.where(up | (tie & (hi % 2 == 0)), hi, lo)
    top = len(t.grid) - 1
    over = top if saturate or t.nan is None else t.nan if t.inf is None else t.inf
    code = np.where(code > top, over, code)
    sign = np.signbit(x) * 2 ** (t.bits - 1)
    code = code | np.where((code == 0) & t.fnuz, 0, sign)
    if t.nan is None:
        return np.where(nan, 2 ** (t.bits - 1), code).astype(np.uint8)
    return np.where(nan, t.nan if t.fnuz else t.nan | sign, code).astype(np.uint8)


def round_scale(x, saturate=True, mode="up"):
    """float8e8m0: the power of two at or near |x|."""
    a = np.abs(x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        m, e = np.frexp(np.where(np.isfinite(a), a, 1))  # a = m 2^e, 1/2 <= m < 1
        code = e - 1 + 127 + {"up": m > .5, "nearest": m >= .75, "down": False}[mode]
    small = a < 2. ** -127
    code = np.where(small, 0 if saturate else 255, code)
    code = np.where(np.isinf(a) | (code > 254), 254 if saturate else 255, code)
    return np.where(np.isnan(x), 255, code).astype(np.uint8)


def round_int(t, x):
    """Truncated, then the low bits; beyond int32 0, which is what it is elsewhere."""
    with np.errstate(invalid="ignore"):
        ok = np.abs(x) < 2. ** 31
    return (np.where(ok, x, 0).astype(np.int64) & t.mask).astype(np.uint8)


def cast(t, x, saturate=True, mode="up"):
    if x.dtype.kind in "iub":
        if not t.is_float:
            return (x.astype(np.int64) & t.mask).astype(np.uint8)
        x = x.astype(F32)
    with np.errstate(invalid="ignore"):
        x = x.astype(F64)
    if not t.is_float:
        return round_int(t, x)
    return round_scale(x, saturate, mode) if t is SCALE else round_float(t, x, saturate)


def check_tables():
    """The tables agree with ml_dtypes and with onnx's reference where these are exact."""
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    for values in (half, selected(F32)):
        for t in TYPES:
            if not t.is_float:
                continue
            x = values
            with np.errstate(over="ignore", invalid="ignore"):
                if t is SCALE:
                    x = np.abs(x.astype(F32))
                    x = x[(x >= 2. ** -126) & np.isfinite(x)]
                    for mode in ("up", "down", "nearest"):
                        for saturate in (True, False):
                            want = numpy_helper.to_float8e8m0(x, saturate, mode).view(np.uint8)
                            same(round_scale(x.astype(F64), saturate, mode), want, t.name + " tables " + mode, x)
                    continue
                if t.nan is None:
                    x = x[~np.isnan(x)]  # these types have a value for it that each library chooses
                want = x.astype(t.dtype)
                kept = round_float(t, x.astype(F64), False)
                same(canonical(t, kept), canonical(t, want.view(np.uint8)), t.name + " tables", x)
                if t.nan is not None:
                    want = numpy_helper.saturate_cast(x, t.dtype)
                    same(canonical(t, round_float(t, x.astype(F64))), canonical(t, want.view(np.uint8)), t.name + " saturated", x)


def canonical(t, code):
    return np.where(np.isnan(t.values[code]), 255, code)


def same(got, want, what, of=None):
    bad = np.flatnonzero(np.ravel(got) != np.ravel(want)) if np.shape(got) == np.shape(want) else [0]
    if np.shape(got) != np.shape(want):
        sys.exit("%s: shape %s, expected %s" % (what, np.shape(got), np.shape(want)))
    if len(bad):
        k = bad[0]
        sys.exit("%s: element %d is %s, expected %s%s (%d differ)" % (
            what, k, np.ravel(got)[k], np.ravel(want)[k], "" if of is None else " from %r" % np.ravel(of)[k], len(bad)))


def selected(dtype):
    """Values of every type, ties between neighbours, and what lies next to all of these, of both signs."""
    v = [np.array([0, np.nan, np.inf, 2. ** -127, 2. ** -149, 3e38, 1e30, 464, 448.1, 61440, 57344.1, 1.5 * 2. ** 127])]
    v += [2. ** np.arange(-127, 128), 1.5 * 2. ** np.arange(-127, 127.)]
    for t in TYPES:
        if t.is_float and t is not SCALE:
            v += [t.grid, (t.grid[1:] + t.grid[:-1]) / 2, t.grid[-1:] * [1.01, 1.0625, 1.07, 1.2, 2]]
    v += [np.arange(20), np.arange(20) + .5, [254, 255, 256, 65536.5, 2. ** 31, 2. ** 40]]
    v = np.concatenate(v).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        v = np.concatenate([v, np.nextafter(v, dtype(0)), np.nextafter(v, dtype(np.inf))])
    return np.concatenate([v, -v])


# ---- running ----------------------------------------------------------------------------------------------------------
def info(name, number, shape):
    return helper.make_tensor_value_info(name, number, shape)


def tensor(t, shape, code, name=""):
    """An initializer, packed here."""
    bits = np.unpackbits(np.ravel(code).astype(np.uint8)[:, None], axis=1, bitorder="little")[:, :t.bits]
    return TP(name=name, data_type=t.number, dims=shape, raw_data=np.packbits(np.ravel(bits), bitorder="little").tobytes())


class Model:
    """A model that grows by nodes whose results are known."""

    def __init__(self):
        self.nodes, self.inputs, self.outputs, self.inits, self.feed, self.want = [], [], [], [], {}, []

    def input(self, name, number, value):
        self.inputs.append(info(name, number, value.shape))
        self.feed[name] = value
        return name

    def const(self, value, number=None):
        name = "c%d" % len(self.inits)
        self.inits.append(tensor(number, value.shape, value, name) if number else numpy_helper.from_array(value, name))
        return name

    def node(self, op, ins, nout=1, **attrs):
        outs = ["t%d_%d" % (len(self.nodes), i) for i in range(nout)]
        self.nodes.append(helper.make_node(op, ins, outs, **attrs))
        return outs[0] if nout == 1 else outs

    def output(self, name, number, want, what):
        """`want`: codes of a small type, else values."""
        self.outputs.append(info(name, number, want.shape))
        self.want.append((what, want))

    def save(self, folder):
        graph = helper.make_graph(self.nodes, "small", self.inputs, self.outputs, self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
        os.makedirs(folder)
        with open(folder + "/model.onnx", "wb") as f:
            f.write(model.SerializeToString())
        for name, value in self.feed.items():
            np.save("%s/%s.npy" % (folder, name), value)

    def run(self, folder, braid, target):
        feed = [w for name in self.feed for w in ("-i", "%s=%s/%s.npy" % (name, folder, name))]
        out = folder + "/" + target.replace(":", "_")
        r = subprocess.run([braid, "run", "--target", target, folder + "/model.onnx", "-o", out] + feed,
                           capture_output=True, text=True)
        if r.returncode:
            sys.exit("%s on %s: %s" % (folder, target, r.stderr))
        for i, (what, want) in enumerate(self.want):
            got = np.load("%s/output_%d.npy" % (out, i))
            got = got.view(np.uint8) if got.dtype.kind == "V" and got.dtype.itemsize == 1 else got
            if got.dtype.kind == "V":
                got = got.view(ml_dtypes.bfloat16)
            if got.dtype != want.dtype:
                sys.exit("%s on %s: type %s, expected %s" % (what, target, got.dtype, want.dtype))
            if want.dtype.kind != "u":  # NaN is NaN, and -0 is not 0
                got, want = ((v.astype(F64), np.signbit(v.astype(F64)) & ~np.isnan(v.astype(F64))) for v in (got, want))
                same(got[1], want[1], "%s on %s, signs" % (what, target))
                got, want = np.nan_to_num(got[0], nan=12345.), np.nan_to_num(want[0], nan=12345.)
            same(got, want, "%s on %s" % (what, target))


# ---- casts ------------------------------------------------------------------------------------------------------------
WIDE = {"f16": (10, np.float16), "bf16": (16, ml_dtypes.bfloat16), "f32": (1, F32), "f64": (11, F64), "i32": (6, np.int32),
        "i64": (7, np.int64), "u8": (2, np.uint8), "b": (9, np.bool_)}


def casts():
    m = Model()
    ints = np.array([0, 1, 2, 3, 7, 8, 15, 16, 17, 100, 127, 128, 255, 448, 465, 61440, 70000, 2 ** 20], np.int64)
    data = {"f16": np.arange(65536, dtype=np.uint16).view(np.float16), "f32": selected(F32), "f64": selected(F64),
            "bf16": np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16),
            "i32": np.append(ints, -ints).astype(np.int32), "i64": np.append(ints, -ints - 2 ** 33),
            "u8": np.arange(256, dtype=np.uint8), "b": np.array([False, True])}
    for name, value in data.items():
        m.input(name, WIDE[name][0], value)
    for t in TYPES:
        for name, value in data.items():
            y = m.node("Cast", [name], to=t.number)
            m.output(y, t.number, cast(t, value), "%s to %s" % (name, t.name))
        for name in ("f16", "f32", "f64"):
            if t.nan is not None:
                y = m.node("Cast", [name], to=t.number, saturate=0)
                m.output(y, t.number, cast(t, data[name], False), "%s to %s, not saturated" % (name, t.name))
        x = m.input("x" + t.name, t.number, t.codes)
        for name, (number, dtype) in WIDE.items():
            y = m.node("Cast", [x], to=number)
            if np.dtype(dtype).kind in "iu":
                v = np.where(np.abs(t.values) < 2. ** 31, t.values, -2. ** 31 if name != "i64" else t.values)
                v = np.where(np.abs(v) < 2. ** 63, v, -2. ** 63).astype(np.int64).astype(dtype)
            else:
                with np.errstate(over="ignore"):
                    v = t.values != 0 if name == "b" else t.values.astype(F32).astype(dtype)
            m.output(y, number, v, "%s to %s" % (t.name, name))
    for mode in ("up", "down", "nearest"):
        for saturate in (0, 1):
            for name in ("f32", "f64"):
                y = m.node("Cast", [name], to=24, saturate=saturate, round_mode=mode)
                m.output(y, 24, cast(SCALE, data[name], saturate, mode), "%s to float8e8m0, %s" % (name, mode))
    for s in TYPES:  # between small types
        for t in TYPES:
            if s is not t and t.is_float is s.is_float:
                y = m.node("CastLike", ["x" + s.name, m.const(np.zeros(0, np.uint8), t)])
                v = s.values if s.is_float else s.values.astype(np.int64)
                m.output(y, t.number, cast(t, v), "%s to %s" % (s.name, t.name))
            if s is not t and s.bits == t.bits:
                y = m.node("BitCast", ["x" + s.name], to=t.number)
                m.output(y, t.number, s.codes, "bits of %s as %s" % (s.name, t.name))
    return m


# ---- movement ---------------------------------------------------------------------------------------------------------
def movement():
    m, g = Model(), np.random.default_rng(1)
    yes = m.input("yes", 9, np.array(True))
    at = m.input("at", 7, np.array([2, 0, 3]))
    trips = m.input("trips", 7, np.array(4))
    for t in TYPES:
        x0 = g.integers(0, 2 ** t.bits, (3, 5), dtype=np.uint8)
        k0 = g.integers(0, 2 ** t.bits, (3, 4), dtype=np.uint8)
        x, k = m.input("x" + t.name, t.number, x0), m.const(k0, t)
        i64 = lambda *v: m.const(np.array(v, np.int64))
        y, v = m.node("Concat", [x, k], axis=1), np.concatenate([x0, k0], 1)  # 3, 9
        y, v = m.node("Transpose", [y], perm=[1, 0]), v.T  # 9, 3
        y, v = m.node("Slice", [y, i64(7), i64(-10), i64(0), i64(-1)]), v[7::-1]  # 8, 3
        y, v = m.node("Gather", [y, at], axis=0), v[[2, 0, 3]]  # 3, 3
        one = m.const(np.array(1, np.uint8), t)
        y, v = m.node("Pad", [y, i64(0, 1, 1, 0), one]), np.pad(v, ((0, 1), (1, 0)), constant_values=1)  # 4, 4
        y, v = m.node("Pad", [y, i64(1, 0, 0, 0)]), np.pad(v, ((1, 0), (0, 0)))  # 5, 4
        y, v = m.node("Trilu", [y]), np.triu(v)
        y, v = m.node("Tile", [y, i64(1, 2)]), np.tile(v, (1, 2))  # 5, 8
        y, v = m.node("Reshape", [y, i64(2, 20)]), v.reshape(2, 20)
        a, b = m.node("Split", [y], 2, axis=1, num_outputs=2)
        y, v = m.node("Where", [m.const(np.arange(10) % 3 == 0), a, b]), np.where(np.arange(10) % 3 == 0, v[:, :10], v[:, 10:])
        y, v = m.node("Expand", [m.node("Unsqueeze", [y, i64(0)]), i64(2, 1, 1)]), np.stack([v, v])  # 2, 2, 10
        turn = np.broadcast_to(np.array([1, 0, 1, 0])[:, None], (2, 4, 10))
        y, v = m.node("GatherElements", [y, m.const(turn)], axis=1), np.take_along_axis(v, turn, 1)
        s = m.node("SequenceConstruct", [y, y])
        y, v = m.node("ConcatFromSequence", [m.node("SequenceInsert", [s, y])], axis=1), np.concatenate([v] * 3, 1)
        y, v = m.node("OptionalGetElement", [m.node("Optional", [y])]), v
        upd = g.integers(0, 2 ** t.bits, (1, 1, v.shape[2]), dtype=np.uint8)
        y = m.node("ScatterND", [y, m.const(np.array([[1, 2]])), m.const(upd[0], t)])
        v = v.copy()
        v[1, 2] = upd[0, 0]
        y, v = m.node("Compress", [y, m.const(np.array([False, True, True]))], axis=1), v[:, 1:3]
        m.output(y, t.number, v, "movement of " + t.name)
        y = m.node("ConstantOfShape", [i64(3)], value=tensor(t, [1], np.array([2])))
        m.output(y, t.number, np.full(3, 2, np.uint8), "ConstantOfShape of " + t.name)
        out = lambda name, shape: info(name, t.number, shape)
        arms = [helper.make_graph([helper.make_node("Identity", [n], ["r"])], "arm", [], [out("r", None)]) for n in (x, k)]
        y = m.node("If", [m.node("Not", [yes])], then_branch=arms[0], else_branch=arms[1])
        m.output(y, t.number, k0, "If of " + t.name)
        ident = lambda a, b: helper.make_node("Identity", [a], [b])
        flip = helper.make_node("Gather", ["c", m.const(np.array([1, 2, 0]))], ["n"], axis=0)
        body = helper.make_graph([flip, ident("n", "o"), ident("q", "r")], "body", [
            info("i", 7, []), info("q", 9, []), out("c", [3, 5])], [info("r", 9, []), out("n", [3, 5]), out("o", [3, 5])])
        last, all_ = m.node("Loop", [m.const(np.array(4)), yes, x], 2, body=body)
        m.output(last, t.number, np.roll(x0, -4, 0), "Loop of " + t.name)
        m.output(all_, t.number, np.stack([np.roll(x0, -n - 1, 0) for n in range(4)]), "scan outputs of " + t.name)
        body = helper.make_graph([ident("e", "n"), ident("c", "o")], "body", [out("c", [5]), out("e", [5])],
                                 [out("n", [5]), out("o", [5])])
        state, before = m.node("Scan", [m.const(np.zeros(5, np.uint8), t), x], 2, body=body, num_scan_inputs=1)
        m.output(state, t.number, x0[-1], "Scan of " + t.name)
        m.output(before, t.number, np.concatenate([np.zeros((1, 5), np.uint8), x0[:-1]]), "Scan outputs of " + t.name)
        m.output(m.node("Shape", [x]), 7, np.array([3, 5]), "Shape of " + t.name)
        # one element, carried as a number: 1, 2, 1, 2 by branches on the step
        one, two = (m.const(np.array(v, np.uint8), t) for v in (1, 2))
        arms = [helper.make_graph([helper.make_node("Identity", [n], ["r"])], "arm", [], [out("r", [])]) for n in (one, two)]
        odd = [helper.make_node("Mod", ["i", m.const(np.array(2))], ["m"]), helper.make_node("Cast", ["m"], ["odd"], to=9),
               helper.make_node("If", ["odd"], ["n"], then_branch=arms[1], else_branch=arms[0]), ident("q", "r"), ident("c", "o")]
        body = helper.make_graph(odd, "body", [info("i", 7, []), info("q", 9, []), out("c", [])],
                                 [info("r", 9, []), out("n", []), out("o", [])])
        last, all_ = m.node("Loop", [trips, yes, one], 2, body=body)
        m.output(last, t.number, np.array(2, np.uint8), "a carried number of " + t.name)
        m.output(all_, t.number, np.array([1, 1, 2, 1], np.uint8), "carried numbers of " + t.name)
    return m


# ---- quantization -----------------------------------------------------------------------------------------------------
def quantization():
    m, g = Model(), np.random.default_rng(2)
    x0 = (g.standard_normal((4, 6)) * 4).astype(F32)
    x0[0, :4] = [0, -0., 300, -1e6]
    x = m.input("x", 1, x0)
    powers = np.array([126, 127, 129], np.uint8)
    for t in TYPES:
        if t is SCALE:
            continue
        q0 = g.integers(0, 2 ** t.bits, (4, 6), dtype=np.uint8)
        q = m.input("q" + t.name, t.number, q0)
        for what, shape, each, attrs in (("tensor", (), lambda s: s, {}), ("axis", (6,), lambda s: s, {"axis": 1}),
                                         ("block", (2, 6), lambda s: np.repeat(s, 2, 0), {"axis": 0, "block_size": 2})):
            s0 = g.choice(np.array([.25, .3, 1.7, 2], F32), shape).astype(F32)
            z0 = cast(t, g.integers(0, 2, shape))
            s, z = m.const(s0), m.const(z0, t)
            zero, y0 = each(t.values[z0]).astype(F32), x0 / each(s0)
            if t.is_float:
                want, kept = (round_float(t, (y0 + zero).astype(F64), sat) for sat in (True, False))
            else:
                want = (np.clip(np.rint(y0) + zero, *t.low_high()).astype(np.int64) & t.mask).astype(np.uint8)
            m.output(m.node("QuantizeLinear", [x, s, z], **attrs), t.number, want, "QuantizeLinear by %s to %s" % (what, t.name))
            if t.nan is not None and what == "axis":
                y = m.node("QuantizeLinear", [x, s, z], saturate=0, **attrs)
                m.output(y, t.number, kept, "QuantizeLinear to %s, not saturated" % t.name)
            want = (t.values[q0].astype(F32) - zero) * each(s0)
            m.output(m.node("DequantizeLinear", [q, s, z], **attrs), 1, want, "DequantizeLinear by %s of %s" % (what, t.name))
        s = m.const(np.repeat(powers, 2), SCALE)
        scale = SCALE.values[np.repeat(powers, 2)].astype(F32)
        y = m.node("DequantizeLinear", [q, s], axis=1, output_dtype=10)
        m.output(y, 10, (t.values[q0].astype(F32) * scale).astype(np.float16), "DequantizeLinear of %s by powers" % t.name)
        y = m.node("QuantizeLinear", [x, s], axis=1, output_dtype=t.number)
        y0 = x0 / scale
        want = round_float(t, y0.astype(F64)) if t.is_float else (np.clip(np.rint(y0), *t.low_high()).astype(int) & t.mask).astype(np.uint8)
        m.output(y, t.number, want, "QuantizeLinear to %s by powers" % t.name)
    for t in TYPES[:4]:
        all_ = m.input("all" + t.name, t.number, t.codes)
        m.output(m.node("IsNaN", [all_]), 9, np.isnan(t.values), "IsNaN of " + t.name)
        m.output(m.node("IsInf", [all_]), 9, np.isinf(t.values), "IsInf of " + t.name)
        a0, b0 = (cast(t, g.integers(-2, 3, n).astype(F32)) for n in ((3, 4), (4, 2)))
        one, zero = m.const(np.array(.5, F32)), m.const(np.array(0, np.uint8), t)
        y = m.node("QLinearMatMul", [m.const(a0, t), one, zero, m.input("b" + t.name, t.number, b0), one, zero, one, zero])
        m.output(y, t.number, cast(t, t.values[a0] @ t.values[b0] * .5 + 0.), "QLinearMatMul of " + t.name)
    return m


# ---- files, and what is refused ------------------------------------------------------------------------------------------
def run(braid, work, model, *args):
    with open(work + "/m.onnx", "wb") as f:
        f.write(model.SerializeToString())
    return subprocess.run([braid, "run", "--target", "interp", work + "/m.onnx", *args], capture_output=True, text=True)


def one_node(nodes, ins, outs, inits=()):
    graph = helper.make_graph(nodes, "one", ins, outs, inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)


def files(braid, work):
    """Inputs as .npy of every kind and as .pb; initializers in int32_data; sequences written as .pb."""
    g = np.random.default_rng(3)
    for t in TYPES:
        code = g.integers(0, 2 ** t.bits, 7, dtype=np.uint8)
        model = one_node([helper.make_node("SequenceConstruct", ["x", "k"], ["s"]), helper.make_node("Identity", ["x"], ["y"])],
                         [info("x", t.number, [7])],
                         [helper.make_tensor_sequence_value_info("s", t.number, None), info("y", t.number, [7])])
        packed = np.frombuffer(tensor(t, [7], code).raw_data, np.uint8)
        model.graph.initializer.append(TP(name="k", data_type=t.number, dims=[7], int32_data=code if t.bits == 6 else packed))
        forms = {"ml_dtypes": code.view(t.dtype), "bytes": code, "void": code.view("V1")}
        if not t.is_float:
            forms["values"] = t.values[code].astype(np.int8)
        for form, value in forms.items():
            np.save(work + "/x.npy", value)
            check_file(braid, work, model, "x.npy", code, "%s as %s" % (t.name, form))
        with open(work + "/x.pb", "wb") as f:
            f.write(tensor(t, [7], code).SerializeToString())
        check_file(braid, work, model, "x.pb", code, t.name + " as .pb")
        k = model.graph.initializer[0]
        del k.int32_data[:]
        k.data_location = TP.EXTERNAL
        with open(work + "/k.bin", "wb") as f:
            f.write(b"x" + packed.tobytes())
        for key, v in (("location", "k.bin"), ("offset", "1"), ("length", str(len(packed)))):
            k.external_data.add(key=key, value=v)
        check_file(braid, work, model, "x.pb", code, t.name + " in a file of its own")
        if t.bits < 8:
            np.save(work + "/x.npy", np.full(7, t.mask + 1, np.uint8))
            r = run(braid, work, model, "-i", "x=%s/x.npy" % work)
            if r.returncode != 1 or "is no " + t.name not in r.stderr:
                sys.exit("%s: a code too large gave %d: %s" % (t.name, r.returncode, r.stderr))
            k.data_location = TP.DEFAULT
            del k.external_data[:]
            k.int32_data.append(0)
            r = run(braid, work, model, "-i", "x=%s/x.pb" % work)
            if r.returncode != 1 or "1 entries of data" not in r.stderr:
                sys.exit("%s: too few entries gave %d: %s" % (t.name, r.returncode, r.stderr))


def check_file(braid, work, model, name, code, what):
    r = run(braid, work, model, "-i", "x=%s/%s" % (work, name), "-o", work + "/out")
    if r.returncode:
        sys.exit("%s: %s" % (what, r.stderr))
    same(np.load(work + "/out/output_1.npy").view(np.uint8), code, what)
    s = onnx.SequenceProto()
    with open(work + "/out/output_0.pb", "rb") as f:
        s.ParseFromString(f.read())
    want = next(tensor(t, [7], code).raw_data for t in TYPES if t.number == s.tensor_values[0].data_type)
    if [v.raw_data for v in s.tensor_values] != [want] * 2:
        sys.exit("%s: the sequence holds %s, expected %s" % (what, [v.raw_data for v in s.tensor_values], want))


REFUSED = {"Add": 2, "Mul": 2, "Neg": 1, "Abs": 1, "Relu": 1, "Equal": 2, "Less": 2, "Max": 2, "Clip": 1, "MatMul": 2, "ReduceMax": 1,
           "ReduceSum": 1, "ArgMax": 1, "Softmax": 1, "NonZero": 1, "Unique": 1, "EyeLike": 1, "BitwiseAnd": 2, "Sqrt": 1, "MaxPool": 1,
           "Einsum": 2, "Resize": 1, "Pow": 2, "And": 2}


def refused(braid, work):
    def message(node, number, text, what):
        ins = [info(n, number, [2, 2]) for n in dict.fromkeys(node.input) if n in "xz"]
        inits = [numpy_helper.from_array(np.array([[0, 1], [1, 0]]), "i")] if "i" in node.input else []
        r = run(braid, work, one_node([node], ins, [info("y", 0, None)], inits))
        if r.returncode not in (1, 2) or text not in r.stderr or r.stderr.count("\n") != 1:
            sys.exit("%s: status %d, %r, expected %r" % (what, r.returncode, r.stderr, text))

    for t in TYPES:
        for op, n in REFUSED.items():
            attrs = {"equation": "ij,jk->ik"} if op == "Einsum" else {"kernel_shape": [1]} if op == "MaxPool" else {}
            node = helper.make_node(op, ["x", "z"][:n], ["y"], **attrs)
            message(node, t.number, "has type %s, which the operator does not take" % t.name, "%s of %s" % (op, t.name))
        node = helper.make_node("ScatterElements", ["x", "i", "z"], ["y"], reduction="add")
        message(node, t.number, "reduction 'add' of " + t.name, "ScatterElements of " + t.name)
        other = 3 if t.bits < 8 else 4
        message(helper.make_node("BitCast", ["x"], ["y"], to=other), t.number, "differ in size", "BitCast of " + t.name)
    for number, name in ((8, "string"), (14, "complex64"), (15, "complex128")):
        message(helper.make_node("Identity", ["x"], ["y"]), number, "element type %s is not supported" % name, name)
        message(helper.make_node("Cast", ["x"], ["y"], to=number), 1, "conversion to %s" % name, "Cast to " + name)
    message(helper.make_node("Cast", ["x"], ["y"], to=24, round_mode="odd"), 1, "'round_mode' is 'odd'", "round_mode")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--targets", default="interp,cpu,emulate:cuda")
    args = p.parse_args()
    check_tables()
    count = 0
    with tempfile.TemporaryDirectory() as work:
        for make in (casts, movement, quantization):
            m = make()
            m.save("%s/%s" % (work, make.__name__))
            for target in args.targets.split(","):
                m.run("%s/%s" % (work, make.__name__), args.braid, target)
            count += len(m.want)
        files(args.braid, work)
        refused(args.braid, work)
    print("%d results of small types on %s: right; files read and written; arithmetic refused" % (count, args.targets))


if __name__ == "__main__":
    main()
