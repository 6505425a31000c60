"""A torch.nn.Module as a compiled one with the same signature."""
from __future__ import annotations

import inspect
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

import braid

from .export import Exported, export_program

LARGEST_FILE = 1 << 30  # bytes of a model that is handed over in memory; a protobuf message ends at 2 GB


def compile(module: torch.nn.Module, example_args: Sequence[Any] = (), *, kwargs: Mapping[str, Any] | None = None,
            dynamic_shapes: Any = None, target: str | None = None, threads: int | None = None, **options: Any) -> "CompiledModule":
    """Returns a module that computes what `module` computes in eval mode, compiled to one kernel.

    example_args, kwargs: arguments of forward, of the types and (but for dynamic_shapes) the sizes that it will get.
    dynamic_shapes: as in torch.export.export.
    target: as in braid.compile; None: where the arguments lie. threads and the other options: as in braid.compile.
    Parameters and buffers are taken as they are now: later changes have no effect. Buffers that forward changes belong
    to the result from now on; arguments that it changes are changed. There is no gradient.
    Raises braid.UnsupportedError where torch.export, its ONNX exporter, or Braid does not take the module.

    >>> import torch, braid.torch
    >>> fast = braid.torch.compile(torch.nn.Linear(3, 2), [torch.ones(4, 3)],
    ...                            dynamic_shapes={"input": {0: torch.export.Dim.DYNAMIC}})
    >>> fast(torch.ones(7, 3)).shape
    torch.Size([7, 2])
    """
    if not isinstance(module, torch.nn.Module):
        raise braid.UsageError(f"a torch.nn.Module is compiled, not a {type(module).__name__}")
    if not isinstance(example_args, (tuple, list)):
        raise braid.UsageError(f"example_args is a tuple of the arguments, not a {type(example_args).__name__}: write (x,)")
    exported = export_program(module, example_args, kwargs, dynamic_shapes=dynamic_shapes)
    leaves = pytree.tree_leaves((example_args, kwargs))
    library = library_of(exported, target=target or target_of(leaves), threads=threads, **options)
    buffers = dict(module.named_buffers())
    names = _Names.of(module, len(example_args), kwargs or {})
    return CompiledModule(exported, library, {name: buffers[name].detach().clone() for name in exported.buffers}, threads, names)


def target_of(args: Sequence[Any]) -> str:
    """The target for what lies where these arguments do."""
    device = next((x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda), None)
    if device is None:
        return "cpu"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return "hip:" + properties.gcnArchName.split(":")[0]
    return f"cuda:sm_{properties.major}{properties.minor}"


def library_of(exported: Exported, **options: Any) -> "braid.Library":
    """Compiles the model; one that is too large for a message goes by way of files."""
    if sum(len(t.raw_data) for t in exported.model.graph.initializer) < LARGEST_FILE:
        return braid.compile(exported.model.SerializeToString(), **options)
    import onnx
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(exported.model, path, save_as_external_data=True)
        return braid.compile(path, **options)


class Caller:
    """Calls a library as the module was called. Each thread has a session of its own."""

    def __init__(self, exported: Exported, library: "braid.Library", threads: int | None = None):
        self.exported, self.library, self.threads = exported, library, threads
        self.local = threading.local()
        self.device = torch.device("cuda" if library.target.startswith(("cuda:", "hip:")) else "cpu")
        self.plain = not exported.written and all(i is not None and to is None for i, to in exported.outputs)

    def session(self) -> "braid.Session":
        try:
            session = self.local.session
        except AttributeError:
            session = self.local.session = self.library.session(threads=self.threads)
        if self.device.type == "cuda":
            session.stream = torch.cuda.current_stream().cuda_stream
        return session

    def run(self, leaves: Sequence[Any], buffers: Sequence[torch.Tensor] = ()) -> tuple[list[Any], list[torch.Tensor]]:
        """Takes the leaves of the arguments, returns those of the result, and what was written."""
        exported = self.exported
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in leaves):
            raise braid.UnsupportedError("a compiled module has no gradient: call it under torch.no_grad(), or with x.detach()")
        for i, value in exported.constants.items():
            if leaves[i] != value:
                raise braid.InputError(f"argument {i} is {leaves[i]!r}; the module was compiled for {value!r}")
        if exported.constants:
            leaves = [x for x, used in zip(leaves, exported.inputs) if used]
        found = self.session()(*map(self.tensor, leaves), *buffers)
        if not isinstance(found, tuple):
            found = (found,)
        if not leaves and not buffers:
            found = tuple(torch.as_tensor(x) for x in found)
        if self.plain:
            return list(found), []
        results = [value if i is None else value(found[i]) if value else found[i] for i, value in exported.outputs]
        return results, list(found[len(found) - len(exported.written):])

    def tensor(self, x: Any) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            return torch.tensor(x, device=self.device)
        if x.dim() == 0 and x.device.type != self.device.type:  # PyTorch mixes such numbers with tensors of a GPU
            return x.to(self.device)
        return x.detach() if x.requires_grad else x


