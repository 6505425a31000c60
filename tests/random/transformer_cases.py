"""Random nodes of com.microsoft's transformer operators and what ONNX Runtime makes of them: see
contrib_transformers.py."""
import math

import numpy as np
import onnxruntime as ort
from onnx import helper

from contrib_nodes import Draws

ort.set_default_logger_severity(4)

F32, F16, I32, I64 = np.float32, np.float16, np.int32, np.int64
MS = "com.microsoft"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
onnx_type = helper.np_dtype_to_tensor_dtype


class Random(Draws):
    """What cases are made of."""

    def __init__(self, seed):
        super().__init__(seed)
        self.dtype = self.pick(F32, F32, F32, F16)

    def f(self, *shape):
        """Floats that float16 has, too, where that is the type."""
        return np.asarray(self.r.standard_normal(shape)).astype(self.dtype).astype(F32)

    def maybe(self, *shape, p=0.5):
        return self.f(*shape) if self.chance(p) else None


class Case:
    """One node: inputs (name, array or None), attributes, and the outputs that are wanted with their values;
    a value may be a pair of an array and of a mask that says where it is compared."""

    def __init__(self, op, inputs, want, attrs=None, dtype=F32):
        self.op, self.inputs, self.attrs, self.dtype = op, inputs, attrs or {}, dtype
        self.single = ()  # inputs that are float32 in any case
        self.want = want

    def __str__(self):
        shapes = " ".join(f"{n}{list(v.shape)}" for n, v in self.inputs if v is not None)
        return f"{self.op} {np.dtype(self.dtype).name} {shapes} out={[n for n, w in self.want if w is not None]} {self.attrs}"


def trimmed(names):
    while names and not names[-1]:
        names.pop()
    return names


def ort_run(op, inputs, outputs, attrs):
    """Values of the outputs that are not None, None for those that are; inputs float32."""
    names = trimmed([n if v is not None else "" for n, v in inputs])
    feed = {n: v for n, v in inputs if v is not None}
    info = [helper.make_tensor_value_info(n, onnx_type(v.dtype), v.shape) for n, v in feed.items()]
    node = helper.make_node(op, names, trimmed([n or "" for n in outputs]), domain=MS, **attrs)
    caches = {n: v.dtype for n, v in feed.items() if n in ("pk", "pv")}
    types = {"mask_index": I32, "k2": caches.get("pk", F32), "v2": caches.get("pv", F32)}
    kind = lambda n: onnx_type(np.dtype(types.get(n, F32)))
    result = [helper.make_tensor_value_info(n, kind(n), None) for n in outputs if n]
    graph = helper.make_graph([node], "g", info, result)
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
    s = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = iter(s.run(None, feed))
    return [next(got) if n else None for n in outputs]


def compared(R, op, inputs, outputs, attrs, reference=None):
    """A case whose values are those of ONNX Runtime, of `reference` = (inputs, attributes) where given."""
    ins, at = reference or (inputs, attrs)
    got = ort_run(op, ins, outputs, at)
    return Case(op, inputs, list(zip(outputs, got)), attrs, R.dtype)


def wanted(R, *names):
    """The first one and some of the others."""
    return [names[0]] + [n if R.chance(0.6) else None for n in names[1:]]


# ---- activations, normalizations, embeddings -----------------------------------------------------------------------
def shape_of(R, lo=1):
    return [R.int(1, 5) for _ in range(R.int(lo, 4))]


