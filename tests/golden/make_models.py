#!/usr/bin/env python3
"""Writes the models of the golden tests beside this file (needs the onnx package).

The .onnx files are committed: this script shows what is in them and makes them again.
"""
import os

import numpy as np
from onnx import TensorProto as TP, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
F, I = TP.FLOAT, TP.INT64


def node(op, ins, outs, name="", **attributes):
    return helper.make_node(op, ins, outs, name=name or op.lower(), **attributes)


def tensor(name, dims, dtype=F):
    return helper.make_tensor_value_info(name, dtype, dims)


def const(name, value, dtype=np.float32):
    return numpy_helper.from_array(np.array(value, dtype), name)


def ramp(name, *dims):
    n = int(np.prod(dims))
    return const(name, ((np.arange(n) % 7) - 3).reshape(dims) / 4)


def graph(nodes, ins, outs, inits=(), name="main"):
    return helper.make_graph(nodes, name, ins, outs, list(inits))


def save(name, g, opset=17, functions=(), extra=()):
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in extra]
    m = helper.make_model(g, opset_imports=imports, ir_version=8, functions=list(functions))
    with open(os.path.join(HERE, name + ".onnx"), "wb") as f:
        f.write(m.SerializeToString(deterministic=True))


def save_schedule(name, forced):
    with open(os.path.join(HERE, name + ".schedule"), "w") as f:
        f.write(forced + "\n")


def save_target(name, target):
    with open(os.path.join(HERE, name + ".target"), "w") as f:
        f.write(target + "\n")


# ---- trees
def cells():
    """Cells one after another: the state of each is stored, not made again from all that came before."""
    nodes, ins, state = [], [tensor("c0", [8])], "c0"
    for i in range(1, 6):
        ins += [tensor(f"{x}{i}", [8]) for x in "fig"]
        nodes += [node("Mul", [f"f{i}", state], [f"a{i}"]), node("Mul", [f"i{i}", f"g{i}"], [f"b{i}"]),
                  node("Add", [f"a{i}", f"b{i}"], [f"c{i}"]), node("Tanh", [f"c{i}"], [f"h{i}"])]
        state = f"c{i}"
    save("cells", graph(nodes, ins, [tensor(f"h{i}", [8]) for i in range(1, 6)]))


def elementwise():
    """One group: nothing between x and y is stored."""
    save("elementwise", graph(
        [node("Mul", ["x", "x"], ["sq"]), node("Add", ["sq", "b"], ["sum"]), node("Tanh", ["sum"], ["t"]),
         node("Where", ["c", "t", "x"], ["y"])],
        [tensor("x", ["n", 8]), tensor("c", ["n", 1], TP.BOOL)], [tensor("y", ["n", 8])], [ramp("b", 8)]))


def matmul_bias_relu():
    save("matmul_bias_relu", graph(
        [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "b"], ["z"]), node("Relu", ["z"], ["y"])],
        [tensor("x", ["n", 16])], [tensor("y", ["n", 32])], [ramp("w", 16, 32), ramp("b", 32)]))


def conv():
    save("conv", graph(
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3])],
        [tensor("x", [1, 3, 9, 9])], [tensor("y", [1, 4, 5, 5])], [ramp("w", 4, 3, 3, 3), ramp("b", 4)]))


def depthwise():
    """Channels apart: the padding is part of the sum."""
    save("depthwise", graph(
        [node("Conv", ["x", "w", "b"], ["y"], group=4, pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]), node("Relu", ["y"], ["z"])],
        [tensor("x", [1, 4, 32, 32])], [tensor("z", [1, 4, 16, 16])], [ramp("w", 4, 1, 3, 3), ramp("b", 4)]))


