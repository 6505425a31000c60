"""The kinds of nodes that contrib_check.py makes, each from its Random."""
import numpy as np

from contrib_nodes import F16, F32, F64, I8, I32, I64, MS, U8, Case, Random, halved, run


# ---- quantized values
def filled(inputs, zeros, t):
    """With a zero point of 0 where one is absent: some kernels of ONNX Runtime want them."""
    inputs = inputs + [None] * (max(zeros) + 1 - len(inputs))
    return [np.asarray(t(0)) if v is None and i in zeros else v for i, v in enumerate(inputs)]


def ties(v):
    """Where v, not yet rounded, lies so near to the middle of two integers that its rounding may differ."""
    return (np.abs(v - np.floor(v) - 0.5) < 1e-3).astype(int)


def real(x, scale, zero):
    return (x.astype(F64) - (0 if zero is None else zero.astype(F64).reshape(()))) * F64(scale.reshape(()))


def steps(v, scale, zero):
    return v / F64(scale.reshape(())) + (0 if zero is None else F64(zero.reshape(())))


def qtype(R):
    return R.pick(U8, I8)


def maybe_zero(R, t):
    return R.zero(t) if R.chance(0.8) else None


def qlinear_binary(R):
    t, shape = qtype(R), R.shape()
    other = [R.pick(n, 1) for n in shape][R.int(0, len(shape)):]
    a, b = R.q(t, *shape), R.q(t, *other)
    sa, sb, za, zb, zy = R.scale(), R.scale(), maybe_zero(R, t), maybe_zero(R, t), maybe_zero(R, t)
    if R.chance():
        a, b, sa, sb, za, zb = b, a, sb, sa, zb, za
    op = R.pick("QLinearAdd", "QLinearMul")
    va, vb = real(a, sa, za), real(b, sb, zb)
    sy = R.scale(0.02, 0.3)
    v = steps(va + vb if op == "QLinearAdd" else va * vb, sy, zy)
    inputs = [v if v is None or v.size > 1 or v is a or v is b else v.reshape(()) for v in (a, sa, za, b, sb, zb, sy, zy)]
    return Case(op, inputs, want=run(op, filled(inputs, (2, 5, 7), t), {}), near=ties(v))


def qlinear_unary(R):
    t = qtype(R)
    x, sx, zx, zy = R.q(t, *R.shape()), R.scale(), maybe_zero(R, t), maybe_zero(R, t)
    v = real(x, sx, zx)
    op = R.pick("QLinearSigmoid", "QLinearLeakyRelu")
    if op == "QLinearSigmoid":
        sy, attrs, v = R.scale(0.003, 0.01), {}, 1 / (1 + np.exp(-v))
    else:
        sy, attrs = R.scale(), {"alpha": float(R.r.uniform(-0.5, 1.5))} if R.chance(0.7) else {}
        v = np.where(v < 0, F64(F32(attrs.get("alpha", 0.01))) * v, v)
    inputs = [x, sx, zx, sy, zy]
    return Case(op, inputs, attrs, run(op, filled(inputs, (2, 4), t), attrs), near=ties(steps(v, sy, zy)))


def qlinear_softmax(R):
    t, shape = qtype(R), R.shape(1)
    x, sx, zx, sy = R.q(t, *shape), R.scale(), maybe_zero(R, t), R.pick(R.scale(0.002, 0.01), F32(1 / 256))
    sy = np.asarray(sy)
    zy = R.number(t(np.iinfo(t).min)) if R.chance(0.8) else R.number(t(R.int(0, 20)))
    attrs = {"opset": R.pick(11, 12, 13, 17)}
    if R.chance(0.8):
        attrs["axis"] = R.int(-len(shape), len(shape) - 1)
    axis = attrs.get("axis", -1) % len(shape)
    axes = tuple(range(axis, len(shape))) if attrs["opset"] < 13 else (axis,)
    e = np.exp((x.astype(F64) - x.max(axes, keepdims=True)) * F64(sx.reshape(())))
    v = e / e.sum(axes, keepdims=True) * np.floor(F32(1) / sy.reshape(())) + F64(zy.reshape(()))
    got = run("QLinearSoftmax", filled([x, sx, zx, sy, zy], (2,), t), attrs)[0]
    got = np.where(np.rint(v) > np.iinfo(t).max, np.iinfo(t).max, got).astype(t)  # ONNX Runtime lets int8 wrap around
    return Case("QLinearSoftmax", [x, sx, zx, sy, zy], attrs, [got], near=ties(v))


