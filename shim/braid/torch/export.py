"""A torch.nn.Module as an ONNX model: torch.export, then torch.onnx's exporter, whose functions for while_loop, cond, scan
and recurrent layers give Loop, If, Scan, LSTM and GRU.

Inputs and outputs are the leaves of the arguments and results in the order in which torch flattens them. What forward
writes into buffers or arguments comes as further outputs; such buffers are further inputs.
"""
from __future__ import annotations

import contextlib
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
    written: where the model's outputs behind those of the result go: the name of a buffer or the number of a leaf.
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
    program = _capture(module, tuple(args), dict(kwargs or {}), dynamic_shapes)
    _constants_in_place(program.graph_module)
    with _quiet():
        try:
            onnx_program = torch.onnx.export(program, dynamo=True, verbose=False, optimize=False)
        except Exception as error:  # of many kinds
            raise UnsupportedError(f"{_name(module)}: torch.onnx.export: {reason(error)}") from error
        exported = _signature(onnx_program.exported_program, onnx_program.model)
        onnx_program.optimize()
        try:
            exported.model = onnx_program.model_proto
        except Exception as error:
            raise UnsupportedError(f"{_name(module)}: its weights do not fit into an ONNX file: {reason(error)}") from error
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
    return f"{text[:400]} (at {node.split(' ')[0]}: {target[1]})" if target else text[:400]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on what is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _name(module: torch.nn.Module) -> str:
    return type(module).__name__


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
            raise UnsupportedError(f"{_name(module)}: torch.export: {reason(error)}") from error


def _constants_in_place(graph_module: torch.fx.GraphModule) -> None:
    """Small constant tensors of branches and bodies (torch.tensor(0) in one) as calls that make them: the exporter's
    decompositions refuse attributes there."""
    aten = torch.ops.aten
    for name, sub in graph_module.named_modules():
        if not name or not isinstance(sub, torch.fx.GraphModule):
            continue
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
        sub.recompile()


def _signature(program: torch.export.ExportedProgram, model: Any) -> Exported:
    """The mapping, and the model's inputs and outputs as it says."""
    import onnx_ir as ir

    graph, signature = model.graph, program.graph_signature
    values = {v.name: v for v in graph.inputs}
    for node in graph:
        values.update((v.name, v) for v in node.outputs)
    values.update({v.metadata_props.get("pkg.torch.onnx.original_node_name", v.name): v for v in graph.initializers.values()})
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    users = [s for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    exported = Exported(None, in_spec, out_spec, [not isinstance(s.arg, ConstantArgument) for s in users])
    exported.constants = {i: s.arg.value for i, s in enumerate(users) if isinstance(s.arg, ConstantArgument)}
    place = {s.arg.name: i for i, s in enumerate(users)}

    results, extra, changed = [], [], {}
    for spec in signature.output_specs:
        if spec.kind == OutputKind.USER_OUTPUT:
            if isinstance(spec.arg, ConstantArgument):
                exported.outputs.append((None, spec.arg.value))
            else:
                exported.outputs.append((len(results), _SCALARS.get(type(spec.arg).__name__)))
                results.append(values[spec.arg.name])
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            exported.written.append(spec.target if spec.kind == OutputKind.BUFFER_MUTATION else place[spec.target])
            changed[spec.arg.name] = len(extra)
            extra.append(values[spec.arg.name])
        else:
            raise UnsupportedError(f"a result of the kind {spec.kind.name.lower()} is not supported")
    names = [s.arg.name if hasattr(s.arg, "name") else None for s in signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    exported.same = {i: changed[name] for i, name in enumerate(names) if name in changed}
    exported.buffers = [t for t in exported.written if isinstance(t, str)]
    for name in exported.buffers:
        value = graph.initializers.pop(name)
        value.const_value = None
        value.name = f"buffer_{name.replace('.', '_')}"
        graph.inputs.append(value)

    names = _output_names(out_spec, exported) + [f"new_{t.replace('.', '_') if isinstance(t, str) else users[t].arg.name}" for t in exported.written]
    taken = set(values)
    graph.outputs.clear()
    for name, value in zip(names, results + extra):
        node = ir.node("Identity", [value])  # an output of its own also for what is an input, or comes twice
        node.outputs[0].shape, node.outputs[0].type = value.shape, value.type
        while name in taken:
            name += "_"
        node.outputs[0].name = name
        taken.add(name)
        graph.append(node)
        graph.outputs.append(node.outputs[0])
    return exported


_SCALARS: dict[str, Callable[[Any], Any]] = {"SymIntArgument": int, "SymFloatArgument": float, "SymBoolArgument": bool}


def _output_names(out_spec: pytree.TreeSpec, exported: Exported) -> list[str]:
    """Names by where the leaves are in the result: output, output_1, tags, past_k."""
    tree = pytree.tree_unflatten(list(range(out_spec.num_leaves)), out_spec)
    paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    names = []
    for path, (output, _) in zip(paths, exported.outputs):
        words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
        name = re.sub(r"\W", "_", "_".join(words))
        if output is not None:
            names.append(name if re.match(r"[A-Za-z_]", name) else f"output_{name}" if name else "output")
    return names
