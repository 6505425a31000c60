"""Braid compiles ONNX models whose control flow depends on their data into one kernel.

    >>> import braid, numpy as np
    >>> library = braid.compile(model)                  # a path, bytes, onnx.ModelProto, torch.nn.Module
    >>> library
    <braid.Library 'g' for cpu: (x: float32[2]) -> (y: float32[2])>
    >>> session = library.session(threads=1)
    >>> session(np.array([1, -2], np.float32))          # by position, or x=…
    array([-1.,  2.], dtype=float32)

compile() and load() make a Library, Library.session() a Session, which runs it. braid.trees has what models over trees take.
Modules on top: braid.onnxruntime (InferenceSession), braid.torch (compile, the backend "braid").
"""
from . import trees
from ._braid import (CancelledError, DeviceTensor, Error, FileError, InputError, ModelError, OutOfMemoryError, RunError,
                     Session, UnsupportedError, UsageError, __version__)
from ._library import IO, Library
from ._load import compile, load  # noqa: A004: the name of the command

__all__ = ["CancelledError", "DeviceTensor", "Error", "FileError", "IO", "InputError", "Library", "ModelError",
           "OutOfMemoryError", "RunError", "Session", "UnsupportedError", "UsageError", "__version__", "compile", "load", "trees"]
