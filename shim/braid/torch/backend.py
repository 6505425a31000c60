"""torch.compile(model, backend="braid").

A graph is compiled at its first call, when its arguments are there; arguments that are parameters or buffers of the model
become part of the kernel. A graph that torch.export, the ONNX exporter or Braid refuses runs eagerly, with one warning.
"""
from __future__ import annotations

import copy
import hashlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import braid

from .compile import Caller, library_of, target_of
from .export import Exported, export_program, reason

OPEN = torch.export.Dim.DYNAMIC
CHANGES = 3  # times that weights may change before they become inputs
_compiled: dict[str, tuple[Exported, "braid.Library"]] = {}


class EagerWarning(UserWarning):
    """A graph runs eagerly; the message says why."""


def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
            mode: str | None = None) -> Callable[..., Any]:
    """What torch.compile calls for a graph. options: those of braid.torch.compile (target, threads, …); mode means nothing."""
    del example_inputs, mode
    return _Graph(graph, dict(options or {}))


class _Graph:
    """Runs a graph of TorchDynamo."""

    def __init__(self, graph: torch.fx.GraphModule, options: dict[str, Any]):
        self.graph, self.options = graph, options
        self.places = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.lock = threading.RLock()
        self.warned: set[str] = set()
        self.refused = False
        self.changes = 0
        self.made: _Made | None = None

    def __call__(self, *args: Any) -> Any:
        if self.refused:
            return self.graph(*args)
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            return self._eagerly(args, "a gradient may be asked for (call it under torch.no_grad())")
        made = self.made
        if made is None or not made.fits(args):
            try:
                made = self._make(args)
            except braid.CancelledError:
                raise
            except Exception as error:  # whatever it is, the graph can run as PyTorch runs it
                self.refused = True
                return self._eagerly(args, str(error) if isinstance(error, braid.Error) else reason(error))
        return made.run(args)

    def _eagerly(self, args: Sequence[Any], why: str) -> Any:
        if why not in self.warned:
            self.warned.add(why)
            warnings.warn(f"torch.compile(backend=\"braid\"): this graph runs eagerly: {why}", EagerWarning, stacklevel=4)
        return self.graph(*args)

    def _make(self, args: Sequence[Any]) -> "_Made":
        with self.lock:
            self.changes += 1
            constant = [i for i, (place, x) in enumerate(zip(self.places, args))
                        if self.changes <= CHANGES and _is_weight(place, x)]
            numbers = {i: args[i].item() for i in _numbers(self.places)}
            if numbers and self.changes > 2 * CHANGES:
                raise braid.UnsupportedError("a Python float that it takes has another value each time: pass it as a tensor")
            self.made = _Made(self.graph, self.places, args, constant, numbers, self.options)
            return self.made


class _Made:
    """A compiled graph whose arguments `constant` and `numbers` are part of the kernel."""

    def __init__(self, graph: torch.fx.GraphModule, places: Sequence[torch.fx.Node], args: Sequence[Any],
                 constant: list[int], numbers: dict[int, Any], options: dict[str, Any]):
        sizes = _sizes(places)
        self.numbers = numbers
        self.given = [i for i in range(len(args)) if i not in {*constant, *numbers, *sizes}]
        dims = [_open_dims(places[i]) for i in self.given]
        options = {"target": target_of(args), **options}
        graph = _settled(graph, numbers)
        key = _key(graph, args, constant, self.given, dims, options)
        if key not in _compiled:
            module = _Module(graph, args, constant, self.given, sizes)
            exported = export_program(module, [args[i] for i in self.given], None, dynamic_shapes={"given": tuple(dims)})
            _compiled[key] = exported, library_of(exported, **options)
        exported, library = _compiled[key]
        self.caller, self.exported = Caller(exported, library, options.get("threads")), exported
        self.buffers = [int(name[1:]) for name in exported.buffers]
        self.written = [int(t[1:]) if isinstance(t, str) else self.given[t] for t in exported.written]
        # The kernel changes these: what it wrote last is no reason to compile anew.
        self.constant = [i for i in constant if i not in set(self.buffers)]
        self.versions = [_version(args[i]) for i in self.constant]

    def fits(self, args: Sequence[Any]) -> bool:
        return (self.versions == [_version(args[i]) for i in self.constant]
                and all(args[i].item() == value for i, value in self.numbers.items()))

    def run(self, args: Sequence[Any]) -> list[Any]:
        results, written = self.caller.run([args[i] for i in self.given], [args[i] for i in self.buffers])
        for i, value in zip(self.written, written):
            args[i].copy_(value)
        for k, w in self.exported.same.items():
            results[k] = args[self.written[w]]
        return results


class _Module(torch.nn.Module):
    """The graph as a module of the arguments `given`: weights are buffers, and sizes are asked of the tensors."""

    def __init__(self, graph: torch.fx.GraphModule, args: Sequence[Any], constant: Sequence[int], given: Sequence[int],
                 sizes: dict[int, tuple[int, int]]):
        super().__init__()
        self.graph, self.constant, self.given, self.sizes, self.count = graph, constant, given, sizes, len(args)
        for i in constant:
            self.register_buffer(f"w{i}", args[i].detach())

    def forward(self, *given: Any) -> Any:
        args: list[Any] = [None] * self.count
        for i, x in zip(self.given, given):
            args[i] = x
        for i in self.constant:
            args[i] = getattr(self, f"w{i}")
        for i, (tensor, dim) in self.sizes.items():
            args[i] = args[tensor].shape[dim]
        return self.graph(*args)


