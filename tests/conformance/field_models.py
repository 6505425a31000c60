"""Small models of control-flow behaviours with their right answers, for field_cases.py.

Expected values are computed here in numpy, never by another runtime.
"""
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

F, I = np.float32, np.int64
NEWEST = onnx.defs.onnx_opset_version()
CASES, FAULTS = [], []


def model_of(text, opset=18, extra="", ir=10):
    """A model from ONNX text: the graph, then functions."""
    return parser.parse_model('<ir_version: %d, opset_import: ["" : %d%s]>\n%s' % (ir, opset, extra, text))


def case(name, text, *sets, opset=18, extra="", change=None):
    """sets: (inputs, outputs) each. change: edits the parsed model."""
    m = text if isinstance(text, onnx.ModelProto) else model_of(text, opset, extra)
    if change:
        change(m)
    CASES.append((name, m, sets))


def fault(name, text, inputs, pattern, opset=18, args=(), change=None):
    """`braid run` must exit with 1 and print a message that the pattern matches."""
    m = text if isinstance(text, onnx.ModelProto) else model_of(text, opset)
    if change:
        change(m)
    FAULTS.append((name, m, inputs, pattern, list(args)))


def f(*x):
    return np.array(x[0] if len(x) == 1 else x, F)


def i(*x):
    return np.array(x[0] if len(x) == 1 else x, I)


def b(x):
    return np.array(x, np.bool_)


R = np.random.default_rng(5)


def rnd(*shape):
    return R.standard_normal(shape).astype(F)


RANK = """
    g (int64 m, float[2] x) => (float y, int64[k] d, float s) <bool t = {1}, int64[1] zero = {0}> {
        y = Loop(m, t, x) <body = b (int64 i, bool c, float s) => (bool c2, float r) {
            c2 = Identity(c)  u = Unsqueeze(s, zero)  r = Identity(u)
        }>
        d = Shape(y)  s = ReduceSum <keepdims = 0> (y)
    }"""


