"""compile() and load()."""
from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _braid
from ._braid import FileError, InputError, UsageError
from ._library import Library


def compile(model: Any, *, output: str | os.PathLike | None = None, target: str = "cpu", threads: int | None = None,
            cpu: str | None = None, scan: Any = None, carry: Any = None, tune: bool = False,
            tune_inputs: Mapping[str, Any] | None = None, tune_seconds: int | None = None, schedule: str | None = None,
            weights: str | None = None, shapes: Mapping[str, Sequence[int | None]] | None = None, ignore_dim_names: bool = False,
            torch_name: str | None = None, profile: bool = False, cc: str | None = None, cache: bool = True,
            cache_dir: str | os.PathLike | None = None,
            progress: Callable[[str, float], Any] | bool | None = None, example_args: tuple | None = None,
            dynamic_shapes: Any = None) -> Library:
    """Compiles a model.

    model: the path of an ONNX file; its bytes; an onnx.ModelProto; or a torch.nn.Module, which is exported with
        example_args (a tuple of its arguments) and dynamic_shapes (as of torch.export).
    output: the library's file. None: it goes into the cache, and compiling the same again takes no time.
    target: "cpu"; "interp", the interpreter, without a C compiler; "cuda:sm_90", "hip:gfx90a", …: a GPU.
    threads: to schedule for (None: as many as this process may use).
    cpu: the instruction set, as the C compiler's -march names it (None: this machine's).
    scan: inputs that get one more axis, over which a loop around the model goes: a name, (name, axis), a list of
        these, or {name: axis}. The other outputs are stacked along a new first axis.
    carry: state, {input: output}: the output is the next step's input, in that loop and in Session.step.
    tune: measure other ways while compiling, with tune_inputs ({name: array}; others are random), for at most
        tune_seconds (None: 60).
    schedule: forced choices, "NAME=on,NAME=off,NAME=VALUE".
    weights: "f16", "bf16" or "int8": float32 weights may be stored so where a run is faster for it; results differ by
        that rounding (None: they stay float32).
    shapes: of inputs whose rank is not declared: {name: (2, None)}, None for any size.
    ignore_dim_names: sizes with one name may differ.
    torch_name: "NAMESPACE::NAME": the library is also this operator of PyTorch.
    profile: the library counts times of its loops and branches.
    cc: the C compiler's command (None: $CC, else cc, else the ziglang wheel's, `pip install 'braid[cc]'`).
    cache: False: compile anew and keep nothing. cache_dir: another folder for the cache.
    progress: called with (step, seconds) as it goes on; returning False gives up with CancelledError. None: a line
        on stderr if that is a terminal. False: nothing.

    Raises ModelError, UnsupportedError, FileError, UsageError, InputError (of tune_inputs), KeyboardInterrupt.

    >>> library = braid.compile(model, scan="x", progress=False)
    >>> library(np.ones((3, 2), np.float32)).shape     # three steps
    (3, 2)
    """
    if not isinstance(target, str):
        raise UsageError("target: it has to be a name")
    path, data = _source(model, example_args, dynamic_shapes)
    output = None if output is None else _path(output)
    options = dict(
        data=data, output=output, target=target, threads=0 if threads is None else threads, cpu=cpu, scan=_scans(scan), carry=_pairs(carry),
        tune=tune, tune_inputs=_tune_inputs(tune_inputs),
        tune_seconds=0 if tune_seconds is None else tune_seconds, schedule=schedule, weights=weights,
        shapes=_shapes(shapes), ignore_dim_names=ignore_dim_names, torch_name=torch_name, profile=profile,
        cc=_compiler(target, cc), cache=cache, cache_dir=None if cache_dir is None else _path(cache_dir))
    return _load(path, output, options, progress)


def load(path: str | os.PathLike, *, target: str | None = None,
         progress: Callable[[str, float], Any] | bool | None = None) -> Library:
    """Opens a library that compile() or `braid compile` has written: its code is trusted. An ONNX file is compiled
    into the cache, as compile() does without options.

    target: raise UsageError if the library is for another one.

    >>> library = braid.compile(model, output="negate.so", progress=False)
    >>> braid.load("negate.so", target="cpu").path
    'negate.so'
    """
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"load takes the path of a file, not {type(path).__name__}; compile also takes a model in memory")
    return _load_file(_path(path), dict(target=target), progress)


