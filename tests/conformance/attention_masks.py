"""Attention whose queries see no key, some or all, for special_values.py: small models and what the specification
(ONNX 1.23) says of them."""
import numpy as np
from onnx import helper

import backend_test

NUMBERS = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.float64): 11, np.dtype(np.int64): 7, np.dtype(bool): 9}


def reference(q, k, v, mask=None, past_key=None, past_value=None, nonpad=None, is_causal=0, left_window_size=-1,
              right_window_size=-1, softcap=0., mode=0):
    """Y, present key and value, and the stage of the scores that is asked for; q [B, H, S, D], k and v [B, G, T, D]."""
    wide = np.float64
    q, k, v = q.astype(wide), k.astype(wide), v.astype(wide)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key.astype(wide), k], 2), np.concatenate([past_value.astype(wide), v], 2)
    batch, heads, length, size = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    score = np.zeros((batch, heads, length, keys))
    bias = np.zeros_like(score)
    for b in range(batch):
        offset = past if nonpad is None else int(nonpad[b]) - length
        for i in range(length):
            for j in range(keys):
                score[b, :, i, j] = [q[b, h, i] @ k[b, h // group, j] / np.sqrt(size) for h in range(heads)]
                at = offset + i
                unseen = (is_causal and j > at) or (nonpad is not None and j >= nonpad[b])
                unseen |= left_window_size >= 0 and j < at - left_window_size
                unseen |= right_window_size >= 0 and j > at + right_window_size
                if unseen:
                    bias[b, :, i, j] = -np.inf
    stages = [score, score if softcap == 0 else softcap * np.tanh(score / softcap)]
    if mask is not None:
        m = np.where(mask, 0., -np.inf) if mask.dtype == bool else mask.astype(wide)
        m = np.concatenate([m, np.full(m.shape[:-1] + (keys - m.shape[-1],), -np.inf)], -1)
        bias = bias + m
    stages.append(stages[1] + bias)
    s = stages[2]
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    stages.append(p)
    y = np.stack([p[:, h] @ v[:, h // group] for h in range(heads)], 1)
    return [y, k, v, stages[mode]]


def models(seed):
    """{name: (attributes, {input: value})} of what is told apart."""
    r = np.random.default_rng(seed)

    def some(*shape):
        return r.standard_normal(shape).astype(np.float32)
    base = {"q": some(2, 4, 5, 8), "k": some(2, 4, 7, 8), "v": some(2, 4, 7, 6)}
    shared = {"q": some(2, 4, 5, 8), "k": some(2, 2, 7, 8), "v": some(2, 2, 7, 6)}
    cache = {"past_key": some(2, 4, 3, 8), "past_value": some(2, 4, 3, 6)}
    boolean = r.random((2, 1, 5, 7)) < .5
    boolean[0, 0, 2] = boolean[1, 0, 0] = False
    added = np.where(boolean, some(2, 1, 5, 7), -np.inf).astype(np.float32)
    row = np.array([True, False, True, True, False, True, True])
    none = np.zeros(7, bool)
    all_of = dict(mode=3)
    c, w = dict(is_causal=1), dict(left_window_size=1, right_window_size=0)
    lengths = {"nonpad": np.array([3, 7])}
    t = {
        "bool": ({}, {**base, "mask": boolean}), "float": ({}, {**base, "mask": added}),
        "bool_probabilities": (all_of, {**base, "mask": boolean}), "float_scores": (dict(mode=2), {**base, "mask": added}),
        "nothing_at_all": (all_of, {**base, "mask": none}), "row": ({}, {**base, "mask": row[None]}),
        "shorter": ({}, {**base, "mask": boolean[..., :4]}), "shorter_float": ({}, {**base, "mask": added[..., :5]}),
        "causal": (c, base), "causal_probabilities": ({**c, **all_of}, base), "causal_bool": ({**c, **all_of}, {**base, "mask": boolean}),
        "causal_float": (c, {**base, "mask": added}), "causal_past": (c, {**base, **cache}),
        "nonpad": ({}, {**base, **lengths}), "nonpad_0": (all_of, {**base, "nonpad": np.array([0, 7])}),
        "nonpad_causal": ({**c, **all_of}, {**base, **lengths}), "nonpad_causal_float": (c, {**base, **lengths, "mask": added}),
        "nonpad_window": ({**w, **all_of}, {**base, **lengths}), "window": ({**w, **all_of}, base), "window_past": (w, {**base, **cache}),
        "window_left": (dict(left_window_size=2), base), "window_right": (dict(right_window_size=1), base),
        "window_causal": (dict(left_window_size=2, right_window_size=3, **c), base),
        "window_bool": ({**w, **all_of}, {**base, "mask": boolean}), "window_far": (dict(left_window_size=2 ** 63 - 1, right_window_size=2 ** 62), base),
        "window_behind_the_keys": ({**w, **all_of}, {"q": some(2, 4, 12, 8), "k": base["k"], "v": base["v"]}),
        "softcap": (dict(softcap=2., **c, **all_of), {**base, "mask": boolean}), "shared_heads": ({**c, **all_of}, {**shared, "mask": boolean}),
        "shared_heads_nonpad": (c, {**shared, **lengths}),
        # A score that is infinite or NaN says nothing where no key takes part.
        "infinite_score": ({}, {**{k: np.where(np.abs(x) > 1.5, np.float32(np.inf), x) if k == "q" else x for k, x in base.items()}, "mask": none}),
        "infinite_score_float": ({}, {**{k: np.where(np.abs(x) > 1.5, np.float32(np.inf), x) if k == "q" else x for k, x in base.items()},
                                      "mask": np.full((5, 7), -np.inf, np.float32)}),
    }
    return t


def write(root, seed):
    """The folders, as {name: folder}."""
    folders = {}
    order = ("q", "k", "v", "mask", "past_key", "past_value", "nonpad")
    for name, (attrs, inputs) in models(seed).items():
        for dtype in (np.float32, np.float16):
            if dtype == np.float16 and name not in ("bool", "float", "nonpad_causal", "window"):
                continue
            x = {k: v.astype(dtype) if v.dtype == np.float32 else v for k, v in inputs.items()}
            node = {("qk_matmul_output_mode" if k == "mode" else k): v for k, v in attrs.items()}
            outs = ["Y", "present_key", "present_value", "scores"]
            names = [k if k in x else "" for k in order]
            n = helper.make_node("Attention", names, outs, **node)
            info = [helper.make_tensor_value_info(k, NUMBERS[x[k].dtype], x[k].shape) for k in order if k in x]
            want = reference(**{k: x.get(k) for k in order}, **attrs)
            if name.startswith("infinite"):
                want[0] = np.zeros_like(want[0])
                outs[1:], want[1:] = [""] * 3, []
                n = helper.make_node("Attention", names, outs[:1], **node)
            want = [v.astype(dtype) for v in want]
            g = helper.make_graph([n], "g", info, [helper.make_tensor_value_info(k, NUMBERS[np.dtype(dtype)], None) for k in outs if k])
            m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 25)], ir_version=10)
            key = "attention_%s_%s" % (name, np.dtype(dtype).name)
            folders[key] = "%s/%s" % (root, key)
            backend_test.write(folders[key], m, [x[k] for k in order if k in x], want)
    return folders