# ---- shapes -------------------------------------------------------------------------------------------------
def shapes():
    x1, x4 = rnd(2, 1, 3), rnd(2, 4, 3)
    case("if_squeeze_or_identity", """
        g (float[a, b, c] x) => (float y, float s, int64[n] d) <int64 one = {1}, int64[1] ax = {1}> {
            sh = Shape(x)  k = Gather(sh, one)  is1 = Equal(k, one)
            y = If(is1) <then_branch = t () => (float r) { r = Squeeze(x, ax) },
                         else_branch = e () => (float r) { r = Identity(x) }>
            s = ReduceSum <keepdims = 0> (y)
            d = Shape(y)
        }""".replace("float y,", "float[n] y,"), ([x1], [x1[:, 0], x1.sum(), i(2, 3)]), ([x4], [x4, x4.sum(), i(2, 4, 3)]),
         change=no_output_shapes)
    dead = """
        g (bool c, float[2, 3] x) => (float[2, 3] y) {
            y = If(c) <then_branch = t () => (float[n] r) { q = MatMul(x, x)  r = Relu(q) },
                       else_branch = e () => (float[2, 3] r) { r = Neg(x) }>
        }"""
    x = rnd(2, 3)
    case("if_untaken_branch_cannot_run", dead, ([b(False), x], [-x]))
    fault("if_taken_branch_cannot_run", dead, [b(True), x], r"then_branch.*MatMul|MatMul.*then_branch|\bq\b")
    case("if_constant_condition_dead_branch", """
        g (float[2, 3] x) => (float[2, 3] y) <bool c = {0}> {
            y = If(c) <then_branch = t () => (float[n] r) { r = MatMul(x, x) },
                       else_branch = e () => (float[2, 3] r) { r = Neg(x) }>
        }""", ([x], [-x]))
    body = """<body = b (int64 i, bool c, float[2, 3] s) => (bool c2, float[2, 3] s2, float[2, 2] r) {
                c2 = Identity(c)  r = MatMul(s, s)  k = ReduceSum <keepdims = 0> (r)  s2 = Add(s, k)
            }>"""
    never = [x, np.zeros((0, 2, 2), F)]
    for name, m, c in (("trip_count_0", "int64 m = {0}", 1), ("negative_trip_count", "int64 m = {-1}", 1),
                       ("condition_false", "int64 m = {5}", 0)):
        case("loop_that_cannot_run_" + name, """
            g (float[2, 3] x) => (float[2, 3] y, float[n, 2, 2] z) <%s, bool c = {%d}> { y, z = Loop(m, c, x) %s }"""
             % (m, c, body), ([x], never))
    unless = """
        g (int64 m, bool c, float[2, 3] x) => (float[2, 3] y, float[n, 2, 2] z) { y, z = Loop(m, c, x) %s }""" % body
    case("loop_that_cannot_run_unless", unless, ([i(0), b(True), x], never), ([i(7), b(False), x], never))
    fault("loop_that_cannot_run", unless, [i(1), b(True), x], "inner sizes 3 and 2")
    fault("loop_that_cannot_run_and_does", unless.replace("int64 m, ", "").replace(") {", ") <int64 m = {1}> {", 1),
          [b(True), x], "inner sizes 3 and 2")
    arms = unless.replace("r = MatMul(s, s)", """
        r = If(c) <then_branch = t () => (float[2, 2] u) { u = MatMul(s, s) },
                   else_branch = e () => (float[2, 2] u) { u = Reshape(s, w) }>""").replace(
        ") {", ") <int64[2] w = {2, 2}> {", 1)
    case("loop_whose_branches_cannot_run", arms, ([i(0), b(True), x], never))
    fault("loop_whose_branches_cannot_run_and_do", arms, [i(2), b(True), x], "6 elements cannot take a shape of 4|inner sizes 3 and 2")
    scan = """
        g (float[2, 3] x, float[k, 2, 3] a) => (float[2, 3] y, float[n, 2, 2] z) {
            y, z = Scan(x, a) <num_scan_inputs = 1, body = b (float[2, 3] s, float[2, 3] t)
                => (float[2, 3] s2, float[2, 2] r) { r = MatMul(s, t)  s2 = Identity(s) }>
        }"""
    case("scan_that_cannot_run", scan, ([x, np.zeros((0, 2, 3), F)], never))
    case("scan_of_length_0", scan.replace("k, 2", "0, 2"), ([x, np.zeros((0, 2, 3), F)], never))
    fault("scan_that_cannot_run_and_does", scan, [x, rnd(1, 2, 3)], "inner sizes 3 and 2")
    a, z = rnd(3, 1), rnd(3, 1)
    grow = np.concatenate([a] + [z * k for k in range(4)], 1)
    case("loop_state_grows", """
        g (int64 m, float[3, 1] a, float[3, 1] z) => (float[3, n] y) <bool t = {1}> {
            y = Loop(m, t, a) <body = b (int64 i, bool c, float[3, n] s) => (bool c2, float[3, k] r) {
                c2 = Identity(c)  fi = Cast <to = 1> (i)  p = Mul(z, fi)  r = Concat <axis = 1> (s, p)
            }>
        }""", ([i(4), a, z], [grow]), ([i(0), a, z], [a]), ([i(1), a, z], [grow[:, :2]]))
    front = np.concatenate([z] * 40 + [a], 1)     # with several threads: rows lie elsewhere in each iteration
    case("loop_state_grows_in_front", """
        g (int64 m, float[3, 1] a, float[3, 1] z) => (float[3, n] y) <bool t = {1}> {
            y = Loop(m, t, a) <body = b (int64 i, bool c, float[3, n] s) => (bool c, float[3, k] r) {
                r = Concat <axis = 1> (z, s)
            }>
        }""", ([i(40), a, z], [front]))
    case("loop_state_shrinks", """
        g (int64 m, float[n] x) => (float[k] y) <bool t = {1}, int64[1] one = {1}, int64[1] end = {9223372036854775807}> {
            y = Loop(m, t, x) <body = b (int64 i, bool c, float[n] s) => (bool c2, float[k] r) {
                c2 = Identity(c)  r = Slice(s, one, end)
            }>
        }""", ([i(3), f(1, 2, 3, 4, 5)], [f(4, 5)]), ([i(9), f(1, 2)], [f([])]))
    case("loop_state_changes_rank", RANK, *[([i(n), f(1, 2)], [f(1, 2).reshape((1,) * n + (2,)), i([1] * n + [2]), f(3)]) for n in (0, 1, 3)],
         change=no_shapes)
    fault("loop_state_of_too_high_rank", RANK, [i(13), f(1, 2)], "rank", change=no_shapes)
    for how, decl in (("fixed", "float[2, 5] e"), ("undeclared", "e"), ("named", "float[p, q] e")):
        case("loop_zero_trips_scan_" + how, """
            g (int64 m, float[2, 5] x) => (float[n, 2, 5] y, float[2, 5] s) <bool t = {1}> {
                s, y = Loop(m, t, x) <body = b (int64 i, bool c, float[2, 5] s) => (bool c2, float[2, 5] r, DECL) {
                    c2 = Identity(c)  r = Neg(s)  e = Relu(s)
                }>
            }""".replace("DECL", decl), ([i(0), rnd(2, 5)], None), change=None if how != "undeclared" else untyped("e"))
        CASES[-1] = (CASES[-1][0], CASES[-1][1], [([i(0), x5], [np.zeros((0, 2, 5), F), x5]) for x5 in [rnd(2, 5)]])
    xs = rnd(3, 4)
    case("loop_zero_trips_size_from_input", """
        g (int64 m, float[a, b] x) => (float[n, b, a] y) <bool t = {1}> {
            y = Loop(m, t) <body = b (int64 i, bool c) => (bool c2, float e) {
                c2 = Identity(c)  e = Transpose(x)
            }>
        }""", ([i(0), xs], [np.zeros((0, 4, 3), F)]), ([i(2), xs], [np.stack([xs.T, xs.T])]), change=no_shapes)
    case("loop_condition_of_shape_1", """
        g (int64[1] m, bool[1] t, float s) => (float y) <float h = {3}> {
            y = Loop(m, t, s) <body = b (int64[1] i, bool[1] c, float s) => (bool[1] c2, float r) {
                one = Constant <value = float[1] {1}> ()  r1 = Add(s, one)  sq = Constant <value = int64[1] {0}> ()
                r = Squeeze(r1, sq)  c2 = Less(r1, h)
            }>
        }""", ([i([9]), b([True]), f(0)], [f(3)]), ([i([2]), b([True]), f(0)], [f(2)]),
         ([i([9]), b([False]), f(0)], [f(0)]))
    case("loop_mixed_scalar_and_shape_1", """
        g (int64 m, bool[1] t, float s) => (float y, int64[n, 1] k) <float h = {3}> {
            y, k = Loop(m, t, s) <body = b (int64[1] i, bool c, float s) => (bool c2, float r, int64[1] k) {
                one = Constant <value = float {1}> ()  r = Add(s, one)  c2 = Less(r, h)  k = Mul(i, i)
            }>
        }""", ([i(9), b([True]), f(0)], [f(3), i([[0], [1], [4]])]))
    case("if_condition_of_shape_1", """
        g (bool[1] c, float x) => (float y) {
            y = If(c) <then_branch = t () => (float r) { r = Neg(x) }, else_branch = e () => (float r) { r = Exp(x) }>
        }""", ([b([True]), f(2)], [f(-2)]), ([b([False]), f(0)], [f(1)]))
    case("if_branches_of_different_rank_and_size", """
        g (bool c, float[2, 3] x) => (float y, int64 n, float[1, k] fl) {
            y = If(c) <then_branch = t () => (float[6] r) { m = Constant <value = int64[1] {-1}> ()  r = Reshape(x, m) },
                       else_branch = e () => (float r) { r = ReduceMax <keepdims = 0> (x) }>
            n = Size(y)  fl = Flatten <axis = 0> (y)
        }""", ([b(True), x], [x.ravel(), i(6), x.reshape(1, 6)]), ([b(False), x], [x.max(), i(1), x.max().reshape(1, 1)]),
         change=no_shapes)
    case("if_in_loop_changes_rank_of_state", """
        g (int64 m, float[2, 2] x) => (float y) <bool t = {1}, int64 two = {2}, int64 zero = {0}> {
            y = Loop(m, t, x) <body = b (int64 i, bool c, float s) => (bool c2, float r) {
                c2 = Identity(c)  k = Mod(i, two)  z = Equal(k, zero)
                r = If(z) <then_branch = t1 () => (float q) { a = Constant <value = int64[1] {-1}> ()  q = Reshape(s, a) },
                           else_branch = e1 () => (float q) { a = Constant <value = int64[2] {-1, 2}> ()  q = Reshape(s, a) }>
            }>
        }""", ([i(3), f([[1, 2], [3, 4]])], [f(1, 2, 3, 4)]), ([i(4), f([[1, 2], [3, 4]])], [f([[1, 2], [3, 4]])]),
         change=no_shapes)
    case("empty_inputs", """
        g (float[n, 3] x) => (float[3] s, float[n, 3] y, int64 k) <int64[1] ax = {0}> {
            s = ReduceSum <keepdims = 0> (x, ax)  y = Tanh(x)  k = Size(x)
        }""", ([np.zeros((0, 3), F)], [np.zeros(3, F), np.zeros((0, 3), F), i(0)]))


def no_shapes(m):
    """Removes all declared shapes but those of the inputs."""
    no_output_shapes(m)
    for n in m.graph.node:
        for a in n.attribute:
            if a.HasField("g"):
                for v in list(a.g.input) + list(a.g.output):
                    v.type.tensor_type.ClearField("shape")


def no_output_shapes(m):
    for v in m.graph.output:
        v.type.tensor_type.ClearField("shape")


def untyped(name):
    def change(m):
        for n in m.graph.node:
            for a in n.attribute:
                for v in a.g.output:
                    if v.name == name:
                        v.ClearField("type")
    return change