def activations(R):
    shape = shape_of(R)
    x = ("x", R.f(*shape))
    op = R.pick("Gelu", "BiasGelu", "FastGelu", "QuickGelu")
    if op == "BiasGelu":
        return compared(R, op, [x, ("b", R.f(shape[-1]))], ["y"], {})
    if op == "FastGelu":
        return compared(R, op, [x, ("b", R.maybe(shape[-1]))], ["y"], {})
    attrs = {"alpha": float(R.r.uniform(0.5, 2))} if op == "QuickGelu" and R.chance() else {}
    return compared(R, op, [x], ["y"], attrs)


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def other_devices(R):
    n, s, d = R.int(1, 3), R.int(1, 5), 2 * R.int(1, 4)
    x, b = R.f(n, s, d), R.f(d)
    if R.chance():
        z = (x + b).astype(np.float64)
        y = z[..., :d // 2] * gelu(z[..., d // 2:])
        return Case("BiasSplitGelu", [("x", x), ("b", b)], [("y", y)], dtype=R.dtype)
    skip = R.f(n, s, d)
    return Case("BiasAdd", [("x", x), ("b", b), ("s", skip)], [("y", x + b + skip)], dtype=R.dtype)


def skip_norms(R):
    b, s, d = R.int(1, 3), R.int(1, 4), R.int(1, 9)
    shape = R.pick((b, s, d), (b, s, d), (s, d))
    x = R.f(*shape)
    skip = R.f(*(R.pick(shape, (1, s, d), (s, d)) if len(shape) == 3 else shape))
    attrs = {"epsilon": float(R.pick(1e-12, 1e-5, 0.1))} if R.chance(0.8) else {}
    inputs = [("x", x), ("s", skip), ("g", R.f(d))]
    outs = wanted(R, "y", "mean", "inv", "sum")
    if d == 1:
        attrs["epsilon"] = 0.1  # a variance of 0 would only show how it is rounded
    if R.chance():
        inputs += [("beta", R.maybe(d)), ("bias", R.maybe(d))]
        case = compared(R, "SkipLayerNormalization", inputs, outs, attrs)
    else:
        case = compared(R, "SkipSimplifiedLayerNormalization", inputs + [("bias", R.maybe(d))], outs, attrs)
    return case


def embeddings(R):
    b, s, d = R.int(1, 3), R.int(1, 5), R.int(2, 8)
    words, places, kinds = R.int(1, 6), s + R.int(0, 3), R.int(1, 3)
    ids = R.r.integers(0, words, (b, s)).astype(I32)
    seg = R.r.integers(0, kinds, (b, s)).astype(I32) if R.chance(0.7) else None
    mask = R.r.integers(0, 2, (b, s)).astype(I32) if R.chance() else None
    attrs = {"epsilon": 1e-3}
    if R.chance(0.6):
        pos = R.r.integers(0, places, (R.pick(1, b), s)).astype(I32) if R.chance() else None
        inputs = [("ids", ids), ("seg", seg), ("word", R.f(words, d)), ("place", R.f(places, d)),
                  ("kind", None if seg is None else R.f(kinds, d)), ("gamma", R.f(d)), ("beta", R.f(d)),
                  ("mask", mask), ("pos", pos)]
        return compared(R, "EmbedLayerNormalization", inputs, ["y", "mask_index", R.pick("sum", None)], attrs)
    R.dtype = F32
    t = R.pick(np.uint8, np.int8)
    table = lambda *n: R.r.integers(np.iinfo(t).min, np.iinfo(t).max + 1, n).astype(t)
    scale = lambda: np.array(R.r.uniform(0.01, 0.1), F32)
    some = seg is not None
    inputs = [("ids", ids), ("seg", seg), ("word", table(words, d)), ("place", table(places, d)),
              ("kind", table(kinds, d) if some else None), ("gamma", table(d)), ("beta", table(d)), ("mask", mask)]
    inputs += [(n, scale() if some or n != "ks" else None) for n in ("ws", "ps", "ks", "gs", "bs")]
    inputs += [(n, table() if some or n != "kz" else None) for n in ("wz", "pz", "kz", "gz", "bz")]
    return compared(R, "QEmbedLayerNormalization", inputs, ["y", "mask_index"], attrs)


# ---- rotation and position biases ----------------------------------------------------------------------------------
def rotary(R):
    b, s, n, size = R.int(1, 3), R.int(1, 5), R.int(1, 3), 2 * R.int(1, 4)
    attrs = {"interleaved": R.int(0, 1)} if R.chance(0.8) else {}
    rot = size
    if R.chance(0.4):
        rot = 2 * R.int(1, size // 2)
        attrs.update(num_heads=n, rotary_embedding_dim=rot)
    elif R.chance(0.3):
        attrs["num_heads"] = n
    positions = s + R.int(0, 4)
    if R.chance():
        ids = np.array(R.int(0, positions - s), I64).reshape(R.pick((), (1,)))
    else:
        ids = R.r.integers(0, positions, (b, s)).astype(I64)
    x = R.f(b, s, n * size) if R.chance() else R.f(b, n, s, size)
    inputs = [("x", x), ("ids", ids), ("cos", R.f(positions, rot // 2)), ("sin", R.f(positions, rot // 2))]
    return compared(R, "RotaryEmbedding", inputs, ["y"], attrs)


def rotary_in_space(R):
    b, s, n, half = R.int(1, 3), R.int(1, 5), R.int(1, 3), R.int(1, 6)
    section = [R.int(0, half), 0, 0]
    section[1] = R.int(0, half - section[0])
    section[2] = half - section[0] - section[1]
    attrs = {"interleaved": R.int(0, 1), "mrope_section": section, "mrope_layout": R.int(0, 1)}
    size = 2 * half
    if R.chance(0.4):
        size += 2 * R.int(0, 2)
        attrs.update(num_heads=n, rotary_embedding_dim=2 * half)
    positions = s + R.int(0, 4)
    x = R.f(b, s, n * size) if R.chance() else R.f(b, n, s, size)
    if x.ndim == 3:
        attrs["num_heads"] = n
    ids = R.r.integers(0, positions, (3, b, s)).astype(I64)
    inputs = [("x", x), ("ids", ids), ("cos", R.f(positions, half)), ("sin", R.f(positions, half))]
    return compared(R, "MRotaryEmbedding", inputs, ["y"], attrs)


def position_biases(R):
    n = R.int(1, 3)
    if R.chance():
        b, s, size, half = R.int(1, 3), R.int(1, 5), R.int(1, 5), R.int(1, 4)
        q, qb, w, bias = R.f(b, s, n * size), R.f(n * size), R.f(size, 2 * half), R.f(2 * half)
        rel, eco = R.f(1, n, s, s), R.f(1, n, 1, 1)
        x = (q + qb).reshape(b, s, n, size).transpose(0, 2, 1, 3)
        gate = 1 / (1 + np.exp(-(x @ w + bias).reshape(b, n, s, 2, half).sum(-1)))
        y = (gate[..., :1] * (gate[..., 1:] * eco - 1) + 2) * rel
        inputs = [("q", q), ("qb", qb), ("rel", rel), ("w", w), ("b", bias), ("eco", eco)]
        return Case("GatedRelativePositionBias", inputs, [("y", y)], {"num_heads": n}, R.dtype)
    buckets, far, both, s = 4 * R.int(1, 8), R.int(33, 100), R.int(0, 1), R.int(1, 60)
    table = R.f(buckets, n)
    side = buckets // 2 if both else buckets
    exact = side // 2
    d = np.arange(s)[None, :] - np.arange(s)[:, None]
    k = np.abs(d) if both else np.maximum(-d, 0)
    with np.errstate(divide="ignore"):
        grown = np.log(k.astype(F32) / F32(exact)) / np.log(F32(far) / F32(exact)) * F32(side - exact)
    large = np.minimum(exact + np.maximum(grown, 0).astype(I64), side - 1)
    bucket = np.where(k < exact, k, large) + (side * (d > 0) if both else 0)
    y = table.reshape(-1)[np.arange(n)[:, None, None] * buckets + bucket][None]
    length = np.array([s], I64)
    return Case("RelativePositionBias", [("t", table), ("q", length), ("k", length.copy())], [("y", y)],
                {"is_bidirectional": both, "max_distance": far}, R.dtype)


# ---- attention -----------------------------------------------------------------------------------------------------
def masks(R, b, s, t, forms):
    """A mask in one of the forms and, where the CPU kernels do not have that, the same in another one."""
    form = R.pick(*forms)
    if form == "none":
        return None, None
    if form == "length":
        m = R.r.integers(1, t + 1, b)
    elif form == "range":
        start = R.r.integers(0, t, b)
        m = np.concatenate([np.minimum(start + R.r.integers(1, t + 1, b), t), start])
    elif form == "cumulated":
        m = np.concatenate([R.r.integers(1, t + 1, b), np.arange(b + 1) * s, np.arange(b + 1) * t])
    elif form == "dummy":
        m = R.r.integers(0, 2, (R.pick(1, b), 1))
    elif form == "keys":
        m = R.r.integers(0, 2, (b, t))
    elif form == "all":
        m = R.r.integers(0, 2, (b, s, t))
    else:
        n = t + R.int(0, 2)
        m = R.r.integers(0, 2, (b, 1, n, n)).astype(I32)
        return m, np.ascontiguousarray(m[:, 0, t - s:t, :t])
    return m.astype(I32), m.astype(I32)


def common(R, n):
    attrs = {"num_heads": n}
    if R.chance(0.3):
        attrs["scale"] = float(R.r.uniform(0.2, 1))
    if R.chance(0.3):
        attrs["mask_filter_value"] = float(R.pick(-1.0, -100.0, -3.4e38))
    return attrs


def attention(R):
    b, s, n, size, d = R.int(1, 3), R.int(1, 5), R.int(1, 3), R.int(1, 4), R.int(1, 6)
    vsize, past, p = size, None, 0
    attrs = common(R, n)
    if R.chance(0.3):
        attrs["unidirectional"] = 1
    quantized = R.chance(0.25)
    if not quantized and R.chance(0.3):
        vsize = R.int(1, 4)
        attrs["qkv_hidden_sizes"] = [n * size, n * size, n * vsize]
    elif R.chance(0.4):
        p = R.int(0, 4)
        past = R.f(2, b, n, p, size)
    forms = ["none", "length", "range", "keys", "all", "cumulated"]
    if s + p > 1:
        forms += ["dummy"]
    if not attrs.get("unidirectional") and not quantized:
        forms += ["square"]
    mask, same = masks(R, b, s, s + p, forms)
    width = 2 * n * size + n * vsize
    outs = ["y", "present" if past is not None or vsize == size and R.chance() else None]
    if quantized:
        R.dtype = F32
        wt = R.pick(np.uint8, np.int8)
        byte = lambda t, *k: R.r.integers(np.iinfo(t).min, np.iinfo(t).max + 1, k).astype(t)
        per = R.pick((), (1,), (width,))
        inputs = [("x", byte(np.uint8, b, s, d)), ("w", byte(wt, d, width)), ("b", R.f(width)),
                  ("xs", np.array(0.02, F32)), ("ws", R.r.uniform(0.005, 0.02, per).astype(F32)), ("m", mask),
                  ("xz", byte(np.uint8).reshape(()) if R.chance() else None),
                  ("wz", byte(wt, *per) if R.chance() else None), ("past", past)]
        return compared(R, "QAttention", inputs, outs, attrs)
    bias = R.f(R.pick(1, b), R.pick(1, n), s, s + p) if past is None and R.chance(0.3) else None
    ab = R.f(width) if R.chance(0.8) else None
    x, w = ("x", R.f(b, s, d)), ("w", R.f(d, width))
    inputs = [x, w, ("b", ab), ("m", mask), ("past", past), ("bias", bias)]
    reference = ([x, w, ("b", ab), ("m", same), ("past", past), ("bias", bias)], attrs)
    if past is None or R.chance(0.6):
        return compared(R, "Attention", inputs, outs, attrs, reference)
    room = s + p + R.int(0, 3)  # the same in a buffer with room for more
    buffer = R.f(2, b, n, room, size)
    buffer[:, :, :, :p] = past
    inputs[4] = ("past", buffer)
    inputs += [("p", np.array([p], I32))]
    case = compared(R, "Attention", inputs, outs, dict(attrs, past_present_share_buffer=1), reference)
    case.want[1] = ("present", np.concatenate([case.want[1][1], buffer[:, :, :, s + p:]], 3))
    return case


def packing(R):
    """RemovePadding, RestorePadding, and attention without padding as that with it."""
    b, s, h = R.int(1, 4), R.int(1, 5), R.int(1, 4)
    count = R.r.integers(0, s + 1, b).astype(I32)
    real = np.arange(s)[None] < count[:, None]
    place = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)]).reshape(b, s).astype(I32)
    sums = np.concatenate([[0], np.cumsum(count)]).astype(I32)
    x = R.f(b, s, h)
    op = R.pick("RemovePadding", "RestorePadding", "PackedAttention", "PackedMultiHeadAttention")
    if op == "RemovePadding":
        want = [("y", x[real]), ("place", place), ("sums", sums), ("most", count.max(keepdims=True))]
        return Case(op, [("x", x), ("count", count)], want, dtype=R.dtype)
    if op == "RestorePadding":
        return Case(op, [("x", x[real]), ("place", place)], [("y", x * real[..., None])], dtype=R.dtype)
    count = np.maximum(count, 1)  # there is nothing to look at in an empty sequence
    real = np.arange(s)[None] < count[:, None]
    place = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)]).reshape(b, s).astype(I32)
    sums = np.concatenate([[0], np.cumsum(count)]).astype(I32)
    n, size = R.int(1, 3), R.int(1, 4)
    bias = R.maybe(R.pick(1, b), R.pick(1, n), s, s)
    attrs = {"num_heads": n}
    lowest = dict(attrs, mask_filter_value=-3.4e38)
    if op == "PackedAttention":
        w, wb = R.f(h, 3 * n * size), R.f(3 * n * size)
        reference = [("x", x), ("w", w), ("b", wb), ("m", count), ("past", None), ("bias", bias)]
        inputs = [("x", x[real]), ("w", w), ("b", wb), ("place", place), ("sums", sums), ("bias", bias)]
        y, = ort_run("Attention", reference, ["y"], lowest)
        return Case(op, inputs, [("y", y[real])], attrs, R.dtype)
    q, k, v, wb = R.f(b, s, n * size), R.f(b, s, n * size), R.f(b, s, n * size), R.maybe(3 * n * size)
    y, = ort_run("MultiHeadAttention", [("q", q), ("k", k), ("v", v), ("b", wb), ("m", count), ("bias", bias)], ["y"], lowest)
    q, k, v = q[real], k[real], v[real]
    if R.chance(0.4):
        q, k, v = np.stack([t.reshape(-1, n, size) for t in (q, k, v)], 2), None, None
    inputs = [("q", q), ("k", k), ("v", v), ("b", wb), ("place", place), ("sums", sums), ("bias", bias)]
    return Case(op, inputs, [("y", y[real])], attrs, R.dtype)


