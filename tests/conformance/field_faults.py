"""Small models of what cannot run, for field_cases.py: an arm that is wrong is a fault where it is reached, at whatever
depth its error lies, and nothing where it is not."""
from field_models import F, b, case, f, fault, i, model_of, np, onnx

# ---- arms that cannot run ----------------------------------------------------------------------------------------------
# Each as the then_branch of `y = If(c)`: x is float[2, 3], what it gives is lost.
DEAD = {
    "plain": "r = Gather <axis = 0> (x, five)",
    "scan": """
        p, q = Scan <num_scan_inputs = 1, body = s (float[2, 3] a, float[3] u) => (float[2, 3] a2, float[3] v) {
            a2 = Add(a, u)  v = Gather <axis = 0> (a2, five)
        }> (x, x)
        r = Add(p, q)""",
    "scan_in_reverse_below_scan": """
        p, q = Scan <num_scan_inputs = 1, body = s (float[2, 3] a, float[3] u) => (float[2, 3] a2, float[3] v) {
            k, v1 = Scan <num_scan_inputs = 1, scan_input_directions = [1], body = s2 (float o, float w) => (float o2, float w2) {
                o2 = Add(o, w)  w2 = Gather <axis = 0> (u, five)
            }> (zero, u)
            a2 = Add(a, v1)  v = Mul(u, k)
        }> (x, x)
        r = Add(p, q)""",
    "loop": """
        r = Loop(two, t, x) <body = l (int64 j, bool e, float[2, 3] s) => (bool e2, float[2, 3] s2) {
            e2 = Identity(e)  g = Gather <axis = 0> (s, five)  s2 = Add(s, g)
        }>""",
    "loop_whose_state_grows": """
        r1 = Loop(two, t, x) <body = l (int64 j, bool e, float[h, 3] s) => (bool e2, float[h2, 3] s2) {
            e2 = Identity(e)  s2 = Concat <axis = 0> (s, s)  n = Shape(s2)  o = Constant <value = int64[2] {7, 7}> ()
            g = Expand(s2, o)
        }>
        r = Slice(r1, z1, two1)""",
    "both_arms_of_an_if": """
        r = If(d) <then_branch = t2 () => (float[2, 3] v) { v = Gather <axis = 0> (x, five) },
                   else_branch = e2 () => (float[2, 3] v) { v = Gather <axis = 1> (x, five) }>""",
    "both_arms_three_deep": """
        r = If(d) <then_branch = t2 () => (float[2, 3] v) {
                v = If(d2) <then_branch = t3 () => (float[2, 3] w) { w = Gather <axis = 0> (x, five) },
                            else_branch = e3 () => (float[2, 3] w) { w = Reshape(x, five1) }> },
            else_branch = e2 () => (float[2, 3] v) {
                v = If(d2) <then_branch = t4 () => (float[2, 3] w) {
                        k, w = Scan <num_scan_inputs = 1, body = s (float[2, 3] a, float[3] u) => (float[2, 3] a2, float[3] v5) {
                            a2 = Add(a, u)  v5 = Gather <axis = 0> (a2, five)
                        }> (x, x) },
                    else_branch = e4 () => (float[2, 3] w) { w = Gather <axis = 1> (x, five) }> }>""",
    "after_a_loop_that_runs": """
        s, n = Loop(m, t, x) <body = l (int64 j, bool e, float[2, 3] s) => (bool e2, float[2, 3] s2, float[2, 3] o) {
            e2 = Identity(e)  s2 = Neg(s)  o = Exp(s)
        }>
        r = Gather <axis = 1> (s, five)""",
    "below_a_loop_and_an_if": """
        r = Loop(two, t, x) <body = l (int64 j, bool e, float[2, 3] s) => (bool e2, float[2, 3] s2) {
            e2 = Identity(e)
            g = If(d) <then_branch = t2 () => (float[2, 3] v) { v = Gather <axis = 0> (s, five) },
                       else_branch = e2a () => (float[2, 3] v) { v = Reshape(s, five1) }>
            s2 = Add(s, g)
        }>""",
    "map": """
        q = SplitToSequence <axis = 0> (x)
        q2 = SequenceMap <body = bo (float[1, 3] u) => (float[1, 3] v) { v = Gather <axis = 1> (u, five) }> (q)
        r = ConcatFromSequence <axis = 0> (q2)""",
    "by_rank": "k = Relu(a)  k1 = Softmax(k)  r2 = Gather <axis = 0> (x, five)  r = Add(r2, k1)",
    "by_rank_below_scan": """
        p, q = Scan <num_scan_inputs = 1, body = s (float[2, 3] o, float[3] u) => (float[2, 3] o2, float[3] v) {
            k = Softmax(a)  k2 = ReduceSum <keepdims = 0> (k)  o2 = Add(o, k2)  v = Gather <axis = 0> (u, five)
        }> (x, x)
        r = Add(p, q)""",
    "call": "r = dom.wrong(x)",
    "call_of_a_call": "s = Neg(x)  r1 = dom.outer(s)  r = Add(r1, x)",
}
FUNCTIONS = """
    <domain: "dom", opset_import: ["" : 18]> wrong (x) => (y) {
        five = Constant <value = int64 {5}> ()  y = Gather <axis = 0> (x, five)
    }
    <domain: "dom", opset_import: ["" : 18, "dom" : 1]> outer (x) => (y) {
        a, b = Scan <num_scan_inputs = 1, body = s (float[2, 3] o, float[3] u) => (float[2, 3] o2, float[3] v) {
            o2 = Identity(o)  w = Add(u, o)  v1 = dom.wrong(w)  v = Relu(v1)
        }> (x, x)
        y = Add(a, b)
    }"""