# ---- scoping and optional slots -----------------------------------------------------------------------------
def scoping():
    def count(m, c):
        return """
        g (int64 m, bool t, int64 lim, float x) => (float y, float[n] e) {
            y, e = Loop(%s, %s, x) <body = b (int64 i, bool c, float s) => (bool c2, float r, float q) {
                one = Constant <value = float {1}> ()  k1 = Constant <value = int64 {1}> ()
                r = Add(s, one)  q = Mul(s, s)  n = Add(i, k1)  c2 = Less(n, lim)
            }>
        }""" % (m, c)

    def run(n):
        return [f(1 + n), f([(1 + k) ** 2 for k in range(n)])]

    case("loop_m_and_cond", count("m", "t"), ([i(5), b(True), i(3), f(1)], run(3)), ([i(2), b(True), i(3), f(1)], run(2)),
         ([i(5), b(False), i(3), f(1)], run(0)), ([i(0), b(True), i(3), f(1)], run(0)), ([i(-4), b(True), i(3), f(1)], run(0)))
    case("loop_cond_only", count('""', "t"), ([i(5), b(True), i(7), f(1)], run(7)), ([i(5), b(False), i(7), f(1)], run(0)),
         ([i(5), b(True), i(0), f(1)], run(1)))
    case("loop_m_only_ignores_body_condition", count("m", '""'), ([i(5), b(True), i(2), f(1)], run(5)),
         ([i(0), b(True), i(2), f(1)], run(0)))
    fault("loop_runs_away", count('""', "t"), [i(5), b(True), i(2 ** 50), f(1)], "iteration",
          args=["--max-iterations", "5000"])
    items = """
        g (int64 m, float[k, 40] x) => (float[n, 40] y) <bool t = {1}, int64 steps = {%d}> {
            y = Loop(m, t) <body = b (int64 i, bool c) => (bool c2, float[40] r) {
                c2 = Identity(c)  e = Gather <axis = 0> (x, i)
                r = Loop(steps, t, e) <body = s (int64 j, bool d, float[40] h) => (bool d2, float[40] h2) {
                    d2 = Identity(d)  a = Add(h, e)  h2 = Tanh(a)
                }>
            }>
        }"""
    few, many = (items % n for n in (3, 40))
    h = x40 = rnd(40, 40)
    for _ in range(3):
        h = np.tanh(h + x40)
    case("loop_of_independent_items", few, ([i(40), x40], [h]), ([i(0), x40], [h[:0]]))
    for limit, text in ((39, few), (39, many)):
        fault("loop_of_independent_items_limited_to_%d_of_%s" % (limit, "few" if text is few else "many"), text, [i(40), x40],
              "iteration limit", args=["--max-iterations", str(limit), "--schedule", "interchange=on"])
    case("outputs_without_a_name", """
        g (int64 m, float[4] x) => (float[4] y, float[n] e, int64[2] k) <bool t = {1}, int64[1] two = {2}> {
            "", y, "", e = Loop(m, t, x, x) <body = b (int64 i, bool c, float[4] a, float[4] b) =>
                                                      (bool c2, float[4] a2, float[4] b2, float[4] q, float p) {
                c2 = Identity(c)  a2 = Neg(a)  b2 = Add(b, a2)  q = Abs(b)  p = ReduceSum <keepdims = 0> (b)
            }>
            "", k = TopK(x, two)
        }""", ([i(2), f(1, -2, 3, 0)], [f(1, -2, 3, 0), f(2, 0), i(2, 0)]))
    case("if_outputs_without_a_name", """
        g (bool c, float x) => (float y) {
            "", y = If(c) <then_branch = t () => (float p, float q) { p = Neg(x)  q = Exp(x) },
                           else_branch = e () => (float p, float q) { p = Exp(x)  q = Neg(x) }>
        }""", ([b(True), f(0)], [f(1)]), ([b(False), f(3)], [f(-3)]))
    case("body_input_shadows_outer_name", """
        g (int64 m, float x, float s) => (float y, float z) <bool t = {1}> {
            y = Loop(m, t, s) <body = b (int64 i, bool c, float x) => (bool c2, float r) {
                c2 = Identity(c)  r = Add(x, x)
            }>
            z = Add(x, y)
        }""", ([i(3), f(100), f(1)], [f(8), f(108)]))
    case("inner_loop_shadows_outer_loop", """
        g (int64 m, float s) => (float y, float[n] e) <bool t = {1}, int64 two = {2}, float h = {0.5}> {
            y, e = Loop(m, t, s) <body = b (int64 i, bool c, float s) => (bool c2, float r, float e) {
                c2 = Identity(c)  fi = Cast <to = 1> (i)
                r = Loop(two, c, s) <body = b2 (int64 i, bool c, float s) => (bool c2, float r) {
                    c2 = Identity(c)  k = Cast <to = 1> (i)  q = Add(s, k)  r = Add(q, fi)
                }>
                e = Mul(s, h)
            }>
        }""", ([i(3), f(0)], [f(0 + 1 + 3 + 5), f(0, .5, 2)]))
    case("body_node_shadows_outer_name", """
        g (bool c, float x) => (float y, float z) {
            w = Exp(x)
            y = If(c) <then_branch = t () => (float w) { w = Neg(x) }, else_branch = e () => (float r) { r = Abs(x) }>
            z = Add(w, y)
        }""", ([b(True), f(0)], [f(0), f(1)]), ([b(True), f(2)], [f(-2), f(np.exp(2) - 2)]))
    case("branch_output_is_an_outer_value", """
        g (bool c, float[2] x, float[2] y) => (float[2] a, float[2] bb, float[2] d) <float[2] w = {7, 8}> {
            n = Neg(x)
            a = If(c) <then_branch = t () => (float[2] x) { }, else_branch = e () => (float[2] y) { }>
            bb = If(c) <then_branch = t2 () => (float[2] n) { }, else_branch = e2 () => (float[2] w) { }>
            d = If(c) <then_branch = t3 () => (float[2] w) { }, else_branch = e3 () => (float[2] r) { r = Identity(n) }>
        }""", ([b(True), f(1, 2), f(3, 4)], [f(1, 2), f(-1, -2), f(7, 8)]),
         ([b(False), f(1, 2), f(3, 4)], [f(3, 4), f(7, 8), f(-1, -2)]))
    x, w = rnd(3), rnd(3)
    want, acc = np.zeros(3, F), np.zeros(3, F)
    for p in range(2):
        top = x * p
        for q in range(3):
            acc = acc + top + (w if (p + q) % 2 == 0 else x)
    case("captures_from_several_levels", """
        g (float[3] x, float[3] w, float[3] z) => (float[3] y)
            <bool t = {1}, int64 two = {2}, int64 three = {3}, int64 zero = {0}> {
            y = Loop(two, t, z) <body = b1 (int64 p, bool c1, float[3] s) => (bool c1o, float[3] so) {
                c1o = Identity(c1)  pf = Cast <to = 1> (p)  top = Mul(x, pf)
                so = Loop(three, c1, s) <body = b2 (int64 q, bool c2, float[3] v) => (bool c2o, float[3] vo) {
                    c2o = Identity(c1)  k = Add(p, q)  k2 = Mod(k, two)  even = Equal(k2, zero)
                    vo = If(even) <then_branch = t () => (float[3] r) { u = Add(v, top)  r = Add(u, w) },
                                   else_branch = e () => (float[3] r) { u = Add(v, top)  r = Add(u, x) }>
                }>
            }>
        }""", ([x, w, want], [acc]))
    case("nodes_out_of_order", """
        g (int64 m, float x) => (float y) <bool t = {1}> {
            y = Neg(v)
            v = Loop(m, t, u) <body = b (int64 i, bool c, float s) => (bool c2, float r) {
                r = Add(q, u)  q = Mul(s, two)  two = Constant <value = float {2}> ()  c2 = Not(n)  n = Not(c)
            }>
            u = Add(x, x)
        }""", ([i(3), f(1)], [f(-(((2 * 2 + 2) * 2 + 2) * 2 + 2))]))
    def inner_init(m):
        sub = m.graph.node[0].attribute[0].g
        sub.initializer.append(numpy_helper.from_array(f(10), "k"))
    case("initializer_in_a_subgraph", """
        g (bool c, float x) => (float y) {
            y = If(c) <then_branch = t () => (float r) { r = Add(x, k) }, else_branch = e () => (float r) { r = Neg(x) }>
        }""", ([b(True), f(1)], [f(11)]), ([b(False), f(1)], [f(-1)]), change=inner_init)