def quantized():
    """Convolution, residual sum, pool and product between quantizers: sums of integers; the pool and the shapes move bytes."""
    def both(x, name):
        return [node("QuantizeLinear", [x, "s", "z"], [name + "q"]), node("DequantizeLinear", [name + "q", "s", "z"], [name])]
    nodes = both("x", "a") + [node("DequantizeLinear", ["w8", "sw", "zw"], ["w"], axis=0), node("DequantizeLinear", ["v8", "s", "zv"], ["v"])]
    nodes += [node("Conv", ["a", "w", "b"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]), node("Relu", ["c"], ["r"])] + both("r", "d")
    nodes += [node("Add", ["d", "a"], ["e"])] + both("e", "f") + [node("MaxPool", ["f"], ["p"], kernel_shape=[2, 2], strides=[2, 2])] + both("p", "g")
    nodes += [node("Reshape", ["g", "to"], ["h"])] + both("h", "i") + [node("MatMul", ["i", "v"], ["j"])] + both("j", "y")
    codes = lambda name, *dims: const(name, np.arange(np.prod(dims)).reshape(dims) % 17, np.int8)  # noqa: E731
    save("quantized", graph(nodes, [tensor("x", ["n", 16, 6, 6])], [tensor("y", ["n", 24])], [
        const("s", 0.25), const("z", 128, np.uint8), codes("w8", 16, 16, 3, 3), ramp("sw", 16), const("zw", [3, 0, 1, 7] * 4, np.int8), ramp("b", 16),
        codes("v8", 144, 24), const("zv", 0, np.int8), const("to", [-1, 144], np.int64)]))
    save_schedule("quantized", "quantized=on,core=on")


def softmax():
    save("softmax", graph([node("Softmax", ["x"], ["y"], axis=-1)], [tensor("x", ["n", "m"])],
                          [tensor("y", ["n", "m"])]))


def open_ranks():
    """An input that declares no rank: the graph once for each rank that works, a message for the one that does not."""
    save("open", graph([node("Transpose", ["x"], ["t"]), node("Softmax", ["t"], ["s"], axis=-1), node("Add", ["s", "w"], ["y"])],
                       [tensor("x", None), tensor("w", [2, 3])], [tensor("y", ["n", "m"])]))
    save("open_many", graph([node("Add", ["x", "z"], ["y"])], [tensor("x", None), tensor("z", None)], [tensor("y", None)]))


def shapes():
    """Arithmetic on shapes resolves at compile time: no check is left, no tensor of shapes."""
    save("shapes", graph(
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["h"], "g1"),
         node("Gather", ["s", "two"], ["w"], "g2"), node("Mul", ["h", "w"], ["hw"]),
         node("Unsqueeze", ["hw", "axes"], ["hw1"]), node("Concat", ["first", "hw1"], ["to"], axis=0),
         node("Reshape", ["x", "to"], ["y"])],
        [tensor("x", [4, "h", "w"])], [tensor("y", [4, "hw"])],
        [const("one", 1, np.int64), const("two", 2, np.int64), const("axes", [0], np.int64),
         const("first", [4], np.int64)]))


