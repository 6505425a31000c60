"""A torch.nn.Module as an ONNX model: torch.export, then torch.onnx's exporter, whose functions for while_loop, cond, scan
and recurrent layers give Loop, If, Scan, LSTM and GRU.

Inputs and outputs are the leaves of the arguments and results in the order in which torch flattens them. What forward
writes into buffers or arguments comes as further outputs; such buffers are further inputs.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from .. import UnsupportedError

LARGEST_CONSTANT = 64  # elements of a tensor that a branch or body makes anew


@dataclass
class Exported:
    """An ONNX model and how a call of the module maps to its inputs and outputs.

    inputs: for each leaf of (args, kwargs): True if it is an input of the model; else its value is part of the model.
    constants: those values, by the leaf's number.
    outputs: for each leaf of the result: a pair (number of the model's output, type to convert it to or None), or
        (None, value) where the result does not depend on the call.
    buffers: names of the buffers that forward changes: the model's last inputs.
    written: where the model's outputs behind those of the result go: names of buffers, numbers of leaves of the arguments.
    same: leaves of the result that are what was written there: pairs of the leaf's number and the place in `written`.
    """
    model: Any  # onnx.ModelProto
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    inputs: list[bool]
    constants: dict[int, Any] = field(default_factory=dict)
    outputs: list[tuple[int | None, Any]] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    written: list[str | int] = field(default_factory=list)
    same: dict[int, int] = field(default_factory=dict)


def export(module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
           dynamic_shapes: Any = None) -> bytes:
    """Returns `module` as an ONNX file, weights inside.

    args, kwargs: example arguments of forward; their types, and the sizes that dynamic_shapes does not open, are kept.
    dynamic_shapes: as in torch.export.export, for example {"x": {0: torch.export.Dim.DYNAMIC}}.
    Buffers that forward changes are the last inputs and, with arguments that it changes, the last outputs.
    Raises braid.UnsupportedError where torch or its ONNX exporter does not take the module, with their reason.
    """
    return export_program(module, args, kwargs, dynamic_shapes=dynamic_shapes).model.SerializeToString()


def export_program(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, *,
                   dynamic_shapes: Any = None) -> Exported:
    def translated(module: torch.nn.Module) -> tuple[Any, dict[int, Any]]:
        program = _capture(module, tuple(args), dict(kwargs or {}), dynamic_shapes)
        _constants_in_place(program.graph_module)
        constants = _take_constant_outputs(program)
        return torch.onnx.export(program, dynamo=True, verbose=False, optimize=False, custom_translation_table=_translations()), constants

    name = type(module).__name__
    with _quiet():
        try:
            onnx_program, constants = translated(module)
            buffers, leaves = _written(onnx_program.exported_program)
            if buffers or leaves:
                onnx_program, constants = translated(_Functional(module, buffers, leaves))
            exported = _signature(onnx_program.exported_program, onnx_program.model, constants, buffers, leaves)
            onnx_program.optimize()
            exported.model = onnx_program.model_proto
        except UnsupportedError as error:
            raise UnsupportedError(f"{name}: {error}") from error
        except Exception as error:  # of many kinds
            raise UnsupportedError(f"{name}: torch.onnx.export: {reason(error)}") from error
    return exported


def reason(error: BaseException) -> str:
    """One line that says why: of the first cause, with the node where it was found."""
    node = None
    while True:
        found = re.search(r"(?:translating|executing) (?:node )?(%\w+ .*?(?:target=|\[target=)[\w.]+)", str(error))
        node = found[1] if found else node
        if error.__cause__ is None:
            break
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") or lines[0].startswith("Constraints violated") else lines[0]
    target = re.search(r"target=([\w.]+)", node or "")
    if target:
        return f"{text[:400]} (at {node.split(' ')[0]}: {target[1]})"
    lines = re.findall(r'File "([^"<]+)", line (\d+), in', str(error))
    return f"{text[:400]} ({lines[-1][0]}:{lines[-1][1]})" if lines else text[:400]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the remarks of torch.export and the exporter: what matters comes as an exception."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx")]
    levels = [x.level for x in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in loggers:
                x.setLevel(logging.ERROR)
            yield
    finally:
        for x, level in zip(loggers, levels):
            x.setLevel(level)


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """In eval mode and without gradients."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, training in modes:
            m.training = training


@contextlib.contextmanager
def _open_steps() -> Iterator[None]:
    """Recurrent layers without unrolling, where this torch can do it: the number of steps stays open."""
    with contextlib.ExitStack() as stack:
        try:
            from torch.export import _patches
            for way in (_patches.register_lstm_while_loop_decomposition, _patches.register_gru_while_loop_decomposition):
                stack.enter_context(way())
        except (ImportError, AttributeError):
            pass
        yield


def _capture(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any],
             dynamic_shapes: Any) -> torch.export.ExportedProgram:
    with _evaluating(module), _open_steps() if dynamic_shapes else contextlib.nullcontext(), _quiet():
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        except Exception as error:
            raise UnsupportedError(f"torch.export: {reason(error)}") from error