# ---- Scan ------------------------------------------------------------------------------------------------------
def scans():
    x, z = rnd(4, 3), rnd(2, 4)
    s, sums, pairs = np.zeros(3, F), [], []
    for k in range(4):
        s = s + x[k] * z[:, 3 - k].sum()
        sums.append(s)
        pairs.append(x[k][:2] - z[:, 3 - k])
    case("scan_directions_and_negative_axes", """
        g (float[3] s, float[4, 3] x, float[2, 4] z) => (float[3] y, float[3, 4] a, float[4, 2] p, float[4, 2] q) {
            y, a, p, q = Scan <num_scan_inputs = 2, scan_input_axes = [-2, -1], scan_input_directions = [0, 1],
                               scan_output_axes = [-1, 0, -2], scan_output_directions = [0, 1, 0],
                body = b (float[3] s, float[3] u, float[2] v) => (float[3] so, float[3] ao, float[2] po, float[2] qo) {
                    k = ReduceSum <keepdims = 1> (v)  t = Mul(u, k)  so = Add(s, t)  ao = Identity(so)
                    st = Constant <value = int64[1] {0}> ()  en = Constant <value = int64[1] {2}> ()
                    h = Slice(u, st, en)  po = Sub(h, v)  qo = Neg(v)
                }> (s, x, z)
        }""", ([np.zeros(3, F), x, z], [s, np.stack(sums, 1), np.stack(pairs)[::-1], -z[:, ::-1].T]))
    for n in (0, 1, 5):
        xx = rnd(2, n, 3)
        acc = np.cumsum(xx, 1)
        case("scan_length_%d_on_axis_1" % n, """
            g (float[2, 3] s, float[2, n, 3] x) => (float[2, 3] y, float[2, n, 3] a) {
                y, a = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                    body = b (float[2, 3] s, float[2, 3] u) => (float[2, 3] so, float[2, 3] ao) {
                        so = Add(s, u)  ao = Add(s, u)
                    }> (s, x)
            }""", ([np.zeros((2, 3), F), xx], [xx.sum(1), acc]))
    case("scan_fewer_outputs_than_inputs", """
        g (float[n, 2] x, float[n, 2] z, float[n] w) => (float[n, 2] y) {
            y = Scan <num_scan_inputs = 3, body = b (float[2] a, float[2] b, float c) => (float[2] r) {
                    t = Add(a, b)  r = Mul(t, c)
                }> (x, z, w)
        }""", ([x[:, :2], x[:, 1:], f(1, 2, 3, 4)], [(x[:, :2] + x[:, 1:]) * f(1, 2, 3, 4)[:, None]]))
    case("scan_returns_its_input_and_state", """
        g (float[2] s, float[n, 2] x) => (float[2] y, float[n, 2] a, float[n, 2] c, float[n, 2] d) {
            y, a, c, d = Scan <num_scan_inputs = 1, scan_output_directions = [0, 1, 0],
                body = b (float[2] s, float[2] u) => (float[2] u, float[2] u, float[2] s, float[2] s) { }> (s, x)
        }""", ([f(9, 9), f([[1, 2], [3, 4], [5, 6]])],
               [f(5, 6), f([[1, 2], [3, 4], [5, 6]]), f([[3, 4], [1, 2], [9, 9]]), f([[9, 9], [1, 2], [3, 4]])]))
    x8 = rnd(2, 3, 2)
    scan8 = """
        g (float[2, 2] s, float[2, 3, 2] x) => (float[2, 2] y, float[2, 3, 2] a) {
            y, a = Scan <num_scan_inputs = 1%s, body = b (float[2] s, float[2] u) => (float[2] so, float[2] ao) {
                so = Add(s, u)  ao = Identity(so)
            }> ("", s, x)
        }"""
    s0 = np.zeros((2, 2), F)
    case("scan_8_with_batch", scan8 % "", ([s0, x8], [x8.sum(1), np.cumsum(x8, 1)]), opset=8)
    rev = np.cumsum(x8[:, ::-1], 1)
    case("scan_8_reverse", scan8 % ", directions = [1]", ([s0, x8], [x8.sum(1), rev]), opset=8)
    lens = i(2, 3)
    part = np.cumsum(x8, 1)
    part[0, 2] = 0
    case("scan_8_sequence_lens", """
        g (int64[2] l, float[2, 2] s, float[2, 3, 2] x) => (float[2, 2] y, float[2, 3, 2] a) {
            y, a = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] u) => (float[2] so, float[2] ao) {
                so = Add(s, u)  ao = Identity(so)
            }> (l, s, x)
        }""", ([lens, s0, x8], [np.stack([x8[0, :2].sum(0), x8[1].sum(0)]), part]), opset=8)
    fault("scan_inputs_of_different_length", """
        g (float[n] x, float[k] z) => (float[n] y) {
            y = Scan <num_scan_inputs = 2, body = b (float u, float v) => (float r) { r = Add(u, v) }> (x, z)
        }""", [f(1, 2), f(1, 2, 3)], "Scan.*length|length")


def sig(x):
    return 1 / (1 + np.exp(-x))