def if_ranks():
    """The arms give different ranks."""
    then = graph([node("Neg", ["x"], ["a"])], [], [tensor("a", [2, 3])], name="then")
    other = graph([node("ReduceSum", ["x", "axes"], ["b"], keepdims=0)], [], [tensor("b", [3])], name="else")
    out = helper.make_tensor_value_info("y", F, None)
    save("if_ranks", graph([node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
                           [tensor("c", [], TP.BOOL), tensor("x", [2, 3])], [out], [const("axes", [0], np.int64)]))


def loop():
    """A carried value, a scan output, a condition that depends on data, a captured value."""
    body = graph(
        [node("Add", ["v_in", "step"], ["v"]), node("ReduceMax", ["v"], ["top"], keepdims=0),
         node("Less", ["top", "limit"], ["go"]), node("Mul", ["v", "v"], ["sq"])],
        [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("v_in", [4])],
        [tensor("go", [], TP.BOOL), tensor("v", [4]), tensor("sq", [4])], name="body")
    save("loop", graph([node("Loop", ["m", "", "v0"], ["last", "squares"], body=body)],
                       [tensor("m", [], I), tensor("v0", [4]), tensor("step", [4])],
                       [tensor("last", [4]), tensor("squares", ["k", 4])], [const("limit", 100)]))


def scan():
    body = graph([node("Add", ["s_in", "x"], ["s"]), node("Identity", ["s"], ["y"])],
                 [tensor("s_in", [3]), tensor("x", [3])], [tensor("s", [3]), tensor("y", [3])], name="body")
    save("scan", graph([node("Scan", ["s0", "xs"], ["last", "sums"], body=body, num_scan_inputs=1)],
                       [tensor("s0", [3]), tensor("xs", ["t", 3])], [tensor("last", [3]), tensor("sums", ["t", 3])]))


def unroll():
    """A chain of element operations; its iterations' number is known at run time only, and used after it."""
    body = graph([node("Identity", ["c"], ["go"]), node("Mul", ["v_in", "half"], ["p"]), node("Add", ["p", "x"], ["v"])],
                 [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("v_in", [8])],
                 [tensor("go", [], TP.BOOL), tensor("v", [8]), tensor("p", [8])], name="body")
    save("unroll", graph([node("Loop", ["m", "", "v0"], ["last", "halves"], body=body)],
                         [tensor("m", [], I), tensor("v0", [8]), tensor("x", [8])],
                         [tensor("last", [8]), tensor("halves", ["k", 8])], [const("half", .5)]))
    save_schedule("unroll", "unroll=on")


def interchange():
    """A recurrent network for each item of a batch; a Loop that gathers by its counter."""
    step = graph([node("MatMul", ["h_in", "r"], ["hr"]), node("Add", ["hr", "xt"], ["z"]), node("Tanh", ["z"], ["h"]),
                  node("Identity", ["h"], ["each"])],
                 [tensor("h_in", [8]), tensor("xt", [8])], [tensor("h", [8]), tensor("each", [8])], name="step")
    item = graph([node("Scan", ["h0", "xb"], ["hl", "hs"], body=step, num_scan_inputs=1)],
                 [tensor("xb", [6, 8])], [tensor("hl", [8]), tensor("hs", [6, 8])], name="item")
    pick = graph([node("Identity", ["c"], ["go"]), node("Gather", ["y", "i"], ["yi"]), node("Abs", ["yi"], ["a"])],
                 [tensor("i", [], I), tensor("c", [], TP.BOOL)], [tensor("go", [], TP.BOOL), tensor("a", [8])], name="pick")
    save("interchange", graph([node("Scan", ["x"], ["last", "all"], body=item, num_scan_inputs=1),
                               node("Loop", ["m", ""], ["abs"], body=pick)],
                              [tensor("x", ["b", 6, 8]), tensor("y", ["k", 8]), tensor("m", [], I)],
                              [tensor("last", ["b", 8]), tensor("all", ["b", 6, 8]), tensor("abs", ["m", 8])],
                              [ramp("r", 8, 8), ramp("h0", 8)]))
    save_schedule("interchange", "interchange=on")


def reuse():
    """Neighbours of a sequence, a function of the carried value and of its next one, a constant scale."""
    body = graph([node("Identity", ["c"], ["go"]), node("Add", ["i", "one"], ["i1"]),
                  node("Gather", ["x", "i"], ["xa"]), node("Tanh", ["xa"], ["ta"], "here"),
                  node("Gather", ["x", "i1"], ["xb"]), node("Tanh", ["xb"], ["tb"], "there"),
                  node("MatMul", ["h_in", "w"], ["p"], "old"), node("Exp", ["s"], ["e"], "scale"),
                  node("Mul", ["ta", "tb"], ["tt"]), node("Mul", ["p", "e"], ["pe"]), node("Add", ["pe", "tt"], ["h"]),
                  node("MatMul", ["h", "w"], ["q"], "new"), node("Sub", ["q", "p"], ["d"])],
                 [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("h_in", [8])],
                 [tensor("go", [], TP.BOOL), tensor("h", [8]), tensor("d", [8])], name="body")
    save("reuse", graph([node("Loop", ["m", "", "h0"], ["last", "changes"], body=body)],
                        [tensor("m", [], I), tensor("x", ["n", 8]), tensor("s", [8]), tensor("h0", [8])],
                        [tensor("last", [8]), tensor("changes", ["k", 8])],
                        [ramp("w", 8, 8), const("one", 1, np.int64)]))
    save_schedule("reuse", "reuse=on,unroll=off")


def lstm():
    save("lstm", graph(
        [node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=8)],
        [tensor("x", ["t", 1, 4])], [tensor("y", ["t", 1, 1, 8]), tensor("h", [1, 1, 8]), tensor("c", [1, 1, 8])],
        [ramp("w", 1, 32, 4), ramp("r", 1, 32, 8), ramp("b", 1, 64)]))


