"""Braid for PyTorch: braid.torch.compile(module, …), torch.compile(model, backend="braid"), and libraries as operators."""
from torch._dynamo import register_backend as _register

from .backend import EagerWarning, backend
from .compile import CompiledModule, compile
from .export import export
from .operator import load_library

__all__ = ["CompiledModule", "EagerWarning", "backend", "compile", "export", "load_library"]

_register(backend, name="braid")
