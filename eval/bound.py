"""The least time that the machine's peaks allow for a model.

A model is a list of phases. A phase is done `times` times, one after the other, and each time has
numbers of floating point operations, exps, divisions, bytes of weights and state to read, and
barriers of all threads (`meets`). Exps take the same units as other operations; divisions have a
unit of their own; both overlap with reading. Bytes come from the nearest cache that can hold all
that the phase reads repeatedly (`held`). As in the fastest programs, input products are hoisted and
embedding tables are folded.
"""
import dataclasses

import numpy as np

from trace import SIGMOID, Trace

WORD = 4


@dataclasses.dataclass
class Phase:
    times: float
    flops: float
    bytes: float = 0
    held: float = 0
    meets: float = 0
    exps: float = 0
    divisions: float = 0


def sigmoids(count):
    """The costs of `count` sigmoids or hyperbolic tangents."""
    return {"exps": count * SIGMOID[1], "divisions": count * SIGMOID[2]}


def bytes_of(work, *names):
    return sum(work.weights[n].nbytes for n in names)


def recurrent(steps, batch, hidden, gates, functions, inputs):
    """A recurrent cell whose input product, of width `inputs`, is hoisted."""
    return [Phase(1, 2 * steps * batch * inputs * gates * hidden, WORD * inputs * gates * hidden,
                  WORD * inputs * gates * hidden, 1),
            Phase(steps, batch * hidden * gates * 2 * hidden, WORD * gates * hidden * hidden,
                  WORD * gates * hidden * hidden, 1, **sigmoids(batch * hidden * functions))]


def lstm(work, batch):
    o = work.options
    total = bytes_of(work, "W_ih", "W_hh")
    phases = []
    for _ in range(o["layers"]):
        layer = recurrent(o["length"], batch, o["hidden"], 4, 5, o["hidden"])
        layer[0].held = total  # read once, from where all weights are
        phases += layer
    return phases


def nasrnn(work, batch):
    o = work.options
    return recurrent(o["length"], batch, o["hidden"], 8, 14, o["hidden"])


def attention(work, batch):
    """Heads are independent, so threads need no barriers."""
    o = work.options
    steps, width, rows = o["length"] // 2, o["width"], batch * o["heads"]
    seen = o["length"] * (3 / 4 if o["form"] == "grow" else 1)
    cache = 2 * WORD * rows * seen * width
    weights = bytes_of(work, "W_q", "W_k", "W_v", "W_o")
    return [Phase(steps, rows * (8 * width * width + 4 * seen * width), weights + cache,
                  weights + cache, 0, exps=rows * seen)]


def seq2seq(work, batch):
    o = work.options
    out = work.expected[0]
    steps = min(len(out), int((out.max(1) > 0).sum()) + 1)
    hidden, words = o["hidden"], o["vocabulary"]
    weights = bytes_of(work, "W_hh", "W_out")
    return [Phase(steps, 2 * batch * hidden * (4 * hidden + words), weights, weights, 2,
                  **sigmoids(batch * hidden * 5)),
            Phase(1, 0, WORD * batch * steps * (words + 4 * hidden), 64 << 20)]


def mamba(work, batch):
    o = work.options
    width, state, rank, rows = o["width"], o["state"], o["rank"], batch * o["length"]
    project = 2 * rows * width * (2 * state + 2 * rank)
    return [Phase(1, project, 0, 0, 1, exps=2 * rows * width),
            Phase(1, rows * width * state * 6, 2 * WORD * rows * width, 2 * WORD * rows * width, 1,
                  exps=rows * width * state)]


def rnnt(work, batch):
    """The steps that the reference takes, each for the whole batch."""
    w, frames = work.weights, work.inputs["frames"]
    hidden, words = w["W_o"].shape
    width = w["W_e"].shape[0]
    joints = emits = 0
    h = c = np.zeros((batch, hidden), np.float32)
    encoded = frames @ w["W_e"] + w["b_j"]
    for frame in encoded:
        active, n = np.ones(batch, bool), 0
        while active.any() and n < 10:
            label = np.argmax(np.tanh(frame + h @ w["W_p"]) @ w["W_o"] + w["b_o"], 1)
            active &= label != 0
            joints, n = joints + 1, n + 1
            if active.any():
                emits += 1
                a = w["embedding"][label] @ w["W_ih"] + h @ w["W_hh"] + w["b"]
                i, f, g, o = np.split(a, 4, 1)
                c_new = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
                h_new = np.tanh(c_new) / (1 + np.exp(-o))
                who = active[:, None]
                h, c = np.where(who, h_new, h), np.where(who, c_new, c)
    join, state = bytes_of(work, "W_o"), bytes_of(work, "W_p", "W_hh")
    return [Phase(1, 2 * len(frames) * batch * width * hidden, w["W_e"].nbytes, w["W_e"].nbytes, 1),
            Phase(joints, 2 * batch * hidden * words, join, join + state, 2,
                  **sigmoids(batch * hidden)),
            Phase(emits, 2 * batch * hidden * 5 * hidden, state, join + state, 1,
                  **sigmoids(batch * hidden * 5))]


