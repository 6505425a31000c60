#!/usr/bin/env python3
"""Compares random nodes of com.microsoft's transformer operators with ONNX Runtime.

    contrib_transformers.py COUNT [--target T] [--group N] [--only MAKER] [--fixed] [--seed S] [--braid PATH]

Node number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed; N nodes
are one model for Braid. ONNX Runtime computes in float32; float16 is compared with that, of the same
rounded inputs. Its CPU kernels do not have everything: packed and 4-D forms, shared buffers and norm
weights, and attention without padding, are compared with the same computation in a form that they have, and BiasSplitGelu, BiasAdd,
GatedRelativePositionBias, RelativePositionBias, RemovePadding and RestorePadding, which only other
devices have, with numpy by the
documentation. Not compared: outputs that it says are unspecified (padding), and a causal
MultiHeadAttention whose query and key differ in length, where the CPU kernel forgets the last query; and
QMoE without normalize_routing_weights, which its CPU kernel does not look at.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
from transformer_cases import F16, F32, I32, I64, MAKERS, MS, OPSETS, Case, Random, onnx_type, trimmed

TOLERANCE = {np.dtype(F32): (1e-4, 2e-5), np.dtype(F16): (2e-2, 1e-2)}


def stored(case, name, v):
    """An input as the model has it."""
    small = v.dtype == F32 and case.dtype == F16 and name not in case.single
    return v.astype(F16) if small else v


def model_of(cases, dynamic):
    nodes, info, init, feed, results = [], [], [], {}, []
    for i, c in enumerate(cases):
        names = []
        for n, v in c.inputs:
            if v is None:
                names.append("")
                continue
            name = f"{n}_{i}"
            names.append(name)
            v = stored(c, n, v)
            if c.constant(n):
                init.append(onnx.numpy_helper.from_array(v, name))
                continue
            feed[name] = v
            shape = [f"{name}_{k}" if dynamic else d for k, d in enumerate(v.shape)]
            info.append(helper.make_tensor_value_info(name, onnx_type(v.dtype), shape))
        outs = trimmed([f"{n}_out_{i}" if w is not None else "" for n, w in c.want])
        nodes.append(helper.make_node(c.op, trimmed(names), outs, name=f"n{i}", domain=MS, **c.attrs))
        for n, w in c.want:
            if w is None:
                continue
            v = w[0] if isinstance(w, tuple) else w
            kind = onnx_type(np.dtype(c.dtype if v.dtype.kind == "f" and n not in ("mean", "inv") else v.dtype))
            results.append((f"{n}_out_{i}", helper.make_tensor_value_info(f"{n}_out_{i}", kind, None), i, w))
    graph = helper.make_graph(nodes, "g", info, [r[1] for r in results], init)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10), feed, results


def difference(case, got, want):
    """None, or how they differ."""
    where = True
    if isinstance(want, tuple):
        want, where = want
    if got.shape != want.shape:
        return f"is {got.shape}, not {want.shape}"
    where = np.broadcast_to(where, got.shape)
    with np.errstate(over="ignore"):
        want = want.astype(got.dtype)  # what float16 does not hold is infinite
    got, want = got.astype(np.float64)[where], want.astype(np.float64)[where]
    rtol, atol = TOLERANCE[np.dtype(case.dtype)]
    if not np.allclose(got, want, rtol, atol, equal_nan=True):
        return f"differs by {np.abs(got - want).max():g}"
    return None


def run(model, feed, results, cases, args):
    """[(case number, what is wrong)]; None for the number where the model did not run"""
    with tempfile.TemporaryDirectory() as d:
        error = backend_test.run(args.braid, model, feed, d, "--target", args.target)
        if error:
            return [(None, error)]
        wrong = []
        for k, (name, _, i, w) in enumerate(results):
            why = difference(cases[i], np.load(f"{d}/out/output_{k}.npy"), w)
            if why:
                wrong.append((i, f"{name} {why}"))
        return wrong


def check(cases, dynamic, args):
    """[(case number, what is wrong)]"""
    wrong = run(*model_of(cases, dynamic), cases, args)
    if not wrong or wrong[0][0] is not None:
        return wrong
    if len(cases) == 1:
        return [(0, wrong[0][1])]
    alone = [(i, w) for i, c in enumerate(cases) for _, w in check([c], dynamic, args)]  # which one?
    return alone or [(0, wrong[0][1])]


def refused():
    """(node, what the message must have) of nodes that are wrong, or that Braid says it does not have."""
    f = lambda *n: np.ones(n, F32)
    i = lambda *v: np.array(v, I32)
    gqa = lambda sl=0, total=2, **more: [("q", f(1, 2, 32)), ("k", more.pop("k", f(1, 2, 16))), ("v", f(1, 2, 16)), ("pk", None),
                                         ("pv", None), ("sl", i(sl)), ("total", i(total))] + list(more.items())
    heads = {"num_heads": 4, "kv_num_heads": 2}
    att, mha = [("x", f(1, 2, 3)), ("w", f(3, 12))], [("q", f(1, 2, 6)), ("k", f(1, 2, 6)), ("v", f(1, 2, 6))]
    moe = lambda e=3: [("x", f(2, 4)), ("r", f(2, e)), ("w1", f(3, 5, 4)), ("b1", None), ("w2", f(3, 4, 5))]
    rotary = [("x", f(1, 2, 12)), ("ids", np.zeros((1, 2), I64)), ("c", f(3, 2)), ("s", f(3, 2))]
    ids = [("ids", i(0, 7).reshape(1, 2)), ("seg", None), ("word", f(3, 4)), ("place", f(2, 4)), ("kind", None), ("g", f(4))]
    lin = [("q", f(1, 2, 6)), ("k", f(1, 2, 6)), ("v", f(1, 2, 6))]
    table = [
        ("Attention", att, {"num_heads": 0}, "num_heads must be positive, not 0"),
        ("Attention", att, {"num_heads": -3}, "num_heads must be positive, not -3"),
        ("Attention", att, {}, "num_heads must be positive, not 0"),
        ("Attention", att, {"num_heads": 3}, "num_heads .3. does not divide"),
        ("Attention", [att[0], ("w", f(3, 13))], {"num_heads": 1}, "projection, 13, is no multiple of 3"),
        ("Attention", att, {"num_heads": 3, "qkv_hidden_sizes": [4, 4, 4]}, r"qkv_hidden_sizes.0. .4. .*num_heads .3."),
        ("Attention", att, {"num_heads": 2, "qkv_hidden_sizes": [2, 4, 6]}, r"queries .2. and keys .4."),
        ("Attention", att, {"num_heads": 2, "qkv_hidden_sizes": [4, 4]}, "3 elements, not 2"),
        ("Attention", att, {"num_heads": 2, "qkv_hidden_sizes": [2, 2, 4]}, "do not add up"),
        ("Attention", att, {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ("Attention", att, {"num_heads": 2, "heads": 2}, "no attribute 'heads'"),
        ("Attention", att, {"num_heads": 2, "unidirectional": 2}, "'unidirectional' is 2"),
        ("Attention", att + [("b", f(11))], {"num_heads": 2}, "bias must have one element per column"),
        ("Attention", att + [("b", None), ("m", i(1, 1, 1, 1))], {"num_heads": 2}, "a mask of rank 1"),
        ("Attention", att + [("b", None), ("m", np.ones((1, 3), I32))], {"num_heads": 2}, "a mask of rank 2"),
        ("Attention", att + [("b", None), ("m", None), ("p", f(2, 1, 2, 3, 3))], {"num_heads": 2}, "past is not"),
        ("Attention", att + [("b", None), ("m", None), ("p", f(2, 1, 2, 3, 2)), ("ab", None), ("n", i(2))],
         {"num_heads": 2, "past_present_share_buffer": 1}, "does not fit into the buffer"),
        ("MultiHeadAttention", mha, {"num_heads": 4}, "query, 6, is no multiple of 4"),
        ("MultiHeadAttention", mha[:2], {"num_heads": 2}, "key of rank 3 without value"),
        ("MultiHeadAttention", mha + [("b", f(17))], {"num_heads": 2}, "bias does not fit"),
        ("MultiHeadAttention", mha + [("b", None), ("m", None), ("ab", f(1, 3, 2, 2))], {"num_heads": 2},
         "attention_bias does not fit"),
        ("MultiHeadAttention", mha + [("b", None), ("m", None), ("ab", None), ("pk", f(1, 2, 1, 3))], {"num_heads": 2},
         "given together"),
        ("MultiHeadAttention", [("q", f(1, 2, 2, 2, 3))], {"num_heads": 2}, "length, 2, 3, head size"),
        ("DecoderMaskedMultiHeadAttention", mha, {"num_heads": 2}, "query must have length 1"),
        ("GroupQueryAttention", gqa(), dict(heads, num_heads=3), r"num_heads .3. must be a multiple of kv_num_heads .2."),
        ("GroupQueryAttention", gqa(), dict(heads, kv_num_heads=0), "kv_num_heads must be positive, not 0"),
        ("GroupQueryAttention", gqa(), dict(heads, local_window_size=0), "local_window_size .*not 0"),
        ("GroupQueryAttention", gqa(), dict(heads, local_window_size=3, causal=0), "local_window_size .3. must be -1"),
        ("GroupQueryAttention", gqa(), dict(heads, qk_output=3), "'qk_output' is '3'"),
        ("GroupQueryAttention", gqa(), dict(heads, do_rotary=1), "needs cos_cache"),
        ("GroupQueryAttention", gqa(), dict(heads, k_quant_type="PER_TENSOR"), "only one of k_quant_type"),
        ("GroupQueryAttention", gqa(cos=None, sin=None, pos=None, ab=None, sink=None, ks=f(1)), heads, "if and only if the cache is quantized"),
        ("GroupQueryAttention", gqa(cos=None, sin=None, pos=None, ab=None, sink=None, ks=f(1), vs=f(1)),
         dict(heads, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", kv_cache_bit_width=5),
         "kv_cache_bit_width must be 8 or 4, not 5"),
        ("GroupQueryAttention", gqa(), dict(heads, sliding_window_cache=1), "without past_key"),
        ("GroupQueryAttention", gqa(sl=2), heads, "more than the cache has room for"),
        ("GroupQueryAttention", gqa(sl=-2), heads, "must not be negative"),
        ("GroupQueryAttention", gqa()[:6], heads, "input 6 is missing"),
        ("GroupQueryAttention", gqa(k=f(1, 2, 18)), heads, "kv_num_heads .2. heads"),
        ("RotaryEmbedding", rotary, {"num_heads": 5}, "last axis, 12, is no multiple of 5"),
        ("RotaryEmbedding", rotary, {"rotary_embedding_dim": 3, "num_heads": 1}, "rotary_embedding_dim .*not 3"),
        ("RotaryEmbedding", rotary, {"rotary_embedding_dim": 4}, "num_heads must be given"),
        ("RotaryEmbedding", rotary, {"num_heads": 2}, "do not fit the size of a head"),
        ("RotaryEmbedding", rotary[:1] + [("ids", np.full((1, 2), 3, I64))] + rotary[2:], {}, "index 3|out of range|outside"),
        ("EmbedLayerNormalization", ids + [("b", f(4))], {}, "index 7|out of range|outside"),
        ("EmbedLayerNormalization", ids, {}, "input 6 is missing"),
        ("SkipLayerNormalization", [("x", f(2, 3, 4)), ("s", f(3, 3, 4)), ("g", f(4))], {}, "skip does not fit"),
        ("SkipLayerNormalization", [("x", f(2, 4)), ("s", f(2, 4)), ("g", f(4))], {"epsilon": -1.0}, "epsilon .*-1"),
        ("BiasSplitGelu", [("x", f(1, 2, 3)), ("b", f(3))], {}, "last axis, 3, is no multiple of 2"),
        ("MoE", moe(), {"k": 0}, "k must be positive, not 0"),
        ("MoE", moe(), {"k": 4}, "k .4. is more than the number of experts"),
        ("MoE", moe(2), {}, "fc1_experts_weights has a wrong size .axis 0"),
        ("MoE", moe(), {"activation_type": "swiglu"}, "needs fc3"),
        ("MoE", moe(), {"activation_type": "tanh"}, "activation_type.* is 'tanh'"),
        ("QMoE", [("x", f(2, 4)), ("r", f(2, 3)), ("w", np.ones((3, 5, 2), np.uint8)), ("s", f(3, 5)), ("b", None),
                  ("v", np.ones((3, 4, 2), np.uint8)), ("t", f(3, 4))], {"expert_weight_bits": 5}, "weights of 5 bits"),
        ("LinearAttention", lin, {"q_num_heads": 3, "kv_num_heads": 2, "update_rule": "linear"}, r"q_num_heads .3. .*.2."),
        ("LinearAttention", lin, {"q_num_heads": 2, "kv_num_heads": 2}, "needs a decay"),
        ("LinearAttention", lin, {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear", "state_window": 9},
         "state_window .*not 9"),
        ("CausalConvWithState", [("x", f(1, 2, 3)), ("w", f(2, 1, 2))], {"dilation": 0}, "dilation .*not 0"),
        ("CausalConvWithState", [("x", f(1, 2, 3)), ("w", f(2, 1, 2))], {"ndim": 2}, "ndim 2"),
        ("RelativePositionBias", [("t", f(3, 2)), ("q", np.array(2)), ("k", np.array(2))], {"max_distance": 1}, "max_distance .1."),
    ]
    two = ("LinearAttention", "CausalConvWithState")
    return [(Case(op, inputs, [("y", f(1))] + [("z", f(1))] * (op in two), attrs), message)
            for op, inputs, attrs, message in table]


def check_refused(args):
    failed = 0
    for case, message in refused():
        case.constant = lambda n: False
        why = check([case], False, args)
        text = why[0][1] if why else "it ran"
        if not re.search(message, text) or "internal" in text:
            failed += 1
            print(f"FAIL: not refused by «{message}» but: {text}\n    {case}")
    print(f"{len(refused())} nodes to be refused: {failed} failed")
    return failed


# A decoder's cache in a loop: the state, a step, and what `explain` says of it when it is not copied.
LOOPS = [
    ("float[1, 2, n, 8] k, float[1, 2, n, 8] v", "y, k2, v2 = com.microsoft.MultiHeadAttention <num_heads = 2> "
     '(x, x, x, "", "", "", k, v)', "grows along axis 2"),
    ("float[2, 1, 2, n, 8] k", "y, k2 = com.microsoft.Attention <num_heads = 2, unidirectional = 1> "
     '(x, w, "", "", k)', "grows along axis 3"),
    ("float[1, 2, 9, 8] k, float[1, 2, 9, 8] v", "i32 = Cast <to = 6> (i)  at = Reshape(i32, one)  y, k2, v2 = "
     "com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (x, x, x, k, v, at, room)", "in place"),
]


def loop_model(state, step):
    names = [d.split()[-1] for d in state.split(", ") if d.split()[-1] in ("k", "v")]
    inside = state.replace("[1, 2, n,", "[1, 2, p,").replace("[2, 1, 2, n,", "[2, 1, 2, p,")
    outside = state.replace(" k", " k0").replace(" v", " v0")
    after = inside.replace(" k", " k2").replace(" v", " v2").replace("p,", "q,")
    results = inside.replace(" k", " kr").replace(" v", " vr").replace("p,", "r,")
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (int64 m, float[1, 1, 16] x0, {outside}) => (float[1, 1, 16] yr, {results})
        <bool t = {{1}}, int64[1] one = {{1}}, int32 room = {{9}}, float[16, 48] w> {{
            yr, {", ".join(n + "r" for n in names)} = Loop(m, t, x0, {", ".join(n + "0" for n in names)})
            <body = b (int64 i, bool c, float[1, 1, 16] x, {inside}) => (bool c2, float[1, 1, 16] y, {after}) {{
                c2 = Identity(c)  {step}
            }}>
        }}"""
    model = onnx.parser.parse_model(text)
    w = np.random.default_rng(5).standard_normal((16, 48)).astype(F32) / 4
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return model, names


