#!/usr/bin/env python3
"""Compares random nodes of com.microsoft's quantized, fused and shape operators (and some of the standard's twins) with
ONNX Runtime.

    contrib_check.py COUNT [--target T] [--threads N] [--group N] [--only KIND] [--seed S] [--braid PATH] [--bad]

Node number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed; N nodes are
one model for Braid. Values of ONNX Runtime are compared exactly where they are integers, but for
one step where the value before rounding lies half way between two: its vector code and tables see such a value
a little to one side. Where it has no CPU kernel the values are those of the standard's operators (NhwcConv,
NhwcFusedConv, a QLinearConv) or numpy's by the documentation (FusedMatMulActivation, QLinearReduceMean,
ReduceSumInteger, Rfft, Irfft, MatMulNBits with g_idx or float zero points), and float16 is compared with float32.
With --bad the nodes are spoiled: each must be refused in one line, or run; and some must be refused for a reason.
"""
import argparse
import os
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import backend_test  # noqa: E402
from contrib_bad import refusals, spoil
from contrib_kinds import KINDS, make
from contrib_nodes import F32, OPSETS, Case, Random, info, node_of, onnx_type


# ---- running Braid
def model_of(cases):
    nodes, infos, consts, outs, feed = [], [], [], [], {}
    for n, case in enumerate(cases):
        R = Random(case.seed or 0)
        outputs = [f"n{n}y{k}" if w is not None else "" for k, w in enumerate(case.want)]
        nodes.append(node_of(case.op, case.inputs, outputs, case.attrs, case.domain, f"n{n}"))
        outs += [helper.make_tensor_value_info(o, onnx_type(w.dtype), None) for o, w in zip(outputs, case.want) if o]
        for i, v in enumerate(case.inputs):
            name = f"n{n}x{i}"
            if v is None:
                continue
            # parameters are mostly constants; sizes of the others are unknown in some models
            if i and R.chance(0.6):
                consts.append(numpy_helper.from_array(v, name))
            else:
                feed[name] = v
                known = R.chance(0.6) or case.seed is None or case.op == "GatherND"  # the length of index tuples must be
                infos.append(info(name, v, not known))
    graph = helper.make_graph(nodes, "contrib", infos, outs, consts)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10), feed


def braid(args, model, feed):
    """The outputs, or what went wrong."""
    with tempfile.TemporaryDirectory() as d:
        error = backend_test.run(args.braid, model, feed, d, "--target", args.target, "--threads", args.threads)
        if error:
            return error
        return [np.load(f"{d}/out/output_{i}.npy") for i in range(len(model.graph.output))]


def check(args, cases):
    """Number of nodes that are wrong."""
    got = braid(args, *model_of(cases))
    failed = 0
    if isinstance(got, str) and len(cases) > 1:  # which of them?
        failed = sum(check(args, [c]) for c in cases)
        if not failed:
            print(f"FAIL the nodes of seeds {cases[0].seed} to {cases[-1].seed} together: {got}")
        return failed or 1
    for case in cases:
        if isinstance(got, str):
            wrong = got
        else:
            n = sum(w is not None for w in case.want)
            wrong, got = case.wrong(got[:n]), got[n:]
        if wrong:
            failed += 1
            print(f"FAIL seed {case.seed}: {wrong}\n    {case}")
    return failed


def check_bad(args, cases):
    failed = 0
    outputs = {"DynamicQuantizeLSTM": 1, "Unique": 3}
    for op, inputs, attrs, message in refusals():
        case = Case(op, inputs, attrs, [np.zeros(1, F32)] * outputs.get(op, 1))
        case.seed = None  # sizes are known
        got = braid(args, *model_of([case]))
        text = got if isinstance(got, str) else "it runs"
        if not text.startswith("exit 1: ") or "\n" in text or message not in text:
            failed += 1
            print(f"FAIL {case}: '{message}' expected, not: {text}")
    for case in cases:
        spoiled = spoil(Random(case.seed), case)
        got = braid(args, *model_of([spoiled]))
        if isinstance(got, str) and (not got.startswith("exit 1: ") or "\n" in got):
            failed += 1
            print(f"FAIL seed {case.seed}: {got}\n    {spoiled}")
    print(f"{len(refusals()) + len(cases)} bad nodes on {args.target}: {failed} failed")
    return 1 if failed else 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("count", type=int)
    ap.add_argument("--target", default="interp")
    ap.add_argument("--threads", default="1")
    ap.add_argument("--group", type=int, default=10)
    ap.add_argument("--only", default="")
    ap.add_argument("--bad", action="store_true")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--braid", default="build/braid")
    args = ap.parse_args()
    failed, cases = 0, []
    for seed in range(args.seed, args.seed + args.count):
        kind = KINDS[seed % len(KINDS)]
        if not args.only or args.only == kind.__name__:
            cases.append(make(kind, seed))
    if args.bad:
        return check_bad(args, cases)
    for i in range(0, len(cases), args.group):
        failed += check(args, cases[i:i + args.group])
    flipped, loose = sum(c.flipped for c in cases), sum(c.loose is not None for c in cases)
    if flipped > 1 + loose // 10:
        failed += 1
        print(f"FAIL: {flipped} of {loose} recurrent nodes are only roughly right")
    print(f"{len(cases)} nodes from seed {args.seed} on {args.target}: {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
