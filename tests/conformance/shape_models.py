"""Small models whose shape vectors are computed: of a length that only a run knows, and of small integers on the way
to a shape. For field_cases.py; expected values are computed here in numpy.
"""
import numpy as np
from onnx import helper, numpy_helper

from field_models import CASES, F, I, case, f, fault, i, no_output_shapes, rnd


def several(name, text, sets, opset=18):
    """The sets' results may differ in rank: nothing is declared of the outputs. Each set alone also with its shape."""
    case(name, text.replace("OUT", "float"), *sets, opset=opset, change=no_output_shapes)
    case(name + "_declared_scalar", text.replace("OUT", "float"), *sets, opset=opset)
    for k, (ins, outs) in enumerate(sets):
        y = np.asarray(outs[0])
        if y.ndim:
            case("%s_declared_%d" % (name, k), text.replace("OUT", "float[%s]" % ", ".join("s%d" % d for d in range(y.ndim))),
                 (ins, outs), opset=opset)


# ---- vectors of unknown length -------------------------------------------------------------------------------------
def vectors():
    x = rnd(2, 3, 4)
    several("reshape_by_input", "g (float[a, b, c] x, int64[n] s) => (OUT y) { y = Reshape(x, s) }",
            [([x, i([4, 6])], [x.reshape(4, 6)]), ([x, i([-1])], [x.reshape(-1)]),
             ([x, i([0, 0, 2, -1])], [x.reshape(2, 3, 2, 2)]), ([x, i([1, 2, 1, 3, 1, 2, 1, 2])], [x.reshape(1, 2, 1, 3, 1, 2, 1, 2)])])
    one = rnd(1, 1)
    several("reshape_to_scalar_or_more", "g (float[a, b] x, int64[n] s) => (OUT y) { r = Reshape(x, s)  y = Neg(r) }",
            [([one, np.zeros(0, I)], [-one.reshape(())]), ([one, i([1])], [-one.reshape(1)])])
    fault("reshape_by_too_long_an_input", "g (float[a] x, int64[n] s) => (float[n] y) { y = Reshape(x, s) }",
          [f([2]), i([1] * 13)], "more than 12 elements", change=no_output_shapes)
    fault("reshape_to_another_rank_than_declared", "g (float[a] x, int64[n] s) => (float[p, q] y) { y = Reshape(x, s) }",
          [f([2]), i([1, 1, 1])], "must have 2 elements")
    e = rnd(3, 1)
    several("expand_by_input", "g (float[a, b] x, int64[n] s) => (OUT y) { e = Expand(x, s)  y = Neg(e) }",
            [([e, i([3, 4])], [-np.broadcast_to(e, (3, 4))]), ([e, i([5])], [-np.broadcast_to(e, (3, 5))]),
             ([e, i([2, 1, 3, 2])], [-np.broadcast_to(e, (2, 1, 3, 2))]), ([e, np.zeros(0, I)], [-e]),
             ([e, i([2, 1, 1, 1, 2, 1, 1, 2])], [-np.broadcast_to(e, (2, 1, 1, 1, 2, 1, 3, 2))])])
    several("constant_of_shape_by_input", "g (int64[n] s) => (OUT y) { y = ConstantOfShape <value = float[1] {2.5}> (s) }",
            [([i([2, 3])], [np.full((2, 3), 2.5, F)]), ([np.zeros(0, I)], [f(2.5)]), ([i([4])], [np.full(4, 2.5, F)]),
             ([i([2] * 8)], [np.full((2,) * 8, 2.5, F)])])
    case("tile_by_input", "g (float[a, b, c] x, int64[n] r) => (float[p, q, s] y) { y = Tile(x, r) }",
         ([x, i([2, 1, 3])], [np.tile(x, (2, 1, 3))]), ([x, i([1, 0, 1])], [np.tile(x, (1, 0, 1))]))
    fault("tile_by_wrong_length", "g (float[a, b, c] x, int64[n] r) => (float[p, q, s] y) { y = Tile(x, r) }", [x, i([2, 1])],
          "must have 3 elements")
    case("pad_by_input", "g (float[a, b, c] x, int64[n] p) => (float[d, e, h] y) { y = Pad(x, p) }",
         ([x, i([1, 0, 2, 0, 1, 0])], [np.pad(x, ((1, 0), (0, 1), (2, 0)))]))
    case("pad_axes_by_input", "g (float[a, b, c] x, int64[n] p, int64[k] ax) => (float[d, e, h] y) { y = Pad <mode = \"edge\"> (x, p, \"\", ax) }",
         ([x, i([1, 2]), i([-1])], [np.pad(x, ((0, 0), (0, 0), (1, 2)), "edge")]),
         ([x, i([1, 2, 0, 3]), i([1, 0])], [np.pad(x, ((2, 3), (1, 0), (0, 0)), "edge")]), ([x, np.zeros(0, I), np.zeros(0, I)], [x]))
    fault("pad_axes_twice", "g (float[a, b, c] x, int64[n] p, int64[k] ax) => (float[d, e, h] y) { y = Pad(x, p, \"\", ax) }",
          [x, i([1, 2, 3]), i([0])], "two elements for each")
    text = "g (float[a, b, c] x, int64[n] s, int64[n2] e, int64[k] ax, int64[m] st) => (float[d, e, h] y) { y = Slice(x, s, e%s) }"
    case("slice_by_inputs", text % ", ax, st", ([x, i([1, -1]), i([3, -4]), i([1, 2]), i([1, -2])], [x[:, 1:3, -1:-4:-2]]),
         ([x, i([1]), i([2]), i([-3]), i([1])], [x[1:2]]), ([x, *[np.zeros(0, I)] * 4], [x]))
    case("slice_by_starts_and_ends", text % "", *[([x, i(s), i(e), i([0]), i([1])], [y]) for s, e, y in
         (([0, 1], [1, 9], x[0:1, 1:9]), ([1], [2], x[1:2]), ([0, 0, 1], [2, 2, 3], x[:, :2, 1:3]))])
    case("slice_lengths_from_ends", (text % ", ax, st").replace("int64[n2] e", "int64[2] e"),
         ([x, i([1, 0]), i([3, 2]), i([2, 0]), i([2, 1])], [x[:2, :, 1:3:2]]))
    fault("slice_lengths_differ", text % ", ax", [x, i([1, 0]), i([3, 2]), i([2]), i([1])], "differ in length")
    fault("slice_axes_outside", text % ", ax", [x, i([1]), i([3]), i([3]), i([1])], "outside \\[-3, 3\\), the rank")
    case("split_by_input", "g (float[a, b, c] x, int64[n] s) => (float[d, e, h] y, float[d, e2, h] z) { y, z = Split <axis = 1> (x, s) }",
         ([x, i([1, 2])], [x[:, :1], x[:, 1:]]))
    case("center_crop_pad_by_input", "g (float[a, b, c] x, int64[n] s) => (float[p, q, r] y) { y = CenterCropPad(x, s) }",
         ([x, i([2, 1, 6])], [np.pad(x[:, 1:2], ((0, 0), (0, 0), (1, 1)))]))
    case("resize_sizes_by_input", """g (float[a, b, c] x, int64[n] s) => (float[p, q, r] y) {
            y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, "", "", s) }""",
         ([x, i([2, 6, 2])], [x.repeat(2, 1)[:, :, ::2]]))
    s = rnd(1, 3, 1, 2)
    several("squeeze_by_input", "g (float[a, b, c, d] x, int64[n] ax) => (OUT y) { y = Squeeze(x, ax) }",
            [([s, i([0, 2])], [s[0, :, 0]]), ([s, i([-2])], [s[:, :, 0]]), ([s[:, :1, :, :1], i([3, 2, 1, 0])], [s[0, 0, 0, 0]]),
             ([s, np.zeros(0, I)], [s])])
    fault("squeeze_axis_of_size_3", "g (float[a, b, c, d] x, int64[n] ax) => (float[p, q] y) { y = Squeeze(x, ax) }",
          [s, i([0, 1])], "axis 1 has size \d+, not 1|axis 0 has size \d+, not 1")
    several("unsqueeze_by_input", "g (float[a, b] x, int64[n] ax) => (OUT y) { u = Unsqueeze(x, ax)  y = Neg(u) }",
            [([x[0], i([0])], [-x[0][None]]), ([x[0], i([-1, 1])], [-x[0][:, None, :, None]]), ([x[0], np.zeros(0, I)], [-x[0]]),
             ([x[0], i([0, 1, 2, 3, -1, -2])], [-x[0].reshape(1, 1, 1, 1, 3, 4, 1, 1)])])
    fault("unsqueeze_axis_twice", "g (float[a, b] x, int64[n] ax) => (float[p, q, r, s] y) { y = Unsqueeze(x, ax) }",
          [x[0], i([1, -3])], "named twice")
    for op, fun in (("ReduceSum", np.sum), ("ReduceMax", np.max), ("ReduceMean", np.mean),
                    ("ReduceL2", lambda v, axis=None: np.sqrt((v * v).sum(axis))),
                    ("ReduceLogSumExp", lambda v, axis=None: np.log(np.exp(v).sum(axis)))):
        several(op.lower() + "_by_input", "g (float[a, b, c] x, int64[n] ax) => (OUT y) { y = %s <keepdims = 0> (x, ax) }" % op,
                [([x, i(list(a))], [fun(x, axis=a).astype(F)]) for a in ((1,), (0, -1), (2, 1, 0))] +
                [([x, np.zeros(0, I)], [fun(x).astype(F)])])
    several("reduce_noop_by_input", "g (float[a, b, c] x, int64[n] ax) => (OUT y) { y = ReduceSum <keepdims = 0, noop_with_empty_axes = 1> (x, ax) }",
            [([x, np.zeros(0, I)], [x]), ([x, i([1])], [x.sum(1)])])
    fault("reduce_axis_twice_by_input", "g (float[a, b, c] x, int64[n] ax) => (float y) { y = ReduceSum <keepdims = 0> (x, ax) }",
          [x, i([1, -2])], "given twice", change=no_output_shapes)
    several("gather_nd_by_tuples", "g (float[a, b, c] x, int64[n, k] ix) => (OUT y) { y = GatherND(x, ix) }",
            [([x, i([[1, 2], [0, -1]])], [x[[1, 0], [2, -1]]]), ([x, i([[1], [0]])], [x[[1, 0]]]), ([x, i([[1, 2, 3]])], [x[1:, 2, 3]])])
    several("gather_nd_batched", "g (float[a, b, c] x, int64[a, k] ix) => (OUT y) { y = GatherND <batch_dims = 1> (x, ix) }",
            [([x, i([[1], [0]])], [x[[0, 1], [1, 0]]]), ([x, i([[1, 3], [0, 2]])], [x[[0, 1], [1, 0], [3, 2]]])])
    upd = x.copy()
    upd[[1, 0]] = 2
    case("scatter_nd_by_tuples", """g (float[a, b, c] x, int64[n, k] ix) => (float[d, e, h] y) {
            g0 = GatherND(x, ix)  z = Mul(g0, zero)  u = Add(z, two)  y = ScatterND(x, ix, u)
            zero = Constant <value = float {0}> ()  two = Constant <value = float {2}> () }""", ([x, i([[1], [0]])], [upd]),
         change=lambda m: m.graph.value_info.append(helper.make_tensor_value_info("g0", 1, ["n", "b", "c"])))
    ones = rnd(1, 2, 1, 1, 3, 1)
    several("squeeze_of_six_open_sizes", "g (float[a, b, c, d, e, h] x) => (OUT y) { q = Squeeze(x)  y = Neg(q) }",
            [([ones], [-ones.reshape(2, 3)]), ([ones.reshape(1, 1, 6, 1, 1, 1)], [-ones.reshape(6)]),
             ([rnd(1, 1, 1, 1, 1, 1) * 0 + 1], [f(-1)]), ([np.ones((2, 2, 2, 3, 2, 2), F)], [-np.ones((2, 2, 2, 3, 2, 2), F)])])
    # Declared as for the sizes that the exporter saw, or wrongly altogether.
    case("squeeze_declared_of_other_sizes", "g (float[a, b, c] x) => (float[a, c] y) { q = Squeeze(x)  y = Neg(q) }",
         ([x[:, :1]], [-x[:, 0]]), ([x], [-x]), ([x[:1]], [-x[0]]))
    case("declared_wrongly", """g (float[a, b, c] x, int64[2] s) => (float[p] y, float[p, q, r] z) {
            y = Reshape(x, s)  z = ReduceSum <keepdims = 0> (x, one)  one = Constant <value = int64[1] {1}> () }""",
         ([x, i([4, 6])], [x.reshape(4, 6), x.sum(1)]))
    case("squeeze_open_sizes_then_more", """g (float[a, b, 1, c] x) => (float[n] y, int64[m] d) {
            q = Squeeze(x)  d = Shape(q)  r = Exp(q)  y = Reshape(r, minus)  minus = Constant <value = int64[1] {-1}> () }""",
         ([ones.reshape(1, 2, 1, 3)], [np.exp(ones.reshape(-1)), i([2, 3])]), ([ones.reshape(6, 1, 1, 1)], [np.exp(ones.reshape(-1)), i([6])]))
    text = """
        g (float[t, b, c] x) => (float[p, q, r] y) <int64 z = {0}> {
            s = Shape(x)  n = Gather(s, z)
            y = Loop(n, "") <body = b (int64 i, bool c) => (bool c, float[d, e] o) { v = Gather(x, i)  q = Squeeze(v)  o = Tanh(q) }>
        }"""
    for tag, body, sets in (("", "float o", "o = Tanh(q)"), ("_declared", "float[d] o", "o = Tanh(q)"),
                            ("_of_views", "float o", "o = Identity(q)")):
        whole = text.replace("float[d, e] o", body).replace("o = Tanh(q)", sets)
        fun = np.tanh if "Tanh" in sets else np.asarray
        change = lambda m: [no_output_shapes(m), m.graph.node[2].attribute[0].g.output[1].type.tensor_type.ClearField("shape")]
        case("scan_output_of_squeeze" + tag, whole, *[([v], [fun(v.reshape(w))]) for v, w in (
            (x[:, :1], (2, 4)), (x, (2, 3, 4)), (x[:0], (0, 3, 4)), (x[:, :1, :1], (2,)))],
             change=None if "declared" in tag else change)
    case("scan_output_of_squeeze_in_scan", """
        g (float[t, b, c] x, float[c] h) => (float[c] l, float[p, q, r] y) {
            l, y = Scan <num_scan_inputs = 1, body = b (float[c] s, float[b, c] v) => (float[c] s, float o) { q = Squeeze(v)  o = Add(q, s) }> (h, x)
        }""", *[([v, x[0, 0]], [x[0, 0], (v + x[0, 0]).reshape(w)]) for v, w in ((x[:, :1], (2, 4)), (x, (2, 3, 4)))],
         change=lambda m: [no_output_shapes(m), m.graph.node[0].attribute[1].g.output[1].type.tensor_type.ClearField("shape")])
    case("scan_output_of_squeeze_reversed", """
        g (float[t, b, c] x, float[c] h) => (float[c] l, float[p, q, r] y) {
            l, y = Scan <num_scan_inputs = 1, scan_output_axes = [-1], scan_output_directions = [1],
                body = b (float[c] s, float[b, c] v) => (float[c] s, float o) { q = Squeeze(v)  o = Add(q, s) }> (h, x)
        }""", *[([v, x[0, 0]], [x[0, 0], np.moveaxis((v + x[0, 0]).reshape(w)[::-1], 0, -1)]) for v, w in (
            (x[:, :1], (2, 4)), (x, (2, 3, 4)))],
         change=lambda m: [no_output_shapes(m), m.graph.node[0].attribute[-1].g.output[1].type.tensor_type.ClearField("shape")])
    fault("scan_output_of_varying_rank", """
        g (int64 m, float[a, b] x) => (float y) {
            y = Loop(m, "") <body = b (int64 i, bool c) => (bool c, float o) {
                two = Constant <value = int64 {1}> ()  p = Less(i, two)
                o = If(p) <then_branch = t () => (float r) { r = Relu(x) }, else_branch = e () => (float r) { r = ReduceSum <keepdims = 0> (x) }> }>
        }""", [i(2), x[0]], "changes its shape between iterations", change=lambda m: [
            no_output_shapes(m), m.graph.node[0].attribute[0].g.output[1].type.tensor_type.ClearField("shape")])
    case("affine_grid_by_input", """g (float[a, 2, 3] t, int64[n] s) => (float[d, e, h, k] y) { y = AffineGrid <align_corners = 1> (t, s) }""",
         ([f([[[1, 0, 0], [0, 1, 0]]]), i([1, 1, 2, 2])], [f([[[[-1, -1], [1, -1]], [[-1, 1], [1, 1]]]])]), opset=20)
    col = np.arange(16, dtype=F).reshape(1, 4, 4)
    img = np.zeros((1, 1, 4, 4), F)
    for k in range(4):
        img[0, 0, k // 2 * 2:k // 2 * 2 + 2, k % 2 * 2:k % 2 * 2 + 2] = col[0, :, k].reshape(2, 2)
    several("col2im_by_input", "g (float[a, b, c] x, int64[n] s, int64[m] k) => (OUT y) { y = Col2Im <strides = [2, 2]> (x, s, k) }",
            [([col, i([4, 4]), i([2, 2])], [img])])
    case("range_by_vectors", "g (int64[a] s, int64[b] l, int64[c] d) => (int64[n] y) { y = Range(s, l, d) }",
         ([i([1]), i([8]), i([3])], [i([1, 4, 7])]))
    case("one_hot_by_vectors", "g (int64[n] x, int64[a] d, float[b] v) => (float[n, k] y) { y = OneHot(x, d, v) }",
         ([i([1, 0]), i([3]), f([0, 5])], [f([[0, 5, 0], [5, 0, 0]])]))
    case("pad_value_by_vector", "g (float[a] x, float[b] v) => (float[n] y) <int64[2] p = {1, 1}> { y = Pad(x, p, v) }",
         ([f([1, 2]), f([7])], [f([7, 1, 2, 7])]))


# ---- small integers on the way to a shape --------------------------------------------------------------------------
def repeat_interleave(opset, sizes, dim, dynamic):
    """What PyTorch's TorchScript exporter writes for repeat_interleave along dim by a vector. sizes: those declared of
    the input, None where the export left them open; dynamic: the length of the vector is open."""
    def const(name, data):
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(data), name))

    def unsqueeze(x, axis, out):
        if opset < 13:
            return [helper.make_node("Unsqueeze", [x], [out], axes=[axis])]
        return [const(out + "_axis", i([axis])), helper.make_node("Unsqueeze", [x, out + "_axis"], [out])]

    node, info = helper.make_node, helper.make_tensor_value_info
    want, keep = [-1 if s is None else s for s in sizes], [0 if s is None else s for s in sizes]
    want[dim], keep[dim] = 1, -1
    body = [node("SequenceAt", ["r_splits", "it"], ["r"]), node("SequenceAt", ["i_splits", "it"], ["part"])]
    body += unsqueeze("part", dim + 1, "wide")
    body += [const("before", i(want[:dim + 1])), const("after", i(want[dim + 1:]))]
    body += [node("Concat", ["before", "r", "after"], ["size"], axis=0),
             node("Shape", ["size"], ["size_shape"]),
             node("ConstantOfShape", ["size_shape"], ["ones"], value=numpy_helper.from_array(i([1]))),
             const("m1", i(-1)), node("Mul", ["ones", "m1"], ["minus"]), node("Equal", ["size", "minus"], ["open"]),
             node("Where", ["open", "ones", "size"], ["full"]), node("Expand", ["wide", "full"], ["tall"]),
             const("flat", i(keep)), node("Reshape", ["tall", "flat"], ["piece"]),
             node("SequenceInsert", ["acc", "piece"], ["acc2"]), node("Cast", ["go"], ["go2"], to=9)]
    acc = helper.make_tensor_sequence_value_info
    loop = helper.make_graph(body, "body", [info("it", 7, []), info("c", 9, []), acc("acc", 1, None)],
                             [info("go2", 9, []), acc("acc2", 1, None)])
    nodes = [node("Shape", ["x"], ["xs"]), const("d", i(dim)), node("Gather", ["xs", "d"], ["n"], axis=0)]
    nodes += unsqueeze("n", 0, "reps")
    rep = "rep"
    if dynamic:
        nodes += [node("Shape", ["rep"], ["rs"]), const("z", i(0)), node("Gather", ["rs", "z"], ["rn"], axis=0),
                  const("one", i([1])), node("Equal", ["rn", "one"], ["single"]), node("Expand", ["rep", "reps"], ["repx"]),
                  node("Where", ["single", "repx", "rep"], ["repw"])]
        rep = "repw"
    nodes += [node("Shape", [rep], ["rl"]), node("ConstantOfShape", ["rl"], ["like"], value=numpy_helper.from_array(i([1]))),
              node("SplitToSequence", [rep, "like"], ["r_splits"], axis=0),
              node("SplitToSequence", ["x", "like"], ["i_splits"], axis=dim),
              const("on", i(1)), node("Cast", ["on"], ["go"], to=9), node("SequenceEmpty", [], ["acc0"]),
              node("Loop", ["reps", "go", "acc0"], ["accn"], body=loop), node("ConcatFromSequence", ["accn"], ["y"], axis=dim)]
    named = ["n%d" % k if s is None else s for k, s in enumerate(sizes)]
    g = helper.make_graph(nodes, "g", [info("x", 1, named), info("rep", 7, ["n%d" % dim if not dynamic else "rn"])],
                          [info("y", 1, [s if k != dim else "out" for k, s in enumerate(named)])])
    return helper.make_model(g, ir_version=7, opset_imports=[helper.make_opsetid("", opset)])