def check_loops(args):
    failed = 0
    for state, step, how in LOOPS:
        model, names = loop_model(state, step)
        r = np.random.default_rng(7)
        shape = (2, 1, 2, 3, 8) if how.endswith("3") else (1, 2, 3 if "grows" in how else 9, 8)
        feed = {"m": np.array(6, I64), "x0": r.standard_normal((1, 1, 16)).astype(F32)}
        feed.update({n + "0": r.standard_normal(shape).astype(F32) for n in names})
        s = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        want = s.run(None, feed)
        if "grows" not in how:  # rows that are not filled are unspecified
            want[1:] = [np.concatenate([w[:, :, :6], feed[n + "0"][:, :, 6:]], 2) for n, w in zip(names, want[1:])]
        results = [(n, None, 0, w) for n, w in zip(["y"] + names, want)]
        wrong = run(model, feed, results, [Case("Loop", [], [])], args)
        with tempfile.TemporaryDirectory() as d:
            onnx.save(model, f"{d}/m.onnx")
            text = subprocess.run([args.braid, "explain", f"{d}/m.onnx"], capture_output=True, text=True).stdout
        if text.count(how) != len(names):
            wrong.append((0, f"its caches are not said to be changed: {how}"))
        for _, why in wrong:
            failed += 1
            print(f"FAIL: {step} in a loop: {why}")
    print(f"{len(LOOPS)} caches in loops: {failed} failed")
    return failed