def split_heads(x, n):
    return np.ascontiguousarray(x.reshape(*x.shape[:2], n, -1).transpose(0, 2, 1, 3))


def multi_head(R):
    """MultiHeadAttention in all forms, and the same of one query as DecoderMaskedMultiHeadAttention."""
    b, n, size = R.int(1, 3), R.int(1, 3), R.int(1, 4)
    decoder = R.chance(0.3)
    s = 1 if decoder else R.int(1, 5)
    form = R.pick("plain", "plain", "past", "past", "heads", "packed", "kv")
    if decoder and form == "kv":
        form = "plain"
    t = R.int(1, 5) if form in ("plain", "heads", "kv") and not decoder or form == "heads" else s
    vsize = R.int(1, 4) if form == "plain" else size
    attrs = common(R, n)
    causal = not decoder and t == s and R.chance(0.3)
    if causal:
        attrs["unidirectional"] = 1
    q, k, v = R.f(b, s, n * size), R.f(b, t, n * size), R.f(b, t, n * vsize)
    bias = R.maybe(2 * n * size + n * vsize) if form != "kv" else None
    p, pk, pv = 0, None, None
    if form == "past" or form == "packed" and R.chance():
        p = R.int(0, 4)
        pk, pv = R.f(b, n, p, size), R.f(b, n, p, size)
    forms = ["none", "keys"] + ([] if decoder else ["length", "all", "cumulated"])
    mask, _ = masks(R, b, s, t + p, forms)
    ab = R.f(R.pick(1, b), R.pick(1, n), s, t + p) if R.chance(0.3) else None
    if form == "heads":
        k, v = split_heads(k, n), split_heads(v, n)
    reference = [("q", q), ("k", k), ("v", v), ("b", bias), ("m", mask), ("ab", ab), ("pk", pk), ("pv", pv)]
    outs = ["y"] + (["pk2", "pv2"] if pk is not None or form not in ("heads",) and R.chance() else [None, None])
    outs += ["qk" if R.chance(0.3) else None]
    shared = pk is not None and R.chance(0.4)
    if form == "packed":
        parts = [x.reshape(b, s, n, size) for x in (q, k, v)]
        if decoder:
            q, k, v = np.concatenate([q, k, v], 2), None, None
        else:
            q, k, v = np.stack(parts, 3), None, None
    elif form == "kv":
        k, v = np.stack([k.reshape(b, t, n, size), v.reshape(b, t, n, size)], 3), None
    length = None
    keys, values = pk, pv
    if shared:
        room = p + t + R.int(0, 3)
        keys, values = R.f(b, n, room, size), R.f(b, n, room, size)
        keys[:, :, :p], values[:, :, :p] = pk, pv
        length = np.array([p], I32)
    if decoder:
        inputs = [("q", q), ("k", k), ("v", v), ("m", mask), ("ab", ab), ("pk", keys), ("pv", values), ("p", length),
                  ("w", None), ("c", None), ("b", bias)]
    else:
        inputs = [("q", q), ("k", k), ("v", v), ("b", bias), ("m", mask), ("ab", ab), ("pk", keys), ("pv", values),
                  ("p", length)]
    got = ort_run("MultiHeadAttention", reference, outs, attrs)
    if shared:
        for i, x in ((1, keys), (2, values)):
            got[i] = np.concatenate([got[i], x[:, :, p + t:]], 2)
        if decoder:
            attrs = dict(attrs, past_present_share_buffer=1)
    op = "DecoderMaskedMultiHeadAttention" if decoder else "MultiHeadAttention"
    return Case(op, inputs, list(zip(outs, got)), attrs, R.dtype)


