"""Spoiled nodes, and some that must be refused for a reason, for contrib_check.py."""
import numpy as np

from contrib_nodes import F32, F64, I8, I32, I64, U8, Case

NUMBERS = [-1, 0, 1, 2, 3, 1 << 31, 1 << 40, (1 << 63) - 1, -1 << 63]


def spoil(R, case):
    kind = R.pick("attribute", "attribute", "shape", "type", "absent", "output")
    inputs, attrs = list(case.inputs), dict(case.attrs)
    have = [i for i, v in enumerate(inputs) if v is not None]
    i = R.pick(*have)
    if kind == "attribute" and attrs:
        name = R.pick(*attrs)
        v = attrs[name]
        if isinstance(v, int):
            v = R.pick(*NUMBERS)
        elif isinstance(v, float):
            v = R.pick(float("nan"), float("inf"), 0.0, -1e30)
        elif isinstance(v, str):
            v = R.pick("", "Relu", "x" * 300)
        else:
            v = R.pick(v[1:] or None, [*v, v[0]], [R.pick(*NUMBERS) if isinstance(v[0], int) else v[0], *v[1:]])
        attrs[name] = v
        if v is None:
            del attrs[name]
    elif kind == "type":
        inputs[i] = inputs[i].astype(R.pick(U8, I8, I32, I64, F32, F64, np.bool_))
    elif kind == "absent":
        inputs[i] = None
    elif kind == "shape":
        shape = list(inputs[i].shape)
        at = R.int(0, len(shape))
        shape[at:at + R.int(0, 1)] = R.pick([], [0], [2], [1, 1], [7])
        inputs[i] = np.resize(inputs[i], shape)
    spoiled = Case(case.op, inputs, attrs, case.want, name=case.domain)
    spoiled.seed = case.seed
    return spoiled


def refusals():
    """Nodes and what must be said about them."""
    b, f, s, z = np.ones((2, 4), U8), np.ones((2, 4), F32), np.asarray(F32(1)), np.asarray(U8(0))
    packed, scales = np.ones((3, 1, 8), U8), np.ones((3, 1), F32)
    nbits_of = lambda **k: {"K": 4, "N": 3, "block_size": 16, **k}
    image, box, index, size = np.ones((1, 1, 2, 2), F32), np.zeros((1, 4), F32), np.zeros(1, I32), np.ones(2, I32)
    lstm = [np.ones((1, 1, 2), F32), np.ones((1, 2, 4), U8), np.ones((1, 1, 4), U8), None, None, None, None, None,
            np.ones(1, F32), np.ones(1, U8), np.ones(1, F32), np.ones(1, U8)]
    return [
        ("QLinearAdd", [b, s, z, b, np.ones(2, F32), z, s, z], {}, "a scale must be one number"),
        ("QLinearAdd", [b, s, z, b, s, z], {}, "input 6 is missing"),
        ("QLinearSigmoid", [b.astype(np.uint16), s, z.astype(np.uint16), s], {}, "must be int8 or uint8"),
        ("QLinearSoftmax", [b, s, z, s, z], {}, "the attribute opset is missing"),
        ("QLinearSoftmax", [b, s, z, s, z], {"opset": 13, "axis": 2}, "axis 2 is outside"),
        ("QLinearConcat", [s, z, b, s, z, b], {"axis": 0}, "three for each tensor"),
        ("QLinearConcat", [s, z, b, s, z, b.astype(I8), s, z], {"axis": 0}, "must be uint8"),
        ("QLinearAveragePool", [b, s, z, s, z], {"kernel_shape": [2]}, "at least 3"),
        ("QLinearGlobalAveragePool", [image.astype(U8), s, z, s, z], {"channels_last": 2}, "it may be 0 or 1"),
        ("QGemm", [b, s, z, b.T.copy(), s, z, None, s], {}, "must both be there"),
        ("MatMulNBits", [f, packed, scales], nbits_of(bits=3), "weights of 3 bits"),
        ("MatMulNBits", [f, packed, scales], nbits_of(block_size=24), "must be a power of 2"),
        ("MatMulNBits", [f, packed, scales], nbits_of(K=0), "K must be positive"),
        ("MatMulNBits", [f, packed, scales], nbits_of(N=4), "axis 0 differs"),
        ("MatMulNBits", [f, packed, scales], nbits_of(weight_prepacked=1), "it may be 0"),
        ("MatMulNBits", [f, packed, scales[:2]], nbits_of(), "scales must have 3 x 1 elements"),
        ("MatMulNBits", [f, packed, scales, None, np.array([0, 0, 0, 1], I32)], nbits_of(), "index 1 is outside [0, 1), the blocks"),
        ("GatherBlockQuantized", [b, index, scales], {"gather_axis": 1}, "gather_axis must be the first"),
        ("GatherBlockQuantized", [b, index, s.reshape(1, 1)], {"block_size": 16}, "scales have the wrong size on axis 0"),
        ("FusedMatMul", [f, f.T.copy()], {"transBatchA": 1}, "operands of one rank, at least 3"),
        ("FusedGemm", [f, f.T.copy()], {"activation": "Gelu"}, "the activation 'Gelu'"),
        ("FusedConv", [image, image], {"activation": "Clip"}, "Clip needs two parameters"),
        ("FusedConv", [image, image, None, np.ones((1, 1, 2, 2), F32)], {}, "Z does not have the shape"),
        ("NhwcConv", [f, f], {}, "at least 3"),
        ("ConvTransposeWithDynamicPads", [image, image, np.array([-1, 0, 0, 0], I64)], {}, "negative"),
        ("DynamicQuantizeLSTM", lstm[:11] + [None], {}, "input 11 is missing"),
        ("DynamicQuantizeLSTM", lstm[:8] + [np.ones(3, F32)] + lstm[9:], {}, "a scale must have shape"),
        ("Pad", [f, np.zeros((2, 2), I64)], {}, "its size is 2, not 1"),
        ("Unique", [f], {}, "the input has rank 2, not 1"),
        ("Range", [s, s, z * s], {}, "delta is 0"),
        ("ExpandDims", [f, np.asarray(I32(5))], {}, "axis"),
        ("ReduceSumInteger", [b], {"axes": [0, -2], "keepdims": 1}, "an axis is given twice"),
        ("CDist", [f, f], {"metric": "cosine"}, "it may be sqeuclidean|euclidean"),
        ("Inverse", [f], {}, "not square"),
        ("MurmurHash3", [f], {"seed": -1}, "seed must be between"),
        ("NGramRepeatBlock", [np.ones((2, 4), I64), f], {"ngram_size": 0}, "ngram_size must be positive"),
        ("NGramRepeatBlock", [np.full((2, 4), 4, I64), f], {"ngram_size": 1}, "a token has no score"),
        ("CropAndResize", [image, box, index + 1, size], {}, "index 1 is outside [0, 1), axis 0"),
        ("CropAndResize", [image, box, index, size * 0], {}, "crop_size must be positive"),
        ("GridSample", [f, f], {}, "not 4"),
        ("Rfft", [f], {"signal_ndim": 2}, "it may be 1"),
    ]