def qlinear_concat(R):
    t, shape = qtype(R), R.shape(1)
    axis, sy, zy = R.int(-len(shape), len(shape) - 1), R.scale(), R.zero(t)
    inputs, near = [sy, zy], []
    for _ in range(R.int(1, 4)):
        part = list(shape)
        part[axis] = R.int(1, 4)
        x, sx, zx = R.q(t, *part), R.scale(), R.zero(t)
        if R.chance(0.2):
            sx, zx = sy, zy
        inputs += [x, sx, zx]
        near.append(ties(steps(real(x, sx, zx), sy, zy)))
    return Case("QLinearConcat", inputs, {"axis": axis}, near=np.concatenate(near, axis))


def qlinear_where(R):
    t, shape = U8, R.shape(1)  # ONNX Runtime reads beyond its table for int8
    part = lambda: [R.pick(n, n, 1) for n in shape]
    c, x, y = R.r.random(part()) < 0.5, R.q(t, *part()), R.q(t, *part())
    p = [R.scale(), R.zero(t), R.scale(), R.zero(t), R.scale(), R.zero(t)]
    v = np.where(c, steps(real(x, *p[:2]), *p[4:]), steps(real(y, *p[2:4]), *p[4:]))
    return Case("QLinearWhere", [c, x, *p[:2], y, *p[2:]], near=ties(v))


def qlinear_means(R):
    t, last = qtype(R), R.chance()
    spatial = [R.int(1, 9) for _ in range(R.int(1, 3))]
    shape = [R.int(1, 3)] + ([*spatial, R.int(1, 5)] if last else [R.int(1, 5), *spatial])
    x, sx, sy = R.q(t, *shape), R.scale(), R.scale()
    axes = tuple(range(1, len(shape) - 1)) if last else tuple(range(2, len(shape)))
    what = R.pick("global", "pool", "reduce")
    attrs = {"channels_last": int(last)} if last or R.chance() else {}
    if what == "global":
        zx, zy = R.zero(t), R.zero(t)
        v = steps(real(x, sx, zx).mean(axes, keepdims=True), sy, zy)
        return Case("QLinearGlobalAveragePool", [x, sx, zx, sy, zy], attrs, near=ties(v))
    zx, zy = maybe_zero(R, t), maybe_zero(R, t)
    if what == "reduce":
        axes = sorted({R.int(0, len(shape) - 1) for _ in range(R.int(1, 3))})
        keep = R.int(0, 1)
        v = steps(real(x, sx, zx).mean(tuple(axes), keepdims=bool(keep)), sy, zy)
        lim = np.iinfo(t)
        attrs = {"axes": [a - R.pick(0, len(shape)) for a in axes], "keepdims": keep}
        return Case("QLinearReduceMean", [x, sx, zx, sy, zy], attrs, [np.clip(np.rint(v), lim.min, lim.max).astype(t)],
                    near=ties(v))
    k = [R.int(1, min(3, n)) for n in spatial]
    attrs.update(kernel_shape=k, strides=[R.int(1, 2) for _ in k])
    pads = [R.int(0, n - 1) for n in k + k]
    if R.chance(0.7):
        attrs["pads"] = pads
    elif R.chance():
        attrs["auto_pad"] = R.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    if R.chance(0.3):
        attrs["count_include_pad"] = R.int(0, 1)
    elif R.chance(0.3):
        attrs["ceil_mode"] = R.int(0, 1)
    flt = {a: v for a, v in attrs.items() if a != "channels_last"}
    v = real(x, sx, zx)
    v = np.moveaxis(v, -1, 1) if last else v
    v = run("AveragePool", [v.astype(F32)], flt, domain="")[0].astype(F64)
    v = steps(np.moveaxis(v, 1, -1) if last else v, sy, zy)
    inputs = [None if u is None else u.reshape(()) if u.size == 1 and u is not x else u for u in (x, sx, zx, sy, zy)]
    return Case("QLinearAveragePool", inputs, attrs, run("QLinearAveragePool", filled(inputs, (2, 4), t), attrs), near=ties(v))


def quantize(R):
    t, f = R.pick(U8, I8, np.uint16, np.int16), R.pick(F32, F32, F16)
    shape = R.shape(1)
    axis = R.int(-len(shape), len(shape) - 1) if R.chance() else None
    attrs = {} if axis is None else {"axis": axis}
    n = 1 if axis is None else shape[axis]
    s = R.r.uniform(0.01, 0.1, n).astype(f)
    z = R.q(t, n)
    if axis is None:
        s, z = (s.reshape(()), z.reshape(())) if R.chance() else (s, z)
    if R.chance():
        x = R.q(t, *shape)
        return Case("DequantizeLinear", [x, s, z if R.chance(0.8) else None], attrs, name=R.pick(MS, ""))
    x = (R.f(*shape) * R.pick(1, 3)).astype(f)
    at = [1] * len(shape)
    if axis is not None:
        at[axis] = -1
    v = x / (s if s.ndim == 0 or axis is None else s.reshape(at))
    if t == U8 and R.chance(0.2):
        z = None
    return Case("QuantizeLinear", [x, s, z], attrs, near=ties(v.astype(F64)), name=R.pick(MS, ""))


