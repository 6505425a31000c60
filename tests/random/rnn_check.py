#!/usr/bin/env python3
"""Compares random RNN, GRU and LSTM models with ONNX Runtime.

    rnn_check.py COUNT [--target T] [--seed S] [--braid PATH]

Model number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed.
ONNX Runtime computes in float32 and layout 0; other types and layout 1 are compared with that.
"""
import argparse
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402

ort.set_default_logger_severity(4)

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# Beyond this a model diverges, and differences of rounding grow with it: it is not compared.
DIVERGED = 50
NACT = {"RNN": 1, "GRU": 2, "LSTM": 3}
# name: number of parameters it takes (alpha, then beta)
ACTS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "Affine": 2, "LeakyRelu": 1, "ThresholdedRelu": 1,
        "ScaledTanh": 2, "HardSigmoid": 2, "Elu": 1, "Softsign": 0, "Softplus": 0}
TOLERANCE = {np.float32: (1e-4, 1e-5), np.float64: (1e-4, 1e-5), np.float16: (1e-2, 5e-3)}


class Case:
    def __init__(self, seed):
        r = np.random.default_rng(seed)
        pick = lambda *v: v[r.integers(len(v))]
        chance = lambda p: r.random() < p
        self.op = pick("RNN", "GRU", "LSTM")
        self.dtype = pick(np.float32, np.float32, np.float32, np.float64, np.float16)
        self.layout = int(chance(0.3))
        self.dynamic = chance(0.4)      # batch and time are unknown in the model
        self.weights_in = chance(0.2)   # weights are inputs, not initializers
        self.hidden_attr = chance(0.7)
        T = int(pick(0, 1, 1, 2, 3, 5, 7))
        N, I, H = (int(v) for v in r.integers(1, 6, 3))
        direction = pick("forward", "reverse", "bidirectional")
        D = 2 if direction == "bidirectional" else 1
        g = GATES[self.op]

        def rnd(*shape):
            v = r.standard_normal(shape) * 0.6
            return v.astype(self.dtype).astype(np.float32)

        self.T, self.N, self.H, self.D = T, N, H, D
        self.x = {"X": rnd(T, N, I), "W": rnd(D, g * H, I), "R": rnd(D, g * H, H)}
        if chance(0.7):
            self.x["B"] = rnd(D, 2 * g * H)
        if chance(0.5):
            self.x["sequence_lens"] = r.integers(0, T + 1, N).astype(np.int32)
            if chance(0.2):
                self.x["sequence_lens"][:] = T
        if chance(0.5):
            self.x["initial_h"] = rnd(D, N, H)
        if self.op == "LSTM":
            if chance(0.5):
                self.x["initial_c"] = rnd(D, N, H)
            if chance(0.4):
                self.x["P"] = rnd(D, 3 * H)
        self.attr = {"direction": direction}
        if chance(0.4):
            self.attr["clip"] = float(r.uniform(0.2, 1.5))
        if self.op == "GRU" and chance(0.5):
            self.attr["linear_before_reset"] = 1
        if self.op == "LSTM" and chance(0.3):
            self.attr["input_forget"] = 1
        if chance(0.6):
            names = [pick(*ACTS) for _ in range(NACT[self.op] * D)]
            self.attr["activations"] = names
            self.spelled = [pick(n, n.lower(), n.upper()) for n in names]
            # Explicit values: ONNX Runtime takes 0 for a missing alpha of Affine and ScaledTanh.
            self.attr["activation_alpha"] = [float(r.uniform(0.1, 0.9)) for n in names if ACTS[n]]
            self.attr["activation_beta"] = [
                float(r.uniform(0.1, 0.9)) for n in names if ACTS[n] == 2]
            for k in ("activation_alpha", "activation_beta"):
                if not self.attr[k]:
                    del self.attr[k]
        outs = ["Y", "Y_h"] + (["Y_c"] if self.op == "LSTM" else [])
        keep = [o for o in outs if chance(0.75)]
        self.all_outs, self.outs = outs, keep or [outs[0]]

    def __str__(self):
        shown = {k: v for k, v in self.attr.items()}
        return (f"{self.op} {np.dtype(self.dtype).name} T={self.T} N={self.N} H={self.H} "
                f"layout={self.layout} dynamic={self.dynamic} in={list(self.x)} out={self.outs} "
                f"lens={self.x.get('sequence_lens')} {shown}")

    def swap(self, name, v):
        """Layout 0 to layout 1 of an input or output, and back for the inputs and states."""
        if not self.layout:
            return v
        if name == "Y":
            return v.transpose(2, 0, 1, 3)
        return v.swapaxes(0, 1) if name in ("X", "initial_h", "initial_c", "Y_h", "Y_c") else v

    def model(self, reference):
        order = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
        names = [n if n in self.x else "" for n in order[:8 if self.op == "LSTM" else 6]]
        while names[-1] == "":
            names.pop()
        data = {}
        for k, v in self.x.items():
            if not reference:
                v = np.ascontiguousarray(self.swap(k, v))
                if v.dtype == np.float32:
                    v = v.astype(self.dtype)
            data[k] = v
        feed = {k: v for k, v in data.items()
                if reference or self.weights_in or k not in ("W", "R", "B", "P")}
        info = []
        for k, v in feed.items():
            shape = list(v.shape)
            if self.dynamic and not reference and k in ("X", "initial_h", "initial_c"):
                shape[:2] = [f"{k}_0", f"{k}_1"]
            info.append(helper.make_tensor_value_info(
                k, helper.np_dtype_to_tensor_dtype(v.dtype), shape))
        init = [onnx.numpy_helper.from_array(v, k) for k, v in data.items() if k not in feed]
        want = self.all_outs if reference else self.outs
        attr = dict(self.attr)
        if reference or self.hidden_attr:
            attr["hidden_size"] = self.H
        if not reference and self.layout:
            attr["layout"] = 1
        if not reference and "activations" in attr:
            attr["activations"] = self.spelled  # case does not matter (for ONNX Runtime it can)
        node = helper.make_node(self.op, names, [o if o in want else "" for o in self.all_outs],
                                **attr)
        kind = helper.np_dtype_to_tensor_dtype(data["X"].dtype)
        graph = helper.make_graph(
            [node], "g", info, [helper.make_tensor_value_info(o, kind, None) for o in want], init)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)],
                                 ir_version=10), feed

    def reference(self):
        if self.T == 0:  # known deviation: ONNX Runtime crashes or gives memory that it never wrote
            state = (self.D, self.N, self.H)
            return {o: np.zeros((0, *state) if o == "Y" else state, np.float32)
                    for o in self.all_outs}
        model, feed = self.model(True)
        s = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return dict(zip(self.all_outs, s.run(None, feed)))

    def expected(self):
        self.got = got = self.reference()
        # Known deviation: the last state of a row without steps is its initial state here (a stream
        # that pauses keeps its state); ONNX Runtime gives zeros.
        lens = self.x.get("sequence_lens", np.full(self.N, self.T))
        for out, initial in (("Y_h", "initial_h"), ("Y_c", "initial_c")):
            if out in got:
                start = self.x.get(initial, np.zeros_like(got[out]))
                got[out][:, lens == 0] = start[:, lens == 0]
        return {k: self.swap(k, got[k]) for k in self.outs}