def wavefront():
    """Two recurrent layers, of which the second one lags a step behind."""
    save("wavefront", graph(
        [node("RNN", ["x", "w1", "r1"], ["y1", ""], "first", hidden_size=128),
         node("Squeeze", ["y1", "axes"], ["x2"]),
         node("RNN", ["x2", "w2", "r2"], ["", "h"], "second", hidden_size=128)],
        [tensor("x", ["t", 1, 8]), tensor("w1", [1, 128, 8]), tensor("r1", [1, 128, 128]),
         tensor("w2", [1, 128, 128]), tensor("r2", [1, 128, 128])], [tensor("h", [1, 1, 128])],
        [const("axes", [1], np.int64)]))


def nest():
    """Layers around time: written out, then on diagonals."""
    step = graph([node("MatMul", ["x_t", "w"], ["xw"]), node("MatMul", ["h_in", "r"], ["hr"]),
                  node("Add", ["xw", "hr"], ["z"]), node("Tanh", ["z"], ["h"]), node("Identity", ["h"], ["y"])],
                 [tensor("h_in", [1, 128]), tensor("x_t", [1, 128])], [tensor("h", [1, 128]), tensor("y", [1, 128])],
                 name="step")
    layer = graph([node("Gather", ["ws", "l"], ["w"], "w"), node("Gather", ["rs", "l"], ["r"], "r"),
                   node("Scan", ["h0", "xs_in"], ["last", "ys"], "time", body=step, num_scan_inputs=1),
                   node("Identity", ["c"], ["go"])],
                  [tensor("l", [], I), tensor("c", [], TP.BOOL), tensor("xs_in", ["t", 1, 128])],
                  [tensor("go", [], TP.BOOL), tensor("ys", ["t", 1, 128]), tensor("last", [1, 128])], name="layer")
    save("nest", graph([node("Loop", ["three", "", "xs"], ["y", "h"], "layers", body=layer)],
                       [tensor("xs", ["t", 1, 128]), tensor("ws", [3, 128, 128]), tensor("rs", [3, 128, 128]),
                        tensor("h0", [1, 128])],
                       [tensor("y", ["t", 1, 128]), tensor("h", [3, 1, 128])], [const("three", 3, np.int64)]))


def fused_loops():
    """Two loops in one, the second reading what the first has just made."""
    def body(op):
        return graph([node(op, ["s_in", "x"], ["s"]), node("Identity", ["s"], ["y"])],
                     [tensor("s_in", [3]), tensor("x", [3])], [tensor("s", [3]), tensor("y", [3])], name="body")
    save("fused_loops", graph(
        [node("Scan", ["s0", "xs"], ["", "sums"], "first", body=body("Add"), num_scan_inputs=1),
         node("Neg", ["sums"], ["less"]),
         node("Scan", ["s0", "less"], ["last", ""], "second", body=body("Max"), num_scan_inputs=1)],
        [tensor("s0", [3]), tensor("xs", ["t", 3])], [tensor("last", [3]), tensor("sums", ["t", 3])]))


