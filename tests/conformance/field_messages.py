"""Messages of run-time checks: each has the sizes, indices or counts that it is about (field_cases.py runs them)."""
import re

import numpy as np
from onnx import parser

from field_models import b, f, fault, i, rnd


def said(name, text, inputs, message, opset=18, args=()):
    """The message holds this text, which is not a pattern."""
    fault("says_" + name, text, inputs, re.escape(message), opset, args)


def indices():
    x = rnd(3, 4)
    said("gather", "g (float[N, 4] x, int64[K] i) => (float[N, K] y) { y = Gather <axis = 1> (x, i) }",
         [x, i(0, 7)], "index 7 is outside [-4, 4), axis 1 of input 0 'x'")
    said("gather_one", "g (float[N, 4] x, int64 i) => (float[4] y) { y = Gather <axis = 0> (x, i) }",
         [x, i(-5)], "index -5 is outside [-3, 3), axis 0 of input 0 'x'")
    said("gather_elements", "g (float[N, 4] x, int64[2, 2] i) => (float[2, 2] y) { y = GatherElements <axis = 0> (x, i) }",
         [x, np.array([[0, 1], [2, 3]])], "index 3 is outside [-3, 3), axis 0 of input 0 'x'")
    said("gather_nd", "g (float[N, M] x, int64[2, 2] i) => (float[2] y) { y = GatherND (x, i) }",
         [x, np.array([[0, 1], [2, -9]])], "index -9 is outside [-4, 4), axis 1 of input 0 'x'")
    said("scatter_elements", """
        g (float[N, 4] x, int64[2, 2] i, float[2, 2] u) => (float[N, 4] y) { y = ScatterElements <axis = 1> (x, i, u) }""",
         [x, np.array([[0, 1], [2, 44]]), rnd(2, 2)], "index 44 is outside [-4, 4), axis 1 of input 0 'x'")
    said("scatter_nd", "g (float[N, 4] x, int64[3, 2] i, float[3] u) => (float[N, 4] y) { y = ScatterND (x, i, u) }",
         [x, np.array([[0, 1], [0, 1], [3, 0]]), rnd(3)], "index 3 is outside [-3, 3), axis 0 of input 0 'x'")
    body = """<body = b (int64 i, bool c) => (bool c2, float q) { c2 = Identity(c)  q = Gather(x, i) }>"""
    said("gather_in_a_loop", "g (int64 m, float[N] x) => (float[n] e) <bool t = {1}> { e = Loop(m, t) %s }" % body,
         [i(4), f(1, 2, 3)], "index 3 is outside [-3, 3), axis 0 of input 0 'x'")
    said("sequence", "g (int64 k, float[2] x) => (float[2] y) { q = SequenceConstruct(x, x)  y = SequenceAt(q, k) }",
         [i(2), f(1, 2)], "position 2 is outside [-2, 2)")
    said("top_k", "g (float[2, N] x, int64[1] k) => (float[2, K] v, int64[2, K] j) { v, j = TopK <axis = 1> (x, k) }",
         [rnd(2, 5), np.array([9])], "K = 9 is outside [0, 5], the size of axis 1")
    said("reduce_axis", "g (float[2, 3] x, int64[1] a) => (float[m, n] y) { y = ReduceSum(x, a) }",
         [rnd(2, 3), np.array([5])], "axis 5 is outside [-2, 2)")