def make(seed, only):
    R = Random(seed)
    maker = R.pick(*[m for m in MAKERS if only in (None, m.__name__)])
    case = maker(R)
    chance = R.r.random(64)
    order = [n for n, _ in case.inputs]
    weights = {"w", "w1", "w2", "word", "place", "kind", "cos", "sin", "t", "total"}
    case.constant = lambda n: chance[order.index(n)] < (0.5 if n in weights else 0.05)
    return case


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("count", type=int)
    ap.add_argument("--target", default="interp")
    ap.add_argument("--group", type=int, default=8)
    ap.add_argument("--only", choices=sorted({m.__name__ for m in MAKERS}))
    ap.add_argument("--fixed", action="store_true", help="also what must be refused, and caches in loops")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--braid", default="build/braid")
    args = ap.parse_args()
    failed, ops = check_loops(args) if args.fixed else 0, {}
    if args.fixed and args.target == "interp":
        failed += check_refused(args)
    for start in range(args.seed, args.seed + args.count, args.group):
        seeds = range(start, min(start + args.group, args.seed + args.count))
        cases = [make(s, args.only) for s in seeds]
        for c in cases:
            ops[c.op] = ops.get(c.op, 0) + 1
        for i, why in check(cases, start // args.group % 2 == 1, args):
            failed += 1
            print(f"FAIL seed {seeds[i]}: {why}\n    {cases[i]}")
    print(", ".join(f"{n} {k}" for k, n in sorted(ops.items())))
    print(f"{args.count} nodes from seed {args.seed} on {args.target}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