# ---- what exporters write ----------------------------------------------------------------------------------------
def exporters():
    x, w = rnd(2, 3), rnd(3, 3)
    funs = """
        <domain: "pkg", opset_import: ["" : 18]> true_fn (a, c) => (r) { t = MatMul(a, c)  r = Relu(t) }
        <domain: "pkg", opset_import: ["" : 18]> false_fn (a, c) => (r) { t = Sub(a, a)  u = MatMul(a, c)  r = Add(t, u) }"""
    case("torch_cond", """
        g (bool c, float[2, 3] x, float[3, 3] w) => (float[2, 3] y) {
            y = If(c) <then_branch = t () => (float[2, 3] r) { r = pkg.true_fn(x, w) },
                       else_branch = e () => (float[2, 3] r) { r = pkg.false_fn(x, w) }>
        }""" + funs, ([b(True), x, w], [np.maximum(x @ w, 0)]), ([b(False), x, w], [x @ w]), extra=', "pkg" : 1')
    case("torch_while_loop", """
        g (int64 i0, float[3] x) => (int64 n, float[3] y) {
            c0 = pkg.cond_fn(i0, x)
            n, y = Loop("", c0, i0, x) <body = b (int64 it, bool cin, int64 k, float[3] s) => (bool c, int64 k2, float[3] s2) {
                k2, s2 = pkg.body_fn(k, s)  c = pkg.cond_fn(k2, s2)
            }>
        }
        <domain: "pkg", opset_import: ["" : 18]> body_fn (k, s) => (k2, s2) {
            one = Constant <value = int64 {1}> ()  k2 = Add(k, one)  h = Constant <value = float {0.5}> ()  t = Mul(s, h)
            s2 = Add(t, h)
        }
        <domain: "pkg", opset_import: ["" : 18]> cond_fn (k, s) => (c) {
            lim = Constant <value = int64 {4}> ()  c = Less(k, lim)
        }""", ([i(0), f(1, 0, 5)], [i(4), ((f(1, 0, 5) / 2 + .5) / 2 + .5) / 4 + f(.75)]), ([i(6), f(1, 2, 3)], [i(6), f(1, 2, 3)]),
         extra=', "pkg" : 1')
    xs = rnd(4, 2)
    case("torch_scan_reverse", """
        g (float[2] s, float[4, 2] x) => (float[2] y, float[4, 2] a) {
            y, a = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
                body = b (float[2] s, float[2] u) => (float[2] so, float[2] ao) { so, ao = pkg.combine(s, u) }> (s, x)
        }
        <domain: "pkg", opset_import: ["" : 18]> combine (s, u) => (so, ao) { so = Add(s, u)  ao = Identity(so) }""",
         ([np.zeros(2, F), xs], [xs.sum(0), np.cumsum(xs[::-1], 0)[::-1]]), extra=', "pkg" : 1')
    case("torchscript_list_append_and_stack", """
        g (int64 m, float[2] x) => (float[n, 2] y, int64 k, float[2] last) <bool t = {1}, int64 minus = {-1}> {
            q0 = SequenceEmpty()
            q, v = Loop(m, t, q0, x) <body = b (int64 i, bool c, seq(float[2]) q, float[2] v) => (bool c2, seq(float[2]) q2, float[2] v2) {
                c2 = Identity(c)  v2 = Add(v, v)  q2 = SequenceInsert(q, v2)
            }>
            k = SequenceLength(q)  y = ConcatFromSequence <axis = 0, new_axis = 1> (q)  last = SequenceAt(q, minus)
        }""", ([i(3), f(1, 3)], [f([[2, 6], [4, 12], [8, 24]]), i(3), f(8, 24)]))
    case("sequence_of_uneven_elements_in_loop", """
        g (int64 m, float[4] x) => (float[n] y, int64 k, int64 z) <bool t = {1}, int64[1] zero = {0}, int64 one = {1}> {
            q0 = SequenceEmpty()
            q = Loop(m, t, q0) <body = b (int64 i, bool c, seq(float[n]) q) => (bool c2, seq(float[n]) q2) {
                c2 = Identity(c)  sh = Constant <value = int64[1] {1}> ()  e = Reshape(i, sh)  p = Slice(x, zero, e)
                q2 = SequenceInsert(q, p)
            }>
            k = SequenceLength(q)  y = ConcatFromSequence <axis = 0> (q)  a = SequenceAt(q, one)  z = Size(a)
        }""", ([i(4), f(1, 2, 3, 4)], [f(1, 1, 2, 1, 2, 3), i(4), i(1)]))
    for opset in (18, 19, 20, 21, 23, NEWEST):
        case("opset_%d" % opset, """
            g (int64 m, float[3] x) => (float[3] y, float[n, 3] e) <bool t = {1}> {
                y, e = Loop(m, t, x) <body = b (int64 i, bool c, float[3] s) => (bool c2, float[3] r, float[3] q) {
                    c2 = Identity(c)  r = Tanh(s)  q = Sigmoid(r)
                }>
            }""", ([i(1), x[0]], [np.tanh(x[0]), sig(np.tanh(x[:1]))]), opset=opset)
    for opset in (7, 8, 9, 10, 11, 12, 13):
        axes = "o = Squeeze <axes = [0]> (u)" if opset < 13 else "ax = Constant <value = int64[1] {0}> ()  o = Squeeze(u, ax)"
        case("old_opset_%d" % opset, """
            g (int64 m, bool t, float[3] x) => (float[3] y, float[n, 3] e, float[3] z) {
                y, e = Loop(m, t, x) <body = b (int64 i, bool c, float[3] s) => (bool c2, float[3] r, float[3] q) {
                    c2 = Identity(c)  r = Add(s, x)  u = Unsqueeze%s  %s  q = Tanh(o)
                }>
                z = If(t) <then_branch = tb () => (float[3] r) { r = Neg(y) }, else_branch = eb () => (float[3] r) { r = Abs(y) }>
            }""" % (" <axes = [0]> (r)" if opset < 13 else "(r, ax0)", axes),
             ([i(2), b(True), x[0]], [3 * x[0], np.tanh(np.stack([2 * x[0], 3 * x[0]])), -3 * x[0]]), opset=opset,
             change=None if opset < 13 else lambda m: m.graph.initializer.append(numpy_helper.from_array(i([0]), "ax0")))


    sound, win = rnd(2, 40), np.hanning(17)[:16].astype(F)
    frames = np.stack([sound[:, k:k + 16] * win for k in range(0, 25, 4)], 1)
    spectrum = np.fft.rfft(frames)
    case("torch_stft_of_rank_2", """
        g (float[b, n] x, float[16] w) => (float[b, t, 9, 2] y) <int64 hop = {4}, int64 n = {16}> { y = STFT <onesided = 1> (x, hop, w, n) }""",
         ([sound, win], [np.stack([spectrum.real, spectrum.imag], -1).astype(F)]), opset=17)
    # Optimizers write these into files of any opset.
    h, scale, bias = rnd(2, 5, 8), rnd(8), rnd(8)
    mean, d = h.mean(-1, keepdims=True), h - h.mean(-1, keepdims=True)
    inv = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + F(1e-3))
    rms = 1 / np.sqrt((h * h).mean(-1, keepdims=True) + F(1e-5))
    for opset in (7, 9, 12, 16):
        case("layer_norm_early_%d" % opset, """
            g (float[a, b, 8] x, float[8] w, float[8] v) => (float[a, b, 8] y, float[a, b, 1] m, float[a, b, 1] i, float[a, b, 8] z) {
                y, m, i = LayerNormalization <axis = -1, epsilon = 1e-3, stash_type = 1> (x, w, v)  z = LayerNormalization <epsilon = 1e-3> (x, w)
            }""", ([h, scale, bias], [d * inv * scale + bias, mean, inv, d * inv * scale]), opset=opset)
    for opset in (8, 13, 18):
        case("simplified_layer_norm_%d" % opset, """
            g (float[a, b, 8] x, float[8] w) => (float[a, b, 8] y, float[a, b, 1] i) { y, i = SimplifiedLayerNormalization <axis = -1> (x, w) }""",
             ([h, scale], [h * rms * scale, rms]), opset=opset)
    fault("gelu_early", "g (float[3] x) => (float[3] y) { y = Gelu(x) }", [x[0]], "came with opset 20", opset=12)


