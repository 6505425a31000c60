"""Small models whose inputs leave their rank or the sizes of one name open, for field_cases.py and
open_ranks.py. In ONNX's text float[] is a tensor of any rank, float a scalar.
"""
import numpy as np

from field_models import F, b, case, f, fault, i, model_of, rnd

LIBRARIES = []   # (name, model, options of compile, [(inputs, outputs, or a pattern of the message)])


def library(name, text, *runs, args=()):
    LIBRARIES.append((name, model_of(text), list(args), runs))


def any_rank(top=4):
    """Tensors of rank 0 to top."""
    return [np.array(rnd(*range(2, 2 + r))) for r in range(top + 1)]


def conv(x, w):
    """Valid convolution over the axes behind the second."""
    y = np.zeros((x.shape[0], w.shape[0]) + tuple(p - q + 1 for p, q in zip(x.shape[2:], w.shape[2:])), F)
    for at in np.ndindex(*y.shape):
        part = x[(at[0], slice(None)) + tuple(slice(p, p + q) for p, q in zip(at[2:], w.shape[2:]))]
        y[at] = (part * w[at[1]]).sum()
    return y


def adds(n):
    lines = ["s0 = Identity(x0)"] + ["s%d = Add(s%d, x%d)" % (k, k - 1, k) for k in range(1, n)]
    return "g (%s) => (float[] s%d) { %s }" % (", ".join("float[] x%d" % k for k in range(n)), n - 1, "  ".join(lines))


RELU = "g (float[] x) => (float[] y) { n = Neg(x)  y = Exp(n) }"
ADD = "g (float[] x, float[] z) => (float[] y) { y = Add(x, z) }"
CONV = """g (float[] x) => (float[] y)
    <float[2, 2, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1}> { n = Neg(x)  y = Conv(n, w) }"""
SLICE = "g (float[] x) => (float[] y) <int64[1] s = {1}, int64[1] e = {9}, int64[1] a = {2}> { y = Slice(x, s, e, a) }"
CONCAT = "g (float[] x, float[] z) => (float[] y) { y = Concat <axis = 1> (x, z) }"
REDUCE = """g (float[] x) => (float[] y, float[] m) <int64[1] a = {1}> {
    y = ReduceSum <keepdims = 0> (x, a)  m = ReduceMean <keepdims = 0> (x) }"""
IF = """g (bool c, float[] x) => (float[] y) <int64[1] a = {0}> {
    y = If(c) < then_branch = t () => (float[] p) { p = Unsqueeze(x, a) },
                else_branch = e () => (float[] q) { q = ReduceMax <keepdims = 0> (x) } > }"""
LOOP = """g (int64 m, float[] x) => (float[] y) <bool t = {1}> {
    y = Loop(m, t, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] r) {
        c2 = Identity(c)  r = Add(s, x) }> }"""
ONE = """g (float[] x) => (float[] y) <float[2, 2] w = {1, 2, 3, 4}> {
    e = Einsum <equation = "abc->acb"> (x)  y = MatMul(e, w) }"""
TWO = "g (float[] x, float[2] z) => (float[n, m] y) { y = Add(x, z) }"


