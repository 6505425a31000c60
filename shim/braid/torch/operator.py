"""Libraries that are operators of PyTorch (`braid compile --torch NAMESPACE::NAME`)."""
from __future__ import annotations

import ctypes
import os

import torch


def load_library(path: str | os.PathLike) -> torch._ops.OpOverloadPacket:
    """Loads a library made with `--torch NAMESPACE::NAME` and returns its operator, torch.ops.NAMESPACE.NAME.

    The library registers itself, so torch.ops.load_library(path) does the same; this also finds the name. The operator takes
    tensors in the order of the model's inputs, or by their names. They may have any strides: what is not dense is copied. It
    returns new tensors.

    Raises OSError if the library cannot be opened, ValueError if it is not such a library, and RuntimeError if PyTorch did
    not take the operator: it is too old, or has another one of that name; a warning then says which.
    """
    path = os.path.abspath(path)
    try:
        text = ctypes.c_char_p.in_dll(_open(path), "braid_torch_operator").value
    except ValueError:
        raise ValueError("%s is not an operator: it was compiled without --torch" % path) from None
    if text is None:
        raise RuntimeError("PyTorch %s did not take the operator of %s: see its warning" % (torch.__version__, path))
    namespace, name = text.decode().split("::")
    return getattr(getattr(torch.ops, namespace), name)


def _open(path: str) -> ctypes.CDLL:
    """The library. A name that is loaded already stands for the file that it was then, so one that has been written anew gets
    another name, as in braid.load: slashes and dots write down the file's number."""
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        torch.ops.load_library(path)
        return ctypes.CDLL(path)
    number = os.stat(path).st_ino
    folder, base = os.path.split(path)
    return ctypes.CDLL(f"{folder}/{''.join('./' if x == '1' else '/' for x in f'{number:b}')}{base}")