def sizes():
    said("broadcast", "g (float[2, N] x, float[2, M] y) => (float[2, K] z) { z = Add(x, y) }",
         [rnd(2, 3), rnd(2, 4)], "sizes 3 and 4 do not broadcast (axis 1 of the result)")
    said("matmul", "g (float[2, N] x, float[M, 2] y) => (float[2, 2] z) { z = MatMul(x, y) }",
         [rnd(2, 3), rnd(4, 2)], "inner sizes 3 and 4")
    said("gemm", "g (float[2, N] x, float[M, 2] y) => (float[2, 2] z) { z = Gemm(x, y) }", [rnd(2, 3), rnd(4, 2)], "(3 and 4)")
    said("concat", "g (float[2, N] x, float[2, M] y) => (float[4, K] z) { z = Concat <axis = 0> (x, y) }",
         [rnd(2, 3), rnd(2, 4)], "3 and 4")
    said("reshape", "g (float[N, 3] x) => (float[2, 4] y) <int64[2] s = {2, 4}> { y = Reshape(x, s) }",
         [rnd(5, 3)], "15 elements cannot take a shape of 8")
    said("reshape_minus_one", "g (float[N, 3] x) => (float[M, 4] y) <int64[2] s = {-1, 4}> { y = Reshape(x, s) }",
         [rnd(5, 3)], "15 elements cannot be divided by 4, the other sizes, for the -1 of the shape")
    said("expand", "g (float[N] x, int64[1] s) => (float[M] y) { y = Expand(x, s) }", [rnd(3), np.array([4])],
         "sizes 3 and 4 do not broadcast")
    said("split", "g (float[N] x, int64[2] s) => (float[A] y, float[B] z) { y, z = Split <axis = 0> (x, s) }",
         [rnd(10), i(3, 4)], "cannot split axis 0 of size 10 into pieces of 3 + 4")
    said("squeeze", "g (float[N, 3] x) => (float[3] y) <int64[1] a = {0}> { y = Squeeze(x, a) }", [rnd(2, 3)], "2, not 1")
    said("split_to_sequence", """
        g (float[N] x, int64[2] s) => (float[M] y) { q = SplitToSequence(x, s)  k = Constant <value_int = 0> ()  y = SequenceAt(q, k) }""",
         [rnd(10), i(3, 4)], "split does not add up to the size of the axis (7 and 10)")
    said("concat_from_sequence", """
        g (float[2, N] x, float[2, M] y) => (float[4, K] z) { q = SequenceConstruct(x, y)  z = ConcatFromSequence <axis = 0> (q) }""",
         [rnd(2, 3), rnd(2, 4)], "inputs 0 and 1 of a concatenation have sizes 3 and 4 (axis 1)")
    said("named", "g (float[N] x, float[2, N] y) => (float[2, N] z) { z = Add(x, y) }", [rnd(3), rnd(2, 4)],
         "input y: axis 1, named N, has size 4, but axis 0 of input x has 3")
    said("iterations", """
        g (int64 m, float x) => (float y) <bool t = {1}> {
            y = Loop(m, t, x) <body = b (int64 i, bool c, float s) => (bool c2, float r) { c2 = Identity(c)  r = Sin(s) }>
        }""", [i(50), f(1)], "the loop reached the iteration limit of 20 (--max-iterations)", args=("--max-iterations", "20"))
    said("scan_lengths", """
        g (float[N] a, float[M] b, float s) => (float t) {
            t = Scan(s, a, b) <num_scan_inputs = 2, body = g2 (float s1, float p, float q) => (float s2) { r = Mul(p, q)  s2 = Add(s1, r) }>
        }""", [rnd(3), rnd(4), f(0)], "(4 and 3)")


def operators():
    """All that are not supported, counted through subgraphs and through functions that are called."""
    foo = 'opset_import: ["" : 18, "com.foo" : 1, "local" : 1]'
    text = """<ir_version: 10, %s>
        g (bool c, float[2] x) => (float[2] y) {
            a = com.foo.Bar(x)
            b = StringNormalizer(a)
            d = If(c) <then_branch = t () => (float[2] r) { r = com.foo.Bar(b) },
                       else_branch = e () => (float[2] r) { r = local.used(b) }>
            y = local.used(d)
        }
        <domain: "local", opset_import: ["" : 18, "com.foo" : 1, "local" : 1]> used (p) => (q) { r = com.foo.Bar(p)  q = local.inner(r) }
        <domain: "local", opset_import: ["" : 18, "com.foo" : 1]> inner (p) => (q) { q = com.foo.Baz(p) }
        <domain: "local", opset_import: ["" : 18, "com.foo" : 1]> unused (p) => (q) { q = com.foo.Nobody(p) }
        """ % foo
    fault("says_operators", parser.parse_model(text), [b(True), f(1, 2)],
          re.escape("3 operators are not supported: com.foo:Bar (3 nodes), StringNormalizer (1), com.foo:Baz (1); first at a"))
    fault("says_operator_twice", parser.parse_model("<ir_version: 10, %s> g (float[2] x) => (float[2] y) "
                                                    "{ a = com.foo.Bar(x)  y = com.foo.Bar(a) }" % foo), [f(1, 2)],
          re.escape("1 operator is not supported: com.foo:Bar (2 nodes); first at a"))


def messages():
    indices()
    sizes()
    operators()
