#!/usr/bin/env python3
"""Random chains of operators over all element types, with NaN, -0 and infinities among the inputs, in loops and branches.

    random_values.py COUNT [--seed S] [--target TARGET|both] [--braid PATH] [--jobs N] [--keep DIR] [--small]

Model number i is made from seed S + i alone. Inputs have declared, named, unknown or no sizes, or no rank; shapes, starts,
pads and axes come in part from inputs of unknown length; branches may hold an arm that cannot run and never does, at any
depth; optional outputs are left out. The onnx package's reference evaluator gives the answers of two data sets, node by
node while the model is built, so that a node which it refuses is not there. `braid test` runs the models.
"""
import argparse
import concurrent.futures
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as TP, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

TYPES = {"f32": (TP.FLOAT, np.float32), "f64": (TP.DOUBLE, np.float64), "f16": (TP.FLOAT16, np.float16),
         "bf16": (TP.BFLOAT16, ml_dtypes.bfloat16), "i8": (TP.INT8, np.int8), "u8": (TP.UINT8, np.uint8), "i16": (TP.INT16, np.int16),
         "u16": (TP.UINT16, np.uint16), "i32": (TP.INT32, np.int32), "u32": (TP.UINT32, np.uint32), "i64": (TP.INT64, np.int64),
         "u64": (TP.UINT64, np.uint64), "bool": (TP.BOOL, np.bool_)}