def small_values():
    x = rnd(2, 5, 3)
    counts = i([2, 0, 1, 3, 1])
    for opset in (11, 13, 17):
        for tag, sizes, dim in (("open", [None, None, 3], 1), ("first", [None, 5, 3], 0), ("last", [2, None, None], 2),
                                ("vector", [None], 0)):
            v = x if len(sizes) > 1 else x[0, :, 0]
            for dynamic in (False, True):
                c = np.resize(counts, v.shape[dim])
                sets = [([v, c], [v.repeat(c, dim)])]
                if dynamic:
                    sets.append(([v, i([2])], [v.repeat(2, dim)]))
                case("repeat_interleave_%s_%d%s" % (tag, opset, "_dynamic" * dynamic),
                     repeat_interleave(opset, sizes, dim, dynamic), *sets)
    chains()


# What the sizes of x [N, 4, M] become on the way to a shape: nodes from s to v, its value, and the sizes that are
# known when the model is compiled.
CHAINS = [
    ("split", "a, b, c = Split <num_outputs = 3> (s)  v = Concat <axis = 0> (a, c, b)", lambda n, m: [n, m, 4], "?,?,4"),
    ("split_to_sequence", "q = SplitToSequence <axis = 0> (s)  a = SequenceAt(q, i1)  b = SequenceAt(q, im1)  v = Concat <axis = 0> (b, a)",
     lambda n, m: [m, 4], "?,4"),
    ("split_to_uneven_sequence", "q = SplitToSequence <axis = 0> (s, v12)  a = SequenceAt(q, i1)  v = Concat <axis = 0> (v2, a)",
     lambda n, m: [2, 4, m], "2,4,?"),
    ("sequence_at_scalar", "q = SplitToSequence <axis = 0, keepdims = 0> (s)  a = SequenceAt(q, i1)  v = Reshape(a, vm1)", lambda n, m: [4], "4"),
    ("sequence_insert", """q0 = SequenceEmpty <dtype = 7> ()  a = Gather(s, i0)  b = Gather(s, i1)  q1 = SequenceInsert(q0, a)
        q2 = SequenceInsert(q1, b)  q3 = SequenceInsert(q2, b, i0)  v = ConcatFromSequence <axis = 0, new_axis = 1> (q3)""",
     lambda n, m: [4, n, 4], "4,?,4"),
    ("sequence_erase", "a = Gather(s, v0)  q = SequenceConstruct(v2, a, v2)  r = SequenceErase(q, i0)  v = ConcatFromSequence <axis = 0> (r)",
     lambda n, m: [n, 2], "?,2"),
    ("floats", "a = Cast <to = 1> (s)  b = Mul(a, half)  c = Floor(b)  d = Add(c, c)  v = Cast <to = 7> (d)",
     lambda n, m: [n // 2 * 2, 4, m // 2 * 2], "?,4,?"),
    ("product", "p = ReduceProd(s, v0)  q = Gather(s, v1)  v = Concat <axis = 0> (p, q)", lambda n, m: [4 * n * m, 4], "?,4"),
    ("cumsum", "t = Slice(s, v1, v2)  u = Concat <axis = 0> (t, t, v2)  v = CumSum(u, i0)", lambda n, m: [4, 8, 10], "4,8,10"),
    ("cumsum_reverse", "u = Concat <axis = 0> (s, v2)  v = CumSum <reverse = 1, exclusive = 1> (u, i0)",
     lambda n, m: [6 + m, 2 + m, 2, 0], "?,?,2,0"),
    ("cumprod", "u = Gather(s, v1)  w = Tile(u, v2)  v = CumProd(w, i0)", lambda n, m: [4, 16], "4,16"),
    ("where", "c = Greater(s, v3)  v = Where(c, s, v2)", lambda n, m: [n if n > 3 else 2, 4, m if m > 3 else 2], "?,4,?"),
    ("range", "r = Range(i0, i3, i1)  w = Gather(s, r)  v = Add(w, r)", lambda n, m: [n, 5, m + 2], "?,5,?"),
    ("tile", "a = Gather(s, v1)  v = Tile(a, v3)", lambda n, m: [4, 4, 4], "4,4,4"),
    ("pad", "v = Pad(s, v12, i1)", lambda n, m: [1, n, 4, m, 1, 1], "1,?,4,?,1,1"),
    ("scatter_elements", "u = Gather(s, v10)  v = ScatterElements(c789, v02, u)", lambda n, m: [4, 8, n], "4,8,?"),
    ("scatter_elements_add", "v = ScatterElements <reduction = \"add\"> (s, v00, v12)", lambda n, m: [n + 3, 4, m], "?,4,?"),
    ("scatter_elements_computed", "w = Mod(s, v2)  u = Slice(w, v0, v2)  x1 = Slice(s, v1, v3)  v = ScatterElements(c789, u, x1)",
     lambda n, m: [m, 4, 9] if n % 2 else [m, 8, 9], None),
    ("scatter_nd", "u = Gather(s, v10)  j = Unsqueeze(v02, v1)  v = ScatterND(c789, j, u)", lambda n, m: [4, 8, n], "4,8,?"),
    ("expand", "a = Gather(s, v1)  v = Expand(a, v2)", lambda n, m: [4, 4], "4,4"),
    ("nonzero", "c = Equal(v02, v0)  z = NonZero(c)  r = Reshape(z, vm1)  w = Add(r, i1)  v = Gather(s, w)", lambda n, m: [4], "4"),
    ("compress", "c = Constant <value = bool[3] {1, 1, 0}> ()  v = Compress <axis = 0> (s, c)", lambda n, m: [n, 4], "?,4"),
    ("topk", "w = Concat <axis = 0> (v2, v3, v1)  a, j = TopK(w, v2)  g = Gather(s, j)  v = Concat <axis = 0> (a, g)",
     lambda n, m: [3, 2, 4, n], "3,2,4,?"),
    ("topk_least", "a, j = TopK <largest = 0> (s, v2)  v = Add(a, j)", lambda n, m: [a + b for a, b in sorted(
        (d, k) for k, d in enumerate((n, 4, m)))[:2]], None),
    ("argmax", "c = Mod(s, i4)  d = Equal(c, v0)  e = Cast <to = 7> (d)  f = Slice(e, v1, v2)  k = ArgMax(f)  v = Concat <axis = 0> (k, s)",
     lambda n, m: [0, n, 4, m], "0,?,4,?"),
    ("gather_nd", "j = Constant <value = int64[2, 1] {2, 1}> ()  v = GatherND(s, j)", lambda n, m: [m, 4], "?,4"),
    ("reverse", "v = Slice(s, vm1, far, v0, vm1)", lambda n, m: [m, 4, n], "?,4,?"),
    ("matmul", "p = Constant <value = int64[3, 3] {0, 1, 0, 1, 0, 0, 0, 2, 1}> ()  v = MatMul(p, s)", lambda n, m: [4, n, m + 8], "4,?,?"),
    ("loop", "v = Loop(i3, \"\", s) <body = b (int64 i, bool c, int64[3] a) => (bool c, int64[3] r) { e = Add(a, i)  r = Max(e, v2) }>",
     lambda n, m: [n + 3, 7, max(m, 2) + 3], "?,7,?"),
    ("loop_appends", """v = Loop(i3, "", v1) <body = b (int64 i, bool c, int64[k] a) => (bool c, int64[l] r) {
        g = Gather(s, i)  u = Unsqueeze(g, v0)  r = Concat <axis = 0> (a, u) }>""", lambda n, m: [1, n, 4, m], "1,?,4,?"),
    ("loop_stacks", """v = Loop(i3, "") <body = b (int64 i, bool c) => (bool c, int64 r) { g = Gather(s, i)  r = Add(g, i) }>""",
     lambda n, m: [n, 5, m + 2], "?,5,?"),
    ("loop_appends_to_sequence", """q0 = SequenceEmpty <dtype = 7> ()
        q = Loop(i3, "", q0) <body = b (int64 i, bool c, seq(int64) a) => (bool c, seq(int64) r) { g = Gather(s, i)  r = SequenceInsert(a, g) }>
        v = ConcatFromSequence <axis = 0, new_axis = 1> (q)""", lambda n, m: [n, 4, m], "?,4,?"),
    ("loop_skips", """v = Loop(i3, "", v1) <body = b (int64 i, bool c, int64[k] a) => (bool c, int64[l] r) {
        e = Equal(i, i1)  r = If(e) <then_branch = t () => (int64[k] o) { o = Identity(a) },
            else_branch = f () => (int64[k] o) { g = Gather(s, i)  u = Unsqueeze(g, v0)  o = Concat <axis = 0> (a, u) }> }>""",
     lambda n, m: [1, n, m], "1,?,?"),
    ("loop_ends_early", """v = Loop(i9, on, v1) <body = b (int64 i, bool c, int64[k] a) => (bool d, int64[l] r) {
        d = Less(i, i1)  g = Gather(s, i)  u = Unsqueeze(g, v0)  r = Concat <axis = 0> (a, u) }>""", lambda n, m: [1, n, 4], "1,?,4"),
    ("branch", """c = Greater(s, i4)  c0 = Gather(c, i0)
        v = If(c0) <then_branch = t () => (int64[k] r) { r = Slice(s, v1, v3) }, else_branch = e () => (int64[k] r) { r = Slice(s, v0, v2) }>""",
     lambda n, m: [4, m] if n > 4 else [n, 4], "?,?"),
    ("branch_of_lengths", """c = Greater(s, i4)  c0 = Gather(c, i0)
        v = If(c0) <then_branch = t () => (int64[k] r) { r = Slice(s, v1, v3) }, else_branch = e () => (int64[k] r) { r = Identity(s) }>""",
     lambda n, m: [4, m] if n > 4 else [n, 4, m], "..."),
    ("nonzero_of_sizes", "c = Greater(s, i1)  z = NonZero(c)  r = Reshape(z, vm1)  v = Gather(s, r)",
     lambda n, m: [d for d in (n, 4, m) if d > 1], "..."),
    ("loop_of_unknown_trips", """n = Gather(s, i0)  v = Loop(n, "", v1) <body = b (int64 i, bool c, int64[k] a) => (bool c, int64[l] r) {
        r = Concat <axis = 0> (a, v2) }>""", lambda n, m: [1] + [2] * n, "..."),
]
INITS = """int64 i0 = {0}, int64 i1 = {1}, int64 im1 = {-1}, int64 i3 = {3}, int64 i4 = {4}, int64 i9 = {9}, int64[1] v0 = {0}, int64[1] v1 = {1},
    int64[1] v2 = {2}, int64[1] v3 = {3}, int64[1] vm1 = {-1}, int64[1] far = {-99}, int64[2] v10 = {1, 0}, int64[2] v02 = {0, 2},
    int64[2] v00 = {0, 0}, int64[2] v12 = {1, 2}, int64[3] c789 = {7, 8, 9}, float half = {0.5}, bool on = {1}"""
KNOWN = []     # (name, model, sizes of the output y that `braid explain` prints)


def chains():
    for name, nodes, value, known in CHAINS:
        text = "g (float[N, 4, M] x) => (int64[k] v, float[p] y) <%s> { s = Shape(x)  %s  y = ConstantOfShape(v) }" % (INITS, nodes)
        sets = []
        for n, m in ((3, 2), (2, 5), (5, 1)):
            v = i(value(n, m))
            sets.append(([np.zeros((n, 4, m), F)], [v, np.zeros(v, F)]))
        case("sizes_by_" + name, text, *sets, change=no_output_shapes, opset=26 if name == "cumprod" else 18)
        if known:
            KNOWN.append(("sizes_by_" + name, CASES[-1][1], known))