def quantize(R, x, reference, attrs, own, heads, size):
    """Makes the cache of a GroupQueryAttention one of int8 or of pairs of 4 bits."""
    bits, how = R.pick(8, 4), R.pick("PER_TENSOR", "PER_CHANNEL")
    R.dtype = F32  # else what is new is rounded before it is quantized
    shape = (1, heads, 1, size) if how == "PER_CHANNEL" else (1,)
    for name, scale in (("pk", "ks"), ("pv", "vs")):
        room = x[name].shape[2]
        dims = (x[name].shape[0], heads, room, size // (8 // bits))
        cache = R.r.integers(-100, 100, dims).astype(np.int8) if bits == 8 else R.r.integers(0, 256, dims).astype(np.uint8)
        x[name] = reference[name] = cache
        x[scale] = reference[scale] = (R.r.uniform(0.5, 1, shape) * (0.03 if bits == 8 else 0.3)).astype(F32)
    for a in (attrs, own):
        a.update(kv_cache_bit_width=bits, k_quant_type=how, v_quant_type=how)


def group_query(R):
    b, g, size = R.int(1, 3), R.int(1, 2), R.pick(8, 16, 32)  # there multiples of 8, rotated of 16
    n = g * R.int(1, 3)
    kind = R.pick("prompt", "prompt", "step", "step", "chunk", "padded")
    window = R.int(1, 5) if R.chance(0.4) else 0
    sliding = window > 0 and kind != "prompt" and R.chance()
    if kind == "chunk":
        b = 1
    s = {"prompt": R.int(1, 5), "step": 1, "chunk": R.int(2, 4), "padded": R.int(1, 4)}[kind]
    fresh = np.full(b, s)
    if kind == "prompt":
        past = np.zeros(b, int)
        filled = R.r.integers(1, s + 1, b) if R.chance() else np.full(b, s)
        fresh = filled
    else:
        past = R.r.integers(1, 12 if sliding else 6, b)
        if kind == "padded":
            fresh = R.r.integers(0, s + 1, b)
        filled = past + fresh
    total = int(filled.max()) if kind != "prompt" else s
    total = max(total, s)
    room = None
    if kind == "padded":
        room = int(past.max()) + s + R.int(0, 3)
        total = room
    elif kind != "prompt":
        room = R.pick(int(past.max()), total + R.int(0, 3))
    elif R.chance(0.4):
        room = s + R.int(0, 3)
    if sliding:
        room = window + R.int(0, 4)
    attrs = {"num_heads": n, "kv_num_heads": g}
    if R.chance(0.3):
        attrs["scale"] = float(R.r.uniform(0.2, 1))
    if R.chance(0.3):
        attrs["softcap"] = float(R.r.uniform(0.5, 3))
    if window:
        attrs["local_window_size"] = window
        attrs.update({"sliding_window_cache": 1} if sliding else {})
    elif R.chance(0.2) and kind != "padded":
        attrs["causal"] = 0
    x = {"sl": (filled - 1).astype(I32), "total": np.array(total, I32).reshape(R.pick((), (1,)))}
    if kind == "padded":
        x["qs"] = fresh.astype(I32)
    if size > 8 and R.chance(0.7):
        positions = (room or 0) + s + 16
        attrs.update(do_rotary=1, rotary_interleaved=R.int(0, 1))
        rot = R.pick(8, size // 2)
        x["cos"], x["sin"] = R.f(positions, rot), R.f(positions, rot)
        if R.chance(0.3) and kind in ("step", "chunk", "padded"):
            x["pos"] = R.r.integers(0, positions, (b, s)).astype(I64)
        elif R.chance(0.3) and kind == "prompt":
            x["pos"] = np.full((b, s), R.int(0, 3), I64)
    if R.chance(0.3):
        x["ab"] = R.f(R.pick(1, b), R.pick(1, n), s, total)
    if R.chance(0.2):
        attrs["smooth_softmax"] = 1
    elif R.chance(0.2):
        x["sink"] = R.f(n)
    if room is not None:
        x["pk"], x["pv"] = R.f(b, g, room, size), R.f(b, g, room, size)
    q, k, v = R.f(b, s, n * size), R.f(b, s, g * size), R.f(b, s, g * size)
    order = ["q", "k", "v", "pk", "pv", "sl", "total", "cos", "sin", "pos", "ab", "sink", "ks", "vs", "qn", "kn", "qs"]
    x.update(q=q, k=k, v=v)
    outs = ["y", "k2", "v2", None]
    if R.chance(0.3) and kind in ("step", "chunk") and not sliding:
        outs[3] = "qk"
        attrs["qk_output"] = R.int(1, 2)
    reference = dict(x)
    own = dict(attrs)
    if R.chance(0.2):  # by the documentation: the CPU kernel has no norm weights
        own["qk_norm_epsilon"] = 1e-3
        x["qn"], x["kn"] = R.f(size), R.f(size)
        for name, weight, heads in (("q", "qn", n), ("k", "kn", g)):
            h = x[name].reshape(b, s, heads, size)
            h = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-3) * x[weight]
            reference[name] = h.reshape(b, s, -1).astype(F32)
    elif R.chance(0.3):
        x["q"], x["k"], x["v"] = np.concatenate([q, k, v], 2), None, None
    if R.chance(0.3) and room is not None and (size == 32 or not sliding):
        quantize(R, x, reference, attrs, own, g, size)
    got = ort_run("GroupQueryAttention", [(o, reference.get(o)) for o in order], outs, attrs)
    rows = np.arange(s)[None, :, None] < fresh[:, None, None]
    held = filled.copy()
    if sliding:
        portion = room - window + 1
        held -= portion * np.maximum(0, -(-(filled - room) // portion))
    places = np.arange(got[1].shape[2])[None, None, :, None] < held[:, None, None, None]
    want = [("y", (got[0], rows)), ("k2", (got[1], places)), ("v2", (got[2], places)), (outs[3], got[3])]
    return Case("GroupQueryAttention", [(o, x.get(o)) for o in order], want, own, R.dtype)


# ---- mixture of experts, recurrent attention ----------------------------------------------------------------------
def experts(R):
    rows, e, size, inner = [R.int(1, 3) for _ in range(R.int(1, 2))], R.int(1, 6), R.int(1, 6), R.int(1, 5)
    act = R.pick("relu", "gelu", "silu", "identity", "swiglu", "swiglu")
    n = int(np.prod(rows))
    fusion = R.int(0, 2) if act == "swiglu" else 0
    wide = inner * 2 if act == "swiglu" else inner
    x, route, w1, w2 = R.f(*rows, size), R.f(n, e), R.f(e, wide, size), R.f(e, size, inner)
    b1, b2 = R.maybe(e, wide), R.maybe(e, size)
    attrs = {"activation_type": act, "k": R.int(1, e)}
    if R.chance():
        attrs["normalize_routing_weights"] = 1
    if act == "swiglu" and R.chance():
        attrs.update(activation_alpha=1.702, activation_beta=1.0, swiglu_limit=float(R.pick(0.5, 7.0)))
    w3 = b3 = None
    own, v1, c1 = dict(attrs), w1, b1
    reference = [("x", x), ("route", route), ("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2)]
    if act == "swiglu":  # the CPU kernel has the two in turn
        attrs["swiglu_fusion"], own["swiglu_fusion"] = 1, fusion
        if fusion == 0:
            w1, w3 = v1[:, ::2], v1[:, 1::2]
            b1, b3 = (None, None) if c1 is None else (c1[:, ::2], c1[:, 1::2])
        elif fusion == 2:
            w1 = np.concatenate([v1[:, ::2], v1[:, 1::2]], 1)
            b1 = None if c1 is None else np.concatenate([c1[:, ::2], c1[:, 1::2]], 1)
    inputs = [("x", x), ("route", route), ("w1", w1), ("b1", b1), ("w2", w2), ("b2", b2), ("w3", w3), ("b3", b3)]
    inputs = [(k, None if v is None else np.ascontiguousarray(v)) for k, v in inputs]
    return compared(R, "MoE", inputs, ["y"], own, (reference, attrs))


def quantized_experts(R):
    rows, e, inner = R.int(1, 4), R.int(1, 5), 16 * R.int(1, 2)
    size, act = 16 * R.int(1, 2), R.pick("relu", "silu", "identity", "swiglu", "swiglu")
    R.dtype = F32  # half of float16 there is not that of float32
    wide = inner * 2 if act == "swiglu" else inner
    bits, block = R.pick((4, 0), (4, 16), (8, 0))  # blocks of 8 bits are multiplied as int8 there
    attrs = {"activation_type": act, "k": R.int(1, e), "expert_weight_bits": bits}
    if act == "swiglu":
        attrs.update(swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0)
    shares = R.r.uniform(0.1, 1, (rows, e)).astype(F32) if R.chance(0.4) else None
    if shares is None or R.chance():
        attrs["normalize_routing_weights"] = 1
    inputs = [("x", R.f(rows, size)), ("route", R.f(rows, e))]
    zeros = []
    for i, (n, k) in enumerate(((wide, size), (size, inner))):
        scales = (e, n, k // block) if block else (e, n)
        codes = scales[:-1] + (-(-scales[-1] * bits // 8),)
        byte = lambda *d: R.r.integers(0, 256, d).astype(np.uint8)
        inputs += [(f"w{i}", byte(e, n, k * bits // 8)), (f"s{i}", (R.r.uniform(0.5, 1, scales) / 2 ** bits).astype(F32)),
                   (f"b{i}", R.maybe(e, n))]
        zeros.append((f"z{i}", byte(*codes) if zeros and zeros[0][1] is not None or not zeros and R.chance() else None))
    inputs += [("w2", None), ("s2", None), ("b2", None)] + zeros + [("z2", None)]
    inputs += [("shares", shares)]
    if block:
        attrs["block_size"] = block
    return compared(R, "QMoE", inputs, ["y"], attrs)


def linear(R):
    b, t, k, v = R.int(1, 2), R.int(1, 5), R.int(1, 4), R.int(1, 4)
    heads, share = R.int(1, 2), R.int(1, 3)
    qn, kn = R.pick((heads * share, heads), (heads, heads * share))
    keys = R.pick(kn, kn, qn) if kn > qn else kn
    rule = R.pick("linear", "gated", "delta", "gated_delta")
    q, key, value = R.f(b, t, qn * k), R.f(b, t, keys * k) / 2, R.f(b, t, kn * v)
    past = R.maybe(b, kn, k, v)
    decay = (-np.abs(R.f(b, t, R.pick(kn, kn * k)))).astype(F32) if "gated" in rule or R.chance(0.2) else None
    beta = R.f(b, t, R.pick(1, kn)) if "delta" in rule or R.chance(0.2) else None
    attrs = {"q_num_heads": qn, "kv_num_heads": kn, "update_rule": rule}
    if R.chance(0.3):
        attrs["scale"] = float(R.r.uniform(0.2, 1))
    inputs = [("q", q), ("k", key), ("v", value), ("past", past), ("decay", decay), ("beta", beta)]
    if R.chance(0.7):
        return compared(R, "LinearAttention", inputs, ["y", "state"], attrs)
    window = R.int(1, 4)  # the CPU kernel has no window: the states of shorter inputs
    case = compared(R, "LinearAttention", inputs, ["y", "state"], attrs)
    states = np.zeros((window,) + case.want[1][1].shape, F32)
    for n in range(max(1, t - window + 1), t + 1):
        cut = [(m, x if m == "past" or x is None else np.ascontiguousarray(x[:, :n])) for m, x in inputs]
        states[window - 1 - (t - n)] = ort_run("LinearAttention", cut, ["y", "state"], attrs)[1]
    if past is not None:
        inputs[3] = ("past", np.concatenate([R.f(window - 1, *past.shape), past[None]]))
    return Case("LinearAttention", inputs, [case.want[0], ("state", states)], dict(attrs, state_window=window), R.dtype)


def causal_conv(R):
    b, t, ch, k, dil = R.int(1, 2), R.int(1, 6), R.int(1, 4), R.int(1, 4), R.int(1, 3)
    keep = (k - 1) * dil
    attrs = {"dilation": dil} if dil > 1 or R.chance() else {}
    if R.chance():
        attrs["activation"] = R.pick("silu", "swish", "none")
    last, tail = R.chance(0.4), (ch,)
    x, past = R.f(b, ch, t), R.maybe(b, ch, keep)
    if last:
        attrs["channels_last"] = 1
        tail = R.pick((ch,), (1, ch), (ch, 1))
        x = np.ascontiguousarray(x.transpose(0, 2, 1)).reshape(b, t, *tail)
        past = None if past is None else np.ascontiguousarray(past.transpose(0, 2, 1)).reshape(b, keep, *tail)
    inputs = [("x", x), ("w", R.f(ch, 1, k)), ("b", R.maybe(ch)), ("past", past)]
    case = compared(R, "CausalConvWithState", inputs, ["y", "state"], attrs)
    if R.chance(0.7):
        return case
    window = R.int(1, 4)  # as above
    states = np.zeros((window,) + case.want[1][1].shape, F32)
    for n in range(max(1, t - window + 1), t + 1):
        inputs[0] = ("x", np.ascontiguousarray(x[:, :n] if last else x[:, :, :n]))
        states[window - 1 - (t - n)] = ort_run("CausalConvWithState", inputs, ["y", "state"], attrs)[1]
    inputs[0] = ("x", x)
    if past is not None:
        inputs[3] = ("past", np.concatenate([R.f(window - 1, *past.shape), past[None]]))
    return Case("CausalConvWithState", inputs, [case.want[0], ("state", states)], dict(attrs, state_window=window), R.dtype)


# ---- gates and branches ------------------------------------------------------------------------------------------
def gates(R):
    shape = shape_of(R)
    x = R.f(*shape)
    op = R.pick("ScaledSiLU", "GatedRMSNorm", "GatedAdd", "LinearAttentionGate")
    if op == "ScaledSiLU":
        scale = R.f() if R.chance() else None
        return compared(R, op, [("x", x), ("scale", scale)], ["y"], {"alpha": 1.5} if R.chance() else {})
    if op == "GatedRMSNorm":
        n = R.int(1, 4)
        x = R.f(*shape[:-1], n * R.int(1, 3))
        attrs = {"epsilon": 1e-3, "activation": R.pick("silu", "swish", "sigmoid")}
        return compared(R, op, [("x", x), ("scale", R.f(n)), ("gate", R.f(*x.shape))], ["y"], attrs)
    if op == "GatedAdd":
        return compared(R, op, [("x", x), ("y", R.f(*shape)), ("gate", R.f(*shape[:-1], 1))], ["z"], {})
    b, t, h = R.int(1, 3), R.int(1, 4), R.int(1, 5)
    rate = R.maybe(b, t, h)
    inputs = [("a", R.f(b, t, h)), ("dt", R.f(h)), ("s", R.f(h)), ("b", rate)]
    case = compared(R, op, inputs, ["decay", None if rate is None else "beta"], {})
    case.single = ("dt", "s")
    return case


def branches(R):
    lead, c, h = [R.int(1, 3) for _ in range(R.int(1, 2))], R.int(1, 4), R.int(1, 5)
    flat = R.chance()
    x = R.f(*lead, c * h) if flat else R.f(*lead, c, h)
    attrs = {"num_branches": c} if flat else {}
    op = R.pick("BranchwiseRMSNorm", "HyperConnectionPreMix", "HyperConnectionPostMix")
    if op == "BranchwiseRMSNorm":
        scale = R.f(*R.pick((c * h,), (c, h), (h,))) if R.chance(0.8) else None
        return compared(R, op, [("x", x), ("scale", scale)], ["y"], dict(attrs, epsilon=1e-3))
    forms = [lead + [c], lead + [c, 1], lead + [c, h]]
    if op == "HyperConnectionPreMix":
        pre = R.f(*R.pick(*(forms + [lead + [c * h]] * flat)))
        return compared(R, op, [("x", x), ("pre", pre)], ["y"], dict(attrs, reduction_scale=0.5) if R.chance() else attrs)
    inputs = [("x", x), ("out", R.f(*lead, h)), ("post", R.f(*R.pick(*forms))), ("mix", R.maybe(*lead, c, c))]
    return compared(R, op, inputs, ["y"], attrs)


MAKERS = [activations, other_devices, skip_norms, embeddings, rotary, rotary_in_space, position_biases, gates, branches,
          experts, quantized_experts, linear, causal_conv,
          packing, attention, attention, multi_head, multi_head, group_query, group_query]
