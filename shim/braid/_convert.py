"""Inputs that are no arrays of the right kind yet: the slow way of a call."""
import sys

import numpy as np

from ._braid import InputError


def asarray(value, dtype: str, name: str, expected: str) -> np.ndarray:
    """An array of what is no array and no DLPack tensor. Numbers and lists of numbers get `dtype` ("": their own)
    where nothing is lost; what has a dtype of its own keeps it."""
    try:
        if isinstance(value, (np.generic, np.ndarray)):
            return np.asarray(value)
        if not isinstance(value, (str, bool, int, float, complex, list, tuple)):
            if not hasattr(value, "__array__") and not hasattr(value, "__array_interface__"):
                value = _buffer(value, name, expected)
            return np.asarray(value)
        array = np.asarray(value)
    except InputError:
        raise
    except Exception as e:
        raise InputError(f"input '{name}': expected {expected}, got an object of type {type(value).__name__}: {e}") from e
    if not dtype or (array.dtype == dtype if dtype in np.sctypeDict else False):
        return array
    if array.dtype.kind not in "biuf":
        raise InputError(f"input '{name}': expected {expected}, got {_shown(value)}")
    return _cast(array, dtype, value, name, expected)


def _buffer(value, name, expected):
    try:
        return memoryview(value)
    except TypeError:
        raise InputError(f"input '{name}': expected {expected}, got an object of type {type(value).__name__}") from None


def _cast(array, dtype, value, name, expected):
    to = _dtype(dtype)
    if array.size == 0:
        return array.astype(to)
    exact = dtype == "bool" or "int" in dtype  # not of floats; and every value as it is
    if dtype == "bool" and array.dtype.kind != "b" or exact and array.dtype.kind == "f":
        raise InputError(f"input '{name}': expected {expected}, got {_shown(value)}")
    with np.errstate(all="ignore"):
        result = array.astype(to)
        if exact and not (np.array_equal(result.astype(array.dtype), array) and np.array_equal(result < 0, array < 0)):
            raise InputError(f"input '{name}': expected {expected}, got a number out of its range: {_shown(value)}")
    return result


def _dtype(name):
    if name not in np.sctypeDict:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def from_dlpack(library: str, tensor):
    """The tensor as one of `library`, which the caller has imported."""
    if library == "jax":
        return sys.modules["jax"].dlpack.from_dlpack(tensor)
    return sys.modules[library].from_dlpack(tensor)