def dead_model(dead, twice=False):
    """c chooses the arm that cannot run, else y is -x; twice: inside a loop of one iteration."""
    arms = """If(c) <then_branch = t1 () => (float[2, 3] r) { %s }, else_branch = e1 () => (float[2, 3] q) { q = Neg(x) }>""" % dead
    if twice:
        body = """y = Loop(one, t, x) <body = top (int64 jj, bool ee, float[2, 3] ss) => (bool ee2, float[2, 3] yy) {
            ee2 = Identity(ee)  rr = %s  zz = Sub(ss, ss)  yy = Add(rr, zz)
        }>""" % arms
    else:
        body = "y = " + arms
    return model_of("""
        g (bool c, bool d, bool d2, int64 m, float[2, 3] x, float a) => (float[2, 3] y)
            <bool t = {1}, int64 one = {1}, int64 two = {2}, int64[1] two1 = {2}, int64[1] z1 = {0}, int64 five = {5}, int64[1] five1 = {5},
             float zero = {0}> { %s }
        """ % body + FUNCTIONS, extra=', "dom" : 1')


def no_rank_of_a(m):
    m.graph.input[5].type.tensor_type.ClearField("shape")
    m.graph.output[0].type.tensor_type.ClearField("shape")


def dead_arms():
    x = np.arange(6, dtype=F).reshape(2, 3) - 2
    for name, dead in DEAD.items():
        for twice in (False, True)[:1 + (name in ("scan", "both_arms_three_deep", "map", "by_rank_below_scan", "call_of_a_call"))]:
            m = dead_model(dead, twice)
            if name.startswith("by_rank"):
                no_rank_of_a(m)
            tag = "dead_arm_" + name + ("_in_a_loop" if twice else "")
            live = [b(False), b(True), b(False), i(2), x, f(3)]
            case(tag, m, (live, [-x]))
            fault(tag + "_reached", m, [b(True)] + live[1:], r"y(/body/rr)?/then_branch.*(outside|broadcast|cannot take|axis)")
    m = onnx.ModelProto()
    m.CopyFrom(dead_model(DEAD["both_arms_of_an_if"]))
    m.graph.node[0].attribute[1].g.node[0].op_type = "Gather"    # no arm is left: an error when compiling
    m.graph.node[0].attribute[1].g.node[0].input.append("five")
    fault("dead_arms_only", m, [b(True), b(True), b(False), i(2), x, f(3)], "y/(then|else)_branch.*outside")


# ---- the message of the first fault ----------------------------------------------------------------------------------
def first_faults():
    """Memory that has to grow behind a group that has faulted."""
    more = {"sum": "b = Expand(s, m)  q = CumSum(b, zero)  y = Add(q, b)",
            "loop": """b = Expand(s, m)  y = Loop(nine, t, b) <body = l (int64 j, bool e, float[h] v) => (bool e2, float[h2] v2) {
                e2 = Identity(e)  v1 = Sin(v)  v2 = Concat <axis = 0> (v, v1) }>""",
            "stack": """k = Squeeze(m)  y1 = Loop(k, t) <body = l (int64 j, bool e) => (bool e2, float[4] o) {
                e2 = Identity(e)  f = Cast <to = 1> (j)  o = Mul(x, f) }>  y = Reshape(y1, minus)""",
            "sequence": """k = Squeeze(m)  q0 = SequenceEmpty()
                q = Loop(k, t, q0) <body = l (int64 j, bool e, seq(float[4]) v) => (bool e2, seq(float[4]) v2) {
                e2 = Identity(e)  f = Cast <to = 1> (j)  o = Mul(x, f)  v2 = SequenceInsert(v, o) }>
                y = ConcatFromSequence <axis = 0> (q)"""}
    for name, rest in more.items():
        fault("first_fault_before_memory_of_a_" + name, """
            g (float[4] x, int64[k] i, int64[1] m) => (float[p] y, float s)
                <int64 zero = {0}, int64 nine = {9}, bool t = {1}, int64[1] minus = {-1}> {
                a = Gather <axis = 0> (x, i)  s = ReduceSum <keepdims = 0> (a)  %s
            }""" % rest, [f(1, 2, 3, 4), i(1, 9), i([30000])], r": a \(Gather\): index 9 is outside \[-4, 4\)")