def _constants_in_place(graph_module: torch.fx.GraphModule) -> None:
    """Small constant tensors of branches and bodies (torch.tensor(0) in one) as calls that make them: the exporter's
    decompositions refuse attributes there."""
    aten = torch.ops.aten
    for name, sub in graph_module.named_modules():
        if not name or not isinstance(sub, torch.fx.GraphModule):
            continue
        made_here: set[str] = set()
        for node in list(sub.graph.nodes):
            value = getattr(sub, node.target, None) if node.op == "get_attr" and "." not in node.target else None
            if not isinstance(value, torch.Tensor) or value.numel() > LARGEST_CONSTANT or value.is_complex():
                continue
            with sub.graph.inserting_before(node), torch.utils._python_dispatch._disable_current_modes():
                def full(x: Any) -> torch.fx.Node:
                    made = sub.graph.call_function(aten.full.default, ([], x), {"dtype": value.dtype})
                    made.meta["val"] = node.meta["val"].new_empty(()) if "val" in node.meta else None
                    return made

                flat = value.reshape(-1).tolist()
                made = full(flat[0]) if value.dim() == 0 else sub.graph.call_function(
                    aten.reshape.default, (sub.graph.call_function(aten.stack.default, ([full(x) for x in flat],)), list(value.shape)))
                made.meta.update(node.meta)
            node.replace_all_uses_with(made)
            sub.graph.erase_node(node)
            made_here.add(node.target)
        for target in made_here:
            delattr(sub, target)
        sub.recompile()


def _take_constant_outputs(program: torch.export.ExportedProgram) -> dict[int, Any]:
    """Takes results that are no tensors (a name, a number) out of the program, as the exporter does not take them."""
    values = {}
    output = program.graph.output_node()
    for i, spec in enumerate(program.graph_signature.output_specs):
        if isinstance(spec.arg, ConstantArgument):
            values[i] = spec.arg.value
            program.graph_signature.output_specs[i] = dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, value=None))
    output.args = ([None if i in values else x for i, x in enumerate(output.args[0])],)
    return values