def trips(work, batch):
    """No bound: it is a chain of dependent operations, and their latency is not one of the peaks."""
    return None


def tree(work, batch):
    """Level by level: all nodes of the same height together. Leaves are read from folded tables."""
    left, right, leaf = (work.inputs[k] for k in ("left", "right", "is_leaf"))
    hidden, cell = work.options["hidden"], work.options["cell"]
    height = np.zeros(len(left), np.int64)
    for n in range(len(left) - 1, -1, -1):
        if not leaf[n]:
            height[n] = 1 + max(height[left[n]], height[right[n]])
    inner = int((~leaf).sum())
    names = {"rae": ("W",), "treefc": ("W",), "treernn": (), "treelstm": ("U", "U_f"),
             "treegru": ("U", "U_h"), "simpletreegru": ("U", "U_h"), "mvrnn": ("W_v", "W_m")}[cell]
    weights = bytes_of(work, *names)
    flops = 2 * weights / WORD
    if cell == "treelstm":
        flops += 2 * hidden * hidden  # a second forget gate
    elif cell == "mvrnn":
        flops = 4 * hidden * hidden * (hidden + 2)
    functions = {"treelstm": 6, "treegru": 3, "simpletreegru": 3}.get(cell, 1)
    levels = int(height.max())
    return [Phase(levels, inner * flops / levels, weights, weights, 1,
                  **sigmoids(inner * hidden * functions / levels))]


def straight(work, batch):
    """The operations of the path, with a barrier after each product."""
    import onnx
    t = Trace(onnx.load(work.model), work.inputs, keep=False)
    weights = sum(t.touched.values())
    return [Phase(t.products, t.flops / t.products, weights / t.products, weights, 1,
                  t.exps / t.products, t.divisions / t.products)]


KINDS = {"lstm": lstm, "nasrnn": nasrnn, "attention": attention, "seq2seq": seq2seq, "mamba": mamba,
         "rnnt": rnnt, "tree": tree, "trips": trips}


def nearest(peaks, core, bytes_, held, threads):
    """The seconds in which a core reads its part of the bytes, from the cache that holds its part of `held`."""
    held /= threads
    left, seconds = 1.0, 0.0
    for level, room, rate in (
            ("L1", peaks["L1"], core["L1_gbs"]),
            ("L2", peaks["L2"], core["L2_gbs" if held < 0.7 * peaks["L2"] else "L2_full_gbs"]),
            ("L3", peaks["L3"] / threads, core["L3_gbs"]), ("DRAM", np.inf, core["DRAM_gbs"])):
        if level == "L1" and held > room:
            continue
        part = left if held <= room else min(left, room / held)
        seconds += part * bytes_ / threads / (rate * 1e9)
        left -= part
    return seconds


def milliseconds(phases, peaks, threads):
    """The bound, in ms, for this number of threads."""
    core = peaks["alone" if threads == 1 else "side_by_side"]
    meet = peaks["barrier_ns"] * 1e-9 if threads > 1 else 0
    total = 0.0
    for p in phases:
        compute = max(p.flops / core["gflops"] + p.exps / core["gexps"],
                      p.divisions / core["gdivisions"]) / threads * 1e-9
        total += p.times * (max(compute, nearest(peaks, core, p.bytes, p.held, threads))
                            + p.meets * meet)
    return total * 1e3


def counts(phases):
    """The sums over all phases."""
    return {k: sum(p.times * getattr(p, k) for p in phases)
            for k in ("flops", "exps", "divisions", "bytes", "meets")}


def phases(work, batch):
    return KINDS.get(work.kind, straight)(work, batch)