# ---- products of quantized matrices
def matrices(R):
    k, n = R.int(1, 40), R.int(1, 9)
    a = R.shape(0, 2, 4) + [R.int(1, 5), k]
    b = R.pick([], a[:-2], [R.pick(d, 1) for d in a[:-2]]) + [k, n]
    return a, b


def dynamic_matmul(R):
    a, b = matrices(R)
    t, n = qtype(R), b[-1]
    per = R.pick((), (1,), (n,)) if len(b) == 2 else ()
    x = R.f(*a) * F32(R.pick(1, 10)) + F32(R.pick(0, 2, -5))
    if R.chance(0.1):
        x[:] = 0
    scale = R.r.uniform(0.01, 0.1, per).astype(F32)
    zero = R.q(t, *per) if R.chance(0.7) else None
    bias = R.f(n) if R.chance() else None
    return Case("DynamicQuantizeMatMul", [x, R.q(t, *b), scale, zero, bias], tol=(1e-4, 1e-3))


def integer_to_float(R):
    a, b = matrices(R)
    ta, tb, n = qtype(R), qtype(R), b[-1]
    if ta == I8:
        tb = I8
    per = R.pick((), (1,), (n,)) if len(b) == 2 else ()
    sa, za = R.scale(), R.zero(ta) if R.chance(0.7) else None
    sb, zb = R.r.uniform(0.01, 0.1, per).astype(F32), R.q(tb, *per) if R.chance(0.7) else None
    bias = R.f(n) if R.chance() else None
    inputs = [R.q(ta, *a), R.q(tb, *b), sa, sb, za, zb, bias]
    case = Case("MatMulIntegerToFloat", inputs, tol=(1e-4, 1e-3))
    if R.chance(0.3):
        for i in (2, 3, 6):
            case.inputs[i] = None if inputs[i] is None else inputs[i].astype(F16)
        as32 = [v.astype(F32) if v is not None and v.dtype == F16 else v for v in inputs]
        case.want = [v.astype(F16) for v in run("MatMulIntegerToFloat", as32, {})]
        case.tol = (2e-3, 2e-3)
    return case


def qgemm(R):
    m, n, k = R.int(1, 6), R.int(1, 9), R.int(1, 40)
    ta, tb = qtype(R), qtype(R)
    if ta == I8:
        tb = I8
    attrs = {}
    if R.chance():
        attrs["transA"] = R.int(0, 1)
    if R.chance():
        attrs["transB"] = R.int(0, 1)
    if R.chance():
        attrs["alpha"] = float(R.r.uniform(0.2, 2))
    a = R.q(ta, *((k, m) if attrs.get("transA") else (m, k)))
    b = R.q(tb, *((n, k) if attrs.get("transB") else (k, n)))
    per = R.pick((), (1,), (n,))
    sb, zb = R.r.uniform(0.01, 0.1, per).astype(F32), R.q(tb, *per)
    c = R.r.integers(-5000, 5000, R.pick((n,), (m, n), (1, n), (m, 1), (1,), (1, 1))).astype(I32) if R.chance(0.6) else None
    sa, za = R.scale(), R.zero(ta)
    inputs = [a, sa, za, b, sb, zb, c]
    if R.chance(0.4):
        return Case("QGemm", inputs, attrs, tol=(1e-4, 1e-3))
    sy, zy = R.scale(0.5, 3), R.zero(ta)
    A, B = real(a, F32(1), za), b.astype(F64)
    v = (A.T if attrs.get("transA") else A) @ ((B.T if attrs.get("transB") else B) - zb) + (0 if c is None else c)
    v *= F64(F32(attrs.get("alpha", 1))) * F64(sa.reshape(())) * sb.astype(F64) / F64(sy.reshape(()))
    return Case("QGemm", inputs + [sy, zy], attrs, near=ties(v))


def pack(v, bits):
    """Numbers of few bits along the last axis, the first in the lowest bits."""
    per = 8 // bits
    v = np.concatenate([v, np.zeros((*v.shape[:-1], -v.shape[-1] % per), v.dtype)], -1)
    v = v.reshape(*v.shape[:-1], -1, per).astype(np.uint32)
    return (v << (np.arange(per, dtype=np.uint32) * bits)).sum(-1).astype(U8)