# ---- what would never end ----------------------------------------------------------------------------------------------
SUMS = {    # of what no memory could hold: s is the shape, int64[k]; x is float[1]
    "expand": "b = Expand(x, s)  y = ReduceSum <keepdims = 0> (b)",
    "constant_of_shape": "b = ConstantOfShape(s)  c = Cos(b)  y = ReduceSum <keepdims = 0> (c)",
    "tile": "u = Unsqueeze(x, z1)  b = Tile(u, s)  c = Exp(b)  y = ReduceMean <keepdims = 0> (c)",
    "range": "n = ReduceProd <keepdims = 0> (s)  b = Range(zero, n, one)  c = Cast <to = 1> (b)  y = ReduceMax <keepdims = 0> (c)",
    "product": """a = Expand(x, s)  y1 = MatMul(a, a)  y = ReduceMax <keepdims = 0> (y1)""",
    "outer_sum": """n = ReduceMin <keepdims = 0> (s)  a = Range(zero, n, one)  b = Unsqueeze(a, o1)  c = Add(a, b)  d = Cast <to = 1> (c)
        y = ReduceMax <keepdims = 0> (d)""",
    "pad": "p = Concat <axis = 0> (z1, s)  q = ReduceSum(p)  r = Concat <axis = 0> (z1, q)  b = Pad(x, r)  y = ReduceSum <keepdims = 0> (b)",
    "in_a_loop": """y = Loop(three, t, x0) <body = l (int64 j, bool c, float v) => (bool c2, float w) {
        c2 = Identity(c)  b = Expand(x, s)  d = ReduceSum <keepdims = 0> (b)  w = Add(v, d) }>""",
}


def endless():
    head = "<int64 zero = {0}, int64 one = {1}, int64 three = {3}, int64[1] z1 = {0}, int64[1] o1 = {1}, bool t = {1}, float x0 = {0}>"
    known = head[:-1] + ", int64[2] s = {%d, %d}>"
    what, x = r"\(\w+\): a tensor would have more than 2\^47 bytes", [f([1.5])]
    for name, body in SUMS.items():
        big = i({"pad": [2 ** 60, 5], "outer_sum": [2 ** 24, 2 ** 24]}.get(name, [2 ** 30, 2 ** 30]))
        fault("too_large_" + name, "g (int64[2] s, float[1] x) => (float y) %s { %s }" % (head, body), [big] + x, what)
        fault("too_large_known_" + name, "g (float[1] x) => (float y) %s { %s }" % (known % tuple(big), body), x, what)
    # Where it is not reached it is no error.
    for name, sizes, inputs in (("", "int64[2] s, ", [i(2 ** 30, 2 ** 30)]), ("_known", "", [])):
        case("too_large_in_an_arm" + name, """
            g (%sint64 m, bool c, float[1] x) => (float y, float z) %s {
                y = If(c) <then_branch = a () => (float v) { b = Expand(x, s)  v = ReduceSum <keepdims = 0> (b) },
                           else_branch = e () => (float w) { w = ReduceSum <keepdims = 0> (x) }>
                z = Loop(m, t, x0) <body = l (int64 j, bool k, float o) => (bool k2, float r) {
                    k2 = Identity(k)  b = Expand(x, s)  d = ReduceSum <keepdims = 0> (b)  r = Add(o, d) }>
            }""" % (sizes, known % (2 ** 30, 2 ** 30) if name else head), (inputs + [i(0), b(False)] + x, [f(1.5), f(0)]))
    for op in ("MaxPool", "AveragePool", "LpPool"):
        fault("too_large_window_of_" + op, """
            g (float[1, 1, 2, 2] x) => (float[1, 1, 1, 1] y) {
                y = %s <kernel_shape = [2147483647, 2147483647], pads = [2147483646, 2147483646, 0, 0]> (x)
            }""" % op, [np.ones((1, 1, 2, 2), F)], r"y \(%s\): the window has more" % op)
    n = 2 ** 24
    fault("too_large_by_two_inputs", """
        g (int8[n] x, int8[m] y) => (int8 z) <int64[1] one = {1}> {
            u = Unsqueeze(x, one)  a = Add(u, y)  z = ReduceMax <keepdims = 0> (a)
        }""", [np.zeros(n, np.int8), np.zeros(n + 1, np.int8)], what)
    body = """<body = l (int64 j, bool c, float v) => (bool c2, float w) { h = Constant <value = float {9}> ()  w = Add(v, h)  c2 = Less(w, h) }>"""
    never = r"y \(Loop\): without a trip count and without a condition"
    fault("loop_without_an_end", "g (float x) => (float y) { y = Loop(, , x) %s }" % body, [f(1)], never)
    fault("loop_without_an_end_below", """
        g (bool c, float x) => (float z) {
            z = If(c) <then_branch = a () => (float v) { y = Loop(, , x) %s  v = Neg(y) }, else_branch = e () => (float w) { w = Neg(x) }>
        }""" % body, [b(True), f(1)], "z/then_branch/" + never)
    case("loop_without_an_end_not_reached", """
        g (bool c, float x) => (float z) {
            z = If(c) <then_branch = a () => (float v) { y = Loop(, , x) %s  v = Neg(y) }, else_branch = e () => (float w) { w = Neg(x) }>
        }""" % body, ([b(False), f(1)], [f(-1)]))