def _version(x: torch.Tensor) -> tuple[int, int]:
    return x.data_ptr(), x._version


def _is_weight(place: torch.fx.Node, x: Any) -> bool:
    """Whether an argument is a parameter, a buffer or another tensor that belongs to the module."""
    if not isinstance(x, torch.Tensor) or x.is_inference():  # such tensors do not tell when they change
        return False
    return isinstance(x, torch.nn.Parameter) or "_dynamo_static_input_type" in (place.meta.get("tensor_dict") or {})


def _open_dims(place: torch.fx.Node) -> Any:
    """dynamic_shapes of an argument, by what TorchDynamo left open."""
    value = place.meta.get("example_value")
    if isinstance(value, torch.Tensor):
        return {d: OPEN for d, size in enumerate(value.shape) if _symbol(size)} or None
    return OPEN if _symbol(value) else None


def _symbol(size: Any) -> str | None:
    """The name of a size that is open; what code settled since is not."""
    return str(size.node.expr) if isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None else None


def _sizes(places: Sequence[torch.fx.Node]) -> dict[int, tuple[int, int]]:
    """Arguments that are the size of a tensor's dimension: their numbers, with the tensor's and the dimension's."""
    found: dict[str, tuple[int, int]] = {}
    for i, place in enumerate(places):
        value = place.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            for d, size in enumerate(value.shape):
                if symbol := _symbol(size):
                    found.setdefault(symbol, (i, d))
    symbols = {i: _symbol(p.meta.get("example_value")) for i, p in enumerate(places)}
    return {i: found[symbol] for i, symbol in symbols.items() if symbol in found}


def _numbers(places: Sequence[torch.fx.Node]) -> list[int]:
    """Arguments that are Python numbers in a tensor, of which the graph takes them out first."""
    return [i for i, p in enumerate(places) if isinstance(p.meta.get("example_value"), torch.Tensor) and p.meta["example_value"].dim() == 0
            and p.users and all(u.op == "call_method" and u.target == "item" for u in p.users)]


def _settled(graph: torch.fx.GraphModule, numbers: dict[int, Any]) -> torch.fx.GraphModule:
    """A copy of the graph where the arguments `numbers`, and sizes that turned out to be fixed, are constants."""
    made = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for i, place in enumerate([n for n in made.graph.nodes if n.op == "placeholder"]):
        value = place.meta.get("example_value")
        if i in numbers:
            for item in list(place.users):
                item.replace_all_uses_with(numbers[i])
                made.graph.erase_node(item)
        elif isinstance(value, torch.SymInt) and not _symbol(value):
            place.replace_all_uses_with(int(value))
    _numbers_inside(made)
    return made


_OPERANDS = {"cond": 3, "while_loop": 3, "scan": 3}  # the argument with what the bodies take in addition


def _numbers_inside(graph: torch.fx.GraphModule) -> None:
    """Constant operands of branches and bodies go into copies of these: the exporter takes only tensors and open sizes."""
    for node in [n for n in graph.graph.nodes if n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator)]:
        at = _OPERANDS.get(node.target.name())
        if at is None or len(node.args) <= at:
            continue
        operands = list(node.args[at])
        fixed = {i: x for i, x in enumerate(operands) if isinstance(x, (int, float))}
        for k, body in enumerate(node.args):
            if not (isinstance(body, torch.fx.Node) and body.op == "get_attr"):
                continue
            sub = getattr(graph, body.target)
            if not isinstance(sub, torch.fx.GraphModule):
                continue
            sub = torch.fx.GraphModule(sub, copy.deepcopy(sub.graph))
            places = [n for n in sub.graph.nodes if n.op == "placeholder"][-len(operands):] if operands else []
            for i, value in fixed.items():
                places[i].replace_all_uses_with(value)
                sub.graph.erase_node(places[i])
            _numbers_inside(sub)
            name = f"{body.target}_{node.name}_{k}"
            setattr(graph, name, sub)
            with graph.graph.inserting_before(node):
                node.update_arg(k, graph.graph.get_attr(name))
        node.update_arg(at, tuple(x for i, x in enumerate(operands) if i not in fixed))
    graph.graph.lint()
    graph.recompile()


def _key(graph: torch.fx.GraphModule, args: Sequence[Any], constant: Sequence[int], given: Sequence[int], dims: Sequence[Any],
         options: dict[str, Any]) -> str:
    """Equal for graphs that compute the same: of their text, the weights, and what is open."""
    digest = hashlib.blake2b()
    tensors = {f"argument {i}": args[i] for i in constant}
    for name, module in graph.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            digest.update(f"{name}:{module.code}".encode())
        own = {n.target: getattr(module, n.target) for n in module.graph.nodes if n.op == "get_attr"} if hasattr(module, "graph") else {}
        own.update(module.named_parameters(recurse=False), **dict(module.named_buffers(recurse=False)))
        tensors.update((f"{name}.{k}", x) for k, x in own.items() if isinstance(x, torch.Tensor))
    for name, x in sorted(tensors.items()):
        digest.update(f"{name}:{x.dtype}{tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    for i, open_ in zip(given, dims):
        x = args[i]
        shape = [None if open_ and d in open_ else n for d, n in enumerate(x.shape)] if isinstance(x, torch.Tensor) else open_ or x
        digest.update(f"{i}:{getattr(x, 'dtype', type(x))}{shape}".encode())
    digest.update(repr(sorted(options.items())).encode())
    return digest.hexdigest()
