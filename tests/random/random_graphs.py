#!/usr/bin/env python3
"""Compares random models of nested Loop, If and Scan with ONNX Runtime.

    random_graphs.py COUNT [--seed S] [--target TARGET|both] [--braid PATH] [--jobs N] [--keep DIR]
                     [--schedule SETTINGS]...

Graph number i is made from seed S + i alone, so a failure is repeated by COUNT 1 and that seed. Each is
written as a backend test folder with two data sets, and `braid test` runs them all. Two models are made of
each program: the one that Braid gets, with shadowed and odd names, nodes out of order, carried
values and outer values returned directly; and a tame one for ONNX Runtime, which is wrong on some of
these (1.32: a Loop's counter or a Scan's input returned as a scan output, buffers shared between
outputs; it also heeds a body's condition where the Loop has none).

--schedule forces transformations (braid --help); given several times, graph number i gets the settings
i mod their count, so that all are tried in the time of one.
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as TP, helper, numpy_helper

from random_control import Program
from random_model import DTYPES, Sym

ELEM = {"f32": TP.FLOAT, "f64": TP.DOUBLE, "f16": TP.FLOAT16, "i64": TP.INT64, "i32": TP.INT32,
        "u8": TP.UINT8, "bool": TP.BOOL}
SECONDS = 8        # for making one graph with its results
TOO_BIG = 20000     # elements of a result
ODD_NAMES = ["x", "a.b", "a/b", "a_b", "int", "while", "i", "n", "main", "x y", "0", "state:0", "cond", "double"]
# What ONNX Runtime has no kernel for, and the type to compute it in instead.
INSTEAD = {(op, "u8"): "i32" for op in ("Add", "Sub", "Mul", "Max", "Min")}
INSTEAD.update({("Where", "f16"): "f32", ("Where", "bool"): "u8"})


class Emit:
    """One ONNX model of a program; sizes: of the input dimensions, for the tame one."""

    def __init__(self, p, tame, sizes=None):
        self.p, self.tame, self.sizes = p, tame, sizes
        self.r = random.Random(p.seed * 7 + 1)
        self.name, self.used, self.extra = {}, set(), 0
        # In some models inputs declare no shape, or sizes without a name or number.
        self.opening = random.Random(p.seed * 11 + 3)
        self.open = 0 if tame else self.opening.choice([0, 0, .3, .8])
        g = self.graph(p.top, "main")
        ir = 7 if p.opset < 15 else 8 if p.opset < 19 else 9 if p.opset < 21 else 10
        self.model = helper.make_model(g, opset_imports=[helper.make_opsetid("", p.opset)], ir_version=ir)

    def chance(self, x):
        return not self.tame and self.r.random() < x

    # ---- names
    def captured(self, s, own=None):
        """Values from outside that s or a graph in it uses."""
        own = (own or set()) | set(s.vals)
        out = set(v for v in s.results if v not in own)
        for n in s.nodes:
            out |= set(v for v in n.ins if v is not None and v not in own)
            for sub in n.subs.values():
                out |= self.captured(sub, own)
        return out

    def name_values(self, s):
        taken = set(self.name[v] for v in self.captured(s))
        outer = sorted(self.name.values()) if s.parent else []
        for v in s.vals:
            base = "v%d" % v.num
            if self.chance(.15):
                base = self.r.choice(ODD_NAMES) + str(self.r.randint(0, 3))
                base = base[:-1] if self.r.random() < .5 else base
            if outer and self.chance(.2):
                base = self.r.choice(outer)      # shadows, unless the outer one is used here
            if base in taken or (s.parent is None and base in self.used):
                base = "v%d" % v.num
            self.name[v] = base
            taken.add(base)
            self.used.add(base)

    def temp(self):
        self.extra += 1
        return "t.%d" % self.extra

    # ---- graphs
    def info(self, name, v, dims, declare):
        """The declaration of a value."""
        if v.dtype == "seq":
            return helper.make_tensor_sequence_value_info(name, ELEM[v.elem[0]], None)
        if dims is None or declare == "type":
            return helper.make_tensor_value_info(name, ELEM[v.dtype], None)
        shape = []
        for d in dims:
            if isinstance(d, int):
                shape.append(d)
            elif self.tame:
                shape.append(self.sizes.get(d.name))
            else:
                shape.append(d.name if d.scope is None else None)
        return helper.make_tensor_value_info(name, ELEM[v.dtype], shape)

    def opened(self, name, v):
        """An input that declares less than is known of it."""
        shape = None
        if self.opening.random() < .5:
            shape = [None if self.opening.random() < .6 else d if isinstance(d, int) else d.name for d in v.dims]
        return helper.make_tensor_value_info(name, ELEM[v.dtype], shape)

    def how(self):
        return self.r.choice(["all", "all", "type"]) if not self.tame else "all"

    def node(self, op, ins, outs, **attrs):
        return helper.make_node(op, ins, outs, name="" if self.tame else "n%d" % self.r.randint(0, 9), **attrs)

    def copy(self, nodes, name, seq):
        """A value in memory of its own; whatever the type."""
        shape, out = self.temp(), self.temp()
        if seq:
            nodes.append(self.node("Identity", [name], [out]))
            return out
        nodes.append(self.node("Shape", [name], [shape]))
        nodes.append(self.node("Expand", [name, shape], [out]))
        return out

    def reshaped(self, nodes, name, dims):
        shape, out = self.temp(), self.temp()
        nodes.append(self.node("Constant", [], [shape], value=numpy_helper.from_array(np.array(dims, np.int64))))
        nodes.append(self.node("Reshape", [name, shape], [out]))
        return out

    def graph(self, s, name, op=None):
        saved = dict(self.name)
        self.name_values(s)
        inits = [numpy_helper.from_array(v.data, self.name[v]) for v in s.inits]
        groups = []
        for n in s.nodes:
            nodes = []
            self.one(n, nodes)
            groups.append(nodes)
        if self.chance(.4):
            self.r.shuffle(groups)
        nodes = [n for g in groups for n in g]
        outs, seen = [], set()
        for i, v in enumerate(s.results):
            name_of = self.name[v]
            own = v in s.vals and v not in s.params and v not in seen and v.data is None
            seen.add(v)
            dims = s.shape_of_result.get(i, v.dims)
            if self.tame and not own:
                name_of = self.copy(nodes, name_of, v.dtype == "seq")
            elif s.parent is None and v in s.params:
                nodes.append(self.node("Identity", [name_of], [name_of + ".out"]))
                name_of += ".out"
            if self.tame and i == 0 and op == "Loop":
                if s.ignore_cond:
                    name_of = self.temp()
                    nodes.append(self.node("Constant", [], [name_of], value=numpy_helper.from_array(np.array(True))))
                else:
                    name_of = self.reshaped(nodes, name_of, ())
                dims = ()
            inside = dims is not None and any(isinstance(d, Sym) and d.scope is not None for d in dims)
            how = self.how() if s.parent and not inside else "type" if s.parent is None and inside else self.how()
            outs.append(self.info(name_of, v, dims, how))
        ins = []
        for i, v in enumerate(s.params):
            if self.tame and op == "Loop" and i < 2:
                # Whether these are of rank 0 or 1 is not left to inference.
                raw, before = self.temp(), []
                self.reshaped(before, raw, v.dims)
                before[-1].output[0] = self.name[v]
                nodes = before + nodes
                ins.append(helper.make_tensor_value_info(raw, ELEM[v.dtype], []))
                continue
            declare = "all" if s.parent is None else self.how()
            if s.parent is None and self.opening.random() < self.open:
                ins.append(self.opened(self.name[v], v))
                continue
            if s.parent and v.dims == (1,):    # a counter or condition with shape [1] says so
                declare = "all"
            ins.append(self.info(self.name[v], v, v.dims, declare))
        g = helper.make_graph(nodes, name, ins, outs, inits)
        if s.parent is not None:
            self.name = saved
        return g

    def one(self, n, nodes):
        subs = {}
        for key, s in n.subs.items():
            if n.op == "Loop":
                s.ignore_cond = n.ins[1] is None
            subs[key] = self.graph(s, "%s_%s" % (n.op, key), n.op)
        ins = [self.name[v] if v is not None else "" for v in n.ins]
        outs = [self.name[v] if v is not None else "" for v in n.outs]
        while ins and ins[-1] == "" and n.op != "Loop":
            ins.pop()
        attrs = dict(n.attrs)
        if n.op == "Constant":
            attrs = {"value": numpy_helper.from_array(n.attrs["value"])}
            x = n.attrs["value"]
            if x.dtype == np.int64 and x.ndim <= 1 and x.size and self.chance(.4):
                attrs = {"value_int": int(x)} if x.ndim == 0 else {"value_ints": x.tolist()}
        elif isinstance(attrs.get("value"), np.ndarray):
            attrs["value"] = numpy_helper.from_array(attrs["value"])
        for key in ("to", "dtype"):
            if key in attrs:
                attrs[key] = ELEM[attrs[key]]
        if self.tame:
            outs = [o or self.temp() for o in outs]
            if n.op == "Loop":
                for i in range(2):
                    if ins[i]:
                        ins[i] = self.reshaped(nodes, ins[i], ())
            via = INSTEAD.get((n.op, n.outs[0].dtype if n.outs[0] else None))
            if via:
                first = n.op == "Where"
                wide = ins[:first] + [self.temp() for _ in ins[first:]]
                for x, w in zip(ins[first:], wide[first:]):
                    nodes.append(self.node("Cast", [x], [w], to=ELEM[via]))
                t = self.temp()
                nodes.append(self.node(n.op, wide, [t], **attrs))
                nodes.append(self.node("Cast", [t], outs, to=ELEM[n.outs[0].dtype]))
                return
        nodes.append(self.node(n.op, ins, outs, **attrs, **subs))


def drop_dead(s):
    """Removes nodes whose outputs nobody uses."""
    used = set(s.results)

    def uses(n):
        u = set(v for v in n.ins if v is not None)
        for sub in n.subs.values():
            drop_dead(sub)
            u |= Emit.captured(None_emit, sub)
        return u

    kept = []
    for n in reversed(s.nodes):
        if any(o in used for o in n.outs if o is not None):
            kept.append(n)
            used |= uses(n)
    s.nodes = kept[::-1]
    s.inits = [v for v in s.inits if v in used]
    gone = set(s.vals) - used - set(s.params) - set(o for n in s.nodes for o in n.outs)
    s.vals = [v for v in s.vals if v not in gone]


None_emit = Emit.__new__(Emit)


def data_set(p, k):
    """Inputs and the sizes of the named dimensions."""
    r = random.Random(p.seed * 31 + k)
    sizes = {s.name: r.randint(s.least, 4) for s in p.syms}
    ins = []
    for v in p.inputs:
        shape = [d if isinstance(d, int) else sizes[d.name] for d in v.dims]
        n = int(np.prod(shape)) if shape else 1
        if v.dtype in ("f32", "f64", "f16"):
            x = [r.randint(-32, 32) / 8 for _ in range(n)]
        elif v.dtype == "bool":
            x = [r.random() < .5 for _ in range(n)]
        else:
            x = [r.randint(0 if v.dtype == "u8" else -8, 255 if v.dtype == "u8" else 8) for _ in range(n)]
        ins.append(np.array(x, DTYPES[v.dtype]).reshape(shape))
    return ins, sizes


def make(seed, folder, only=None):
    """Writes the folder; returns "" or why there is none."""
    p = Program(seed)
    if only is not None:
        p.top.results = [p.top.results[i] for i in only]
        drop_dead(p.top)
    model = Emit(p, False).model
    sets = []
    for k in range(2):
        ins, sizes = data_set(p, k)
        e = Emit(p, True, sizes)
        try:
            opt = ort.SessionOptions()
            opt.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            opt.intra_op_num_threads = opt.inter_op_num_threads = 1
            s = ort.InferenceSession(e.model.SerializeToString(), opt, ["CPUExecutionProvider"])
            outs = s.run(None, dict(zip([e.name[v] for v in p.inputs], ins)))
        except Exception as x:    # ONNX Runtime has several kinds
            return "%s: %s" % (type(x).__name__, str(x).replace("\n", " "))
        if any(o.size > TOO_BIG for o in outs):
            return "too large"
        if any(o.dtype.kind == "f" and not np.all(np.isfinite(o)) for o in outs):
            return "not finite"
        sets.append((ins, outs))
    os.makedirs(folder)
    onnx.save(model, folder + "/model.onnx")
    for k, (ins, outs) in enumerate(sets):
        d = "%s/test_data_set_%d" % (folder, k)
        os.makedirs(d)
        for kind, values in (("input", ins), ("output", outs)):
            for i, x in enumerate(values):
                with open("%s/%s_%d.pb" % (d, kind, i), "wb") as f:
                    f.write(numpy_helper.from_array(x).SerializeToString())
    return ""


def folder_of(root, seed, settings):
    """Graphs with the same settings lie in one folder."""
    return "%s/%d/seed_%d" % (root, seed % settings, seed)


def make_all(seeds, root, jobs, only=None, settings=1):
    """Each in a process of its own, for ONNX Runtime may crash or not come back. {seed: why not}"""
    running, bad, todo = {}, {}, list(seeds)
    while todo or running:
        while todo and len(running) < jobs:
            seed = todo.pop(0)
            note = "%s/%d.txt" % (root, seed)
            pid = os.fork()
            if pid == 0:
                why = "crashed while it was made"
                try:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                    why = make(seed, folder_of(root, seed, settings), only)
                except Exception as x:
                    why = "GENERATOR %s: %s" % (type(x).__name__, x)
                finally:
                    with open(note, "w") as f:
                        f.write(why)
                    os._exit(0)
            running[pid] = (seed, time.time())
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            for k, (seed, begun) in running.items():
                if time.time() - begun > SECONDS:
                    os.kill(k, 9)
            time.sleep(.002)
            continue
        seed, _ = running.pop(pid)
        note = "%s/%d.txt" % (root, seed)
        why = open(note).read() if os.path.exists(note) else "no result in time, or a crash"
        if os.path.exists(note):
            os.remove(note)
        if why:
            bad[seed] = why
            shutil.rmtree(folder_of(root, seed, settings), ignore_errors=True)
    return bad


def main():
    a = argparse.ArgumentParser()
    a.add_argument("count", type=int)
    a.add_argument("--seed", type=int)
    a.add_argument("--target", choices=["interp", "cpu", "emulate:cuda", "emulate:hip", "both"], default="both",
                   help="both: interp and cpu")
    a.add_argument("--braid", default="braid")
    a.add_argument("--jobs", type=int, default=os.cpu_count())
    a.add_argument("--threads", default="1", help="threads of a run")
    a.add_argument("--keep", help="where the folders of failing graphs are left")
    a.add_argument("--outputs", help="only these outputs, as in 0,2")
    a.add_argument("--schedule", action="append", help="NAME=on|off,... for graphs i mod the number of such options")
    a.add_argument("--verbose", action="store_true", help="also say which graphs were left out and why")
    a = a.parse_args()
    seed = a.seed if a.seed is not None else random.SystemRandom().randrange(10 ** 6)
    print("seeds %d to %d" % (seed, seed + a.count - 1), flush=True)
    root = tempfile.mkdtemp(prefix="braid-random-")
    keep = a.keep or tempfile.gettempdir() + "/braid-random-failures"
    only = [int(x) for x in a.outputs.split(",")] if a.outputs else None
    settings = a.schedule or [""]
    failed = {}
    try:
        bad = make_all(range(seed, seed + a.count), root, a.jobs, only, len(settings))
        for s in sorted(bad):
            if a.verbose or bad[s].startswith("GENERATOR"):
                print("left out: seed %d: %s" % (s, bad[s][:900]))
        runs = [("interp", None)] if a.target in ("interp", "both") else []
        if a.target != "interp":
            runs += [("cpu" if a.target == "both" else a.target, k) for k in range(len(settings))]
        for t, k in runs:
            folder, how = (root, "") if k is None else ("%s/%d" % (root, k), settings[k])
            if len(bad) == a.count or not os.path.isdir(folder):
                continue
            r = subprocess.run([a.braid, "test", "--target", t, "--jobs", str(a.jobs), "--verbose", "--rtol", "1e-3",
                                "--atol", "1e-4", "--max-iterations", "100000",
                                "--threads", a.threads] + (["--schedule", how] if how else []) + [folder],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            lines = r.stdout.splitlines()
            if not lines or " passed, " not in lines[-1]:
                print("%s gave no result: %s %s" % (a.braid, r.stdout, r.stderr))
                return 1
            for line in lines[:-1]:
                if line.startswith(("FAIL ", "SKIP ")):    # a skip is a thing that Braid should support
                    name, message = line.split(" ", 1)[1].split(": ", 1)
                    failed.setdefault(int(name.rsplit("_", 1)[1]), "%s %s: %s" % (t, how, message))
            print("%s%s: %s" % (t, " " + how if how else "", lines[-1]), flush=True)
        for s in sorted(failed):
            os.makedirs(keep, exist_ok=True)
            shutil.rmtree("%s/seed_%d" % (keep, s), ignore_errors=True)
            shutil.move(folder_of(root, s, len(settings)), keep)
            print("FAIL seed %d: %s (%s/seed_%d)" % (s, failed[s], keep, s))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    wrong = sum(b.startswith("GENERATOR") for b in bad.values())
    print("%d passed, %d failed, %d left out because ONNX Runtime cannot run them" %
          (a.count - len(bad) - len(failed), len(failed) + wrong, len(bad) - wrong))
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