# ---- first implementations -----------------------------------------------------------------------------------------
def firsts():
    case("loop_outputs_are_inputs_outer_values_counter", """
        g (int64 m, float[2] x, float[2] w) => (float[2] a, float[2] bb, int64 k, float[2] d, int64[n] cnt,
                                                float[n, 2] sa, float[n, 2] sw, int64[n] cnt2, float[n, 2] sa2, bool[n] cs)
            <bool t = {1}, int64 z = {-5}> {
            a, bb, k, d, cnt, sa, sw, cnt2, sa2, cs = Loop(m, t, x, x, z, x) <body = b (int64 i, bool c, float[2] p, float[2] q,
                int64 j, float[2] r) => (bool c, float[2] p, float[2] w, int64 i, float[2] p2, int64 i, float[2] r, float[2] w,
                int64 i, float[2] r, bool c) { p2 = Add(r, w) }>
        }""", ([i(3), f(1, 2), f(10, 20)],
               [f(1, 2), f(10, 20), i(2), f(31, 62), i(0, 1, 2), f([[1, 2], [11, 22], [21, 42]]), f([[10, 20]] * 3),
                i(0, 1, 2), f([[1, 2], [11, 22], [21, 42]]), b([True] * 3)]),
         ([i(0), f(1, 2), f(10, 20)],
          [f(1, 2), f(1, 2), i(-5), f(1, 2), i([]), np.zeros((0, 2), F), np.zeros((0, 2), F), i([]), np.zeros((0, 2), F),
           b([])]))
    case("one_value_as_two_states", """
        g (int64 m, float[3] x, float[3] y) => (float[3] a, float[3] bb, float[n, 3] e, float[n, 3] e2) <bool t = {1}> {
            a, bb, e, e2 = Loop(m, t, x, y) <body = b (int64 i, bool c, float[3] p, float[3] q) =>
                    (bool c2, float[3] r, float[3] r, float[3] r, float[3] r) {
                c2 = Identity(c)  r = Add(p, q)
            }>
        }""", ([i(2), f(1, 2, 3), f(0, 1, 0)], [f(2, 6, 6), f(2, 6, 6), f([[1, 3, 3], [2, 6, 6]]), f([[1, 3, 3], [2, 6, 6]])]))
    case("if_one_value_as_two_outputs", """
        g (bool c, float[2] x) => (float[2] a, float[2] bb) {
            a, bb = If(c) <then_branch = t () => (float[2] r, float[2] r) { r = Neg(x) },
                           else_branch = e () => (float[2] x, float[2] r) { r = Abs(x) }>
        }""", ([b(True), f(1, 2)], [f(-1, -2), f(-1, -2)]), ([b(False), f(1, -2)], [f(1, -2), f(1, 2)]))
    for n in range(5):
        st = [f(1, 1, 1, 1, 1), f(2, 2, 2, 2, 2), f(3, 3, 3, 3, 3)]
        for _ in range(n):
            st = [st[1], st[2], st[0]]
        case("states_rotate_%d" % n, """
            g (int64 m, float[5] x, float[5] y, float[5] z) => (float[5] a, float[5] bb, float[5] d) <bool t = {1}> {
                a, bb, d = Loop(m, t, x, y, z) <body = b (int64 i, bool c, float[5] p, float[5] q, float[5] r) =>
                    (bool c, float[5] q, float[5] r, float[5] p) { }>
            }""", ([i(n), f([1] * 5), f([2] * 5), f([3] * 5)], st))
    case("scalar_states_swap", """
        g (int64 m, int64 x, int64 y, float u, float v) => (int64 a, int64 bb, float d, float e) <bool t = {1}> {
            a, bb, d, e = Loop(m, t, x, y, u, v) <body = b (int64 i, bool c, int64 p, int64 q, float r, float s) =>
                (bool c, int64 q, int64 p, float s, float r) { }>
        }""", ([i(3), i(1), i(2), f(3), f(4)], [i(2), i(1), f(4), f(3)]))
    a, c = f(0, 1, 2), f(1, 1, 1)
    for _ in range(5):
        a, c = a + c, a - c      # c's new value reads the old a
    case("old_state_read_after_its_replacement", """
        g (int64 m, float[3] x, float[3] y) => (float[3] a, float[3] bb) <bool t = {1}> {
            a, bb = Loop(m, t, x, y) <body = b (int64 i, bool c, float[3] p, float[3] q) => (bool c2, float[3] p2, float[3] q2) {
                c2 = Identity(c)  p2 = Add(p, q)  q2 = Sub(p, q)
            }>
        }""", ([i(5), f(0, 1, 2), f(1, 1, 1)], [a, c]))
    case("state_reads_itself_reversed", """
        g (int64 m, float[5] x) => (float[5] y) <bool t = {1}, int64[5] p = {4, 3, 2, 1, 0}> {
            y = Loop(m, t, x) <body = b (int64 i, bool c, float[5] s) => (bool c2, float[5] r) {
                c2 = Identity(c)  q = Gather(s, p)  r = Add(s, q)
            }>
        }""", ([i(2), f(1, 2, 3, 4, 5)], [f(12, 12, 12, 12, 12)]))
    for name, onnx_type, np_type, start, step in (("int8", "int8", np.int8, 100, 7), ("uint8", "uint8", np.uint8, 250, 9),
                                                  ("int16", "int16", np.int16, 32000, 1000),
                                                  ("int32", "int32", np.int32, 2 ** 31 - 3, 2), ("int64", "int64", I, 2 ** 63 - 3, 2),
                                                  ("uint32", "uint32", np.uint32, 2 ** 32 - 2, 5)):
        v = np.array([start], np_type)
        for _ in range(6):
            v = (v + np.array([step], np_type)).astype(np_type)
        w = np.array([start], np_type)
        for _ in range(6):
            w = (w * np.array([3], np_type)).astype(np_type)
        case("wraps_" + name, """
            g (int64 m, TYPE[1] x, TYPE[1] k, TYPE[1] three) => (TYPE[1] y, TYPE[1] z) <bool t = {1}> {
                y, z = Loop(m, t, x, x) <body = b (int64 i, bool c, TYPE[1] s, TYPE[1] q) => (bool c2, TYPE[1] r, TYPE[1] p) {
                    c2 = Identity(c)  r = Add(s, k)  p = Mul(q, three)
                }>
            }""".replace("TYPE", onnx_type),
             ([i(6), np.array([start], np_type), np.array([step], np_type), np.array([3], np_type)], [v, w]))
    pairs = rnd(1, 5, 2)      # gcc 12 adds the second of each pair twice
    case("sum_of_pairs_in_reverse", """
        g (float[1, N, 2] x) => (float y) <int64[2] k = {-1, -2}> {
            e = Exp(x)  q = Gather <axis = -1> (e, k)  y = ReduceSum <keepdims = 0> (q)
        }""", ([pairs], [np.exp(pairs).sum()]), ([pairs[:, :2]], [np.exp(pairs[:, :2]).sum()]))
    case("integer_division_truncates", """
        g (int32[4] x, int32[4] d) => (int32[4] q, int32[4] r, int32[4] fr) {
            q = Div(x, d)  r = Mod(x, d)  fr = Mod <fmod = 1> (x, d)
        }""", ([np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)],
               [np.array([3, -3, -3, 3], np.int32), np.array([1, 1, -1, -1], np.int32), np.array([1, -1, 1, -1], np.int32)]))
    import ml_dtypes
    for name, t, tiny in (("float16", np.float16, .0004), ("bfloat16", ml_dtypes.bfloat16, .003)):
        # Without rounding at each step this would come to 1.4 (or 4) instead of 1.
        case("rounds_every_step_" + name, """
            g (int64 m, TYPE[2] x, TYPE[2] k) => (TYPE[2] y) <bool t = {1}> {
                y = Loop(m, t, x) <body = b (int64 i, bool c, TYPE[2] s) => (bool c2, TYPE[2] r) {
                    c2 = Identity(c)  r = Add(s, k)
                }>
            }""".replace("TYPE", name), ([i(1000), np.array([1, 1], t), np.array([tiny, 0], t)], [np.array([1, 1], t)]))
        case("rounds_within_an_expression_" + name, """
            g (TYPE[1] x, TYPE[1] k) => (TYPE[1] y) { a = Add(x, k)  c = Add(a, k)  d = Add(c, k)  y = Sub(d, x) }
            """.replace("TYPE", name), ([np.array([1], t), np.array([tiny], t)], [np.array([0], t)]))
    nan = np.float32("nan")
    case("nan_comparisons", """
        g (float[3] x, float[3] y) => (bool[3] le, bool[3] ng, bool[3] ge, bool[3] eq, float[3] mx, bool[3] n) {
            le = LessOrEqual(x, y)  gt = Greater(x, y)  ng = Not(gt)  ge = GreaterOrEqual(x, y)  eq = Equal(x, y)
            mx = Max(x, y)  n = IsNaN(x)
        }""", ([f(nan, 1, 2), f(1, nan, 2)], [b([False, False, True]), b([True, True, True]), b([False, False, True]),
                                           b([False, False, True]), f(nan, nan, 2), b([True, False, False])]))
    case("nan_ends_a_loop", """
        g (int64 m, float x) => (float[n] e) <bool t = {1}, float lim = {100}, float two = {2}> {
            y, e = Loop(m, t, x) <body = b (int64 i, bool c, float s) => (bool c2, float r, float s) {
                r = Mul(s, two)  c2 = LessOrEqual(r, lim)
            }>
        }""", ([i(9), f(nan)], [f([nan])]), ([i(9), f(30)], [f(30, 60)]))
    case("denormals_are_kept", """
        g (int64 m, float[2] x) => (float[2] y) <bool t = {1}, float h = {0.5}, float big = {1e30}, float big2 = {1e12}> {
            s = Loop(m, t, x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] r) {
                c2 = Identity(c)  r = Mul(s, h)
            }>
            a = Mul(s, big)  y = Mul(a, big2)
        }""", ([i(4), f(1e-37, 2e-38)], [(f(1e-37, 2e-38) / F(16)) * F(1e30) * F(1e12)]))
    case("function_names_clash_with_the_caller", """
        g (float x, float t, float r) => (float y, float z) {
            a = pkg.f(x, t)  y = pkg.f(a, r)  q = pkg.outer(y, t)  z = Add(q, t)
        }
        <domain: "pkg", opset_import: ["" : 18]> f (t, x) => (a) { r = Mul(t, t)  y = Add(r, x)  a = Neg(y) }
        <domain: "pkg", opset_import: ["" : 18, "pkg" : 1]> outer (y, r) => (a) { t = pkg.f(r, y)  x = pkg.f(t, r)  a = Sub(x, y) }
        """, ([f(2), f(3), f(5)], [f(-(49 + 5)), f(-((-(9 - 54)) ** 2 + 3) + 54 + 3)]), extra=', "pkg" : 1')
    names = ["a.b", "a/b", "a_b", "int", "for", "a:b", "main", "NULL", "x y", "0", "_a", "a__b", "double", "units", "memcpy"]

    def odd(m):
        g = m.graph
        for k, n in enumerate(names):
            g.node.append(helper.make_node("Add", [names[k - 1] if k else "x", "k%d" % k], [n]))
            g.initializer.append(numpy_helper.from_array(f([k + 1]), "k%d" % k))
            g.output.append(helper.make_tensor_value_info(n, 1, [1]))
    m = helper.make_model(helper.make_graph([], "g/a.b", [helper.make_tensor_value_info("x", 1, [1])], []), ir_version=8,
                          opset_imports=[helper.make_opsetid("", 17)])
    odd(m)
    case("names_that_are_alike_or_keywords", m, ([f([0])], [f([sum(range(1, k + 2))]) for k in range(len(names))]))
    for name, trips, scan in (("", 2 ** 40, False), ("_with_scan_output", 2 ** 40, True), ("_largest", 2 ** 63 - 1, True)):
        case("huge_trip_count_with_early_break" + name, """
            g (int64 m, float[8] x) => (float[8] y SCANT) <bool t = {1}, float lim = {50}> {
                y SCANO = Loop(m, t, x) <body = b (int64 i, bool c, float[8] s) => (bool c2, float[8] r SCANR) {
                    r = Add(s, s)  q = ReduceSum <keepdims = 0> (r)  c2 = Less(q, lim)
                }>
            }""".replace("SCANT", ", float[n, 8] e" if scan else "").replace("SCANO", ", e" if scan else "").replace(
                "SCANR", ", float[8] r" if scan else ""),
             ([i(trips), np.ones(8, F)], [np.full(8, 8, F)] + ([f([[2] * 8, [4] * 8, [8] * 8])] if scan else [])))
    # Nested five deep, each level with state, capture and scan output.
    text, inner, want = "", "", None
    for d in range(5, 0, -1):
        last = d == 5
        text = """v%d, e%d = Loop(two, t, s%d) <body = b%d (int64 i%d, bool c%d, float s%d) => (bool co%d, float r%d, float q%d) {
            co%d = Identity(c%d)  f%d = Cast <to = 1> (i%d)  q%d = Add(s%d, f%d)
            %s
            r%d = Add(%s, one)
        }>""" % (d, d, d - 1, d, d, d, d, d, d, d, d, d, d, d, d, d, d, text, d, "q%d" % d if last else "v%d" % (d + 1))

    def deep(d, s):
        e = []
        for k in range(2):
            q = s + k
            e.append(q)
            s = (q if d == 5 else deep(d + 1, s)[0]) + 1
        return s, e
    want = deep(1, 0.0)
    case("loops_nested_five_deep", "g (float s0) => (float v1, float[n] e1) <int64 two = {2}, bool t = {1}, float one = {1}> { %s }" %
         text, ([f(0)], [f(want[0]), f(want[1])]))