def cluster():
    """A recurrent loop that one cluster runs, and another one inside: what is computed by parts is read whole."""
    count = graph([node("Mul", ["m", "m"], ["mm"], "square"), node("Identity", ["ci"], ["co"])],
                  [tensor("j", [], I), tensor("ci", [], TP.BOOL), tensor("m", [64])],
                  [tensor("co", [], TP.BOOL), tensor("mm", [64])], name="count")
    body = graph([node("MatMul", ["h", "w"], ["hw"], "product"),
                  node("Loop", ["two", "", "s"], ["s2"], "inner", body=count),
                  node("ReduceSum", ["s2", "axes"], ["sum"], keepdims=0),
                  node("Mul", ["hw", "sum"], ["scaled"], "scale"), node("Tanh", ["scaled"], ["t"]),
                  node("Identity", ["c"], ["go"])],
                 [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("h", [1, 64])],
                 [tensor("go", [], TP.BOOL), tensor("t", [1, 64])], name="body")
    save("cluster", graph([node("Loop", ["three", "", "x"], ["last"], "steps", body=body),
                           node("MatMul", ["last", "w"], ["y"], "after")],
                          [tensor("x", [1, 64]), tensor("s", [64])], [tensor("y", [1, 64])],
                          [ramp("w", 64, 64), const("three", 3, np.int64), const("two", 2, np.int64), const("axes", [0], np.int64)]))
    save_schedule("cluster", "cluster=on,core=off,grid=on,reuse=off,unroll=off")
    save_target("cluster", "emulate:cuda")


def recluster():
    """A branch of products for all units and a few numbers for one, cut into three."""
    then = graph([node("MatMul", ["x", "w"], ["a"], "wide"), node("Softmax", ["scale"], ["s"], axis=0),
                  node("Mul", ["s", "scale"], ["f"]), node("ReduceSum", ["f", "axes"], ["z1"], keepdims=0),
                  node("MatMul", ["a", "w"], ["aw"], "again"), node("Mul", ["aw", "z1"], ["y1"])],
                 [], [tensor("y1", [8, 64, 64]), tensor("z1", [])], name="then")
    other = graph([node("ReduceSum", ["scale", "axes"], ["z2"], keepdims=0), node("MatMul", ["w", "x"], ["b"]),
                   node("Add", ["b", "z2"], ["y2"])], [], [tensor("y2", [8, 64, 64]), tensor("z2", [])], name="else")
    save("recluster", graph([node("If", ["c"], ["y", "z"], "choose", then_branch=then, else_branch=other)],
                            [tensor("c", [], TP.BOOL), tensor("x", [8, 64, 64]), tensor("w", [64, 64]),
                             tensor("scale", [8])],
                            [tensor("y", [8, 64, 64]), tensor("z", [])], [const("axes", [0], np.int64)]))


def partial():
    """A greedy decoder whose units each look at their own part of the scores; the place, which the next step reads, is
    stacked as well."""
    body = graph([node("Gather", ["table", "word"], ["h"], axis=0), node("MatMul", ["h", "w"], ["scores"], "product"),
                  node("ArgMax", ["scores"], ["best"], "best", axis=1, keepdims=0), node("Identity", ["c"], ["go"])],
                 [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("word", [1], I)],
                 [tensor("go", [], TP.BOOL), tensor("best", [1], I), tensor("best", [1], I)], name="body")
    body.node.insert(3, node("Identity", ["best"], ["next"]))
    body.output[1].name = "next"
    save("partial", graph([node("Loop", ["three", "", "first"], ["last", "words"], "steps", body=body)],
                          [tensor("first", [1], I)], [tensor("last", [1], I), tensor("words", [3, 1], I)],
                          [ramp("table", 70, 16), ramp("w", 16, 70), const("three", 3, np.int64)]))
    save_schedule("partial", "partial=on,grid=on,core=off,unroll=off")
    save_target("partial", "emulate:cuda")