def open_ranks():
    xs = any_rank()
    case("open_elementwise", RELU, *[([x], [np.exp(-x)]) for x in xs + [rnd(*[1, 2] * 4), rnd(*[2, 1] * 6)]])
    case("open_add", ADD, *[([x, z], [x + z]) for x in xs[:3] for z in (f(2), np.array(x[..., :1] if x.ndim else x), x)])
    twelve = [rnd(*[2, 3][2 - k % 3:]) for k in range(12)]
    case("open_add_12", adds(12), (twelve, [sum(twelve[1:], twelve[0])]))
    w = np.array([1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1], F).reshape(2, 2, 2, 2)
    x = rnd(1, 2, 3, 4)
    case("open_conv", CONV, ([x], [conv(-x, w)]))
    fault("open_conv_of_rank_3", CONV, [x[0]], r"input 'x': expected float32\[\?,\?,\?,\?\], got float32\[2,3,4\]")
    case("open_matmul", "g (float[] x, float[] z) => (float[] y) { y = MatMul(x, z) }",
         *[([x, z], [x @ z]) for x, z in ((rnd(3), rnd(3)), (rnd(2, 3), rnd(3)), (rnd(3), rnd(2, 3, 4)), (rnd(2, 1, 2, 3), rnd(5, 3, 1)))])
    case("open_transpose", "g (float[] x) => (float[] y) { y = Transpose(x) }", *[([x], [x.T]) for x in xs])
    case("open_transpose_perm", "g (float[] x) => (float[] y) { y = Transpose <perm = [1, 2, 0]> (x) }",
         ([xs[3]], [xs[3].transpose(1, 2, 0)]))
    case("open_slice", SLICE, *[([x], [x[:, :, 1:]]) for x in xs[3:]])
    fault("open_slice_of_rank_2", SLICE, [xs[2]],
          r"input x of rank 2: y \(Slice\): axis 2 is outside a tensor of rank 2")
    case("open_slice_all", "g (float[] x, int64[] s, int64[] e, int64[] a) => (float[] y) { y = Slice(x, s, e, a) }",
         ([xs[3], i(1), i(9), i(2)][:1] + [np.array([v]) for v in (1, 9, 2)], [xs[3][:, :, 1:]]),
         ([xs[2]] + [np.array(v) for v in ([1, 0], [2, 2], [0, 1])], [xs[2][1:2, :2]]))
    case("open_concat", CONCAT, *[([x, x], [np.concatenate([x, x], 1)]) for x in xs[2:]])
    fault("open_concat_of_two_ranks", CONCAT, [xs[2], xs[3]],
          r"input x of rank 2 and input z of rank 3: y \(Concat\): (tensor|input) 1 has rank 3")
    case("open_reduce", REDUCE, *[([x], [x.sum(1), x.mean()]) for x in xs[2:]])
    case("open_gather", "g (float[] x, int64[] k) => (float[] y) { y = Gather <axis = 1> (x, k) }",
         *[([x, k], [np.take(x, k, 1)]) for x in xs[2:4] for k in (i(1), i(1, 0), i([[0, 1], [1, 1]]))])
    case("open_reshape", "g (float[] x, int64[] s) => (float[] y) { y = Reshape(x, s) }",
         *[([x, np.array(s)], [x.reshape(s)]) for x in xs[3:] for s in ([-1], [2, -1], [2, 1, -1])])
    case("open_if", IF, *[([b(c), x], [x[None] if c else np.array(x.max())]) for x in xs for c in (True, False)])
    case("open_loop", LOOP, *[([i(3), x], [4 * x]) for x in xs])
    case("open_loop_carried_grows", """g (int64 m, float[] x, float[] d) => (float[] y) <bool t = {1}> {
        y = Loop(m, t, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] r) {
            c2 = Identity(c)  r = Concat <axis = 0> (s, d) }> }""",
         *[([i(2), x, x], [np.concatenate([x, x, x])]) for x in xs[1:]])
    case("open_scan", """g (float[] x) => (float[] s, float[] y) <float z = {0}> {
        s, y = Scan <num_scan_inputs = 1, body = b (float a, float[] e) => (float a2, float[] q) {
            m = ReduceSum <keepdims = 0> (e)  a2 = Add(a, m)  q = Neg(e) }> (z, x) }""",
         *[([x], [np.array(x.sum()), -x]) for x in xs[1:]])
    case("open_in_an_arm_that_is_not_taken", """g (bool c, float[] x) => (float[] y) {
        y = If(c) < then_branch = t () => (float[] p) { p = Transpose <perm = [1, 0]> (x) },
                    else_branch = e () => (float[] q) { q = Neg(x) } > }""",
         *[([b(False), x], [-x]) for x in xs], ([b(True), xs[2]], [xs[2].T]))
    case("open_one_rank_works", ONE, ([xs[3][:, :2]], [xs[3][:, :2].transpose(0, 2, 1) @ f([[1, 2], [3, 4]])]))
    fault("open_one_rank_works_not_4", ONE, [xs[4]], r"input x of rank 4: e \(Einsum\): ")
    x = xs[3][:, :2, :2]
    case("open_declared_output", TWO, *[([v, f(1, 2)], [v + f(1, 2)]) for v in (x[0], x)])
    case("open_output_size_is_wrong", "g (float[2, n] x) => (float[3, 7] y) { y = Neg(x) }", ([xs[2][:, :2]], [-xs[2][:, :2]]))
    libraries(xs)
    dim_names()