SMALL = {"f8e4m3": (TP.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn), "f8e4m3z": (TP.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
         "f8e5m2": (TP.FLOAT8E5M2, ml_dtypes.float8_e5m2), "f8e5m2z": (TP.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
         "f4": (TP.FLOAT4E2M1, ml_dtypes.float4_e2m1fn), "i4": (TP.INT4, ml_dtypes.int4), "u4": (TP.UINT4, ml_dtypes.uint4),
         "i2": (TP.INT2, ml_dtypes.int2), "u2": (TP.UINT2, ml_dtypes.uint2)}
FLOATS, WIDE = ("f32", "f64", "f16", "bf16"), ("f32", "f64")
INTS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
OPSET = 25
MAX_ELEMS = 600


class Nope(Exception):
    """What was drawn cannot be made here: draw again."""


class Val:
    """A value: its name, its type's letter code, its arrays in both data sets, and whether everyone computes it alike."""

    def __init__(self, name, t, data, exact=True):
        self.name, self.t, self.data, self.exact = name, t, data, exact

    @property
    def rank(self):
        return min(d.ndim for d in self.data)


class Graph:
    """Nodes under construction; up: the graph around."""

    def __init__(self, up=None):
        self.up, self.nodes, self.vals = up, [], []

    @property
    def depth(self):
        return 0 if not self.up else 1 + self.up.depth

    def visible(self):
        return self.vals + (self.up.visible() if self.up else [])


class Model:
    def __init__(self, seed, small):
        self.r, self.np = random.Random(seed), np.random.default_rng(seed)
        self.count, self.inputs, self.types = 0, [], {**TYPES, **(SMALL if small else {})}
        self.g = self.top = Graph()
        names = [t for t in self.types if t != "bool"]
        self.favourite = self.r.sample(names, 2) + ["f32"]
        for _ in range(self.r.randint(2, 4)):
            self.input(self.r.choice(self.favourite))
        self.fill(self.r.choice([6, 10, 16, 25]))

    # ---- values
    def name(self):
        self.count += 1
        return f"v{self.count}"

    def array(self, t, shape):
        dtype = self.types[t][1]
        if t == "bool":
            return self.np.random(shape) < 0.5
        if t in INTS:
            low = 0 if t[0] == "u" else -6
            return self.np.integers(low, 9, shape).astype(dtype)
        if t in ("i4", "i2", "u4", "u2"):
            return self.np.integers({"i4": -8, "i2": -2}.get(t, 0), {"i4": 8, "i2": 2, "u4": 16, "u2": 4}[t], shape).astype(dtype)
        x = self.np.integers(-16, 17, shape) / 8
        if t in FLOATS:
            special = self.np.random(shape)
            x = np.where(special < .06, np.nan, np.where(special < .1, np.inf, np.where(special < .14, -np.inf, np.where(special < .2, -0.0, x))))
        return x.astype(dtype)

    def input(self, t, data=None, rank_known=None):
        """A graph input; its declaration says its sizes, names them, or says less."""
        if data is None:
            rank = self.r.choice([0, 1, 1, 2, 2, 3])
            open_axis = self.r.randrange(rank) if rank and self.r.random() < .6 else None
            shape = [self.r.choice([1, 2, 3, 4, 5, 17]) if i == rank - 1 else self.r.randint(1, 4) for i in range(rank)]
            shapes = [list(shape), list(shape)]
            if open_axis is not None:
                shapes[1][open_axis] = self.r.choice([n for n in (1, 2, 3, 6) if n != shape[open_axis]])
            data = [self.array(t, s) for s in shapes]
        v = Val(self.name(), t, data)
        a, b = data[0].shape, data[1].shape
        kind = self.r.random()
        if len(a) != len(b) or (kind < .15 and rank_known is not True):
            shape = None
        else:
            shape = [x if x == y and kind < .8 else None if self.r.random() < .5 else f"{v.name}_{i}" for i, (x, y) in enumerate(zip(a, b))]
        self.inputs.append((v, helper.make_tensor_value_info(v.name, self.types[t][0], shape)))
        self.top.vals.append(v)
        return v

    def shape_input(self, arrays):
        """An int64 vector as an input of unknown length."""
        data = [np.array(x, np.int64) for x in arrays]
        v = Val(self.name(), "i64", data)
        length = None if self.r.random() < .6 else len(arrays[0])
        if len(data[0]) != len(data[1]):
            length = None
        self.inputs.append((v, helper.make_tensor_value_info(v.name, TP.INT64, [length])))
        return v

    def const(self, t, array):
        array = np.asarray(array, self.types[t][1])
        v = Val(self.name(), t, [array, array])
        self.g.nodes.append(helper.make_node("Constant", [], [v.name], value=numpy_helper.from_array(array)))
        return v

    def vector(self, arrays):
        """A small int64 vector: a constant where both data sets agree, or an input."""
        if [list(x) for x in arrays[:1]] == [list(x) for x in arrays[1:]] and self.r.random() < .6:
            return self.const("i64", arrays[0])
        return self.shape_input(arrays)

    def pick(self, test=lambda v: True):
        near = [v for v in self.g.vals if test(v)]
        every = near if near and self.r.random() < .7 else [v for v in self.g.visible() if test(v)]
        if not every:
            raise Nope
        return self.r.choice(every[-6:])

    # ---- nodes
    def evaluate(self, node, ins, nouts):
        """The node's results in both data sets, or Nope."""
        names = [v.name for v in ins]
        infos = [helper.make_tensor_value_info(n, self.types[v.t][0], None) for n, v in zip(names, ins)]
        outs = [o for o in node.output if o]
        model = helper.make_model(helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(o, 0, None) for o in outs]),
                                  opset_imports=[helper.make_opsetid("", OPSET)])
        got = []
        for k in (0, 1):
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    got.append(ReferenceEvaluator(model).run(None, {n: v.data[k] for n, v in zip(names, ins)}))
            except Exception as e:  # the evaluator raises many kinds
                raise Nope from e
        assert len(got[0]) == nouts
        return [[np.asarray(got[0][i]), np.asarray(got[1][i])] for i in range(nouts)]

    def op(self, name, ins, types, exact=True, skip=(), **attrs):
        """Adds a node; results of the given types; skip: outputs that are left out."""
        outs = [self.name() if i not in skip else "" for i in range(len(types))]
        node = helper.make_node(name, [v.name if v else "" for v in ins], outs, **attrs)
        given = list({v.name: v for v in ins if v}.values())
        data = self.evaluate(node, given, sum(map(bool, outs)))
        exact = exact and all(v.exact for v in ins if v)
        vals = []
        for d, out, t in zip(data, [o for o in outs if o], [t for o, t in zip(outs, types) if o]):
            want = self.types[t][1]
            if any(x.dtype != want for x in d):
                raise Nope
            if any(x.size > MAX_ELEMS or x.ndim > 5 for x in d):
                raise Nope
            vals.append(Val(out, t, d, exact))
        self.g.nodes.append(node)
        self.g.vals += vals
        return vals[0]

    def fill(self, n):
        kinds = [self.unary, self.unary, self.binary, self.binary, self.binary, self.move, self.move, self.move, self.select, self.reduce,
                 self.shaped, self.shaped, self.cast, self.compare, self.inexact, self.many]
        if self.g.depth < 3:
            kinds += [self.branch, self.loop]
        done = 0
        for _ in range(n * 8):
            if done >= n:
                return
            try:
                self.r.choice(kinds)()
                done += 1
            except Nope:
                pass

    def unary(self):
        v = self.pick(lambda v: v.t in FLOATS + INTS + ("bool",))
        if v.t == "bool":
            return self.op("Not", [v], ["bool"])
        if v.t in INTS:
            names = ["BitwiseNot"] + (["Abs", "Neg", "Sign"] if v.t[0] == "i" else [])
            return self.op(self.r.choice(names), [v], [v.t])
        names = ["Abs", "Neg", "Relu", "LeakyRelu"] if v.t in WIDE else ["Abs", "Neg"]
        if v.exact and v.t in WIDE:
            names += ["Sign", "Floor", "Ceil", "Round"]
        name = self.r.choice(names + ["Clip", "IsNaN"])
        if name == "Clip":
            low, high = self.const(v.t, -1), self.const(v.t, 1.5)
            # Without a bound it is the largest finite number, which the evaluator takes for infinity.
            bounds = [[v, low, high]] if any(np.isinf(d).any() for d in v.data) else [[v, low, high], [v, low], [v, None, high]]
            return self.op("Clip", self.r.choice(bounds), [v.t])
        return self.op(name, [v], ["bool" if name == "IsNaN" else v.t])

    def partner(self, v):
        try:
            if self.r.random() < .7:
                return self.pick(lambda w: w.t == v.t and w is not v)
        except Nope:
            pass
        return self.const(v.t, self.array(v.t, self.r.choice([(), (1,)])))

    def binary(self):
        v = self.pick(lambda v: v.t in FLOATS + INTS + ("bool",))
        w = self.partner(v)
        if self.r.random() < .3:
            v, w = w, v
        if v.t == "bool":
            return self.op(self.r.choice(["And", "Or", "Xor"]), [v, w], ["bool"])
        if v.t in INTS:
            return self.op(self.r.choice(["Add", "Sub", "Mul", "BitwiseAnd", "BitwiseXor", "Max", "Min"]), [v, w], [v.t])
        names = ["Add", "Sub", "Mul", "Max", "Min"] if v.t in WIDE else ["Add", "Sub", "Mul"]
        return self.op(self.r.choice(names), [v, w], [v.t])

    def compare(self):
        v = self.pick(lambda v: v.t in WIDE + INTS and v.exact)
        w = self.partner(v)
        if not w.exact:
            raise Nope
        return self.op(self.r.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]), [v, w], ["bool"])

    def move(self):
        v = self.pick(lambda v: v.rank > 0)
        rank = v.rank
        kind = self.r.choice(["Transpose", "Unsqueeze", "Concat", "Gather", "Slice", "Flatten", "Identity", "Split", "Squeeze", "GatherElements"])
        axis = self.r.randrange(rank)
        if kind == "Transpose":
            return self.op(kind, [v], [v.t], perm=self.r.sample(range(rank), rank))
        if kind == "Unsqueeze":
            return self.op(kind, [v, self.vector([[axis]] * 2)], [v.t])
        if kind == "Concat":
            w = self.r.choice([v, self.partner(v)])
            if any(a.ndim != b.ndim for a, b in zip(v.data, w.data)):  # the evaluator takes them, too
                raise Nope
            return self.op(kind, [v, w], [v.t], axis=axis)
        if kind == "Gather":
            least = min(d.shape[axis] for d in v.data)
            if not least:
                raise Nope
            return self.op(kind, [v, self.const("i64", self.np.integers(-least, least, self.r.choice([(), (2,), (2, 2)])))], [v.t], axis=axis)
        if kind == "Slice":
            start, end, step = self.r.choice([(0, 2, 1), (-1, -9, -1), (1, 99, 1), (0, 99, 2), (-2, 99, 1)])
            one = self.r.random() < .6
            ins = [self.vector([[x]] * 2) if one else self.shape_input([[x]] * 2) for x in (start, end)]
            return self.op(kind, [v] + ins + [self.const("i64", [axis]), self.const("i64", [step])], [v.t])
        if kind == "Flatten":
            return self.op(kind, [v], [v.t], axis=self.r.randint(0, rank))
        if kind == "Split":
            n = min(d.shape[axis] for d in v.data)
            if n < 2:
                raise Nope
            return self.op(kind, [v, self.vector([[1, d.shape[axis] - 1] for d in v.data])], [v.t, v.t], axis=axis,
                           skip=self.r.choice([(), (1,)]))
        if kind == "Squeeze":
            ones = [i for i in range(rank) if all(d.shape[i] == 1 for d in v.data)]
            if not ones:
                raise Nope
            return self.op(kind, [v, self.vector([[self.r.choice(ones)]] * 2)] if self.r.random() < .7 else [v], [v.t])
        if kind == "GatherElements":
            return self.op(kind, [v, self.const("i64", np.zeros([1] * rank, np.int64))], [v.t], axis=axis)
        return self.op("Identity", [v], [v.t])

    def shaped(self):
        """Operators whose result's shape is a value."""
        v = self.pick()
        kind = self.r.choice(["Reshape", "Expand", "Tile", "Pad", "ConstantOfShape", "like"])
        if kind == "Reshape":
            how = self.r.choice([lambda s: [-1], lambda s: [1, -1], lambda s: list(s[::-1]), lambda s: list(s) + [1], lambda s: [-1] + list(s[1:2] or [1])])
            return self.op(kind, [v, self.vector([how(d.shape) for d in v.data])], [v.t])
        if kind == "Expand":
            n = self.r.choice([1, 2, 3])
            return self.op(kind, [v, self.vector([[n] + [1] * d.ndim for d in v.data])], [v.t])
        if kind == "Tile":
            if not v.rank or any(d.ndim != v.rank for d in v.data):  # numpy takes other numbers of repeats
                raise Nope
            return self.op(kind, [v, self.vector([[self.r.randint(1, 2) for _ in range(v.rank)]] * 2)], [v.t])
        if kind == "Pad":
            if v.t not in FLOATS + INTS or not v.rank:
                raise Nope
            pads = [self.r.randint(0, 2) for _ in range(2 * v.rank)]
            return self.op(kind, [v, self.vector([pads] * 2), self.const(v.t, 1)] if self.r.random() < .5 else [v, self.vector([pads] * 2)], [v.t])
        if kind == "like":
            shape = self.op("Shape", [v], ["i64"])
            w = self.pick(lambda w: w.t in FLOATS + INTS and w.rank == 0)
            return self.op("Expand", [w, shape], [w.t])
        t = self.r.choice(["f32", "i64", "u8"])
        return self.op(kind, [self.vector([[2, self.r.randint(0, 3)]] * 2)], [t], value=numpy_helper.from_array(np.array([3], self.types[t][1])))

    def select(self):
        v = self.pick(lambda v: v.t in FLOATS + INTS)
        c = self.pick(lambda w: w.t == "bool")
        return self.op("Where", [c, v, self.partner(v)], [v.t])

    def reduce(self):
        v = self.pick(lambda v: v.t in WIDE + ("i32", "i64") and v.rank > 0)
        axis = self.r.randrange(v.rank)
        keep = self.r.randint(0, 1)
        if any(d.shape[axis] == 0 for d in v.data):
            raise Nope
        kind = self.r.choice(["ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "ReduceSum", "CumSum"])
        if kind in ("ArgMax", "ArgMin"):
            if not v.exact:
                raise Nope
            return self.op(kind, [v], ["i64"], axis=axis, keepdims=keep, select_last_index=0)
        if kind == "CumSum":
            return self.op(kind, [v, self.const("i64", axis)], [v.t], exact=v.t in INTS)
        return self.op(kind, [v, self.vector([[axis]] * 2)], [v.t], exact=kind != "ReduceSum" or v.t in INTS, keepdims=keep)

    def inexact(self):
        v = self.pick(lambda v: v.t == "f32")
        kind = self.r.choice(["Tanh", "Sigmoid", "Sqrt", "MatMul", "Softmax", "Div"])
        if kind == "MatMul":
            if not v.rank:
                raise Nope
            return self.op(kind, [v, self.pick(lambda w: w.t == "f32" and w.rank > 0)], ["f32"], exact=False)
        if kind == "Softmax":
            if not v.rank:
                raise Nope
            return self.op(kind, [v], ["f32"], exact=False, axis=-1)
        if kind == "Div":
            return self.op(kind, [v, self.const("f32", self.r.choice([2, -4, .5]))], ["f32"])
        return self.op(kind, [v], ["f32"], exact=False)

    def many(self):
        """Optional outputs, named or left out."""
        v = self.pick(lambda v: v.t == "f32" and v.rank > 0 and v.exact)
        axis = self.r.randrange(v.rank)
        finite = all(np.isfinite(d).all() for d in v.data)
        if min(d.shape[axis] for d in v.data) < 1 or not finite:
            raise Nope
        return self.op("TopK", [v, self.const("i64", [1])], ["f32", "i64"], axis=axis, skip=(self.r.choice([1, 1, 0]),))

    def cast(self):
        v = self.pick()
        t = self.r.choice([t for t in self.types if t != v.t])
        if v.t not in INTS + ("bool",) and t not in FLOATS:
            x = [d.astype(np.float64) for d in v.data]
            if not v.exact or any(not np.isfinite(d).all() or np.abs(d).max(initial=0) > 60 or (d < 0).any() for d in x):
                raise Nope
        if t in SMALL or v.t in SMALL:
            if not v.exact or any(np.abs(np.nan_to_num(d.astype(np.float64), nan=99)).max(initial=0) > 3 for d in v.data):
                raise Nope
            if t in ("i4", "u4", "i2", "u2") and any((d.astype(np.float64) % 1 != 0).any() or (d.astype(np.float64) < 0).any() for d in v.data):
                raise Nope
        return self.op("Cast", [v], [t], to=self.types[t][0])

    # ---- control flow
    def within(self, make):
        """A graph made inside: (graph, what make returned)."""
        up, self.g = self.g, Graph(self.g)
        try:
            return self.g, make()
        finally:
            self.g = up

    def subgraph(self, g, params, results, name):
        infos = [helper.make_tensor_value_info(v.name, self.types[v.t][0], None) for v in params]
        outs = [helper.make_tensor_value_info(v.name, self.types[v.t][0], None) for v in results]
        return helper.make_graph(g.nodes, name, infos, outs)

    def captured(self, g, own):
        """What the nodes of g, and graphs in it, take from outside."""
        names, defined = set(), set(own)

        def walk(nodes, defined):
            for n in nodes:
                names.update(i for i in n.input if i and i not in defined)
                for a in n.attribute:
                    if a.HasField("g"):
                        walk(a.g.node, defined | {i.name for i in a.g.input})
                        names.update(o.name for o in a.g.output if o.name not in defined | {x for m in a.g.node for x in m.output} | {i.name for i in a.g.input})
                defined = defined | set(n.output)
        walk(g.nodes, defined)
        known = {v.name: v for v in self.g.visible()}
        known.update({v.name: v for v, _ in self.inputs})
        return [known[n] for n in sorted(names) if n in known]

    def dead(self, like):
        """An arm that cannot run: its fault may be deeper."""
        def make():
            if self.r.random() < .4 and self.g.depth < 4:
                g1, r1 = self.dead(like)
                g2, r2 = self.dead(like) if self.r.random() < .5 else self.within(lambda: [self.const(like.t, self.array(like.t, ()))])
                out = Val(self.name(), like.t, like.data)
                c = self.const("bool", self.r.random() < .5) if self.r.random() < .3 else self.r.choice([v for v in self.top.vals if v.t == "bool" and v.rank == 0] or
                                                                                                       [self.const("bool", True)])
                self.g.nodes.append(helper.make_node("If", [c.name], [out.name], then_branch=self.subgraph(g1, [], r1, "d1"),
                                                     else_branch=self.subgraph(g2, [], r2, "d2")))
                return [out]
            x = self.const(like.t, self.array(like.t, (2, 3)))
            out = Val(self.name(), like.t, like.data)
            bad = self.r.choice([("Reshape", [[5]]), ("Squeeze", [[0]]), ("Gather", [[7]]), ("Expand", [[4, 4]]), ("Concat", None)])
            ins = [x.name, self.const("i64", bad[1][0]).name if bad[1] else self.const(like.t, self.array(like.t, (3, 2))).name]
            self.g.nodes.append(helper.make_node(bad[0], ins, [out.name], **({"axis": 0} if bad[0] in ("Gather", "Concat") else {})))
            return [out]
        return self.within(make)

    def branch(self):
        cond = self.pick(lambda v: v.t == "bool" and v.exact and all(d.size == 1 for d in v.data))
        taken = [bool(d.reshape(-1)[0]) for d in cond.data]

        def arm():
            self.fill(self.r.randint(1, 3))
            if not self.g.vals:
                raise Nope
            return [self.r.choice(self.g.vals)]

        g1, r1 = self.within(arm)
        if taken[0] == taken[1] and self.r.random() < .4:
            g2, r2 = self.dead(r1[0])
            arms = [(g1, r1), (g2, r2)] if taken[0] else [(g2, r2), (g1, r1)]
        else:
            def other():
                self.fill(self.r.randint(0, 2))
                same = [v for v in self.g.vals if v.t == r1[0].t]
                if same:
                    return [self.r.choice(same)]
                return [self.op("Identity", [self.pick(lambda v: v.t == r1[0].t)], [r1[0].t])]
            g2, r2 = self.within(other)
            arms = [(g1, r1), (g2, r2)] if self.r.random() < .5 else [(g2, r2), (g1, r1)]
        (ga, ra), (gb, rb) = arms
        out = self.name()
        node = helper.make_node("If", [cond.name], [out], then_branch=self.subgraph(ga, [], ra, "a"), else_branch=self.subgraph(gb, [], rb, "b"))
        ins = list({v.name: v for v in [cond] + self.captured(ga, ()) + self.captured(gb, ())}.values())
        data = self.evaluate(node, ins, 1)[0]
        if any(x.size > MAX_ELEMS or x.ndim > 5 or x.dtype != self.types[r1[0].t][1] for x in data):
            raise Nope
        self.g.nodes.append(node)
        v = Val(out, r1[0].t, data, r1[0].exact and r2[0].exact)
        self.g.vals.append(v)
        return v

    def loop(self):
        init = self.pick(lambda v: v.t in FLOATS + INTS + ("bool",) or v.t in SMALL)
        trips = self.r.choice([0, 1, 2, 3])
        m = self.shape_input([[trips], [self.r.randint(0, 3)]]) if self.r.random() < .5 else self.const("i64", trips)
        i, c, s = (Val(self.name(), t, d) for t, d in (("i64", [np.array(0)] * 2), ("bool", [np.array(True)] * 2), (init.t, init.data)))

        def body():
            s.exact = init.exact
            self.g.vals.append(s)
            self.fill(self.r.randint(1, 3))
            again = self.op("Identity", [c], ["bool"])
            fit = [v for v in self.g.vals if v.t == init.t and v is not s]
            nxt = self.r.choice(fit) if fit else self.op("Identity", [s], [s.t])
            scanned = self.r.choice([v for v in self.g.vals if v is not c])
            if scanned in (s, nxt):
                scanned = self.op("Identity", [scanned], [scanned.t])
            return [again, nxt, scanned]

        g, (again, nxt, scanned) = self.within(body)
        outs = [self.name(), self.name()]
        node = helper.make_node("Loop", [m.name, "", init.name], outs, body=self.subgraph(g, [i, c, s], [again, nxt, scanned], "body"))
        ins = list({v.name: v for v in [m, init] + self.captured(g, [i.name, c.name, s.name])}.values())
        if trips == 0 or any(d.reshape(-1)[0] == 0 for d in m.data):
            raise Nope  # what the evaluator gives for no trips is not the specification's
        data = self.evaluate(node, ins, 2)
        if any(x.size > MAX_ELEMS or x.ndim > 5 for d in data for x in d):
            raise Nope
        if any(x.dtype != self.types[v.t][1] for d, v in zip(data, (nxt, scanned)) for x in d):
            raise Nope
        exact = init.exact and nxt.exact and scanned.exact
        self.g.nodes.append(node)
        self.g.vals += [Val(outs[0], nxt.t, data[0], exact), Val(outs[1], scanned.t, data[1], exact)]

    # ---- the model
    def write(self, folder):
        outs = self.r.sample(self.top.vals, min(len(self.top.vals), self.r.randint(1, 4)))
        outs = [v for v in outs if v not in [x for x, _ in self.inputs]] or [self.top.vals[-1]]
        infos = []
        for v in outs:
            same = v.data[0].ndim == v.data[1].ndim
            known = same and self.r.random() < .5
            infos.append(helper.make_tensor_value_info(v.name, self.types[v.t][0], [x if x == y else None for x, y in zip(v.data[0].shape, v.data[1].shape)]
                                                       if known else None))
        used = self.names_used()
        ins = [(v, info) for v, info in self.inputs if v.name in used]
        model = helper.make_model(helper.make_graph(self.top.nodes, "g", [info for _, info in ins], infos),
                                  opset_imports=[helper.make_opsetid("", OPSET)], ir_version=12)
        os.makedirs(folder, exist_ok=True)
        onnx.save(model, os.path.join(folder, "model.onnx"))
        for k in (0, 1):
            data = os.path.join(folder, f"test_data_set_{k}")
            os.makedirs(data, exist_ok=True)
            for kind, vals in (("input", [v for v, _ in ins]), ("output", outs)):
                for n, v in enumerate(vals):
                    with open(os.path.join(data, f"{kind}_{n}.pb"), "wb") as f:
                        f.write(numpy_helper.from_array(np.asarray(v.data[k])).SerializeToString())

    def names_used(self):
        names = set()

        def walk(nodes):
            for n in nodes:
                names.update(n.input)
                for a in n.attribute:
                    if a.HasField("g"):
                        walk(a.g.node)
                        names.update(o.name for o in a.g.output)
        walk(self.top.nodes)
        return names


def make(seed, folder, small):
    Model(seed, small).write(os.path.join(folder, f"g{seed:06d}"))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("count", type=int)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--target", default="both")
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--keep")
    p.add_argument("--small", action="store_true", help="also types of 8 and fewer bits")
    a = p.parse_args()
    folder = a.keep or tempfile.mkdtemp()
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        for job in [pool.submit(make, a.seed + k, folder, a.small) for k in range(a.count)]:
            job.result()
    failed = False
    for target in ("interp", "cpu") if a.target == "both" else (a.target,):
        r = subprocess.run([a.braid, "test", "--target", target, "--verbose", "--jobs", str(a.jobs), "--rtol", "1e-3", "--atol", "1e-4", folder],
                           stdout=subprocess.PIPE, text=True)
        print(f"{target}:\n{r.stdout.strip()}", flush=True)
        failed |= r.returncode != 0 or f"{a.count} passed" not in r.stdout
    if not a.keep:
        shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())