def check(case, want, args):
    """None, or what is wrong."""
    model, feed = case.model(False)
    with tempfile.TemporaryDirectory() as d:
        error = backend_test.run(args.braid, model, feed, d, "--target", args.target)
        if error:
            return error
        for i, (k, w) in enumerate(want.items()):
            v = np.load(f"{d}/out/output_{i}.npy")
            if v.dtype != case.dtype or v.shape != w.shape:
                return f"{k} is {v.dtype} {v.shape}, not {np.dtype(case.dtype)} {w.shape}"
            rtol, atol = TOLERANCE[case.dtype]
            if not np.allclose(v, w, rtol, atol, equal_nan=True):
                return f"{k} differs by {np.abs(v.astype(np.float64) - w).max():g}"
    return None


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("count", type=int)
    ap.add_argument("--target", default="interp")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--braid", default="build/braid")
    args = ap.parse_args()
    failed = diverged = 0
    for seed in range(args.seed, args.seed + args.count):
        case = Case(seed)
        want = case.expected()
        if any(not np.all(np.abs(v) < DIVERGED) for v in case.got.values()):
            diverged += 1
            continue
        wrong = check(case, want, args)
        if wrong:
            failed += 1
            print(f"FAIL seed {seed}: {wrong}\n    {case}")
    print(f"{args.count} models from seed {args.seed} on {args.target}: {failed} failed, "
          f"{diverged} not compared (diverged)")
    return 1 if failed or args.count < 2 * diverged + 1 else 0


if __name__ == "__main__":
    sys.exit(main())