def libraries(xs):
    library("elementwise", RELU, *[([x], [np.exp(-x)]) for x in xs + [rnd(*[1, 2] * 4)]],
            ([rnd(*[1] * 9)], r"these ranks were not compiled, but: input x of rank 0; input x of rank 1; "))
    library("conv", CONV, ([xs[3]], r"input 'x': expected float32\[\?,\?,\?,\?\], got float32\[2,3,4\]"))
    library("slice", SLICE, ([xs[2]], r"input x of rank 2: y \(Slice\): axis 2 is outside a tensor of rank 2"),
            *[([x], [x[:, :, 1:]]) for x in xs[3:]])
    library("concat", CONCAT, *[([x, x], [np.concatenate([x, x], 1)]) for x in xs[2:]],
            ([xs[2], xs[3]], "these ranks were not compiled, but: input x of rank 2 and input z of rank 2; "))
    library("reduce", REDUCE, *[([x], [x.sum(1), x.mean()]) for x in xs[2:]])
    library("if", IF, *[([b(c), x], [x[None] if c else np.array(x.max())]) for x in xs for c in (True, False)])
    library("loop", LOOP, *[([i(3), x], [4 * x]) for x in xs])
    library("one_works", ONE, ([xs[3][:, :2]], [xs[3][:, :2].transpose(0, 2, 1) @ f([[1, 2], [3, 4]])]),
            ([xs[2]], r"input 'x': expected float32\[\?,\?,\?\], got float32\[2,3\]"))
    x = rnd(3, 2)
    library("declared_output", TWO, ([x, f(1, 2)], [x + f(1, 2)]), ([rnd(2, 3, 2), f(1, 2)], r"expected float32\[\?,\?\], got float32\[2,3,2\]"))
    library("add_of_given_ranks", ADD, ([x, f(1, 2)], [x + f(1, 2)]), ([x, f(1)], "expected float32.[?]., got float32.."),
            args=["--input-shape", "x=?,2", "--input-shape", "z=[?]"])
    library("scalar_given", ADD, ([f(1), f(1, 2)], [f(2, 3)]), args=["--input-shape", "x=[]", "--input-shape", "z=2"])
    library("add", ADD, args=["inputs x, z declare no rank, and more combinations .* --input-shape 'x=\\?,\\?'"])
    library("add_12", adds(12), args=["inputs x0, x1, x2 and 9 more declare no rank, and more"])
    library("none_works", "g (float[] x) => (float[] y) <int64[1] a = {20}> { n = Neg(x)  y = Unsqueeze(n, a) }",
            args=[r"input x declares no rank, and none was found to work: input x of rank \d: y \(Unsqueeze\): "])


NAMES = "g (float[N, 2] x, float[3, N] z) => (float[n] y, float[m] w) { s = ReduceSum(x)  r = ReduceSum(z) y = Neg(s)  w = Neg(r) }"


def dim_names():
    x, z = np.ones((4, 2), F), np.ones((3, 5), F)
    fault("dim_name_broken", NAMES, [x, z],
          r"input z: axis 1, named N, has size \d+, but axis 0 of input x has \d+; --ignore-dim-names compiles without this promise")
    library("dim_name_kept", NAMES, ([x, z[:, :4]], [f([[-8]]), f([[-12]])]), ([x, z], "named N.*--ignore-dim-names"))
    library("dim_name_ignored", NAMES, ([x, z], [f([[-8]]), f([[-15]])]), args=["--ignore-dim-names"])
    fault("dim_name_of_a_square", "g (float[N, N] x) => (float[] y) { y = Neg(x) }", [x], r"input x: axis 1, named N, has size \d+, but axis 0 of input x has \d+")
    for word in ("?", "None", "*", "-1", "UNKNOWN", ""):
        def rename(m, word=word):
            for v in m.graph.input:
                for d in v.type.tensor_type.shape.dim:
                    if d.dim_param:
                        d.dim_param = word
        case("dim_name_that_says_nothing_%d" % len(word) + word[:1].replace("?", "q").replace("*", "s"), NAMES,
             ([x, z], [f([[-8]]), f([[-15]])]), change=rename)
