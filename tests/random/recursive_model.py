"""Random models of recursive functions: Member(seed) has a model, inputs, and what is known of its answer.

A member is made twice: the first time shows which of the arrays and weights its functions use, and only these are
passed down the second time.
"""
import collections
import zlib

import numpy as np
from onnx import TensorProto, helper

import recursive_reference
from models.common import Graph
from recursive_structures import Grid, Nodes, Numbers

VISITS = 2500    # of the plain recursion, above which only what knows equal activations is run
V = collections.namedtuple("V", "name shape")    # a tensor of floats
Call = collections.namedtuple("Call", "tensors count")    # what one returned: [V], and an integer or None
TYPE = helper.np_dtype_to_tensor_dtype


class Maker:
    def __init__(self, seed, kept=None):
        self.seed, self.kept, self.used = seed, kept, {}
        self.r = np.random.default_rng(seed)
        self.tags = []
        self.arrays, self.constant = {}, {}
        self.itype = self.pick(np.int64, np.int64, np.int64, np.int32)
        self.stored = self.pick(self.itype, self.itype, np.int64, np.int32)
        self.ftype = np.float64 if self.chance(.08) else np.float32
        self.against, self.current = [], None
        self.calls = collections.defaultdict(set)    # functions by the one that calls them; None: the main graph
        self.draws = self.chance(.04)
        self.large = self.chance(.08)
        self.structure = self.r.choice([Nodes, Grid, Numbers], p=[.8, .12, .08])(self, self.large)
        self.parameters()
        self.features()
        self.graph = Graph("member")
        for k in range(self.functions):
            self.graph.function("fgh"[k], self.names + self.passed(), lambda g, *a, k=k: self.body(g, k, a))
        self.main()

    # ---- drawing
    def chance(self, p):
        return self.r.random() < p

    def pick(self, *of):
        return of[int(self.r.integers(0, len(of)))]

    def tag(self, *names):
        self.tags += names

    def no(self, why):
        """What keeps the function that is being made from being linearized."""
        self.against.append((self.current, why))

    # ---- arrays and constants
    def array(self, name, data):
        self.arrays[name] = data

    def passed(self):
        """What is passed down unchanged, by name."""
        return sorted(self.kept or [])

    def ref(self, g, name):
        """An array where it is used: handed down, or a constant of the function."""
        if self.constant.setdefault(name, zlib.crc32(f"{self.seed} {name}".encode()) % 4 == 0 and name[0] in "we"):
            return self.const(g, self.arrays[name], self.arrays[name].dtype)
        self.used[name] = True
        return name

    def weight(self, g, *shape):
        name = f"w_{'x'.join(map(str, shape))}_{int(self.r.integers(0, 2))}"
        if name not in self.arrays:
            r = np.random.default_rng(zlib.crc32(f"{self.seed} {name}".encode()))
            self.array(name, (r.standard_normal(shape) / max(1, shape[0]) ** .5).astype(self.ftype))
        return V(self.ref(g, name), shape)

    def const(self, g, value, dtype):
        return g.const(np.asarray(value, dtype))

    def int(self, g, value):
        return self.const(g, value, self.itype)

    def num(self, g, value, shape=()):
        return V(self.const(g, np.full(shape, value), self.ftype), shape)

    def as_index(self, g, v):
        return v if self.stored == self.itype else g.Cast(v, to=TYPE(np.dtype(self.itype)))

    def get(self, g, array, n):
        """An integer of an array."""
        return self.as_index(g, g.Gather(self.ref(g, array), n, axis=0))

    def row(self, g, x, n):
        """Row n of V x, by its index in one of two forms."""
        if len(x.shape) > 1 and x.shape[1] == 1 and self.chance(.5):
            flat = g.Reshape(x.name, [x.shape[0], *x.shape[2:]])
            return V(g.Gather(flat, g.Unsqueeze(n, [0]), axis=0), x.shape[1:])
        return V(g.Gather(x.name, n, axis=0), x.shape[1:])

    # ---- what functions take and return
    def parameters(self):
        s = self.structure
        self.functions = self.pick(1, 1, 1, 1, 2, 2, 3)
        self.extra = [k for k, p in (("state", .25), ("steps", .2), ("flag", .15)) if self.chance(p)]
        self.down = self.chance(.08) and not self.large    # a tensor is made on the way down
        self.names = list(s.names) + self.extra + ["inherited"] * self.down
        self.h = self.pick(1, 3, 4, 4, 6, 8, 8, 12, 16, 17)
        h, a = self.h, self.pick(2, 3)
        shape = self.pick((h,), (1, h), (1, h), (1, h), (a, h), (1, a, h), (a, 1, h), (h, h))
        self.shapes = [shape] + ([self.pick(shape, shape, (1, h), (h,), (1, self.pick(2, 5)))] if self.chance(.35) else [])
        self.counts = self.chance(.15)    # an integer is returned, too
        if self.functions > 1:
            self.tag("mutual")
        self.tag(*self.extra, "rank %d" % len(shape), *["two results"] * (len(self.shapes) > 1), *["integer result"] * self.counts)
        self.results = len(self.shapes) + self.counts
        self.depth_limit = int(self.r.integers(1, 12))

    def features(self):
        s, h = self.structure, self.shapes[0]
        r = np.random.default_rng(self.seed + 1)
        self.words = self.pick("none", "leaves", "all")
        self.array("x", r.standard_normal((s.rows, *h)).astype(self.ftype))
        self.array("word", r.integers(-9 if self.chance(.3) else 0, 9, s.rows).astype(self.stored))
        self.array("embedding", r.standard_normal((9, *h)).astype(self.ftype))
        self.array("cost", r.integers(1, 9, s.rows).astype(self.itype))

    def feature(self, g, c, leaf):
        n = self.structure.row(self, g, c)
        h = self.shapes[0]
        if self.words == "all" or self.words == "leaves" and leaf:
            self.tag("embedding", *["inner words"] * (not leaf))
            return self.row(g, V(self.ref(g, "embedding"), (9, *h)), self.get(g, "word", n))
        return self.row(g, V(self.ref(g, "x"), (self.structure.rows, *h)), n)

    # ---- expressions
    def fit(self, g, v, shape):
        """v in another shape."""
        if v.shape == shape:
            return v
        if v.shape[:-1] == shape[:-1]:
            return V(g.MatMul(v.name, self.weight(g, v.shape[-1], shape[-1]).name), shape)
        mean = g.ReduceMean(v.name, list(range(len(v.shape))), keepdims=0)
        return V(g.Mul(mean, self.num(g, 1, shape).name), shape)

    def squash(self, g, v):
        way = self.pick("Tanh", "Tanh", "Tanh", "Sigmoid", "Sin", "Softmax", "Half")
        if way == "Half":
            return V(g.Max(g.Min(v.name, self.num(g, 1.5).name), self.num(g, -1.5).name), v.shape)
        return V(getattr(g, way)(v.name), v.shape)

    def join(self, g, a, b):
        """One tensor of two of a shape."""
        h = a.shape[-1]
        way = self.pick("Add", "Add", "Sub", "Mul", "Max", "Min", "concat", "concat", "where", "matrix")
        if way == "concat":
            self.tag("concat")
            return V(g.MatMul(g.Concat(a.name, b.name, axis=-1), self.weight(g, 2 * h, h).name), a.shape)
        if way == "where":
            return V(g.Where(g.Less(a.name, b.name), a.name, self.times(g, b, .5).name), a.shape)
        if way == "matrix" and a.shape == (h, h):
            self.tag("product of children")
            return self.times(g, V(g.MatMul(a.name, b.name), a.shape), 1 / h ** .5)
        return V(getattr(g, way if way[0].isupper() else "Add")(a.name, b.name), a.shape)

    def times(self, g, v, k):
        return V(g.Mul(v.name, self.num(g, k).name), v.shape)

    def layer(self, g, v):
        """Something made of one tensor."""
        h = v.shape[-1]
        way = self.pick("product", "product", "bias", "gates", "reduce", "unary", "turned")
        if way in ("product", "bias"):
            self.tag("product")
            y = g.MatMul(v.name, self.weight(g, h, h).name)
            return V(g.Add(y, self.weight(g, h).name) if way == "bias" else y, v.shape)
        if way == "gates":
            i, u, o = g.Split(g.MatMul(v.name, self.weight(g, h, 3 * h).name), axis=-1, num_outputs=3, outputs=3)
            return V(g.Add(g.Mul(g.Sigmoid(i), g.Tanh(u)), o), v.shape)
        if way == "reduce":
            kind, axis = self.pick("ReduceSum", "ReduceMean", "ReduceMax"), self.pick(*range(len(v.shape)))
            self.tag("reduction")
            return V(g.Mul(v.name, g.Tanh(getattr(g, kind)(v.name, [axis], keepdims=1))), v.shape)
        if way == "turned" and len(v.shape) == 2:
            a = v.shape[0]
            y = g.Transpose(g.MatMul(g.Transpose(v.name, perm=[1, 0]), self.weight(g, a, a).name), perm=[1, 0])
            return V(y, v.shape)
        return V(getattr(g, self.pick("Neg", "Sin", "Relu", "Abs"))(v.name), v.shape)

    def mix(self, g, parts, shape):
        """A tensor of all of these."""
        parts = [self.fit(g, v, shape) for v in parts]
        y = parts[0]
        for v in parts[1:]:
            y = self.join(g, y, v)
        for _ in range(self.pick(0, 0, 1, 1, 2)):
            y = self.layer(g, y)
        if self.chance(.3):    # some are used twice
            y = self.join(g, y, self.pick(*parts))
        if self.draws:
            noise = g.RandomNormal(shape=list(shape), dtype=TYPE(np.dtype(self.ftype)))
            y = V(g.Add(y.name, g.Mul(noise, self.num(g, 0).name)), shape)
        return self.squash(g, y)

    # ---- functions
    def body(self, g, k, args):
        s, self.current = self.structure, k
        c = dict(zip(self.names, args))
        at = [c[name] for name in s.names]
        if s.form == "list" and not self.draws and self.chance(.25):
            self.tag("children end it")
            return self.flat(self.children(g, k, c, at))
        end = s.leaf(self, g, at)
        if "steps" in c and self.chance(.7):
            end = g.Or(end, g.LessOrEqual(c["steps"], self.int(g, 0)))
        early = [self.feature(g, at, False)] if self.words != "leaves" and self.chance(.3) else []
        if early and self.chance(.5):
            early.append(self.layer(g, early[0]))    # before the branch
        arms = [lambda g: self.leaf(g, k, c, at), lambda g: self.inner(g, k, c, at, early)]
        if self.chance(.3):
            return self.branch(g, g.Not(end), arms[1], arms[0])
        return self.branch(g, end, *arms)

    def flat(self, call):
        return [v.name for v in call.tensors] + ([call.count] if self.counts else [])

    def branch(self, g, cond, then, otherwise):
        got = g.branch(cond, then, otherwise)
        return got if isinstance(got, list) else [got]

    def called(self, names):
        return Call([V(n, s) for n, s in zip(names, self.shapes)], names[len(self.shapes)] if self.counts else None)

    def conditions(self, c, at):
        """What arms may be chosen by."""
        some = self.structure.conditions(self, at)
        if "state" in c:
            some += [lambda g: g.Equal(c["state"], self.int(g, int(self.r.integers(0, 3))))] * 2
        if "steps" in c:
            some.append(lambda g: g.Equal(g.Mod(c["steps"], self.int(g, 2)), self.int(g, 0)))
        if "flag" in c:
            some += [lambda g: g.Identity(c["flag"])] * 2
        return some

    def leaf(self, g, k, c, at):
        if self.chance(.2):
            self.tag("classes of leaves")
            cond = self.pick(*[f for f in self.leaf_conditions(c, at)])
            return self.branch(g, cond(g), lambda g: self.one_leaf(g, k, c, at), lambda g: self.one_leaf(g, k, c, at))
        return self.one_leaf(g, k, c, at)

    def leaf_conditions(self, c, at):
        """A leaf's children may not be there."""
        s = self.structure
        if isinstance(s, Nodes):
            some = [lambda g: g.Equal(g.Mod(at[0], self.int(g, 2)), self.int(g, 1))]
            return some + ([lambda g: g.Identity(c["flag"])] if "flag" in c else [])
        return self.conditions(c, at)

    def one_leaf(self, g, k, c, at):
        way, out = self.pick("feature", "feature", "layer", "zero", "constant"), []
        for shape in self.shapes:
            if way in ("zero", "constant"):
                value = 0 if way == "zero" else self.r.standard_normal(shape)
                y = V(self.const(g, np.broadcast_to(value, shape), self.ftype), shape)
            else:
                y = self.fit(g, self.feature(g, at, True), shape)
            if way == "layer":
                y = self.squash(g, self.layer(g, y))
            if self.down and self.chance(.8):
                y = self.squash(g, self.join(g, self.fit(g, V(c["inherited"], self.shapes[0]), shape), y))
            out.append(y)
        n = (self.get_cost(g, at) if self.chance(.4) else self.int(g, 1)) if self.counts else None
        return self.flat(Call(out, n))

    def get_cost(self, g, at):
        return g.Gather(self.ref(g, "cost"), self.structure.row(self, g, at))

    def inner(self, g, k, c, at, early):
        """The arms of an inner activation: those of its structure, and more of them at random."""
        def chain(g, arms):
            cond, children = arms[0]
            if cond is None or len(arms) == 1:
                return self.some_classes(g, k, c, at, early, list(children), self.pick(0, 0, 0, 1, 1, 2))
            return self.branch(g, cond(g), lambda g: self.some_classes(g, k, c, at, early, list(children), 0),
                               lambda g: chain(g, arms[1:]))
        return chain(g, self.structure.arms(self, g, at))

    def some_classes(self, g, k, c, at, early, children, nested):
        if nested:
            self.tag("classes")
            cond = self.pick(*self.conditions(c, at))(g)
            other = self.pick(0, nested - 1)
            return self.branch(g, cond, lambda g: self.some_classes(g, k, c, at, early, children, nested - 1),
                               lambda g: self.some_classes(g, k, c, at, early, children, other))
        if self.structure.form == "list" and self.chance(.8):
            return self.flat(self.children(g, k, c, at))
        return self.cell(g, k, c, at, early, children)

    def call(self, g, k, c, child, inherit=None):
        """A call for a child, by its control parameters."""
        args = list(child)
        for name in self.extra:
            if name == "state":
                way = self.pick("same", "next", "reset")
                args.append({"same": lambda: c["state"], "reset": lambda: self.int(g, 1),
                             "next": lambda: g.Mod(g.Add(c["state"], self.int(g, 1)), self.int(g, 3))}[way]())
            elif name == "steps":
                args.append(g.Sub(c["steps"], self.int(g, 1)))
            else:
                args.append(g.Not(c["flag"]) if self.chance(.5) else c["flag"])
        if self.down:
            args.append(inherit or c["inherited"])
        f = (k + self.pick(0, 1, 1)) % self.functions
        self.calls[self.current].add(f)
        got = g.invoke("fgh"[f], *args, *self.passed(), outputs=self.results)
        return self.called(got if isinstance(got, list) else [got])

    def cell(self, g, k, c, at, early, children):
        """Calls for children, and what is made of their results."""
        s = self.structure
        inherit = None
        if self.down and self.chance(.8):
            mine = self.feature(g, at, False)
            down = V(g.Add(g.MatMul(c["inherited"], self.weight(g, self.h, self.h).name), mine.name), self.shapes[0]) \
                if self.shapes[0][-1] == self.h else mine
            inherit = g.Tanh(down.name)
            self.no("a tensor is an argument that changes")
        some = list(self.r.permutation(children))[:int(self.r.integers(1, len(children) + 1))]
        if self.chance(.7):
            some = children
        some = list(some) + [self.pick(*children) for _ in range(self.pick(0, 0, 0, 1, 2)) if len(some) < 4]
        self.tag("%d calls" % len(some))
        calls = []
        for j in some:
            child = s.child(self, g, at, int(j))
            others = [k for k in children if k != j]
            if calls and others and self.chance(.05):
                child = self.decided(g, calls, child, s.child(self, g, at, int(self.pick(*others))))
            if self.chance(.1):
                calls.append(self.maybe(g, k, c, at, child, inherit))
            else:
                calls.append(self.call(g, k, c, child, inherit))
        if self.chance(.06):
            self.tag("float decides")
            cond = g.Less(g.ReduceSum(calls[0].tensors[0].name, keepdims=0), self.num(g, 0).name)
            if self.chance(.5):
                self.no("a call's branch is decided by a child's result")
                child = s.child(self, g, at, int(children[0]))
                return self.branch(g, cond, lambda g: self.flat(self.combined(g, at, calls, early)),
                                   lambda g: self.flat(self.combined(g, at, calls + [self.call(g, k, c, child, inherit)], early)))
            return self.branch(g, cond, *[lambda g: self.flat(self.combined(g, at, calls, early))] * 2)
        if self.chance(.12):
            self.tag("branch after calls")
            cond = self.pick(*self.conditions(c, at))(g)
            return self.branch(g, cond, *[lambda g: self.flat(self.combined(g, at, calls, early))] * 2)
        return self.flat(self.combined(g, at, calls, early))

    def decided(self, g, calls, child, other):
        """One of two children, by what another one returned."""
        self.tag("result decides")
        self.no("a call's argument depends on a child's result")
        if self.counts:
            cond = g.Equal(g.Mod(calls[0].count, self.int(g, 2)), self.int(g, 0))
        else:
            cond = g.Less(g.ReduceSum(calls[0].tensors[0].name, keepdims=0), self.num(g, 0).name)
        return [g.Where(cond, a, b) for a, b in zip(child, other)]

    def maybe(self, g, k, c, at, child, inherit):
        """A call in a branch of its own."""
        self.tag("call in a branch")
        cond = self.pick(*self.conditions(c, at))(g)

        def without(g):
            mine = [self.fit(g, self.feature(g, at, False), shape) for shape in self.shapes]
            return self.flat(Call(mine, self.int(g, 0) if self.counts else None))
        return self.called(self.branch(g, cond, lambda g: self.flat(self.call(g, k, c, child, inherit)), without))

    def combined(self, g, at, calls, early):
        """A node's results of its children's and its own."""
        mine = [self.feature(g, at, False)] if self.chance(.5) else list(early)
        out = []
        for i, shape in enumerate(self.shapes):
            parts = [call.tensors[i] for call in calls]
            if len(self.shapes) > 1 and self.chance(.5):
                parts += [self.pick(*calls).tensors[1 - i]]
            out.append(self.mix(g, parts + mine, shape))
        n = None
        if self.counts:
            n = self.get_cost(g, at) if self.chance(.5) else self.int(g, 1)
            for call in calls:
                n = g.Mod(g.Add(n, call.count), self.int(g, 1009)) if self.chance(.8) else g.Max(n, call.count)
        return Call(out, n)

    # ---- loops over children
    def carried(self, call, names):
        """{name: (first value, type)} of what a loop carries."""
        types = [self.tensor_type(v.shape) for v in call.tensors] + ([self.int_type()] if self.counts else [])
        return {name: (v, t) for name, v, t in zip(names, self.flat(call), types)}

    def tensor_type(self, shape):
        return helper.make_tensor_type_proto(TYPE(np.dtype(self.ftype)), shape)

    def int_type(self, shape=()):
        return helper.make_tensor_type_proto(TYPE(np.dtype(self.itype)), shape)

    def children(self, g, k, c, at):
        """A loop over any number of children."""
        s = self.structure
        mine = [self.fit(g, self.feature(g, at, False), shape) for shape in self.shapes]
        begin, count = s.begin(self, g, at), s.count(self, g, at)
        start = Call([self.times(g, v, 0) if self.chance(.5) else v for v in mine], self.int(g, 1) if self.counts else None)
        way = self.pick("carry", "carry", "carry", "stack", "stack", "while", "nested", "scan")
        self.tag("loop " + way)
        inherit = c.get("inherited")
        step = self.pick("Add", "Add", "Max", "blend", "gate")
        inside = self.chance(.2)

        def one(g, i):
            """What child i of the list returned, or stands for it."""
            child = [self.listed(g, i)]
            if not inside:
                return self.call(g, k, c, child, inherit)
            self.tag("branch in a loop")
            cond = self.pick(*s.child_conditions(self, child[0]))(g)

            def other(g):
                if self.functions > 1 and not self.chance(.3):
                    return self.flat(self.call(g, k + 1, c, child, inherit))
                mine = [self.fit(g, self.feature(g, child, False), shape) for shape in self.shapes]
                return self.flat(Call(mine, self.int(g, 3) if self.counts else None))
            return self.called(self.branch(g, cond, lambda g: self.flat(self.call(g, k, c, child, inherit)), other))

        def add(g, sums, call):
            out = []
            for s_, v, own in zip(sums.tensors, call.tensors, mine):
                if step == "blend":
                    out.append(V(g.Tanh(g.Add(self.times(g, s_, .5).name, v.name)), v.shape))
                elif step == "gate":    # each child has a gate of its own
                    h = v.shape[-1]
                    gate = g.Sigmoid(g.Add(g.MatMul(v.name, self.weight(g, h, h).name), own.name))
                    out.append(V(g.Add(s_.name, g.Mul(gate, v.name)), v.shape))
                else:
                    out.append(V(getattr(g, step)(s_.name, v.name), v.shape))
            n = g.Mod(g.Add(sums.count, call.count), self.int(g, 1009)) if self.counts else None
            return Call(out, n)
        names = ["sum", "other", "many"] if len(self.shapes) > 1 else ["sum", "many"]
        state = self.carried(start, names)

        def loop_step(g, i, *sums):
            got = add(g, self.called(list(sums)), one(g, g.Add(begin, self.of_counter(g, i))))
            return self.flat(got), []
        if way == "carry":
            sums = g.loop(self.as_trips(g, count), state, loop_step)
        elif way == "while":
            sums = g.loop(None, state, lambda g, i, *sums: (*loop_step(g, i, *sums), g.Less(
                g.Add(self.of_counter(g, i), self.int(g, 1)), count)), cond=g.Greater(count, self.int(g, 0)))
        elif way == "nested":    # two at a time
            def outer(g, i, *sums):
                first = g.Mul(self.of_counter(g, i), self.int(g, 2))
                here = g.Min(g.Sub(count, first), self.int(g, 2))
                inner = {name: (v, t) for (name, (_, t)), v in zip(state.items(), sums)}

                def step(g, j, *sums):
                    at_ = g.Add(begin, g.Add(first, self.of_counter(g, j)))
                    return self.flat(add(g, self.called(list(sums)), one(g, at_))), []
                return g.loop(self.as_trips(g, here), inner, step), []
            sums = g.loop(self.as_trips(g, g.Div(g.Add(count, self.int(g, 1)), self.int(g, 2))), state, outer)
        elif way == "stack":
            sums = self.stacked(g, count, begin, one, mine)
        else:
            part = g.Slice(self.ref(g, "kids"), g.Unsqueeze(begin, [0]), g.Unsqueeze(g.Add(begin, count), [0]), self.const(g, [0], self.itype))
            kid = helper.make_tensor_type_proto(TYPE(np.dtype(self.stored)), [])

            def scanned(g, *a):
                *sums, child = a
                return self.flat(add(g, self.called(list(sums)), self.call(g, k, c, [self.as_index(g, child)], inherit))), []
            sums = g.scan(state, {"child": (part, kid)}, scanned)
        got = self.called(list(sums))
        out = [self.mix(g, [v] + ([m] if self.chance(.6) else []), v.shape) for v, m in zip(got.tensors, mine)]
        return Call(out, got.count)

    def stacked(self, g, count, begin, one, mine):
        """Results of all children, reduced behind the loop; one that is carried besides."""
        def step(g, i, total):
            call = one(g, g.Add(begin, self.of_counter(g, i)))
            scans = [(g.Identity(v.name), self.tensor_type(v.shape)) for v in call.tensors]
            if self.counts:
                scans.append((g.Identity(call.count), self.int_type()))
            return [g.Add(total, call.tensors[0].name)] if carry else [], scans
        carry = self.chance(.3)
        state = {"total": (mine[0].name, self.tensor_type(mine[0].shape))} if carry else {}
        if carry:
            total, *stacks = g.loop(self.as_trips(g, count), state, step)
        else:
            stacks = g.loop(self.as_trips(g, count), {}, lambda g, i: step(g, i, None))
        sums = [g.ReduceSum(v, [0], keepdims=0) for v in stacks]
        if self.counts:
            sums[-1] = g.Mod(sums[-1], self.int(g, 1009))
        if carry:
            sums[0] = g.Sub(sums[0], g.Mul(total, self.num(g, .5).name))
        return sums

    def listed(self, g, at):
        return self.structure.listed(self, g, at)

    def of_counter(self, g, i):
        return i if self.itype == np.int64 else g.Cast(i, to=TYPE(np.dtype(self.itype)))

    def as_trips(self, g, n):
        return n if self.itype == np.int64 else g.Cast(n, to=TensorProto.INT64)

    # ---- the main graph
    def main(self):
        g, self.inputs, self.current = self.graph, {}, None
        for name in self.passed():
            self.hand_in(g, name, self.arrays[name])
        self.way = self.pick("one", "one", "one", "two", "loop", "loop", "loop", "scan", "branch", "nested", "carry")
        self.tag("main " + self.way)
        getattr(self, "main_" + self.way)(g)
        reached = set()
        while len(reached) < len(more := set.union({None}, *(self.calls[f] for f in {None, *reached}))):
            reached = more
        self.why = [why for f, why in self.against if f in reached] + ["it draws"] * self.draws

    def hand_in(self, g, name, data):
        """An array as an input, a constant, or something computed."""
        shape = data.shape
        typed = helper.make_tensor_type_proto(TYPE(data.dtype), ["rows" if name in ("x", "word", "cost") else None if not shape else f"{name}_0", *shape[1:]])
        if name[0] in "we" and name != "word" and self.chance(.6):
            g.const(data, name)
        elif name == "x" and self.chance(.2):
            g.input("features", typed)
            self.inputs["features"] = data
            g.Tanh("features", out="x")
        else:
            g.input(name, typed)
            self.inputs[name] = data

    def start(self, g, k, root=None):
        """A call from outside, of root number k or given control parameters."""
        if root is None:
            root = [self.scalar(g, v) for v in self.structure.root(self, k)]
        more = {"state": lambda: self.int(g, self.pick(0, 1, 2)), "steps": lambda: self.int(g, self.depth_limit),
                "flag": lambda: self.const(g, self.chance(.5), bool)}
        args = root + [more[name]() for name in self.extra]
        if self.down:
            args.append(self.num(g, .5, self.shapes[0]).name)
        f = self.pick(*range(self.functions))
        self.calls[None].add(f)
        got = g.invoke("fgh"[f], *args, *self.passed(), outputs=self.results)
        return got if isinstance(got, list) else [got]

    def scalar(self, g, value):
        """A parameter of a root: an input, a constant, or computed."""
        way = self.pick("input", "input", "constant", "computed")
        if way == "constant":
            return self.int(g, value)
        name = f"root_{len(self.inputs)}"
        g.input(name, self.int_type())
        self.inputs[name] = np.array(value, self.itype)
        if way == "computed":
            self.inputs[name] = np.array(2 * value + 1, self.itype)
            return g.Div(name, self.int(g, 2))
        return name

    def result(self, g, names, prefix, lead=()):
        for i, (name, t) in enumerate(zip(names, self.types(lead))):
            g.output(g.Identity(name, out=f"{prefix}{i}"), t)

    def types(self, lead=()):
        return [self.tensor_type([*lead, *s]) for s in self.shapes] + ([self.int_type(list(lead))] if self.counts else [])

    def after(self, g, names):
        """Something computed of the results, in a loop over roots or behind a call."""
        if self.chance(.3):
            return [g.Add(names[0], self.num(g, 1).name)] + names[1:]
        return names

    def main_one(self, g):
        self.result(g, self.after(g, self.start(g, 0)), "y")

    def main_two(self, g):
        self.result(g, self.start(g, 0), "y")
        self.result(g, self.start(g, 1), "z")

    def main_branch(self, g):
        g.input("call", helper.make_tensor_type_proto(TensorProto.BOOL, []))
        self.inputs["call"] = np.array(self.chance(.7))
        root = [self.scalar(g, v) for v in self.structure.root(self, 0)]

        def without(g):
            zeros = [self.num(g, 0, s).name for s in self.shapes]
            return zeros + ([self.int(g, 0)] if self.counts else [])
        self.result(g, self.branch(g, "call", lambda g: self.start(g, 0, root), without), "y")

    def many_roots(self, g):
        """Inputs with the control parameters of some roots, maybe none."""
        some = self.pick(0, 1, 2, 2, 3, 4, 5)
        self.tag("%s roots" % (some if some < 2 else "many"))
        roots = [self.structure.root(self, k) for k in range(some)]
        if some > 1 and self.chance(.3):
            roots[-1] = roots[0]
        names = []
        for i, name in enumerate(self.structure.names):
            names.append(f"roots_{name}")
            g.input(names[-1], self.int_type(["m"]))
            self.inputs[names[-1]] = np.array([root[i] for root in roots], self.itype)
        return names

    def main_loop(self, g):
        roots = self.many_roots(g)
        ys = g.loop(g.Size(roots[0]), {}, lambda g, i: ([], list(zip(
            self.after(g, self.start(g, 0, [g.Gather(a, i) for a in roots])), self.types()))))
        self.result(g, ys, "y", ["m"])

    def main_carry(self, g):
        roots = self.many_roots(g)

        def step(g, i, total):
            ys = self.start(g, 0, [g.Gather(a, i) for a in roots])
            return [g.Tanh(g.Add(total, ys[0]))], list(zip(ys, self.types()))
        shape = self.shapes[0]
        total, *ys = g.loop(g.Size(roots[0]), {"total": (self.num(g, 0, shape).name, self.tensor_type(shape))}, step)
        g.output(g.Identity(total, out="total"), self.tensor_type(shape))
        self.result(g, ys, "y", ["m"])

    def main_scan(self, g):
        roots = self.many_roots(g)
        ys = g.scan({}, {f"one_{a}": (a, self.int_type()) for a in roots}, lambda g, *root: ([], list(zip(
            self.after(g, self.start(g, 0, list(root))), self.types()))))
        self.result(g, ys, "y", ["m"])

    def main_nested(self, g):
        """Every root, twice over."""
        roots = self.many_roots(g)

        def outer(g, j):
            ys = g.loop(g.Size(roots[0]), {}, lambda g, i: ([], list(zip(
                self.start(g, 0, [g.Gather(a, i) for a in roots]), self.types()))))
            return [], [(g.Mul(ys[0], g.Cast(g.Add(j, 1), to=TYPE(np.dtype(self.ftype)))), self.tensor_type([None, *self.shapes[0]]))] + \
                list(zip(ys[1:], self.types([None])[1:]))
        self.result(g, g.loop(2, {}, outer), "y", [2, None])


