"""The models of the checks of PyTorch's operator, as ONNX files."""
import os

import onnx
from onnx import TensorProto as T
from onnx import helper as h

tensor, sequence = h.make_tensor_value_info, h.make_tensor_sequence_value_info


def optional(name, elem, shape):
    return h.make_value_info(name, h.make_optional_type_proto(h.make_tensor_type_proto(elem, shape)))


def constant(name, values, elem=T.INT64, dims=None):
    return h.make_tensor(name, elem, [len(values)] if dims is None else dims, values)


def add():
    """z = x + in, c = both one after the other."""
    nodes = [h.make_node("Add", ["x", "in"], ["z"]), h.make_node("Concat", ["x", "in"], ["c"], axis=0)]
    return nodes, [tensor("x", T.FLOAT, ["n", 4]), tensor("in", T.FLOAT, ["n", 4])], [tensor("z", T.FLOAT, ["n", 4]), tensor("c", T.FLOAT, [None, 4])], []


def loop():
    """s doubles m times; all its values."""
    body = h.make_graph([h.make_node("Add", ["s", "s"], ["t"]), h.make_node("Identity", ["c"], ["d"]), h.make_node("Identity", ["t"], ["u"])], "body",
                        [tensor("i", T.INT64, []), tensor("c", T.BOOL, []), tensor("s", T.FLOAT, ["k"])],
                        [tensor("d", T.BOOL, []), tensor("t", T.FLOAT, ["k"]), tensor("u", T.FLOAT, ["k"])])
    nodes = [h.make_node("Loop", ["m", "", "s0"], ["last", "all"], body=body)]
    return nodes, [tensor("m", T.INT64, []), tensor("s0", T.FLOAT, ["k"])], [tensor("last", T.FLOAT, ["k"]), tensor("all", T.FLOAT, [None, "k"])], []


def branch():
    """y = x + 1 or -x, by the 0-d condition."""
    left = h.make_graph([h.make_node("Add", ["x", "one"], ["a"])], "left", [], [tensor("a", T.FLOAT, ["n"])])
    right = h.make_graph([h.make_node("Neg", ["x"], ["b"])], "right", [], [tensor("b", T.FLOAT, ["n"])])
    return [h.make_node("If", ["yes"], ["y"], then_branch=left, else_branch=right)], \
        [tensor("yes", T.BOOL, []), tensor("x", T.FLOAT, ["n"])], [tensor("y", T.FLOAT, ["n"])], [constant("one", [1.0], T.FLOAT)]


def lists():
    """The list with x appended, and its items one after the other."""
    nodes = [h.make_node("SequenceInsert", ["s", "x"], ["r"]), h.make_node("ConcatFromSequence", ["r"], ["c"], axis=0)]
    return nodes, [sequence("s", T.FLOAT, [None, 2]), tensor("x", T.FLOAT, ["n", 2])], [sequence("r", T.FLOAT, [None, 2]), tensor("c", T.FLOAT, [None, 2])], []


def maybe():
    """x, plus y where there is one; and y again."""
    some = h.make_graph([h.make_node("OptionalGetElement", ["y"], ["e"]), h.make_node("Add", ["x", "e"], ["p"])], "some", [], [tensor("p", T.FLOAT, ["n"])])
    none = h.make_graph([h.make_node("Identity", ["x"], ["q"])], "none", [], [tensor("q", T.FLOAT, ["n"])])
    nodes = [h.make_node("OptionalHasElement", ["y"], ["has"]), h.make_node("If", ["has"], ["z"], then_branch=some, else_branch=none),
             h.make_node("Identity", ["y"], ["again"])]
    return nodes, [tensor("x", T.FLOAT, ["n"]), optional("y", T.FLOAT, [None])], [tensor("z", T.FLOAT, ["n"]), optional("again", T.FLOAT, [None])], []


def nonzero():
    """Where x is not 0: as many columns as there are such places."""
    return [h.make_node("NonZero", ["x"], ["where"])], [tensor("x", T.FLOAT, ["n", "m"])], [tensor("where", T.INT64, [2, None])], []


def halves():
    """The first half of x, in bfloat16, and twice the number of rows."""
    nodes = [h.make_node("Shape", ["x"], ["n"], start=0, end=1), h.make_node("Div", ["n", "two"], ["half"]),
             h.make_node("Slice", ["x", "zero", "half", "zero"], ["first"]), h.make_node("Cast", ["first"], ["y"], to=T.BFLOAT16),
             h.make_node("Mul", ["n", "two"], ["double"])]
    return nodes, [tensor("x", T.FLOAT, ["n", 3])], [tensor("y", T.BFLOAT16, [None, 3]), tensor("double", T.INT64, [1])], \
        [constant("two", [2]), constant("zero", [0])]


def ones():
    """No input at all."""
    return [h.make_node("Identity", ["v"], ["y"])], [], [tensor("y", T.FLOAT, [3])], [constant("v", [1.0, 1.0, 1.0], T.FLOAT)]


def names():
    """The sum of inputs whose names are no identifiers."""
    inputs = ["a.b", "a_b", "1", "self", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    return [h.make_node("Sum", inputs, ["the sum"])], [tensor(x, T.FLOAT, []) for x in inputs], [tensor("the sum", T.FLOAT, [])], []


def codes():
    """Refused: PyTorch has no tensors of the output's type."""
    return [h.make_node("Cast", ["x"], ["y"], to=T.INT4)], [tensor("x", T.FLOAT, ["n"])], [tensor("y", T.INT4, ["n"])], []


ALL = [add, loop, branch, lists, maybe, nonzero, halves, ones, names]


def write(folder, which=ALL):
    """Writes them; the path of each by name."""
    paths = {}
    for make in which:
        nodes, inputs, outputs, constants = make()
        model = h.make_model(h.make_graph(nodes, make.__name__, inputs, outputs, constants), opset_imports=[h.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model)
        paths[make.__name__] = os.path.join(folder, make.__name__ + ".onnx")
        onnx.save(model, paths[make.__name__])
    return paths
