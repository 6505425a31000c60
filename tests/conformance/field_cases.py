#!/usr/bin/env python3
"""Control-flow behaviours that other systems got wrong, each as a small model with its right answer.

    field_cases.py [--target interp|cpu|both|emulate:cuda|emulate:hip] [--threads N] [--braid PATH] [--only TEXT] [--keep DIR]

Cases that must give an answer become backend test folders for `braid test`; cases that must fail are run
by `braid run` and their exit code and message are looked at.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import helper, numpy_helper

from field_faults import dead_arms, endless, first_faults, memory
from field_messages import messages
from field_models import (CASES, F, FAULTS, b, case, exporters, f, faults, firsts, i, model_of, people, rnd, scans, scoping,
                          shapes, sig)
from shape_models import KNOWN, small_values, vectors
from open_models import open_ranks


# ---- recurrent operators -------------------------------------------------------------------------------------------
def recur(kind, x, w, r, bias, lens=None, h0=None, c0=None, direction="forward", p=None, clip=None, lbr=0):
    """Y [T, D, N, H], Y_h, Y_c in the order and with the gates of the ONNX specification."""
    T, N, _ = x.shape
    D, H = r.shape[0], r.shape[2]
    y, yh, yc = np.zeros((T, D, N, H), F), np.zeros((D, N, H), F), np.zeros((D, N, H), F)
    lens = [T] * N if lens is None else lens
    cl = (lambda v: np.clip(v, -clip, clip)) if clip else (lambda v: v)
    for d in range(D):
        back = direction == "reverse" or d == 1
        wb, rb = (bias[d].reshape(2, -1) if bias is not None else np.zeros((2, r.shape[1]), F))
        for n in range(N):
            h = h0[d, n] if h0 is not None else np.zeros(H, F)
            c = c0[d, n] if c0 is not None else np.zeros(H, F)
            steps = range(lens[n])
            for t in reversed(steps) if back else steps:
                a, q = x[t, n] @ w[d].T + wb, h @ r[d].T
                if kind == "RNN":
                    h = np.tanh(cl(a + q + rb))
                elif kind == "LSTM":
                    g = a + q + rb
                    gi, go, gf, gc = (g[k * H:(k + 1) * H] for k in range(4))
                    pi, po, pf = p[d].reshape(3, H) if p is not None else np.zeros((3, H), F)
                    ft = sig(cl(gf + pf * c))
                    c = ft * c + sig(cl(gi + pi * c)) * np.tanh(cl(gc))
                    h = sig(cl(go + po * c)) * np.tanh(c)
                else:
                    z = sig(cl(a[:H] + q[:H] + rb[:H]))
                    rr = sig(cl(a[H:2 * H] + q[H:2 * H] + rb[H:2 * H]))
                    if lbr:
                        hh = np.tanh(cl(a[2 * H:] + rr * (q[2 * H:] + rb[2 * H:])))
                    else:
                        hh = np.tanh(cl(a[2 * H:] + (rr * h) @ r[d][2 * H:].T + rb[2 * H:]))
                    h = (1 - z) * hh + z * h
                y[t, d, n] = h
            yh[d, n], yc[d, n] = h, c
    return y, yh, yc


def recurrent():
    T, N, X, H = 5, 3, 4, 3
    x = rnd(T, N, X)
    for kind, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction in ("forward", "reverse", "bidirectional"):
            D = 2 if direction == "bidirectional" else 1
            w, r, bias = rnd(D, gates * H, X) * F(.5), rnd(D, gates * H, H) * F(.5), rnd(D, 2 * gates * H)
            h0, c0, lens = rnd(D, N, H), rnd(D, N, H), np.array([5, 0, 2], np.int32)
            p = rnd(D, 3 * H)
            cell = kind == "LSTM"
            outs = ["Y", "Yh", "Yc"][:2 + cell]

            def rnn(name, attrs, ins, values, want):
                types = {np.dtype(F): 1, np.dtype(np.int32): 6}
                at = dict(hidden_size=H, direction=direction, **attrs)
                n = helper.make_node(kind, ins, outs, **at)
                gi = [helper.make_tensor_value_info(k, types[v.dtype], ["d%s%d" % (k, j) for j in range(v.ndim)]
                                                    if k in ("x", "lens") else v.shape) for k, v in values]
                go = [helper.make_tensor_value_info(k, 1, None) for k in outs]
                m = helper.make_model(helper.make_graph([n], "g", gi, go), ir_version=8,
                                      opset_imports=[helper.make_opsetid("", 14)])
                case(name, m, ([v for _, v in values], want[:len(outs)]))
            base = [("x", x), ("w", w), ("r", r)]
            tag = "%s_%s_" % (kind.lower(), direction)
            rnn(tag + "sequence_lens", {}, ["x", "w", "r", "bias", "lens", "h0"] + ["c0"] * cell,
                base + [("bias", bias), ("lens", lens), ("h0", h0)] + [("c0", c0)] * cell,
                recur(kind, x, w, r, bias, lens, h0, c0 if cell else None, direction))
            rnn(tag + "no_initial_state_no_bias", {}, ["x", "w", "r"], base, recur(kind, x, w, r, None, direction=direction))
            rnn(tag + "clip", {"clip": .25}, ["x", "w", "r", "bias"], base + [("bias", bias)],
                recur(kind, x, w, r, bias, clip=.25, direction=direction))
            one = x[:1]
            rnn(tag + "length_1", {}, ["x", "w", "r", "bias"], [("x", one)] + base[1:] + [("bias", bias)],
                recur(kind, one, w, r, bias, direction=direction))
            y = recur(kind, x, w, r, bias, lens, direction=direction)
            rnn(tag + "layout_1", {"layout": 1}, ["x", "w", "r", "bias", "lens"],
                [("x", x.transpose(1, 0, 2).copy())] + base[1:] + [("bias", bias), ("lens", lens)],
                [y[0].transpose(2, 0, 1, 3), y[1].transpose(1, 0, 2), y[2].transpose(1, 0, 2)])
            if cell:
                rnn(tag + "peepholes", {}, ["x", "w", "r", "bias", "", "", "", "p"], base + [("bias", bias), ("p", p)],
                    recur(kind, x, w, r, bias, p=p, direction=direction))
            if kind == "GRU":
                rnn(tag + "linear_before_reset", {"linear_before_reset": 1}, ["x", "w", "r", "bias"],
                    base + [("bias", bias)], recur(kind, x, w, r, bias, lbr=1, direction=direction))
    # Two layers, as exporters write them, at a length other than the exported one.
    w1, r1, b1 = rnd(1, 12, 4), rnd(1, 12, 3), rnd(1, 24)
    w2, r2, b2 = rnd(1, 12, 3), rnd(1, 12, 3), rnd(1, 24)
    y1 = recur("LSTM", x, w1, r1, b1)[0][:, 0]
    y2 = recur("LSTM", y1, w2, r2, b2)
    m = model_of("""
        g (float[T, N, 4] x) => (float[T, N, 3] y, float[1, N, 3] h) <int64[1] one = {1}> {
            a = LSTM <hidden_size = 3> (x, w1, r1, b1)  s = Squeeze(a, one)
            q, h = LSTM <hidden_size = 3> (s, w2, r2, b2)  y = Squeeze(q, one)
        }""")
    for name, v in zip(("w1", "r1", "b1", "w2", "r2", "b2"), (w1, r1, b1, w2, r2, b2)):
        m.graph.initializer.append(numpy_helper.from_array(v, name))
    case("lstm_two_layers_any_length", m, ([x], [y2[0][:, 0], y2[1]]), ([x[:2, :1]], [y2[0][:2, 0, :1], recur(
        "LSTM", y1[:2, :1], w2, r2, b2)[1]]))


def field(number, data):
    """A length-delimited field of a protobuf message."""
    n, size = len(data), b""
    while n > 127:
        size, n = size + bytes([n & 127 | 128]), n >> 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + data


def nested(depth):
    """If and Loop in turn, depth deep; the innermost adds one. Its bytes: Python's protobuf stops at 100 messages."""
    info = helper.make_tensor_value_info
    bool0, int0 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64

    def with_graphs(node, graphs):
        data = node.SerializeToString()
        for name, g in graphs:
            data += field(5, field(1, name.encode()) + field(6, g) + b"\xa0\x01\x05")
        return field(1, data)
    value, inner = "r", field(1, helper.make_node("Add", ["x%d" % depth, "one"], ["r"], name="last").SerializeToString())
    for d in range(depth, 0, -1):
        x, out = "x%d" % d, "u%d" % d
        tail = helper.make_node("Identity", [value], [out], name="tail")
        if d % 2:
            g = helper.make_graph([helper.make_node("Identity", ["x%d" % (d - 1)], [x]), tail], "g", [], [info(out, 1, [])])
            e = helper.make_graph([helper.make_node("Neg", ["x%d" % (d - 1)], [out])], "e", [], [info(out, 1, [])])
            n, graphs = helper.make_node("If", ["t"], ["w%d" % d]), [("else_branch", e.SerializeToString())]
            graphs.append(("then_branch", g.SerializeToString() + inner))
        else:
            g = helper.make_graph([helper.make_node("Identity", ["c%d" % d], ["o%d" % d]), tail], "b",
                                  [info("i%d" % d, int0, []), info("c%d" % d, bool0, []), info(x, 1, [])],
                                  [info("o%d" % d, bool0, []), info(out, 1, [])])
            n, graphs = helper.make_node("Loop", ["k", "t", "x%d" % (d - 1)], ["w%d" % d]), [
                ("body", g.SerializeToString() + inner)]
        inner, value = with_graphs(n, graphs), "w%d" % d
    g = helper.make_graph([], "g", [info("t", bool0, []), info("k", int0, []), info("x0", 1, []), info("one", 1, [])],
                          [info("w1", 1, [])])
    m = helper.make_model(helper.make_graph([], "g", [], []), ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    m.ClearField("graph")
    return m.SerializeToString() + field(7, g.SerializeToString() + inner)


# ---- running ----------------------------------------------------------------------------------------------------------
def write(folder, m, sets):
    os.makedirs(folder)
    with open(folder + "/model.onnx", "wb") as o:
        o.write(m if isinstance(m, bytes) else m.SerializeToString())
    for k, (ins, outs) in enumerate(sets):
        d = "%s/test_data_set_%d" % (folder, k)
        os.makedirs(d)
        for kind, values in (("input", ins), ("output", outs)):
            for j, v in enumerate(values):
                with open("%s/%s_%d.pb" % (d, kind, j), "wb") as o:
                    o.write(numpy_helper.from_array(np.asarray(v)).SerializeToString())


def run_args(braid, target, folder, m, inputs):
    cmd = [braid, "run", "--target", target, folder + "/model.onnx", "-o", folder + "/out"]
    for v, x in zip(m.graph.input, inputs):
        path = "%s/%s.npy" % (folder, re.sub(r"\W", "_", v.name))
        np.save(path, np.asarray(x))
        cmd += ["-i", "%s=%s" % (v.name, path)]
    return cmd


def check_fault(braid, target, root, name, m, inputs, pattern, args):
    folder = "%s/fault-%s-%s" % (root, target, name)
    os.makedirs(folder)
    onnx.save(m, folder + "/model.onnx")
    try:
        r = subprocess.run(run_args(braid, target, folder, m, inputs) + args, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "does not end"
    if r.returncode != 1:
        return "exit code %d: %s" % (r.returncode, r.stderr)
    if len(r.stderr.strip().splitlines()) != 1:
        return "not one message: " + r.stderr
    if not re.search(pattern, r.stderr):
        return "message %r has nothing of %r" % (r.stderr.strip(), pattern)
    if os.path.exists(folder + "/out") and os.listdir(folder + "/out"):
        return "an output was written"
    return ""


MEMORY = """
    g (int64 m, float[8] x) => (float[n] y, float[2, 2] z) <bool t = {1}, int64 three = {3}, int64[1] one = {1}, int64[2] sq = {2, 2}> {
        y, z, q = Loop(m, t, x, w0, q0) <body = b (int64 i, bool c, float[n] s, float[2, 2] w, seq(float[k]) q) =>
                (bool c2, float[k] r, float[2, 2] w2, seq(float[k]) q2) {
            c2 = Identity(c)  k = Mod(i, three)  k1 = Reshape(k, one)  st = Add(k1, one)
            d = Concat <axis = 0> (x, s)  r = Slice(d, k1, en)  w1 = MatMul(w, w)  w2 = Tanh(w1)
            q1 = SequenceInsert(q, r)  q2 = SequenceErase(q1, zero)
        }>
        zero = Constant <value = int64 {0}> ()  en = Constant <value = int64[1] {8}> ()
        x4 = Slice(x, z1, four)  z1 = Constant <value = int64[1] {0}> ()  four = Constant <value = int64[1] {4}> ()
        w0 = Reshape(x4, sq)  q0 = SequenceConstruct(x)
    }"""


def check_memory(braid, target, root):
    """A loop of a million steps needs no more memory than one of ten thousand."""
    m = model_of(MEMORY)
    size = {}
    for steps in (10 ** 4, 10 ** 6):
        folder = "%s/memory-%s-%d" % (root, target, steps)
        os.makedirs(folder)
        onnx.save(m, folder + "/model.onnx")
        p = subprocess.Popen(run_args(braid, target, folder, m, [i(steps), rnd(8)]), stderr=subprocess.PIPE, text=True)
        text = p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        if status:
            return "%d steps: %s" % (steps, text)
        size[steps] = usage.ru_maxrss
    a, z = size[10 ** 4], size[10 ** 6]
    return "" if z < a + 4096 else "%d KB for ten thousand steps, %d KB for a million" % (a, z)


SEQUENCE = """
    g (int64 m, float[64] x) => (float[n, 64] y) <bool t = {1}> {
        q0 = SequenceEmpty()
        q = Loop(m, t, q0) <body = b (int64 i, bool c, seq(float[64]) q) => (bool c, seq(float[64]) q2) {
            f = Cast <to = 1> (i)  e = Add(x, f)  q2 = SequenceInsert(q, e)
        }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (q)
    }"""


def check_sequence(braid, target, root):
    """Appending to a sequence does not copy it: with copies these steps move 200 GB."""
    if target == "interp":
        return ""     # which copies, for it is there to be simple
    m = model_of(SEQUENCE)
    for steps in (10, 40000):
        folder = "%s/sequence-%s-%d" % (root, target, steps)
        os.makedirs(folder)
        onnx.save(m, folder + "/model.onnx")
        p = subprocess.Popen(run_args(braid, target, folder, m, [i(steps), np.zeros(64, F)]), stderr=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, text=True)
        text = p.stderr.read()
        _, p.returncode, usage = os.wait4(p.pid, 0)
        if p.returncode:
            return "%d steps: %s" % (steps, text)
        y = np.load(folder + "/out/output_0.npy")
        if y.shape != (steps, 64) or not np.array_equal(y[:, 5], np.arange(steps, dtype=F)):
            return "%d steps: wrong result" % steps
    return "" if usage.ru_utime < 5 else "appending %d items took %.1f s" % (steps, usage.ru_utime)


def check_known(braid, target, root):
    """Sizes that are computed of few numbers are known when the model is compiled."""
    for name, m, sizes in KNOWN:
        path = "%s/known.onnx" % root
        onnx.save(m, path)
        r = subprocess.run([braid, "explain", "--target", target, path], stdout=subprocess.PIPE, text=True)
        if "\noutput y float32[%s]\n" % sizes not in r.stdout:
            return "%s: not [%s]: %s" % (name, sizes, "".join(re.findall("\noutput y.*", r.stdout)))
    return ""


def check_depth(braid, target, root):
    m = nested(64)
    folder = "%s/depth-%s" % (root, target)
    write(folder, m, [([b(True), i(1), f(5), f(1)], [f(6)]), ([b(False), i(1), f(5), f(1)], [f(-5)])])
    begun = time.time()
    r = subprocess.run([braid, "test", "--target", target, folder], stdout=subprocess.PIPE, text=True)
    took = time.time() - begun
    return "" if r.returncode == 0 and took < 20 else "%s(%.1f s)" % (r.stdout, took)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--target", choices=["interp", "cpu", "both", "emulate:cuda", "emulate:hip"], default="both")
    a.add_argument("--braid", default="braid")
    a.add_argument("--only", default="", help="cases whose name has this in it")
    a.add_argument("--jobs", type=int, default=os.cpu_count())
    a.add_argument("--threads", default="1", help="threads of a run")
    a.add_argument("--keep", help="leave the folders here")
    a = a.parse_args()
    for part in (shapes, scoping, scans, recurrent, exporters, firsts, people, open_ranks, vectors, small_values, faults, dead_arms, first_faults, messages, endless,
                 memory):
        part()
    root = a.keep or tempfile.mkdtemp(prefix="braid-field-")
    if a.keep:
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
    os.environ.setdefault("BRAID_CACHE", root + "/cache")
    failed = passed = 0
    try:
        names = [c[0] for c in CASES + FAULTS]
        assert len(set(names)) == len(names), "two cases have one name"
        folders = []
        for name, m, sets in CASES:
            if a.only in name:
                folders.append("%s/cases/%s" % (root, name))
                write(folders[-1], m, sets)
        for target in ["interp", "cpu"] if a.target == "both" else [a.target]:
            problems, n = [], len(folders)
            if folders:
                r = subprocess.run([a.braid, "test", "--target", target, "--jobs", str(a.jobs), "--verbose", "--rtol", "1e-4", "--threads", a.threads,
                                    root + "/cases"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                lines = r.stdout.splitlines()
                if not lines or " passed, " not in lines[-1]:
                    problems.append("braid test gave no result: " + r.stdout + r.stderr)
                problems += [line.replace(root + "/cases/", "") for line in lines if line.startswith(("FAIL ", "SKIP "))]
            for name, m, inputs, pattern, args in FAULTS:
                if a.only in name:
                    n += 1
                    why = check_fault(a.braid, target, root, name, m, inputs, pattern, args + ["--threads", a.threads])
                    problems += ["FAIL %s: %s" % (name, why)] if why else []
            for name, check in (("memory_of_a_million_steps", check_memory), ("append_to_a_sequence", check_sequence),
                                ("nested_64_deep", check_depth), ("sizes_are_known", check_known)):
                if a.only in name and not target.startswith("emulate"):    # which would take minutes
                    n += 1
                    why = check(a.braid, target, root)
                    problems += ["FAIL %s: %s" % (name, why)] if why else []
            print("\n".join(problems + ["%s: %d passed, %d failed" % (target, n - len(problems), len(problems))]), flush=True)
            failed += len(problems)
            passed += n - len(problems)
    finally:
        if not a.keep:
            shutil.rmtree(root, ignore_errors=True)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
