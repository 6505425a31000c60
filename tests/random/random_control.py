"""Random control flow: whole programs of nested If, Loop and Scan over the operators of random_model.py."""
import numpy as np

from random_model import DTYPES, FLOATS, INTS, LIMIT, Node, Nope, Scope, Sym, guess, least
from random_shapes import Shapes


class Program(Shapes):
    def __init__(self, seed):
        super().__init__(seed)
        r = self.r
        self.trips = 1                     # around the present scope
        self.max_depth = r.choice([2, 3, 3, 4, 5])
        for _ in range(r.randint(2, 5)):
            t = r.choice(["f32"] * 6 + ["f64", "f16", "i64", "i32", "u8", "bool"])
            v = self.value(t, self.some_dims(syms=True))
            self.top.params.append(v)
        for t in ("bool", "i64"):          # something small to decide by
            self.top.params.append(self.value(t, self.r.choice([(), (), (1,)])))
        self.inputs = self.top.params
        self.fill(r.randint(2, 6))
        while self.budget > 0:
            self.control()
            self.fill(r.randint(0, 3))
        for q in [v for n in self.top.nodes if n.subs for v in n.outs if v and v.dtype == "seq"]:
            self.op("SequenceLength", [q], "i64", (), 30)
            if q.least:
                self.op("SequenceAt", [q, self.const("i64", -1)], q.elem[0], q.elem[1], LIMIT, None)
        seen = lambda v: v and v.data is None and v.dtype != "seq"
        outs = [v for n in self.top.nodes for v in n.outs if seen(v)]
        last = [v for n in self.top.nodes if n.subs or n.op.startswith("Sequence") for v in n.outs if seen(v)]
        picked = r.sample(outs, min(len(outs), 3)) + last + r.sample(self.inputs, r.choice([0, 0, 1]))
        self.top.results = list(dict.fromkeys(picked))

    # ---- control flow
    def control(self):
        self.budget -= 1
        for _ in range(8):
            undo = (len(self.scope.nodes), len(self.scope.vals), len(self.scope.inits), self.scope, self.trips)
            try:
                return self.r.choice([self.branch, self.branch, self.loop, self.loop, self.scan, self.stack])()
            except Nope:
                self.scope, self.trips = undo[3], undo[4]
                del self.scope.nodes[undo[0]:], self.scope.vals[undo[1]:], self.scope.inits[undo[2]:]

    def body(self, params=()):
        """Enters a new scope with these parameters (type, sizes, bound, frac)."""
        self.scope = Scope(self.scope)
        self.scope.params = [self.value(*p) for p in params]
        return self.scope

    def inner(self):
        """Random contents of a scope."""
        self.fill(self.r.randint(0, 3))
        if self.scope.depth < self.max_depth and self.budget > 0 and self.chance(.6):
            self.control()
            self.fill(self.r.randint(0, 2))

    def branch(self):
        cond = self.flag()
        outer = self.scope
        kinds = [(self.r.choice(list(DTYPES)), self.r.choice(["same", "same", "free", "free"]))
                 for _ in range(self.r.randint(1, 3))]
        proto = [self.pick(lambda v: v.dims is not None and v.dtype == t) or self.random_const(t, self.some_dims())
                 for t, _ in kinds]
        arms, outs = [], []
        for _ in range(2):
            s = self.body()
            self.inner()
            for i, (t, kind) in enumerate(kinds):
                v = self.pick(lambda v: v.dtype == t and v.data is None) or self.random_const(t, self.some_dims())
                if kind == "same":
                    v = self.like(v, proto[i])
                s.results.append(v)
            if self.chance(.1):
                s.results = [self.r.choice([w for w in s.results if w.dtype == v.dtype and
                                            (k == "free" or w.dims == v.dims)])
                             for v, (_, k) in zip(s.results, kinds)]
            arms.append(s)
            self.scope = outer
        queue = self.pick_seq(lambda v: True)
        if queue and self.chance(.5):
            for s in arms:
                self.scope = s
                s.results.append(self.pick_seq(lambda v: v.elem == queue.elem))
            self.scope = outer
        for a, b in zip(arms[0].results, arms[1].results):
            if a.dtype == "seq":
                outs.append(self.seq_value(a.elem, min(a.least, b.least)))
                continue
            if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
                dims = None
            else:
                dims = [x if x == y and (isinstance(x, int) or x.scope not in arms) else
                        self.fresh(min(least(x), least(y))) for x, y in zip(a.dims, b.dims)]
            frac = max(a.frac, b.frac) if a.exact and b.exact else None
            outs.append(self.value(a.dtype, dims, max(a.bound, b.bound), frac))
        n = Node("If", [cond], outs, {})
        n.subs = {"then_branch": arms[0], "else_branch": arms[1]}
        self.drop_outputs(n)
        self.scope.nodes.append(n)

    def drop_outputs(self, n):
        for i in range(len(n.outs)):
            if len(n.outs) > 1 and self.chance(.08) and any(o for k, o in enumerate(n.outs) if k != i):
                self.scope.vals.remove(n.outs[i])
                n.outs[i] = None

    def loop(self):
        most = 6 if self.trips <= 4 else 3 if self.trips <= 12 else 2
        outer, up_trips = self.scope, self.trips
        kind = self.r.choice(["both", "both", "count", "count", "cond"])
        sure = False       # at least one trip
        m = cond = None
        if kind != "cond":
            if self.chance(.4):
                n = self.r.randint(0, most)
                sure = n > 0
                m = self.const("i64", self.r.choice([n, [n]]))
            elif self.chance(.25) and kind == "both":
                m = self.const("i64", self.r.choice([10 ** 6, 2 ** 40]))
            else:
                m = self.scalar(self.need(lambda v: v.dtype in INTS))
                m = self.op("Mod", [m, self.const(m.dtype, most + 1)], m.dtype, (), most)
                m = self.cast(m, "i64")
        endless = m is None or m.data is not None and int(m.data.max()) > 100
        if kind != "count":
            cond = self.flag() if self.chance(.5) else self.const("bool", self.r.choice([True, [True]]))
            sure = sure and cond.data is not None
        # Carried values: (initial, how its shape behaves)
        carried = []
        for _ in range(self.r.randint(1, 4)):
            v = self.need(lambda v: v.bound <= (255 if v.dtype in ("u8", "bool") else LIMIT if v.dtype in FLOATS else 1000))
            how = self.r.choice(["fixed", "fixed", "fixed", "grow", "shrink", "vary", "rank", "turn"])
            if v.dims is None:
                how = "rank"
            if how in ("grow", "shrink", "vary") and not v.dims:
                how = "fixed"
            carried.append((v, how))
        queue = self.pick_seq(lambda v: True)
        if queue and self.chance(.6):
            carried.append((queue, "seq"))
        if self.chance(.4):    # a pair of the same kind, to be swapped
            carried.insert(self.r.randint(0, len(carried)), self.r.choice(carried))
        counter = len(carried) if endless else -1
        if endless:
            carried.append((self.const("i64", 0), "counter"))
        params, syms = [("i64", self.r.choice([(), (), (1,)]), most), ("bool", self.r.choice([(), (), (1,)]), 1)], []
        body = Scope(outer)
        for v, how in carried:
            dims, axis = v.dims, None
            if how == "seq":
                syms.append(None)
                params.append(("seq", None, 0, 0))
                continue
            if how in ("grow", "shrink"):
                axis = self.r.randrange(len(dims))
                dims = dims[:axis] + (self.fresh(least(dims[axis]) if how == "grow" else 0, body),) + dims[axis + 1:]
            elif how == "vary":
                dims = [self.fresh(0, body) for _ in dims]
            elif how in ("rank", "turn"):
                dims = None
            syms.append(axis)
            frac = v.frac if v.dtype not in FLOATS else 3 if v.exact and v.frac <= 3 and \
                (v.dtype == "f16" or self.chance(.5)) else None
            params.append((v.dtype, dims, self.carry_bound(v), frac))
        self.scope = body
        body.params = [self.value(*p) for p in params]
        self.trips *= most
        phi = body.params[2:]
        for p, (v, how) in zip(phi, carried):
            p.elem = v.elem
        self.inner()
        nexts = [self.next_value(p, c, a, i, len(carried)) for i, (p, c, a) in enumerate(zip(phi, carried, syms))]
        same = lambda i, j: (carried[i][1] == carried[j][1] and carried[i][0].dtype == carried[j][0].dtype and
                             carried[i][0].dims == carried[j][0].dims and phi[i].frac == phi[j].frac and
                             phi[i].bound == phi[j].bound and carried[i][1] in ("fixed", "rank", "seq") and phi[i].elem == phi[j].elem)
        for i in range(len(phi)):    # swapped, rotated
            for j in range(len(phi)):
                if i != j and same(i, j) and self.chance(.4):
                    nexts[i] = phi[j]
        more = body.params[1] if self.chance(.3) else self.flag() if self.chance(.6) else self.const("bool", True)
        if endless:
            one = self.op("Add", [phi[counter], self.const("i64", 1)], "i64", (), most)
            nexts[counter] = one
            less = self.op("Less", [one, self.const("i64", self.r.randint(1, most))], "bool", ())
            more = less if self.chance(.5) else self.op("And", [less, more], "bool", more.dims)
        scans = []
        for _ in range(self.r.choice([0, 0, 1, 1, 2])):
            ok = lambda v: v.dims is not None and len(v.dims) < 5 and all(
                isinstance(d, int) or d.scope is None or (sure and self.outside(d.scope, body)) for d in v.dims)
            ok = lambda v, ok=ok: v.dtype != "seq" and ok(v)
            v = self.r.choice([body.params[0]] * 2 + [p for p in phi if ok(p)]) if self.chance(.3) else self.need(ok)
            scans.append(v)
            if self.chance(.2):
                scans.append(v)
        known = lambda v: v.dims is not None and len(v.dims) < 5 and \
            all(isinstance(d, int) or d.scope is None for d in v.dims)
        both = [(p, x) for p, x, c in zip(phi, nexts, carried)
                if c[1] == "fixed" and p.dtype == "f32" and known(p) and x is not p]
        if both and self.chance(.3):    # the same of the carried value and of the next one
            p, x = self.r.choice(both)
            op = self.r.choice(["Tanh", "Sigmoid"])
            a, b = (self.op(op, [v], "f32", p.dims, 1, None) for v in (p, self.like(x, p)))
            scans.append(self.op("Sub", [a, b], "f32", p.dims, 2, None))
        body.results = [more] + nexts + scans
        for i, v in enumerate(scans):
            body.shape_of_result[1 + len(nexts) + i] = v.dims
        self.scope, self.trips = outer, up_trips
        outs = []
        for (v, how), p, x in zip(carried, phi, nexts):
            frac = v.frac if v.dtype not in FLOATS else None if p.frac is None else max(p.frac, v.frac)
            dims = p.dims
            if how == "seq":
                outs.append(self.seq_value(v.elem, 0))
                continue
            if dims is not None:
                dims = [d if isinstance(d, int) or d.scope is not body else self.fresh(d.least) for d in dims]
            outs.append(self.value(v.dtype, dims, max(v.bound, p.bound), frac))
        length = self.fresh(int(sure))
        outs += [self.value(v.dtype, (length,) + v.dims, v.bound, v.frac) for v in scans]
        n = Node("Loop", [m, cond] + [v for v, _ in carried], outs, {})
        n.subs = {"body": body}
        self.drop_outputs(n)
        self.scope.nodes.append(n)

    def stack(self):
        """Loops one after the other, each over what those before it gave: layers of a recurrent network."""
        outer, up_trips = self.scope, self.trips
        most = 5 if self.trips <= 4 else 2
        if self.chance(.5):
            m = self.const("i64", self.r.randint(1, most))
        else:
            m = self.scalar(self.r.choice([v for v in self.inputs if v.dtype in INTS]))
            m = self.cast(self.op("Mod", [m, self.const(m.dtype, most + 1)], m.dtype, (), most), "i64")
        given = []
        for _ in range(self.r.randint(2, 4)):
            known = lambda v: v.dims is not None and len(v.dims) < 5 and \
                all(isinstance(d, int) or d.scope is None for d in v.dims)
            start = lambda v: known(v) and v.dtype in ("f32", "f64", "i64") and v.bound <= 1000
            states = [self.need(start) for _ in range(self.r.randint(1, 2))]
            params = [("i64", (), most), ("bool", (), 1)]
            for v in states:
                frac = v.frac if v.dtype not in FLOATS else 3 if v.exact and v.frac <= 3 else None
                params.append((v.dtype, v.dims, self.carry_bound(v), frac))
            body = self.body(params)
            self.trips *= most
            below = [self.op("Gather", [v, body.params[0]], v.dtype, v.dims[1:], v.bound, v.frac, axis=0)
                     for v in (given[-1:] if self.chance(.7) else given[-2:])]
            if self.chance(.3):
                self.inner()
            else:
                self.fill(self.r.randint(0, 3))
            nexts = []
            for p, v in zip(body.params[2:], states):
                fit = [g for g in below if g.dtype == p.dtype and (g.exact or not p.exact)]
                if not fit or self.chance(.3):
                    nexts.append(self.next_value(p, (v, "fixed"), None, 0, len(states)))
                    continue
                g = self.like(self.r.choice(fit), p)
                g = self.op("Add", [p, g], p.dtype, p.dims, p.bound + g.bound,
                            max(p.frac, g.frac) if p.exact and g.exact else None)
                nexts.append(self.within(g, p.bound, p.exact))
            scan = nexts[0] if self.chance(.6) and known(nexts[0]) else self.need(known)
            body.results = [self.const("bool", True)] + nexts + [scan]
            body.shape_of_result[1 + len(nexts)] = scan.dims
            self.scope, self.trips = outer, up_trips
            outs = [self.value(v.dtype, v.dims, max(v.bound, p.bound), p.frac)
                    for v, p in zip(states, body.params[2:])]
            outs.append(self.value(scan.dtype, (self.fresh(0),) + scan.dims, scan.bound, scan.frac))
            n = Node("Loop", [m, None] + states, outs, {})
            n.subs = {"body": body}
            self.scope.nodes.append(n)
            given.append(outs[-1])
            if scan.dtype in ("f32", "i64") and self.chance(.3):
                given[-1] = self.op("Neg", [given[-1]], scan.dtype, given[-1].dims, scan.bound, scan.frac)

    def outside(self, scope, body):
        s = body.parent
        while s and s is not scope:
            s = s.parent
        return s is not None

    def carry_bound(self, v):
        return {"bool": 1, "u8": 255}.get(v.dtype, max(8, int(v.bound)) if v.dtype in FLOATS else max(30, int(v.bound)))

    def next_value(self, p, carried, axis, i, n):
        """The next value of parameter p."""
        v, how = carried
        if how == "seq":
            return self.pick_seq(lambda w: w.elem == p.elem)
        if how == "counter" or self.chance(.08):
            return p
        ok = lambda w: w.dtype == p.dtype and (w.exact or not p.exact)
        if how == "fixed":
            x = self.pick(lambda w: ok(w) and w.dims == p.dims and w is not p) if self.chance(.7) else None
            x = x or self.pick(ok) or p
            return self.within(self.like(x, p), p.bound, p.exact)
        if how == "vary":
            x = self.need(lambda w: ok(w) and w.dims is not None and len(w.dims) == len(p.dims))
            return self.within(x, p.bound, p.exact)
        if how == "rank":
            return self.within(self.need(ok), p.bound, p.exact)
        if how == "turn":
            x = self.op("Reshape", [p, self.const("i64", self.r.choice([[-1], [-1], [1, -1]]))], p.dtype,
                        None, p.bound, p.frac)
            return x
        if how == "shrink":
            start, end = self.const("i64", [1]), self.const("i64", [2 ** 62])
            return self.op("Slice", [p, start, end, self.const("i64", [axis])], p.dtype,
                           p.dims[:axis] + (self.fresh(0),) + p.dims[axis + 1:], p.bound, p.frac)
        others = p.dims[:axis] + (1,) + p.dims[axis + 1:]
        piece = self.pick(lambda w: ok(w) and w.dims == others and w.bound <= p.bound)
        if not piece:
            if not all(isinstance(d, int) for d in others):
                raise Nope
            piece = self.random_const(p.dtype, others)
        parts = self.r.choice([[p, piece]] * 5 + [[piece, p]] * 2 + [[p, piece, piece], [piece, piece, p], [piece, p, piece]])
        return self.op("Concat", parts, p.dtype, p.dims[:axis] + (self.fresh(1),) + p.dims[axis + 1:], p.bound, p.frac,
                       axis=axis)

    def scan(self):
        outer, up_trips = self.scope, self.trips
        first = self.need(lambda v: v.dims and any(not isinstance(d, Sym) or d.scope is None for d in v.dims))
        length = self.r.choice([d for d in first.dims if not isinstance(d, Sym) or d.scope is None])
        if least(length) == 0 or guess(length) > (8 if self.trips < 8 else 3):
            raise Nope
        xs = [first]
        for _ in range(self.r.randint(0, 2)):
            xs.append(self.need(lambda v: v.dims and length in v.dims))
        axes = [self.r.choice([i for i, d in enumerate(x.dims) if d == length]) for x in xs]
        known = lambda v: v.dims is not None and all(isinstance(d, int) or d.scope is None for d in v.dims)
        states = [self.need(known) for _ in range(self.r.randint(0, 3))]
        states = [v for v in states if v.bound <= (1000 if v.dtype in INTS else 255)]
        params = []
        for v in states:
            frac = v.frac if v.dtype not in FLOATS or v.exact and v.frac <= 3 else None
            params.append((v.dtype, v.dims, self.carry_bound(v), frac))
        for x, a in zip(xs, axes):
            params.append((x.dtype, x.dims[:a] + x.dims[a + 1:], x.bound, x.frac))
        body = self.body(params)
        self.trips *= guess(length)
        self.inner()
        phi = body.params[:len(states)]
        nexts = [self.next_value(p, (v, "fixed"), None, i, len(states)) for i, (p, v) in enumerate(zip(phi, states))]
        for i in range(len(phi)):
            for j in range(len(phi)):
                if i != j and self.chance(.5) and (phi[i].dtype, phi[i].dims, phi[i].bound, phi[i].frac) == \
                        (phi[j].dtype, phi[j].dims, phi[j].bound, phi[j].frac):
                    nexts[i] = phi[j]
        outs = []
        for _ in range(self.r.randint(0 if states else 1, 2)):
            v = self.r.choice(body.params) if self.chance(.3) else self.need(lambda w: known(w) and len(w.dims) < 5)
            if not known(v):
                raise Nope
            outs.append(v)
        body.results = nexts + outs
        for i, v in enumerate(body.results):
            body.shape_of_result[i] = v.dims
        self.scope, self.trips = outer, up_trips
        results, out_axes = [], []
        for v, p in zip(states, phi):
            frac = v.frac if v.dtype not in FLOATS else None if p.frac is None or v.frac is None else max(p.frac, v.frac)
            results.append(self.value(v.dtype, v.dims, max(v.bound, p.bound), frac))
        for v in outs:
            a = self.r.randint(0, len(v.dims))
            out_axes.append(a - len(v.dims) - 1 if self.chance(.3) else a)
            results.append(self.value(v.dtype, v.dims[:a] + (length,) + v.dims[a:], v.bound, v.frac))
        attrs = {"num_scan_inputs": len(xs)}
        if any(axes) or self.chance(.3):
            attrs["scan_input_axes"] = [a - len(x.dims) if self.chance(.3) else a for a, x in zip(axes, xs)]
        if outs and (any(out_axes) or self.chance(.3)):
            attrs["scan_output_axes"] = out_axes
        if self.chance(.5):
            attrs["scan_input_directions"] = [self.r.randint(0, 1) for _ in xs]
        if outs and self.chance(.5):
            attrs["scan_output_directions"] = [self.r.randint(0, 1) for _ in outs]
        n = Node("Scan", states + xs, results, attrs)
        n.subs = {"body": body}
        self.drop_outputs(n)
        self.scope.nodes.append(n)