def sequence():
    """A sequence that grows in a loop."""
    seq = helper.make_tensor_sequence_value_info
    body = graph(
        [node("Identity", ["c"], ["go"]), node("Mul", ["x", "two"], ["d"]), node("SequenceInsert", ["s_in", "d"], ["s"])],
        [tensor("i", [], I), tensor("c", [], TP.BOOL), seq("s_in", F, [2])],
        [tensor("go", [], TP.BOOL), seq("s", F, [2])], name="body")
    save("sequence", graph(
        [node("SequenceEmpty", [], ["empty"], dtype=F), node("Loop", ["m", "", "empty"], ["all"], body=body),
         node("ConcatFromSequence", ["all"], ["y"], axis=0)],
        [tensor("m", [], I), tensor("x", [2])], [tensor("y", ["n"])], [const("two", 2)]))


def swap():
    """Two carried values change places in each iteration."""
    body = graph([node("Identity", ["c"], ["go"])], [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("a", [2]), tensor("b", [2])],
                 [tensor("go", [], TP.BOOL), tensor("b", [2]), tensor("a", [2])], name="body")
    save("swap", graph([node("Loop", ["m", "", "x", "y"], ["p", "q"], body=body)],
                       [tensor("m", [], I), tensor("x", [2]), tensor("y", [2])], [tensor("p", [2]), tensor("q", [2])]))


def grow():
    """Values that only become longer: two rows behind along an inner axis, one in front in every other step."""
    then = graph([node("Concat", ["first", "log_in"], ["more"], axis=0)], [], [tensor("more", None)], name="then")
    other = graph([node("Identity", ["log_in"], ["same"])], [], [tensor("same", None)], name="other")
    body = graph(
        [node("Identity", ["c"], ["go"]), node("Mul", ["rows", "s_in"], ["new"]),
         node("Concat", ["k_in", "new"], ["k"], axis=1), node("ReduceMean", ["k"], ["mean"], keepdims=0),
         node("Mod", ["i", "two"], ["odd"]), node("Equal", ["odd", "zero"], ["even"]),
         node("Reshape", ["mean", "one"], ["first"]), node("If", ["even"], ["log"], then_branch=then, else_branch=other),
         node("Add", ["mean", "s_in"], ["s"])],
        [tensor("i", [], I), tensor("c", [], TP.BOOL), tensor("k_in", [3, "t", 4]), tensor("log_in", ["u"]), tensor("s_in", [])],
        [tensor("go", [], TP.BOOL), tensor("k", [3, "t2", 4]), tensor("log", ["u2"]), tensor("s", [])], name="body")
    save("grow", graph(
        [node("Loop", ["m", "", "k0", "log0", "s0"], ["k_last", "log_last", "s_last"], body=body)],
        [tensor("m", [], I), tensor("k0", [3, "t", 4]), tensor("log0", ["u"]), tensor("s0", [])],
        [tensor("k_last", [3, "tn", 4]), tensor("log_last", ["un"]), tensor("s_last", [])],
        [ramp("rows", 3, 2, 4), const("two", 2, np.int64), const("zero", 0, np.int64), const("one", [1], np.int64)]))


def pieces():
    """Heads that are computed one by one and put together are one product over heads; a product with one-hot rows reads
    the rows."""
    nodes = [node("OneHot", ["token", "depth", "values"], ["hot"]), node("MatMul", ["hot", "table"], ["x"], "lookup")]
    for k in range(4):
        nodes += [node("MatMul", ["x", f"w{k}"], [f"p{k}"], f"head{k}"), node("Unsqueeze", [f"p{k}", "one"], [f"h{k}"])]
    nodes.append(node("Concat", [f"h{k}" for k in range(4)], ["y"], "joined", axis=1))
    save("pieces", graph(nodes, [tensor("token", [3], I)], [tensor("y", [3, 4, 8])],
                         [const("depth", [9], np.int64), const("values", [0, 1]), const("one", [1], np.int64),
                          ramp("table", 9, 16), *(ramp(f"w{k}", 16, 8) for k in range(4))]))
    save_schedule("pieces", "core=on")