# ---- memory ------------------------------------------------------------------------------------------------------------
EATERS = {    # loops that would take all of it; x is float[1000]
    "stack": "y = Loop(, t) <body = l (int64 j, bool c) => (bool c2, float[1000] o) { c2 = Identity(c)  f = Cast <to = 1> (j)  o = Mul(x, f) }>",
    "counted_stack": "y = Loop(m, t) <body = l (int64 j, bool c) => (bool c, float[1000] o) { f = Cast <to = 1> (j)  o = Mul(x, f) }>",
    "state": """y = Loop(, t, x) <body = l (int64 j, bool c, float[h] v) => (bool c2, float[h2] w) {
        c2 = Identity(c)  u = Neg(x)  w = Concat <axis = 0> (v, u) }>""",
    "state_twice_as_long": """y = Loop(, t, x) <body = l (int64 j, bool c, float[h] v) => (bool c2, float[h2] w) {
        c2 = Identity(c)  u = Sin(v)  w = Concat <axis = 0> (v, u) }>""",
    "sequence": """q0 = SequenceEmpty()
        q = Loop(, t, q0) <body = l (int64 j, bool c, seq(float[1000]) v) => (bool c2, seq(float[1000]) w) {
            c2 = Identity(c)  u = Neg(x)  w = SequenceInsert(v, u) }>
        y = ConcatFromSequence <axis = 0> (q)""",
    "inner_stack": """y = Loop(m, t, x) <body = l (int64 j, bool c, float[1000] v) => (bool c2, float[1000] w) {
        c2 = Identity(c)
        z = Loop(, c) <body = l2 (int64 k, bool d) => (bool d2, float[1000] o) { d2 = Identity(d)  f = Cast <to = 1> (k)  o = Mul(v, f) }>
        w = ReduceMax <keepdims = 0> (z, z1) }>""",
}


def memory():
    x = np.ones(1000, F)
    for name, body in EATERS.items():
        fault("limit_of_memory_" + name, "g (int64 m, float[1000] x) => (float[n] y) <bool t = {1}, int64[1] z1 = {0}> { %s }" % body,
              [i(10 ** 9), x], r"(y|q|y/body/z)( \(Loop\)|/body/w \(\w+\)): the run needs \S+ \w+ of memory; the limit is (1\.0 MiB|1048576 bytes) \(--max-memory; --max-iterations",
              args=["--max-memory", "1M"])
    fault("limit_of_memory_node", "g (int64[1] m, float[1] x) => (float[n] y) { b = Expand(x, m)  c = CumSum(b, zero)  y = Sin(c)"
          " zero = Constant <value = int64 {0}> () }",
          [i([10 ** 7]), f([1])], r"\((CumSum|Sin|Expand)\): the run needs \d+ MiB of memory; the limit is 1\.0 MiB", args=["--max-memory", "1048576"])