def _written(program: torch.export.ExportedProgram) -> tuple[list[str], list[int]]:
    """The names of the buffers and the numbers of the leaves of the arguments that forward changes."""
    users = [s.arg.name for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    specs = program.graph_signature.output_specs
    return ([s.target for s in specs if s.kind == OutputKind.BUFFER_MUTATION],
            [users.index(s.target) for s in specs if s.kind == OutputKind.USER_INPUT_MUTATION])


class _Functional(torch.nn.Module):
    """A module that changes nothing: what `module` would write comes behind its result."""

    def __init__(self, module: torch.nn.Module, buffers: Sequence[str], leaves: Sequence[int]):
        super().__init__()
        self.module = module

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            flat, spec = pytree.tree_flatten((args, kwargs))
            for i in leaves:
                flat[i] = flat[i].clone()
            args, kwargs = pytree.tree_unflatten(flat, spec)
            state = {name: module.get_buffer(name).clone() for name in buffers}
            result = torch.func.functional_call(module, state, args, kwargs)
            return result, [state[name] for name in buffers], [flat[i] for i in leaves]

        self.forward = forward


def _translations() -> dict[Any, Any] | None:
    """while_loop by the exporter's own function, which gives the domain of its bodies a version that others do not have; map,
    which it lacks, as a scan without state."""
    try:
        from torch.onnx._internal.exporter._torchlib.ops.hop import higher_order_scan, higher_order_while_loop
    except ImportError:
        return None
    from onnxscript import evaluator

    def while_loop(*args: Any, **kwargs: Any) -> Any:
        outputs = higher_order_while_loop(*args, **kwargs)
        for node in evaluator.default().nodes:
            if node.domain:
                node.version = None
        return outputs

    def mapped(body: Any, xs: Any, operands: Any) -> Any:
        return higher_order_scan(body, [], xs, operands)

    return {torch.ops.higher_order.while_loop: while_loop, torch.ops.higher_order.map_impl: mapped}


def _signature(program: torch.export.ExportedProgram, model: Any, constants: dict[int, Any], buffers: list[str],
               leaves: list[int]) -> Exported:
    """The mapping, and the model's inputs and outputs as it says. constants: results that are none of the model's."""
    import onnx_ir as ir

    for node in (*program.graph.find_nodes(op="placeholder"), *program.graph.output_node().args[0]):
        value = node.meta.get("val") if node is not None else None
        if isinstance(value, torch.Tensor) and value.is_complex() and (node.op != "placeholder" or node.name in program.graph_signature.user_inputs):
            raise UnsupportedError("complex arguments and results are not supported")
    graph, signature = model.graph, program.graph_signature
    values = {v.name: v for v in graph.inputs}
    for node in graph:
        values.update((v.name, v) for v in node.outputs)
    values.update({v.metadata_props.get("pkg.torch.onnx.original_node_name", v.name): v for v in graph.initializers.values()})
    users = [s for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    out_spec = program.call_spec.out_spec
    exported = Exported(None, program.call_spec.in_spec, out_spec.child(0) if buffers or leaves else out_spec,
                        [not isinstance(s.arg, ConstantArgument) for s in users], buffers=buffers, written=[*buffers, *leaves])
    exported.constants = {i: s.arg.value for i, s in enumerate(users) if isinstance(s.arg, ConstantArgument)}

    nodes = [(s, n) for s, n in zip(signature.output_specs, program.graph.output_node().args[0])]
    count = len(nodes) - len(exported.written)
    written = {n.name: w for w, (_, n) in enumerate(nodes[count:])}
    results = []
    for i, (spec, node) in enumerate(nodes[:count]):
        if i in constants:
            exported.outputs.append((None, constants[i]))
            continue
        if node.name in written:
            exported.same[i] = written[node.name]
        exported.outputs.append((len(results), _SCALARS.get(type(spec.arg).__name__)))
        results.append(values[node.name])
    for name in buffers:
        value = graph.initializers.pop(f"module.{name}")
        value.const_value, value.name = None, f"buffer_{_word(name)}"
        graph.inputs.append(value)

    names = _output_names(exported) + [f"new_{_word(t)}" if isinstance(t, str) else f"new_{users[t].arg.name}" for t in exported.written]
    taken = {v.name for v in graph.inputs}.union(values)
    graph.outputs.clear()
    for name, value in zip(names, results + [values[n.name] for _, n in nodes[count:]]):
        node = ir.node("Identity", [value])  # an output of its own also for what is an input, or comes twice
        node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
        while name in taken:
            name += "_"
        node.outputs[0].name = name
        taken.add(name)
        graph.append(node)
        graph.outputs.append(node.outputs[0])
    return exported


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


_SCALARS: dict[str, Callable[[Any], Any]] = {"SymIntArgument": int, "SymFloatArgument": float, "SymBoolArgument": bool}


def _output_names(exported: Exported) -> list[str]:
    """Names by where the leaves are in the result: output, output_1, tags, past_k."""
    spec = exported.out_spec
    paths = [path for path, _ in pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))[0]]
    names = []
    for path, (output, _) in zip(paths, exported.outputs):
        name = _word("_".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path))
        if output is not None:
            names.append(name if re.match(r"[A-Za-z_]", name) else f"output_{name}" if name else "output")
    return names