# ---- what people have -------------------------------------------------------------------------------------------------
def people():
    T, N, X, H = 6, 2, 3, 4
    x, w, rw, bias = rnd(T, N, X), rnd(X, 4 * H), rnd(H, 4 * H), rnd(4 * H)
    h, c, ys = np.zeros((N, H), F), np.zeros((N, H), F), []
    for t in range(T):
        gi, gj, gf, go = np.split(x[t] @ w + h @ rw + bias, 4, 1)
        c = sig(gf) * c + sig(gi) * np.tanh(gj)
        h = sig(go) * np.tanh(c)
        ys.append(h)
    case("keras_lstm_by_tf2onnx", """
        g (float[unk__12, unk__13, 3] x, float[3, 16] w, float[4, 16] rw, float[16] bias, float[unk__13, 4] z) =>
            (float[unk__13, 4] h, float[unk__15, unk__13, 4] ys) <bool t = {1}, int64 big = {9223372036854775807}, int64 zero = {0}> {
            sh = Shape(x)  n = Gather(sh, zero)
            k, j, h, cc, ys = Loop(big, t, zero, zero, z, z) <body = b (int64 i, bool cond, int64 k, int64 j, float[unk__16, 4] h,
                    float[unk__17, 4] c) => (bool cond2, int64 k2, int64 j2, float[a, b] h2, float[d, e] c2, float[p, q] y) {
                one = Constant <value = int64 {1}> ()
                k2 = Add(k, one)  j2 = Add(j, one)  xt = Gather(x, j)
                a1 = MatMul(xt, w)  a2 = MatMul(h, rw)  a3 = Add(a1, a2)  a = Add(a3, bias)
                gi, gj, gf, go = Split <axis = 1, num_outputs = 4> (a)
                si = Sigmoid(gi)  tj = Tanh(gj)  sf = Sigmoid(gf)  so = Sigmoid(go)
                u = Mul(sf, c)  v = Mul(si, tj)  c2 = Add(u, v)  tc = Tanh(c2)  h2 = Mul(so, tc)  y = Identity(h2)
                l1 = Less(k2, n)  l2 = Less(j2, n)  cond2 = And(l1, l2)
            }>
        }""", ([x, w, rw, bias, np.zeros((N, H), F)], [h, np.stack(ys)]))
    case("if_of_shape_arithmetic", """
        g (float[N, C] x, float[K] s) => (float y) <int64 zero = {0}, int64[1] one = {1}, int64[1] z1 = {0}> {
            sx = Shape(x)  ss = Shape(s)  n = Gather(sx, zero)  k = Gather(ss, zero)  eq = Equal(n, k)
            y = If(eq) <then_branch = t () => (float r) {
                            a = Slice(sx, z1, one)  b = Concat <axis = 0> (a, one)  q = Reshape(s, b)  r = Mul(x, q) },
                        else_branch = e () => (float r) { u = Unsqueeze(s, z1)  r = Add(x, u) }>
        }""", ([x[0], f(2, 3)], [x[0] * f([[2], [3]])]), ([x[0], f(2, 3, 4)], [x[0] + f(2, 3, 4)]), change=no_shapes)
    buf = np.zeros(64, F)
    src = rnd(50)
    for k in range(2000):
        buf[(k * 7) % 64] = buf[(k * 5) % 64] * F(.5) + src[k % 50]
    case("scatter_into_a_carried_buffer", """
        g (int64 m, float[64] buf, float[50] src) => (float[64] y)
            <bool t = {1}, int64 n = {64}, int64 seven = {7}, int64 five = {5}, int64 fifty = {50}, float h = {0.5}, int64[1] sh = {1}> {
            y = Loop(m, t, buf) <body = b (int64 i, bool c, float[64] s) => (bool c2, float[64] r) {
                c2 = Identity(c)  a = Mul(i, seven)  w = Mod(a, n)  d = Mul(i, five)  q = Mod(d, n)  e = Mod(i, fifty)
                v = Gather(s, q)  u = Gather(src, e)  p = Mul(v, h)  x = Add(p, u)
                wi = Reshape(w, sh)  xi = Reshape(x, sh)  r = ScatterElements <axis = 0> (s, wi, xi)
            }>
        }""", ([i(2000), np.zeros(64, F), src], [buf]))

    def undeclared(m):
        for v in m.graph.node[0].attribute[0].g.input:
            v.type.tensor_type.ClearField("shape")
    case("counter_and_condition_without_shape", """
        g (int64 m, bool c, int64 x) => (int64 y, int64[n] k) {
            y, k = Loop(m, c, x) <body = b (int64 i, bool c, int64 s) => (bool c2, int64 r, int64 i2) {
                lim = Constant <value = int64 {3}> ()  r = Add(s, i)  i2 = Add(i, i)  c2 = Less(i, lim)
            }>
        }""", ([i(10), b(True), i(5)], [i(5 + 6), i(0, 2, 4, 6)]), ([i(2), b(True), i(5)], [i(6), i(0, 2)]), change=undeclared)


