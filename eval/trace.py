"""The path that a model takes on given inputs, as a graph without control flow.

Conditions and trip counts may depend on data, so ONNX Runtime evaluates each node that runs, as a
model of one node. Loops, scans, branches and recursive calls become copies of their bodies. Counts
the operations that ran, and the weights that products used.
"""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

# The least costs of an element: (floating point operations, exps, divisions). A logarithm counts as
# an exp, because its polynomial is as long.
SIGMOID = 0, 1, 1
OPERATIONS = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Relu", "Abs", "Neg",
                     "BatchNormalization"), (1, 0, 0)),
    **dict.fromkeys(("Div", "Sqrt", "Reciprocal"), (0, 0, 1)),
    **dict.fromkeys(("Exp", "Log", "Erf"), (0, 1, 0)),
    **dict.fromkeys(("Sigmoid", "Tanh"), SIGMOID),
    "Softplus": (0, 2, 0), "Softmax": (3, 1, 0), "LayerNormalization": (8, 0, 0)}
CONTROL = ("If", "Loop", "Scan", "Invoke")


def attributes(node):
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


class Trace:
    def __init__(self, model, inputs, keep=True):
        """keep: whether to keep the graph, or only the counts."""
        self.model, self.keep = model, keep
        self.functions = {f.name: f for f in model.functions}
        self.opsets = [o for o in model.opset_import if o.domain == ""]
        self.nodes, self.constants, self.values, self.sessions = [], {}, {}, {}
        self.weights = {}
        self.flops = self.exps = self.divisions = 0
        self.touched = {}  # weights of products: bytes
        self.products = 0
        scope = {}
        for t in model.graph.initializer:
            self.weights[t.name] = t
            self.values[t.name] = numpy_helper.to_array(t)
            scope[t.name] = t.name
        for v in model.graph.input:
            self.values[v.name] = inputs[v.name]
            scope[v.name] = v.name
        self.inputs = inputs
        self.run(model.graph.node, scope)
        self.outputs = [scope[v.name] for v in model.graph.output]

    def constant(self, array):
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(array, name)
            self.values[name] = array
        return self.constants[key].name

    def emit(self, op, names, outputs=1, domain="", **attrs):
        out = self.append(helper.make_node(op, names, [""] * outputs, domain=domain, **attrs))
        return out[0]

    def append(self, node):
        """Evaluates a node whose inputs are names of values, and names its outputs."""
        args = [self.values[n] if n else None for n in node.input]
        results = self.evaluate(node, args)
        names = []
        for r in results:
            names.append(f"v{len(self.values)}")
            self.values[names[-1]] = r
        self.count(node, args, results)
        if self.keep:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.output[:]
            copy.output.extend(names)
            copy.name = names[0]
            self.nodes.append(copy)
        return names

    def evaluate(self, node, args):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = ""
        del copy.input[:], copy.output[:]
        copy.input.extend("" if a is None else f"i{n}" for n, a in enumerate(args))
        copy.output.extend(f"o{n}" for n in range(len(node.output)))
        key = copy.SerializeToString() + "".join(
            f"{a.dtype.str}{a.ndim}" for a in args if a is not None).encode()
        if key not in self.sessions:
            ins = [helper.make_tensor_value_info(
                f"i{n}", helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
                for n, a in enumerate(args) if a is not None]
            outs = [helper.make_empty_tensor_value_info(o) for o in copy.output]
            model = helper.make_model(helper.make_graph([copy], "node", ins, outs),
                                      opset_imports=self.opsets, ir_version=self.model.ir_version)
            options = ort.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = 1
            self.sessions[key] = ort.InferenceSession(model.SerializeToString(), options,
                                                      providers=["CPUExecutionProvider"])
        feed = {f"i{n}": a for n, a in enumerate(args) if a is not None}
        return self.sessions[key].run(None, feed)

    def count(self, node, args, results):
        op, size = node.op_type, results[0].size
        if op in ("MatMul", "Gemm", "Conv", "LSTM"):
            if op == "MatMul":
                flops = 2 * size * args[0].shape[-1]
            elif op == "Gemm":
                flops = 2 * size * args[0].shape[0 if attributes(node).get("transA") else 1]
            elif op == "Conv":
                flops = 2 * size * int(np.prod(args[1].shape[1:]))
            else:
                length, batch, width = args[0].shape
                flops = 2 * length * batch * args[1].shape[1] * (width + args[2].shape[2])
                self.exps += 5 * size * SIGMOID[1]
                self.divisions += 5 * size * SIGMOID[2]
            self.flops += flops
            self.products += 1
            for n in node.input:
                if n in self.weights:
                    self.touched[n] = self.values[n].nbytes
        else:
            flops, exps, divisions = OPERATIONS.get(op, (0, 0, 0))
            self.flops += size * flops
            self.exps += size * exps
            self.divisions += size * divisions

    def run(self, nodes, scope):
        """Runs nodes, and adds their outputs to scope {name there: name of the value}."""
        for node in nodes:
            args = [scope[n] if n else "" for n in node.input]
            if node.op_type == "Constant":
                outs = [self.constant(numpy_helper.to_array(attributes(node)["value"]))]
            elif node.op_type in CONTROL:
                outs = getattr(self, node.op_type.lower())(node, args, attributes(node), scope)
            else:
                copy = onnx.NodeProto()
                copy.CopyFrom(node)
                del copy.input[:]
                copy.input.extend(args)
                outs = self.append(copy)
            scope.update((n, v) for n, v in zip(node.output, outs) if n)

    def inside(self, graph, given, scope):
        inner = {**scope, **given}
        for t in graph.initializer:
            inner[t.name] = self.constant(numpy_helper.to_array(t))
        self.run(graph.node, inner)
        return [inner[v.name] for v in graph.output]

    def invoke(self, node, args, attrs, scope):
        f = self.functions[attrs["function"].decode()]
        inner = dict(zip(f.input, args))
        self.run(f.node, inner)
        return [inner[n] for n in f.output]

    def loop(self, node, args, attrs, scope):
        body = attrs["body"]
        trips = int(self.values[args[0]].reshape(())) if args[0] else np.inf
        more = not args[1] or bool(self.values[args[1]])
        state, scanned, i = args[2:], [], 0
        names = [v.name for v in body.input]
        while more and i < trips:
            given = dict(zip(names, (self.constant(np.array(i, np.int64)),
                                     self.constant(np.array(True)), *state)))
            again, *out = self.inside(body, given, scope)
            state, more = out[:len(state)], bool(self.values[again])
            scanned.append(out[len(state):])
            i += 1
        return [*state, *(self.stack(list(v)) for v in zip(*scanned))]

    def scan(self, node, args, attrs, scope):
        body, count = attrs["body"], attrs["num_scan_inputs"]
        state, xs = args[:-count], args[-count:]
        names, scanned = [v.name for v in body.input], []
        for t in range(len(self.values[xs[0]])):
            at = self.constant(np.array(t, np.int64))
            now = [self.emit("Gather", [x, at], axis=0) for x in xs]
            out = self.inside(body, dict(zip(names, (*state, *now))), scope)
            state = out[:len(state)]
            scanned.append(out[len(state):])
        return [*state, *(self.stack(list(v)) for v in zip(*scanned))]

    def stack(self, names):
        axes = self.constant(np.array([0], np.int64))
        return self.emit("Concat", [self.emit("Unsqueeze", [n, axes]) for n in names], axis=0)

    def __getattr__(self, name):
        if name == "if":  # a word of Python's own
            return self.branch
        raise AttributeError(name)

    def branch(self, node, args, attrs, scope):
        which = "then_branch" if bool(self.values[args[0]].reshape(())) else "else_branch"
        return self.inside(attrs[which], {}, scope)

    def graph(self):
        """The model of the path: without control flow, with fixed shapes, and only what the outputs need."""
        wanted, nodes = set(self.outputs), []
        for n in reversed(self.nodes):
            if wanted & set(n.output):
                wanted |= set(n.input)
                nodes.append(n)
        nodes.reverse()
        outputs = []
        for name, v in zip(self.outputs, self.model.graph.output):
            nodes.append(helper.make_node("Identity", [name], [v.name], name=f"{v.name}_out"))
            a = self.values[name]
            outputs.append(helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
        inputs = [helper.make_tensor_value_info(
            v.name, helper.np_dtype_to_tensor_dtype(self.inputs[v.name].dtype),
            self.inputs[v.name].shape) for v in self.model.graph.input]
        kept = [t for t in (*self.weights.values(), *self.constants.values()) if t.name in wanted]
        return helper.make_model(helper.make_graph(nodes, self.model.graph.name + "_path", inputs,
                                                   outputs, kept),
                                 opset_imports=self.opsets, ir_version=self.model.ir_version)