def embedding():
    """A recurrent step whose inputs are a word, which becomes a row of a table times its weights, and a frame, whose
    part of the product with the concatenation is computed for all steps before the loop."""
    body = graph(
        [node("Gather", ["table", "token"], ["word"]), node("MatMul", ["word", "w_word"], ["p"], "from_word"),
         node("Concat", ["frame", "h_in"], ["fh"], axis=1), node("MatMul", ["fh", "w"], ["q"], "from_rest"),
         node("Add", ["p", "q"], ["sum"]), node("Tanh", ["sum"], ["h"]), node("Identity", ["h"], ["out"])],
        [tensor("h_in", [1, 24]), tensor("token", [1], I), tensor("frame", [1, 16])],
        [tensor("h", [1, 24]), tensor("out", [1, 24])], name="body")
    save("embedding", graph([node("Scan", ["h0", "tokens", "frames"], ["last", "all"], body=body, num_scan_inputs=2)],
                            [tensor("h0", [1, 24]), tensor("tokens", [5, 1], I), tensor("frames", [5, 1, 16])],
                            [tensor("last", [1, 24]), tensor("all", [5, 1, 24])],
                            [ramp("table", 9, 16), ramp("w_word", 16, 24), ramp("w", 40, 24)]))


def gathered():
    """A gate and a value of sums of rows that are read through indices, and a gate of one of the rows: the products compute
    the sum, and read the rows, for themselves."""
    save("gathered", graph(
        [node("Gather", ["table", "left"], ["a"], "left_row"), node("Gather", ["table", "right"], ["b"], "right_row"),
         node("Add", ["a", "b"], ["ab"], "both"),
         node("MatMul", ["ab", "w"], ["p"]), node("Sigmoid", ["p"], ["gate"]), node("MatMul", ["ab", "u"], ["q"]),
         node("MatMul", ["a", "v"], ["r"]), node("Sigmoid", ["r"], ["forget"]),
         node("Mul", ["gate", "q"], ["s"]), node("Mul", ["forget", "a"], ["t"]), node("Add", ["s", "t"], ["y"], "cell")],
        [tensor("table", [50, 32]), tensor("left", ["rows"], I), tensor("right", ["rows"], I)], [tensor("y", ["rows", 32])],
        [ramp("w", 32, 32), ramp("u", 32, 32), ramp("v", 32, 32)]))


def attention():
    """Two contractions with a softmax between them."""
    save("attention", graph(
        [node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"], "scores"),
         node("Mul", ["s", "scale"], ["scaled"]), node("Softmax", ["scaled"], ["p"], axis=-1),
         node("MatMul", ["p", "v"], ["y"], "values")],
        [tensor("q", [2, "t", 8]), tensor("k", [2, "t", 8]), tensor("v", [2, "t", 8])],
        [tensor("y", [2, "t", 8])], [const("scale", 0.353553385)]))


def tree():
    """A recursive cell over a binary tree, height by height: the products of a height are one. tree_batch: sibling
    calls are one of all nodes of a depth. tree_apart: each sibling call by a unit of its own. tree_unrolled: two
    levels in one call."""
    def call(side, out):
        return [node("Gather", [side, "k"], [f"{side}_k"], f"{side}_k"),
                helper.make_node("Invoke", [f"{side}_k", "x", "left", "right", "leaf", "w"], [out], f"of_{side}",
                                 domain="ai.braid", function="f")]
    inner = graph(call("left", "a") + call("right", "b") +
                  [node("Concat", ["a", "b"], ["ab"], axis=1), node("MatMul", ["ab", "w"], ["z"]), node("Tanh", ["z"], ["h"])],
                  [], [tensor("h", [1, 256])])
    leaf = graph([node("Unsqueeze", ["k", "zero"], ["row"]), node("Gather", ["x", "row"], ["v"], "take")], [],
                 [tensor("v", [1, 256])], [const("zero", [0], np.int64)])
    names = ["k", "x", "left", "right", "leaf", "w"]
    f = helper.make_function("own", "f", names, ["y"],
                             [node("Gather", ["leaf", "k"], ["is_leaf"], "is_leaf"),
                              node("If", ["is_leaf"], ["y"], then_branch=leaf, else_branch=inner)],
                             [helper.make_opsetid("", 17), helper.make_opsetid("ai.braid", 1)])
    for name in ("tree", "tree_batch", "tree_apart", "tree_unrolled"):
        save(name, graph([helper.make_node("Invoke", names, ["y"], "start", domain="ai.braid", function="f")],
                         [tensor("k", [], I), tensor("x", ["n", 256]), tensor("left", ["n"], I), tensor("right", ["n"], I),
                          tensor("leaf", ["n"], TP.BOOL), tensor("w", [512, 256])], [tensor("y", [1, 256])]),
             functions=[f], extra=("own", "ai.braid"))