class _Names:
    """How the example gave the arguments: what may be called by position may be called by name, and the other way round."""

    def __init__(self, signature: inspect.Signature, first: Sequence[str], by_name: Sequence[str]):
        self.signature, self.first, self.by_name = signature, first, by_name

    @classmethod
    def of(cls, module: torch.nn.Module, count: int, kwargs: Mapping[str, Any]) -> "_Names | None":
        """None: forward takes *args or **kwargs."""
        signature = inspect.signature(module.forward)
        kinds = [p.kind for p in signature.parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
            return None
        return cls(signature, list(signature.parameters)[:count], list(kwargs))

    def arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments as the example had them; None: they are others."""
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError:
            return None
        if set(given) != {*self.first, *self.by_name}:
            return None
        return tuple(given[name] for name in self.first), {name: given[name] for name in self.by_name}


class CompiledModule(torch.nn.Module):
    """What braid.torch.compile returns. `library` is the braid.Library."""

    def __init__(self, exported: Exported, library: "braid.Library", buffers: Mapping[str, torch.Tensor], threads: int | None,
                 names: _Names | None = None):
        super().__init__()
        self.training = False
        self.library = library
        self._caller, self._exported = Caller(exported, library, threads), exported
        self._arguments = names
        self._names = {name: name.replace(".", "_") for name in buffers}
        self._lock = threading.Lock()
        for name, value in buffers.items():
            self.register_buffer(self._names[name], value)
        # Most often there are only tensors, and one result or a tuple of them: pytrees would take longer than small kernels.
        numbers = range(len(exported.inputs))
        self._plain_in = exported.in_spec == pytree.tree_structure((tuple(numbers), {}))
        self._plain_out = exported.out_spec == pytree.tree_structure(tuple(range(len(exported.outputs))))
        self._single = exported.out_spec == pytree.tree_structure(0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        exported = self._exported
        if self._plain_in and not kwargs and len(args) == len(exported.inputs) and all(isinstance(x, torch.Tensor) for x in args):
            leaves = args
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            if spec != exported.in_spec:
                leaves = self._arranged(args, kwargs)
        if exported.written:
            with self._lock:
                results, written = self._caller.run(leaves, [self._buffers[self._names[n]] for n in exported.buffers])
                places = [self._buffers[self._names[t]] if isinstance(t, str) else leaves[t] for t in exported.written]
                for place, value in zip(places, written):
                    place.copy_(value)
                for k, w in exported.same.items():
                    results[k] = places[w]
        else:
            results, _ = self._caller.run(leaves)
        if self._single:
            return results[0]
        return tuple(results) if self._plain_out else pytree.tree_unflatten(results, exported.out_spec)

    def _arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves where arguments come by name or in another order."""
        wanted = self._exported.in_spec
        if self._arguments is not None:
            found = self._arguments.arranged(args, kwargs)
        else:
            names = wanted.child(1).context if wanted.num_children == 2 else []
            found = (args, {name: kwargs[name] for name in names}) if set(names) == set(kwargs) else None
        if found is not None:
            leaves, spec = pytree.tree_flatten(found)
            if spec == wanted:
                return leaves
        raise braid.InputError(f"the arguments are {pytree.tree_structure((args, kwargs))}; the module was compiled for {wanted}")

    def train(self, mode: bool = True) -> "CompiledModule":
        if mode:
            raise braid.UnsupportedError("a compiled module cannot be trained")
        return self

    def __deepcopy__(self, memo: Any) -> "CompiledModule":
        """One with buffers of its own; the compiled code is shared."""
        buffers = {name: self._buffers[to].clone() for name, to in self._names.items()}
        return CompiledModule(self._exported, self.library, buffers, self._caller.threads, self._arguments)

    def __reduce__(self) -> Any:
        raise TypeError("a compiled module cannot be pickled: pickle the module that it was compiled from")

    def extra_repr(self) -> str:
        return repr(self.library)