def _load_file(path, options, progress=False):
    """A library, or a model to be compiled with these options. What is pickled of a Library are these arguments."""
    library = _is_library(path)
    cc = None if library else _compiler(options.get("target"), options.get("cc"))
    return _load(path, path if library else None, {**options, "cc": cc}, progress)


def _load(path, kept, options, progress):
    show = _line(progress)
    try:
        model = _braid.load(path, progress=show, **options)
    except FileError as e:
        if "cannot be run: install one" in str(e) and options["cc"] is None and not os.environ.get("CC"):
            raise FileError(f"{e}, or pip install 'braid[cc]'") from None
        raise
    finally:
        if isinstance(show, _Line):
            show.end()
    if kept is not None:
        source = os.path.abspath(kept), {}
    else:
        source = None if options.get("data") is not None else (os.path.abspath(path), options)
    return Library(model, kept, source)


# ---- arguments
def _path(path):
    return os.fsdecode(os.fspath(path))


def _source(model, example_args, dynamic_shapes):
    """The path, and the bytes if it is none."""
    if isinstance(model, (str, os.PathLike)):
        return _path(model), None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if hasattr(model, "SerializeToString"):
        return "model", model.SerializeToString()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        if not isinstance(example_args, (tuple, list)):
            raise UsageError("a torch.nn.Module needs example_args, a tuple of its arguments")
        from .torch import export
        return type(model).__name__, export(model, example_args, dynamic_shapes=dynamic_shapes)
    raise UsageError(f"a model is a path, bytes, an onnx.ModelProto or a torch.nn.Module, not {type(model).__name__}")


def _scans(scan):
    if scan is None:
        return ()
    if isinstance(scan, str) or (isinstance(scan, tuple) and len(scan) == 2 and isinstance(scan[1], int)):
        scan = [scan]
    items = scan.items() if isinstance(scan, Mapping) else _list(scan, "scan")
    return tuple(_scan(x) for x in items)


def _scan(x):
    if isinstance(x, str):
        return x, 0
    if isinstance(x, (tuple, list)) and len(x) == 2 and isinstance(x[0], str) and isinstance(x[1], int):
        return tuple(x)
    raise UsageError(f"scan: {x!r} is neither a name nor (name, axis)")


def _pairs(carry):
    items = carry.items() if isinstance(carry, Mapping) else _list(() if carry is None else carry, "carry")
    pairs = tuple(tuple(x) if isinstance(x, (tuple, list)) else x for x in items)
    for x in pairs:
        if not (isinstance(x, tuple) and len(x) == 2 and all(isinstance(y, str) for y in x)):
            raise UsageError(f"carry: {x!r} is no pair of an input and an output")
    return pairs


def _shapes(shapes):
    if shapes is not None and not isinstance(shapes, Mapping):
        raise UsageError("shapes: it has to be {input: (size, …)}")
    found = []
    for name, shape in ({} if shapes is None else shapes).items():
        sizes = tuple(-1 if n is None else n for n in _list(shape, f"shapes of {name!r}"))
        if not isinstance(name, str) or not all(isinstance(n, int) for n in sizes):
            raise UsageError(f"shapes: {name!r}: {shape!r} is no name with sizes")
        found.append((name, sizes))
    return tuple(found)


def _tune_inputs(inputs):
    if inputs is not None and not isinstance(inputs, Mapping):
        raise UsageError("tune_inputs: it has to be {input: array}")
    return () if inputs is None else tuple(inputs.items())


def _list(x, what):
    if isinstance(x, str) or not isinstance(x, Sequence):
        raise UsageError(f"{what}: {x!r} is no list")
    return x


# ---- the C compiler
def _compiler(target, cc):
    """`cc`, or the ziglang wheel's where the machine has none."""
    if cc is not None or target == "interp" or os.environ.get("CC"):
        return cc
    from shutil import which
    if which("cc") is None and importlib.util.find_spec("ziglang") is not None:
        return f"{sys.executable} -m ziglang cc"
    return None


def _is_library(path):
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except (OSError, ValueError):
        return False


# ---- progress
class _Line:
    """A line on a terminal that says what is done; it goes at the end."""

    def __init__(self):
        self.width = 0

    def __call__(self, step, seconds):
        if seconds >= 0.3:
            text = f"braid: {step} ({seconds:.0f} s)"
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)

    def end(self):
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


def _line(progress):
    if progress is None:
        return _Line() if sys.stderr is not None and sys.stderr.isatty() else None
    if progress is False:
        return None
    if not callable(progress):
        raise UsageError("progress is a function of (step, seconds), or False")
    return progress