# ---- faults -----------------------------------------------------------------------------------------------------------
def faults():
    x = f(1, 2, 3)
    fault("index_out_of_range_in_a_body", """
        g (int64 m, float[3] x) => (float[n] e) <bool t = {1}> {
            e = Loop(m, t) <body = b (int64 i, bool c) => (bool c2, float q) { c2 = Identity(c)  q = Gather(x, i) }>
        }""", [i(4), x], r"body.*(Gather|q)\b.*(index|range)")
    fault("integer_division_by_zero_in_a_body", """
        g (int64 m, int64[2] x) => (int64[n, 2] e) <bool t = {1}> {
            e = Loop(m, t) <body = b (int64 i, bool c) => (bool c2, int64[2] q) { c2 = Identity(c)  q = Div(x, i) }>
        }""", [i(4), i(1, 2)], r"body.*(Div|q)\b.*zero")
    fault("integer_modulo_by_zero", "g (int64[2] x, int64[2] y) => (int64[2] q) { q = Mod(x, y) }", [i(1, 2), i(1, 0)], "zero")
    fault("scan_output_changes_its_shape", """
        g (int64 m, float[1] x) => (float[n, k] e) <bool t = {1}> {
            y, e = Loop(m, t, x) <body = b (int64 i, bool c, float[n] s) => (bool c2, float[k] r, float[k] q) {
                c2 = Identity(c)  r = Concat <axis = 0> (s, s)  q = Neg(r)
            }>
        }""", [i(2), f([1])], "shape")
    add = "g (float[2, N] x, int64 k) => (float[2, N] y) { f = Cast <to = 1> (k)  y = Add(x, f) }"
    fault("input_of_wrong_shape", add, [rnd(3, 2), i(1)], r"\bx\b.*")
    fault("input_of_wrong_rank", add, [rnd(2), i(1)], r"\bx\b.*")
    fault("input_of_wrong_type", add, [rnd(2, 2), f(1)], r"\bk\b.*")
    fault("named_sizes_that_differ", "g (float[N] x, float[N] y) => (float[N] z) { z = Add(x, y) }", [f(1, 2), f(1, 2, 3)], "N")
    fault("matrix_sizes_that_differ", "g (float[N, K] x, float[M, L] y) => (float[N, L] z) { z = MatMul(x, y) }",
          [rnd(2, 3), rnd(2, 3)], "MatMul|size|dimension")
    fault("branches_of_different_type", """
        g (bool c, float x) => (float y) {
            y = If(c) <then_branch = t () => (float r) { r = Neg(x) }, else_branch = e () => (int64 r) { r = Cast <to = 7> (x) }>
        }""", [b(True), f(1)], "type")
    fault("state_changes_its_type", """
        g (int64 m, float x) => (float y) <bool t = {1}> {
            y = Loop(m, t, x) <body = b (int64 i, bool c, float s) => (bool c2, int64 r) { c2 = Identity(c)  r = Cast <to = 7> (s) }>
        }""", [i(2), f(1)], "type")
    for what, args, body, needed in (
            ("argument_of_a_scan_body_of_another_type", "float[2] s, int64 q", "float[2] r, float[2] o) { r = Identity(s)  o = Identity(s) }",
             "'q'.* is declared int64 but is float32"),
            ("result_of_a_scan_body_of_another_type", "float[2] s, float q", "int64[2] r, float[2] o) { r = Identity(s)  o = Identity(s) }",
             "'r'.* is declared int64 but is float32")):
        fault(what, f"""
            g (float[2] s0, float[3] x) => (float[2] s1, float[3, 2] e) {{
                s1, e = Scan(s0, x) <num_scan_inputs = 1, body = b ({args}) => ({body}>
            }}""", [f(1, 2), f(1, 2, 3)], needed)
    for value in (2, -1):
        fault(f"scan_direction_{value}", f"""
            g (float[2] s0, float[3] x) => (float[2] s1, float[3, 2] e) {{
                s1, e = Scan(s0, x)
                    <num_scan_inputs = 1, scan_input_directions = [{value}], body = b (float[2] s, float q) => (float[2] r, float[2] o) {{ r = Identity(s)  o = Add(s, q) }}>
            }}""", [f(1, 2), f(1, 2, 3)], f"scan_input_directions' is {value}, it may be 0 or 1")
    fault("if_with_fewer_outputs_than_its_branches", """
        g (bool c, float x) => (float y) {
            y = If(c) <then_branch = t () => (float r, float q) { r = Neg(x) q = Abs(x) }, else_branch = e () => (float r, float q) { r = Abs(x) q = Neg(x) }>
        }""", [b(True), f(1)], "1 outputs, its branches give 2")
    fault("uneven_parts_before_they_came", "g (float[7] x) => (float[m] y, float[n] z) { y, z = Split <axis = 0> (x) }", [rnd(7)],
          "axis 0 of size 7 into 2 equal parts", 13)
    fault("attribute_with_a_typing_error", "g (float[2, 2] x) => (float[2, 2] y) { y = Softmax <axsi = 0> (x) }", [rnd(2, 2)],
          "Softmax has no attribute 'axsi'")
    fault("sequence_index_out_of_range", """
        g (int64 k, float[2] x) => (float[2] y) { q = SequenceConstruct(x, x)  y = SequenceAt(q, k) }""", [i(2), f(1, 2)],
          "range|index|position")