def nbits(R):
    bits, block, k, n = R.pick(2, 4, 8), R.pick(16, 32, 64), R.int(1, 90), R.int(1, 9)
    blocks = -(-k // block)
    q = R.r.integers(0, 1 << bits, (n, blocks, block))
    scales = R.r.uniform(0.02, 0.2, (n, blocks)).astype(F32)
    f = R.pick(F32, F32, F16)
    scales = scales.astype(f)
    zeros, z = None, np.full((n, blocks), 1 << (bits - 1), F64)
    kind = R.pick("none", "packed", "float")
    if kind == "packed":
        z = R.r.integers(0, 1 << bits, (n, blocks))
        zeros = pack(z, bits)
    elif kind == "float":
        zeros = (z + R.f(n, blocks)).astype(f)
        z = zeros.astype(F64)
    group = None
    if R.chance(0.3):
        group = R.r.integers(0, blocks, R.pick(k, blocks * block)).astype(I32)
    a = R.f(*R.shape(0, 2, 4), R.int(1, 4), k).astype(f)
    at = np.arange(k) // block if group is None else group[:k]
    w = (q.reshape(n, -1)[:, :k] - z[:, at]) * scales.astype(F64)[:, at]
    bias = R.f(n).astype(f) if R.chance() else None
    y = a.astype(F64) @ w.T + (0 if bias is None else bias.astype(F64))
    flat = R.chance(0.2)
    if flat:
        scales, zeros = scales.reshape(-1), None if zeros is None else zeros.reshape(-1)
    attrs = {"K": k, "N": n, "block_size": block}
    if bits != 4 or R.chance():
        attrs["bits"] = bits
    if R.chance(0.3):
        attrs["accuracy_level"] = R.int(0, 1)
    inputs = [a, pack(q, bits), scales, zeros, group, bias]
    tol = (1e-3, 1e-3) if f == F32 else (4e-3, 3e-2)
    if f == F32 and kind != "float" and group is None and R.chance():  # ONNX Runtime and numpy agree
        y = run("MatMulNBits", inputs, attrs)[0]
    return Case("MatMulNBits", inputs, attrs, [y.astype(f)], tol=tol)


def block_gather(R):
    bits, block, shape = R.pick(2, 4, 8), R.pick(16, 32), [R.int(1, 5), R.int(1, 3)][:R.int(1, 2)]
    last = 8 // bits * R.int(1, 12)
    shape.append(last)
    axis, blocks = len(shape) - 1, shape[:-1] + [-(-last // block)]
    scales = R.r.uniform(0.02, 0.2, blocks).astype(F32)
    zeros = pack(R.r.integers(0, 1 << bits, blocks), bits) if R.chance() else None
    index = R.r.integers(-shape[0] - 1, shape[0] + 1, R.shape(0, 2, 4)).astype(R.pick(I32, I64))
    attrs = {"bits": bits, "block_size": block, "quantize_axis": axis - R.pick(0, len(shape)), "gather_axis": 0}
    return Case("GatherBlockQuantized", [pack(R.r.integers(0, 1 << bits, shape), bits), index, scales, zeros], attrs)


# ---- recurrent
ACTS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "Affine": 2, "LeakyRelu": 1, "HardSigmoid": 2, "Elu": 1, "Softsign": 0}


def quantized_lstm(R):
    t, n, i, h, t_w = R.int(1, 6), R.int(1, 4), R.int(1, 7), R.int(1, 7), qtype(R)
    direction = R.pick("forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    attrs = {"hidden_size": h, "direction": direction}
    if R.chance(0.3):
        attrs["clip"] = float(R.r.uniform(0.5, 2))
    if R.chance(0.3):
        attrs["input_forget"] = 1
    if R.chance(0.3):
        names = [R.pick(*ACTS) for _ in range(3 * d)]
        attrs["activations"] = names
        alpha = [float(R.r.uniform(0.1, 0.9)) for a in names if ACTS[a]]
        beta = [float(R.r.uniform(0.1, 0.9)) for a in names if ACTS[a] == 2]
        attrs.update({k: v for k, v in (("activation_alpha", alpha), ("activation_beta", beta)) if v})
    # a scale and zero point for each direction, or for each column: then ONNX Runtime wants equal zero points
    per = R.pick((d,), (d, 4 * h))
    zero = np.full(per, R.int(100, 150) if t_w == U8 else 0, t_w)
    if len(per) == 1:
        zero = R.r.integers(100, 150, per).astype(t_w) if t_w == U8 else R.r.integers(-5, 5, per).astype(t_w)
    scale = lambda: R.r.uniform(0.003, 0.01, per).astype(F32)
    w, r = R.q(t_w, d, i, 4 * h), R.q(t_w, d, h, 4 * h)
    bias = R.f(d, 8 * h) if R.chance(0.7) else None
    lens = R.r.integers(0, t + 1, n).astype(I32) if R.chance() else None
    if lens is not None and lens.max() == 0:
        lens[0] = t
    h0, c0 = R.f(d, n, h) if R.chance() else None, R.f(d, n, h) if R.chance() else None
    p = R.f(d, 3 * h) if R.chance(0.3) else None
    inputs = [R.f(t, n, i), w, r, bias, lens, h0, c0, p, scale(), zero, scale(), zero]
    want = run("DynamicQuantizeLSTM", inputs, attrs, 3, threads=n)  # each row on a thread: has a range of its own
    if lens is not None:  # a row without steps keeps its initial state, see rnn_check.py
        for k, start in ((1, h0), (2, c0)):
            want[k][:, lens == 0] = 0 if start is None else start[:, lens == 0]
    keep = [k for k in range(3) if R.chance(0.75)] or [0]
    case = Case("DynamicQuantizeLSTM", inputs, attrs, want, tol=(1e-4, 1e-4), wanted=keep)
    case.loose = 1e-2  # where a state is rounded to the other side, what follows is a step of its scale away
    return case


# ---- fused
ACTIVATIONS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "LeakyRelu": 1, "HardSigmoid": 2, "Clip": 2}


def activation(R, params):
    """Attributes; params: as a list, else by name."""
    name = R.pick(*ACTIVATIONS)
    values = [float(R.r.uniform(0.1, 0.6)) for _ in range(ACTIVATIONS[name])]
    if name == "Clip":
        values = [-values[0], values[1]]
    attrs = {"activation": name}
    if params and values:
        attrs["activation_params"] = values
    elif not params:
        attrs.update(zip(("activation_alpha", "activation_beta"), values))
    return attrs


def act(x, attrs):
    """By numpy."""
    a, b = attrs.get("activation_alpha"), attrs.get("activation_beta")
    return {"Relu": lambda: np.maximum(x, 0), "Tanh": lambda: np.tanh(x), "Sigmoid": lambda: 1 / (1 + np.exp(-x)),
            "LeakyRelu": lambda: np.where(x < 0, a * x, x), "HardSigmoid": lambda: np.clip(a * x + b, 0, 1),
            "Clip": lambda: np.clip(x, a, b)}[attrs["activation"]]()


def fused_matmul(R):
    op = R.pick("FusedMatMul", "FusedMatMul", "TransposeMatMul", "FusedMatMulActivation")
    f = R.pick(F32, F32, F64) if op != "FusedMatMulActivation" else F32
    m, n, k = R.int(1, 6), R.int(1, 9), R.int(1, 20)
    batch = R.shape(0, 2, 4)
    attrs = {a: R.int(0, 1) for a in ("transA", "transB") if R.chance()}
    a, b = R.f(*batch, m, k, t=f), R.f(*R.pick(batch, batch[1:], []), k, n, t=f)
    if op != "TransposeMatMul" and batch and R.chance():
        attrs.update({a: R.int(0, 1) for a in ("transBatchA", "transBatchB")})
        b = R.f(*batch, k, n, t=f)
    y = a.astype(F64) @ b.astype(F64)
    if attrs.get("transA"):
        a = a.swapaxes(-1, -2)
    if attrs.get("transB"):
        b = b.swapaxes(-1, -2)
    if attrs.get("transBatchA"):
        a = np.moveaxis(a, -2, 0)
    if attrs.get("transBatchB"):
        b = np.moveaxis(b, -2, 0)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if R.chance():
        attrs["alpha"] = float(R.r.uniform(0.2, 2))
        y *= attrs["alpha"]
    if op == "FusedMatMulActivation":
        attrs.update(activation(R, False))
        return Case(op, [a, b], attrs, [act(y, attrs).astype(f)])
    want = run("FusedMatMul", [a, b], attrs)  # TransposeMatMul is the same without transBatch
    assert np.allclose(want[0], y, 1e-4, 1e-4)  # this file's and ONNX Runtime's understanding is one
    return Case(op, [a, b], attrs, want)


def fused_gemm(R):
    m, n, k = R.int(1, 6), R.int(1, 9), R.int(1, 20)
    attrs = {a: R.int(0, 1) for a in ("transA", "transB") if R.chance()}
    attrs.update({a: float(R.r.uniform(0.2, 2)) for a in ("alpha", "beta") if R.chance()})
    a = R.f(*((k, m) if attrs.get("transA") else (m, k)))
    b = R.f(*((n, k) if attrs.get("transB") else (k, n)))
    c = R.f(*R.pick((n,), (m, n), (1, n), (m, 1), (1,), ())) if R.chance(0.8) else None
    name = R.pick("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "LeakyRelu", "ThresholdedRelu", "Elu", "Celu",
                  "HardSigmoid", "ScaledTanh", "Selu")
    attrs["activation"] = name
    if name in ("LeakyRelu", "ThresholdedRelu", "Elu", "Celu", "HardSigmoid", "ScaledTanh", "Selu"):
        attrs["activation_alpha"] = float(R.r.uniform(0.1, 0.6))
    if name in ("HardSigmoid", "ScaledTanh", "Selu"):
        attrs["activation_gamma" if name == "Selu" else "activation_beta"] = float(R.r.uniform(0.1, 0.6))
    return Case("FusedGemm", [a, b, c], attrs)


def conv_attrs(R, spatial):
    """Attributes of a window, and the kernel's size; it fits."""
    k, d = [R.int(1, 3) for _ in spatial], [R.int(1, 2) for _ in spatial]
    k = [1 if (a - 1) * b + 1 > s else a for a, b, s in zip(k, d, spatial)]
    attrs = {}
    if R.chance():
        attrs["strides"] = [R.int(1, 2) for _ in k]
    if any(v > 1 for v in d):
        attrs["dilations"] = d
    if R.chance():
        attrs["kernel_shape"] = k
    if R.chance(0.6):
        attrs["pads"] = [R.int(0, 2) for _ in k + k]
    elif R.chance() and max(d) == 1:
        attrs["auto_pad"] = R.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    return attrs, k


def fused_conv(R):
    spatial = [R.int(3, 8) for _ in range(R.int(1, 3))]
    attrs, k = conv_attrs(R, spatial)
    group = R.pick(1, 1, 2)
    if group > 1:
        attrs["group"] = group
    c, m = group * R.int(1, 3), group * R.int(1, 4)
    x, w, b = R.f(R.int(1, 2), c, *spatial), R.f(m, c // group, *k), R.f(m) if R.chance() else None
    y = run("Conv", [x, w, b], attrs, domain="")[0]
    op = R.pick("FusedConv", "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv", "QLinearConv")
    if op == "QLinearConv":
        return qlinear_conv(R, x.shape, w.shape, attrs)
    z = R.f(*y.shape) if op != "NhwcConv" and len(spatial) == 2 and R.chance(0.4) else None
    if op != "NhwcConv" and R.chance(0.8):
        extra = activation(R, True)
    else:
        extra = {}
    if op == "FusedConv":
        return Case(op, [x, w, b, z], {**attrs, **extra})
    last = lambda v: np.ascontiguousarray(np.moveaxis(v, 1, -1))
    if extra or z is not None:
        y = run("FusedConv", [x, w, b, z], {**attrs, **extra})[0]
    return Case(op, [last(x), w, b] + ([] if z is None else [last(z)]), {**attrs, **extra}, [last(y)])


def qlinear_conv(R, xs, ws, attrs):
    tx, tw = R.pick((U8, U8), (U8, I8), (I8, I8))
    per = R.pick((), (1,), (ws[0],))
    x, w = R.q(tx, *xs), R.q(tw, *ws)
    sw, zw = R.r.uniform(0.01, 0.05, per).astype(F32), R.q(tw, *per)
    if len(per) and per[0] > 1:
        zw[:] = zw[0]
    b = R.r.integers(-5000, 5000, ws[0]).astype(I32) if R.chance() else None
    sx, zx, sy, zy = R.scale(), R.zero(tx), R.scale(0.5, 2), R.zero(tx)
    v = run("Conv", [x.astype(F32) - F32(zx.reshape(())), w.astype(F32) - F32(zw.reshape(-1)[0]),
                     None if b is None else b.astype(F32)], attrs, domain="")[0].astype(F64)
    v *= F64(sx.reshape(())) * sw.astype(F64).reshape([-1] + [1] * (len(xs) - 2)) / F64(sy.reshape(()))
    inputs = [x, sx, zx, w, sw, zw, sy, zy, b]
    if R.chance(0.4):
        return Case("QLinearConv", inputs, attrs, near=ties(v), name=R.pick(MS, ""))
    want = run("QLinearConv", inputs, attrs, domain="")[0]
    last = lambda u: np.ascontiguousarray(np.moveaxis(u, 1, -1))
    return Case("QLinearConv", [last(x)] + inputs[1:], {**attrs, "channels_last": 1}, [last(want)], near=last(ties(v)))


def nhwc_pool(R):
    spatial = [R.int(1, 8) for _ in range(R.int(1, 3))]
    k = [R.int(1, min(3, n)) for n in spatial]
    attrs = {"kernel_shape": k}
    if R.chance():
        attrs["strides"] = [R.int(1, 2) for _ in k]
    if R.chance():
        attrs["pads"] = [R.int(0, n - 1) for n in k + k]
    elif R.chance():
        attrs["auto_pad"] = R.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    return Case("NhwcMaxPool", [R.q(qtype(R), R.int(1, 2), *spatial, R.int(1, 5))], attrs)


def dynamic_pads(R):
    spatial = [R.int(1, 6) for _ in range(R.int(1, 2))]
    attrs, k = conv_attrs(R, [9] * len(spatial))
    attrs.pop("pads", None)
    attrs.pop("auto_pad", None)
    if "strides" in attrs and R.chance():
        attrs["output_padding"] = [R.int(0, s - 1) for s in attrs["strides"]]
    group = R.pick(1, 1, 2)
    if group > 1:
        attrs["group"] = group
    c, m = group * R.int(1, 3), R.int(1, 4)
    d, s = attrs.get("dilations", [1] * len(k)), attrs.get("strides", [1] * len(k))
    extra = attrs.get("output_padding", [0] * len(k))
    full = [(n - 1) * b + (a - 1) * e + 1 + o for n, a, b, e, o in zip(spatial, k, s, d, extra)]
    lo = [R.int(0, min(2, (n - 1) // 2)) for n in full]
    hi = [R.int(0, min(2, (n - 1) // 2)) for n in full]
    pads = np.array(lo + hi, I64)
    bias = R.f(m * group) if R.chance() else None
    return Case("ConvTransposeWithDynamicPads", [R.f(R.int(1, 2), c, *spatial), R.f(c, m, *k), pads, bias], attrs)


# ---- shapes and positions
def pad(R):
    shape = R.shape(1)
    mode = R.pick("constant", "reflect", "edge")
    most = [n - 1 if mode == "reflect" else 3 for n in shape]
    pads = np.array([R.int(0, m) if mode != "constant" else R.int(-min(n - 1, 1) // 2, 3)
                     for m, n in zip(most + most, shape + shape)], I64)
    value = R.number(F32(1.5)) if mode == "constant" and R.chance() else None
    attrs = {"mode": mode} if mode != "constant" or R.chance() else {}
    return Case("Pad", [R.f(*shape), pads.reshape(R.pick((-1,), (1, -1))), value], attrs)


def gather_nd(R):
    shape = R.shape(1)
    k = R.int(1, len(shape))
    tuples = R.shape(0, 2, 4)
    index = np.stack([R.r.integers(-n, n, tuples) for n in shape[:k]], -1).astype(R.pick(I32, I64))
    return Case("GatherND", [R.f(*shape), index])


def small(R):
    op = R.pick("Trilu", "Unique", "Range", "ExpandDims", "ReduceSumInteger", "MurmurHash3", "CDist")
    if op == "Trilu":
        x = R.f(*R.shape(0, 2), R.int(1, 6), R.int(1, 6))
        return Case(op, [x, np.asarray(I64(R.int(-4, 4))) if R.chance(0.7) else None],
                    {"upper": R.int(0, 1)} if R.chance() else {})
    if op == "Unique":
        return Case(op, [R.r.integers(0, 9, R.int(1, 20)).astype(F32)], outs=3)
    if op == "Range":
        t = R.pick(F32, F64, np.int16, I32, I64)
        start, limit = t(R.int(-9, 9)), t(R.int(-9, 20))
        step = R.number(t(R.pick(1, 2, 3, -1, -2))) if R.chance(0.7) else None
        return Case(op, [R.number(start), R.number(limit), step])
    if op == "ExpandDims":
        x = R.f(*R.shape(1))
        return Case(op, [x, np.asarray(I32(R.int(-x.ndim - 1 + (x.size <= x.ndim), x.ndim)) if x.size > x.ndim else I32(0))])
    if op == "ReduceSumInteger":
        t, shape = qtype(R), R.shape(1)
        axes = sorted({R.int(0, len(shape) - 1) for _ in range(R.int(1, 3))})
        x, keep = R.q(t, *shape), R.int(0, 1)
        y = x.astype(I32 if t == I8 else np.uint32).sum(tuple(axes), keepdims=bool(keep), dtype=I32 if t == I8 else np.uint32)
        return Case(op, [x], {"axes": axes, "keepdims": keep}, [np.asarray(y)])
    if op == "MurmurHash3":
        t = R.pick(I32, np.uint32, I64, np.uint64, F32, F64)
        x = np.asarray(R.f(*R.shape()) if t in (F32, F64) else R.r.integers(0, 1 << 31, R.shape(0, 3)) * R.pick(1, 77))
        attrs = {a: v for a, v in (("seed", R.int(0, 1 << 31)), ("positive", R.int(0, 1))) if R.chance()}
        return Case(op, [x.astype(t)], attrs)
    t, n = R.pick(F32, F64), R.int(1, 9)
    attrs = {"metric": R.pick("sqeuclidean", "euclidean")} if R.chance(0.8) else {}
    return Case(op, [R.f(R.int(1, 6), n, t=t), R.f(R.int(1, 6), n, t=t)], attrs, tol=(1e-4, 1e-4))


def inverse(R):
    n, t = R.int(1, 7), R.pick(F32, F64)
    x = R.f(*R.shape(0, 2, 3), n, n, t=t) + t(R.pick(0, 3)) * np.eye(n, dtype=t)
    if np.linalg.cond(x).max() > 50:
        x = x * t(0.1) + np.eye(n, dtype=t)[::-1]  # pivots are off the diagonal
    return Case("Inverse", [x], tol=(2e-3, 2e-3) if t == F32 else None)


def ngram(R):
    batch, length, vocab, n = R.int(1, 3), R.int(1, 12), R.int(2, 4), R.int(1, 4)
    ids = R.r.integers(0, vocab, (batch, length)).astype(I64)
    return Case("NGramRepeatBlock", [ids, R.f(batch, vocab)], {"ngram_size": n})


def crop(R):
    n, rois = R.int(1, 3), R.int(1, 4)
    x = R.f(n, R.int(1, 3), R.int(1, 7), R.int(1, 7))
    boxes = R.r.uniform(-0.2, 1.2, (rois, 4)).astype(F32)
    if R.chance(0.3):
        boxes = np.round(boxes)
    attrs = {}
    if R.chance(0.7):
        attrs["mode"] = R.pick("bilinear", "nearest")
    if R.chance():
        attrs["extrapolation_value"] = 2.5
    size = np.array([R.int(1, 5), R.int(1, 5)], I32)
    return Case("CropAndResize", [x, boxes, R.r.integers(0, n, rois).astype(I32), size], attrs)


def grid_sample(R):
    n = R.int(1, 2)
    attrs = {a: v for a, v in (("mode", R.pick("bilinear", "nearest", "bicubic")), ("align_corners", R.int(0, 1)),
                               ("padding_mode", R.pick("zeros", "border", "reflection"))) if R.chance(0.8)}
    grid = R.r.uniform(-1.2, 1.2, (n, R.int(1, 4), R.int(1, 4), 2)).astype(F32)
    return Case("GridSample", [R.f(n, R.int(1, 3), R.int(2, 6), R.int(2, 6)), grid], attrs, tol=(1e-3, 1e-3))


def fft(R):
    n, shape = 2 * R.int(1, 8), R.shape(0, 2)
    attrs = {"signal_ndim": 1, **{a: v for a, v in (("onesided", 1), ("normalized", 0)) if R.chance()}}
    x = R.f(*shape, n)
    y = np.fft.rfft(x.astype(F64))
    pair = np.stack([y.real, y.imag], -1).astype(F32)
    if R.chance():
        return Case("Rfft", [x], attrs, [pair], tol=(1e-3, 1e-3))
    return Case("Irfft", [pair], attrs, [x], tol=(1e-3, 1e-3))


KINDS = [qlinear_binary, qlinear_unary, qlinear_softmax, qlinear_concat, qlinear_where, qlinear_means, quantize,
         dynamic_matmul, integer_to_float, qgemm, nbits, block_gather, quantized_lstm, fused_matmul, fused_gemm, fused_conv, fused_conv,
         nhwc_pool, dynamic_pads, pad, gather_nd, small, small, inverse, ngram, crop, grid_sample, fft]


HALF = [fused_matmul, fused_gemm, fused_conv, dynamic_pads, pad, inverse, grid_sample]


def make(kind, seed):
    R = Random(seed)
    case = kind(R)
    case.seed = seed
    return halved(case) if R.half and kind in HALF and case.op != "QLinearConv" else case