def library():
    """On a GPU, products at host level: the second one reads weights as they are and its epilogue stays behind; the
    loop's input projection is one product before it."""
    save("library", graph(
        [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "b"], ["z"]), node("Relu", ["z"], ["h"]),
         node("Transpose", ["v"], ["vt"], perm=[1, 0]), node("MatMul", ["h", "vt"], ["hv"]),
         node("RNN", ["hv", "rw", "rr"], ["", "y"], "rnn", hidden_size=8)],
        [tensor("x", [4, 1, 6])], [tensor("y", [1, 1, 8])],
        [ramp("w", 6, 32), ramp("b", 32), ramp("v", 12, 32), ramp("rw", 1, 8, 12), ramp("rr", 1, 8, 8)]))
    save_schedule("library", "library=on")
    save_target("library", "cuda:sm_90")


# ---- errors
def errors():
    x, y = [tensor("x", [2, 3])], [tensor("y", None)]
    y[0].type.tensor_type.ClearField("shape")
    save("cycle", graph([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"], "last")], x, y))
    save("unknown_op", graph([node("Frobnicate", ["x"], ["y"])], x, y))
    save("wrong_type", graph([node("Add", ["x", "i"], ["y"])], x + [tensor("i", [2, 3], I)], y))
    save("bad_axis", graph([node("Softmax", ["x"], ["y"], axis=2)], x, y))
    save("negative_dim", graph([node("Reshape", ["x", "to"], ["y"])], x, y, [const("to", [2, -3], np.int64)]))
    then = graph([node("Neg", ["nowhere"], ["a"])], [], [tensor("a", [2, 3])], name="then")
    other = graph([node("Neg", ["x"], ["b"])], [], [tensor("b", [2, 3])], name="else")
    save("missing_name", graph([node("If", ["c"], ["y"], "choose", then_branch=then, else_branch=other)],
                               x + [tensor("c", [], TP.BOOL)], y))
    save("unsupported_type", graph([node("Identity", ["z"], ["y"])], [tensor("z", [2], TP.COMPLEX64)],
                                   [tensor("y", [2], TP.COMPLEX64)]))
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    ping = helper.make_function("own", "Ping", ["a"], ["b"], [helper.make_node("Pong", ["a"], ["b"], "go", domain="own")], ops)
    pong = helper.make_function("own", "Pong", ["a"], ["b"], [helper.make_node("Ping", ["a"], ["b"], "go", domain="own")], ops)
    save("recursion", graph([helper.make_node("Ping", ["x"], ["y"], "start", domain="own")], x, y), functions=[ping, pong],
         extra=["own"])
    save("mismatch", graph([node("MatMul", ["x", "x"], ["y"])], x, y))
    save("twice", graph([node("Neg", ["x"], ["y"], "one"), node("Abs", ["x"], ["y"], "two")], x, y))


for make in (cells, elementwise, matmul_bias_relu, conv, depthwise, quantized, softmax, open_ranks, shapes, if_ranks, loop, scan, lstm, sequence, swap,
             grow, unroll, interchange, reuse, embedding, pieces, gathered, attention, wavefront, nest, fused_loops, cluster, recluster, partial, tree,
             library, errors):
    make()
