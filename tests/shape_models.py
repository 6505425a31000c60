"""Small models whose shape vectors are computed: of a length that only a run knows, and of small integers on the way
to a shape. For field_cases.py; expected values are computed here in numpy.
"""
import numpy as np
from onnx import helper, numpy_helper

from field_models import F, I, b, case, f, fault, i, no_output_shapes, rnd


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
    fault("slice_axes_outside", text % ", ax", [x, i([1]), i([3]), i([3]), i([1])], "outside of the rank")
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
          [s, i([0, 1])], "does not have size 1")
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
    case("squeeze_open_sizes_then_more", """g (float[a, b, 1, c] x) => (float[n] y, int64[m] d) {
            q = Squeeze(x)  d = Shape(q)  r = Exp(q)  y = Reshape(r, minus)  minus = Constant <value = int64[1] {-1}> () }""",
         ([ones.reshape(1, 2, 1, 3)], [np.exp(ones.reshape(-1)), i([2, 3])]), ([ones.reshape(6, 1, 1, 1)], [np.exp(ones.reshape(-1)), i([6])]))
    text = """
        g (float[t, b, c] x) => (float[p, q, r] y) <int64 z = {0}> {
            s = Shape(x)  n = Gather(s, z)
            y = Loop(n, "") <body = b (int64 i, bool c) => (bool c, float[d, e] o) { v = Gather(x, i)  q = Squeeze(v)  o = Tanh(q) }>
        }"""
    for tag, body, sets in (("", "float o", "o = Tanh(q)"), ("_declared_rank_1", "float[d] o", "o = Tanh(q)"),
                            ("_of_views", "float o", "o = Identity(q)")):
        whole = text.replace("float[d, e] o", body).replace("o = Tanh(q)", sets)
        fun = np.tanh if "Tanh" in sets else np.asarray
        change = lambda m: [no_output_shapes(m), m.graph.node[2].attribute[0].g.output[1].type.tensor_type.ClearField("shape")]
        case("scan_output_of_squeeze" + tag, whole, *[([v], [fun(v.reshape(w))]) for v, w in (
            (x[:, :1], (2, 4)), (x, (2, 3, 4)), (x[:0], (0, 3, 4)), (x[:, :1, :1], (2,)))][:1 if "declared" in tag else 4],
             change=None if "declared" in tag else change)
    case("scan_output_of_squeeze_in_scan", """
        g (float[t, b, c] x, float[c] h) => (float[c] l, float[p, q, r] y) {
            l, y = Scan <num_scan_inputs = 1, body = b (float[c] s, float[b, c] v) => (float[c] s, float o) { q = Squeeze(v)  o = Add(q, s) }> (h, x)
        }""", *[([v, x[0, 0]], [x[0, 0], (v + x[0, 0]).reshape(w)]) for v, w in ((x[:, :1], (2, 4)), (x, (2, 3, 4)))],
         change=lambda m: [no_output_shapes(m), m.graph.node[0].attribute[1].g.output[1].type.tensor_type.ClearField("shape")])
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
