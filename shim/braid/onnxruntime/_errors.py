"""Exceptions with onnxruntime's names, each also Braid's of the same meaning."""
import contextlib
import os
from collections.abc import Iterator

import braid


class Fail(RuntimeError):
    """Something went wrong that has no exception of its own."""


class InvalidArgument(Fail, ValueError):
    """An input has a wrong name, element type or shape."""


class NoSuchFile(Fail, FileNotFoundError):
    """There is no such model file."""

    def __str__(self) -> str:
        return Fail.__str__(self)


class InvalidGraph(Fail):
    """The model is invalid."""


class InvalidProtobuf(Fail):
    """The file is not an ONNX model."""


class NotImplemented(Fail):  # noqa: A001 (onnxruntime's name)
    """The model or the call needs something that Braid does not have."""


class RuntimeException(Fail):
    """A check failed while the model ran."""


class NoModel(Fail):
    """Not raised: a session always has its model."""


class ModelLoaded(Fail):
    """Not raised: a session has one model for life."""


class EngineError(Fail):
    """Not raised: there are no engines."""


class EPFail(Fail):
    """Not raised: there are no execution providers."""


@contextlib.contextmanager
def translated(path: object = None) -> Iterator[None]:
    """Raises Braid's exceptions as onnxruntime's; `path`: the model's file, if it has one."""
    try:
        yield
    except braid.ModelError as e:
        raise (InvalidProtobuf if "protobuf" in str(e) else InvalidGraph)(str(e)) from e
    except braid.UnsupportedError as e:
        raise NotImplemented(str(e)) from e
    except braid.InputError as e:
        raise InvalidArgument(str(e)) from e
    except (braid.RunError, braid.OutOfMemoryError) as e:
        raise RuntimeException(str(e)) from e
    except braid.FileError as e:
        missing = path is not None and not os.path.exists(os.fspath(path))
        raise (NoSuchFile if missing else Fail)(str(e)) from e
    except braid.Error as e:
        raise Fail(str(e)) from e