SPOILED = ("cycle", "itself", "child", "negative", "word", "root")


def spoil(s, inputs, how, r):
    """Makes one number of the inputs wrong; False if there is none of that kind."""
    links = [inputs[k] for k in ("left", "right", "kids") if inputs.get(k, np.zeros(0)).size]
    rows = s.rows
    if how == "word" and "word" in inputs:
        inputs["word"][r.integers(0, rows)] = 9 + r.integers(0, 5)
        return True
    if how == "root":
        roots = [v for k, v in inputs.items() if k.startswith("root") and v.size]
        if roots:
            a = roots[int(r.integers(0, len(roots)))]
            a.reshape(-1)[r.integers(0, a.size)] = 2 * rows + 1 + r.integers(0, 5)
        return bool(roots)
    if not links:
        return False
    a = links[int(r.integers(0, len(links)))]
    at = int(r.integers(0, a.size))
    inner = [n for n, some in enumerate(s.kids) if some]
    own = at if a.size == rows else None
    value = {"cycle": s.roots[0], "itself": own, "child": rows + r.integers(0, 5), "negative": -rows - 1 - r.integers(0, 5)}.get(how)
    if value is None or own is not None and own not in inner and how != "child":
        return False
    a.reshape(-1)[at] = value
    return True


class Member:
    def __init__(self, seed):
        first = Maker(seed)
        m = Maker(seed, list(first.used))
        self.seed, self.model = seed, m.graph.model()
        order = [v.name for v in self.model.graph.input]
        self.inputs = {name: m.inputs[name] for name in order}
        reference = recursive_reference.Reference(self.model)
        self.expected = reference.run(self.inputs)
        self.visits, self.nodes, self.depth = reference.visits, reference.nodes, reference.depth
        self.plain = self.visits <= VISITS
        self.tags, self.why = m.tags, m.why
        self.structure = m.structure
        self.floats_decide = "float decides" in m.tags or "result decides" in m.tags

    def wrong(self):
        """[(name, inputs, options, part of the message)] of runs that fail; the part is None of the one that does not."""
        r = np.random.default_rng(self.seed + 2)
        out = []
        if self.plain and self.depth > 1 and not self.floats_decide:
            out += [("deep", self.inputs, ["--stack-depth", str(self.depth - 1)], f"needs a depth of {self.depth}; the limit is {self.depth - 1}"),
                    ("not_deep", self.inputs, ["--stack-depth", str(self.depth)], None)]
        for name in SPOILED:
            for _ in range(4):
                inputs = {k: v.copy() for k, v in self.inputs.items()}
                if not spoil(self.structure, inputs, name, r):
                    continue
                part = recursive_reference.fault(self.model, inputs, VISITS)
                if part:
                    out.append((name, inputs, [], part))
                    break
        return out
