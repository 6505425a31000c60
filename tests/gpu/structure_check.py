#!/usr/bin/env python3
"""Recursions that are numbered ahead by the host of a GPU program, on the emulator, against the same on the CPU.

    structure_check.py [--braid BRAID] [--seed S]

Sessions run one structure after the other: the same again, others that take more memory, and wrong ones (a cycle, an
index out of range, arrays that do not fit, too deep), with tensors in the host's memory and in the device's. Values and
messages are those of a CPU session. Blocks and schedules of threads differ. Then the same where the structure is computed on the device, which has to number
it itself. Prints a line for each failure, and what was run.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, ROOT + "/eval"]
import braid_api  # noqa: E402
from models import build  # noqa: E402

TARGETS = ("emulate:cuda", "emulate:hip")
BATCH, HIDDEN = 3, 8


class Structures:
    """Inputs of a model of models/, one after the other."""

    def __init__(self, name, seed):
        self.name, self.seed = name, seed

    def tree(self, length, seed=0):
        return build(self.name, True, batch=BATCH, hidden=HIDDEN, length=length, seed=self.seed + seed).inputs

    def all(self):
        """[(what it is, inputs, whether it is right)]"""
        first, second, large = self.tree(9), self.tree(9, 7), self.tree(151, 1)
        some = [("a forest", first, True), ("the same", first, True), ("another", second, True),
                ("more memory", large, True), ("less again", first, True)]
        for what, wrong in self.wrong(first):
            some += [(what, wrong, False), ("after " + what, second if len(some) % 4 else first, True)]
        return some + [("too deep", self.chain(first, 10050), False), ("at last", first, True)]

    def chain(self, right, depth):
        """Each node has the next one as a child."""
        made = {"word": np.zeros(depth + 1, np.int64), "roots": np.zeros_like(right["roots"])}
        following = np.minimum(np.arange(depth + 1) + 1, depth)
        if "left" in right:
            return {**made, "left": following, "right": np.full(depth + 1, depth), "is_leaf": following == np.arange(depth + 1)}
        return {**made, "child": following[:-1], "child_begin": np.minimum(np.arange(depth + 2), depth)}

    def wrong(self, right):
        if "left" in right:
            inner = np.flatnonzero(~right["is_leaf"])
            yield "a cycle", changed(right, "left", inner[-1], right["roots"][-1])
            yield "a child out of range", changed(right, "right", inner[1], len(right["left"]))
            yield "fewer children than nodes", {**right, "left": right["left"][:-1].copy()}
            yield "a root out of range", changed(right, "roots", 1, -1 - len(right["left"]))
        else:
            yield "a cycle", changed(right, "child", 0, int(np.flatnonzero(right["child_begin"] > 0)[0]) - 1)
            yield "a child out of range", changed(right, "child", 1, len(right["word"]))
            yield "a list out of range", changed(right, "child_begin", -1, len(right["child"]) + 3)


def changed(inputs, name, at, value):
    a = inputs[name].copy()
    a[at] = value
    return {**inputs, name: a}


def on_device(model, name):
    """The model whose input `name` is computed by the kernel: from an input NAME_given, the larger one of each element and
    the least one."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for v in model.graph.input:
        if v.name == name:
            v.name = name + "_given"
    model.graph.node.insert(0, helper.make_node("ReduceMin", [name + "_given"], [name + "_least"], keepdims=1))
    model.graph.node.insert(1, helper.make_node("Max", [name + "_given", name + "_least"], [name]))
    return model


def outcome(session, inputs):
    """The outputs, or the message."""
    session.bind({given: inputs[given.removesuffix("_given")] for given in session.inputs})
    try:
        session.run()
        session.finish()
    except braid_api.BraidError as e:
        return str(e)
    return [np.array(session.out(name)) for name in session.outputs]


def equal(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return all(x.shape == y.shape and np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b, strict=True))


def compile_to(args, path, library, target):
    subprocess.run([args.braid, "compile", path, "-o", library, "--target", target, "--schedule", "linearize=on"], check=True,
                   stdout=subprocess.DEVNULL)


def by_the_host(args, path, target):
    said = subprocess.run([args.braid, "explain", path, "--target", target, "--schedule", "linearize=on"], check=True,
                          capture_output=True, text=True).stdout
    return [line.endswith(", by the host") for line in said.splitlines() if "extern linearize(" in line]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default=ROOT + "/build/release/braid")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--verbose", action="store_true", help="print each run")
    args = p.parse_args()
    runs, failures = 0, []
    with tempfile.TemporaryDirectory() as work:
        for name, made in (("treelstm", None), ("treelstm_children", None), ("treefc", "left")):
            structures = Structures(name, args.seed)
            model = build(name, True, batch=BATCH, hidden=HIDDEN, seed=args.seed).model
            path = f"{work}/{name}.onnx"
            onnx.save(on_device(model, made) if made else model, path)
            compile_to(args, path, path + ".so", "cpu")
            session = braid_api.Compiled(path + ".so", 1)
            given = structures.all()
            want = [outcome(session, inputs) for _, inputs, _ in given]
            for (what, _, right), w in zip(given, want, strict=True):
                if isinstance(w, str) == right:
                    failures.append(f"{name} on the CPU: {what}: {w if right else 'no error'}")
            for target in TARGETS:
                if by_the_host(args, path, target) != [made is None]:
                    failures.append(f"{name} for {target}: it is not numbered where it should be")
                library = path + target.replace(":", "_") + ".so"
                compile_to(args, path, library, target)
                for kind, blocks, schedule in ((braid_api.Compiled, 1, "fair"), (braid_api.Compiled, 4, "random"),
                                               (braid_api.OnDevice, 3, "adversarial")):
                    os.environ.update(BRAID_EMULATE_SCHEDULE=schedule, BRAID_EMULATE_SEED=str(args.seed))
                    session = kind(library, blocks)
                    for (what, inputs, _), w in zip(given, want, strict=True):
                        got = outcome(session, inputs)
                        if args.verbose:
                            print(name, target, kind.__name__, what, got if isinstance(got, str) else "", flush=True)
                        runs += 1
                        if not equal(got, w):
                            failures.append(f"{name} for {target}, {kind.__name__}: {what}: "
                                            f"{got if isinstance(got, str) else 'values'}, not "
                                            f"{w if isinstance(w, str) else 'those of the CPU'}")
    for failure in failures:
        print("FAIL", failure)
    print(f"{runs} runs, {len(failures)} failures")
    return 1 if failures or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
