"""InferenceSession."""
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import braid
from braid.onnxruntime._binding import IOBinding, OrtValue
from braid.onnxruntime._errors import InvalidArgument, NotImplemented, RuntimeException, translated
from braid.onnxruntime._metadata import read_metadata
from braid.onnxruntime._options import RunOptions, SessionOptions, note
from braid.onnxruntime._types import tensor_type


def _is_library(path: str | os.PathLike) -> bool:
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False  # the compiler says what is wrong


class NodeArg:
    """An input or output: its name, its type as "tensor(float)", and its shape, a list of sizes,
    names of sizes, and None for sizes that have neither."""

    def __init__(self, io: Any) -> None:
        self.name: str = io.name
        inner = tensor_type(io.dtype) if io.dtype else "tensor(undefined)"
        if "sequence" in io.kind:
            inner = f"seq({inner})"
        self.type: str = f"optional({inner})" if io.kind.startswith("optional") else inner
        self.shape: list[int | str | None] = list(io.shape) if io.shape is not None else []

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    """What the model's file says of itself."""

    def __init__(self, graph_name: str, found: dict[str, Any]) -> None:
        self.graph_name = graph_name
        self.producer_name: str = found["producer_name"]
        self.domain: str = found["domain"]
        self.description: str = found["description"]
        self.graph_description = ""
        self.version: int = found["version"]
        self.custom_metadata_map: dict[str, str] = found["custom"]


class InferenceSession:
    """A model, ready to run. It may be used by several threads; their runs wait for each other.

    path_or_bytes: an ONNX file, the bytes of one, or a library made by `braid compile`.
    sess_options: settings; intra_op_num_threads is the number of threads.
    providers, provider_options: ignored; a note (a UserWarning, once) says so if they name others
    than the CPU's.
    target: where to run, as in braid.compile ("cpu" by default; "interp" compiles nothing).
    """

    default_seed: int | None = None

    def __init__(self, path_or_bytes: str | os.PathLike | bytes, sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None, provider_options: Sequence[dict] | None = None,
                 *, target: str | None = None, **ignored: Any) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._note_providers(providers)
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        with translated(path_or_bytes if is_path else None):
            options = {"target": target} if target else {}
            threads = max(self._options.intra_op_num_threads, 0)  # onnxruntime takes -1 as its default, too
            if is_path and _is_library(path_or_bytes):
                self._library = braid.load(path_or_bytes, **options)
            else:
                self._library = braid.compile(path_or_bytes, threads=threads or None, **options)
            self._session = self._library.session(threads=threads or None, seed=self.default_seed)
        self._meta = ModelMetadata(self._library.name, read_metadata(path_or_bytes))
        self._inputs = {io.name: NodeArg(io) for io in self._library.inputs}
        self._outputs = {io.name: NodeArg(io) for io in self._library.outputs}
        self._needed = [io.name for io in self._library.inputs if not io.kind.startswith("optional")]

    @staticmethod
    def _note_providers(providers: Sequence[Any] | None) -> None:
        for p in providers or ():
            name = p[0] if isinstance(p, tuple) else p
            if name != "CPUExecutionProvider":
                note(f"the provider {name} is ignored: braid.onnxruntime runs on the CPU (braid.compile has targets for GPUs)")

    # ---- what it has
    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the graph's order."""
        return list(self._inputs.values())

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the graph's order."""
        return list(self._outputs.values())

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: initializers are compiled in."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says of itself."""
        return self._meta

    def get_session_options(self) -> SessionOptions:
        """The settings that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """["CPUExecutionProvider"]."""
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict]:
        """No provider has options."""
        return {"CPUExecutionProvider": {}}

    def set_providers(self, providers: Sequence[Any] | None = None,
                      provider_options: Sequence[dict] | None = None) -> None:
        """Ignored, with a note if it names others than the CPU's."""
        self._note_providers(providers)

    def disable_fallback(self) -> None:
        """There is nothing to fall back to."""

    def enable_fallback(self) -> None:
        """There is nothing to fall back to."""

    def end_profiling(self) -> str:
        """Not supported: `braid profile MODEL` shows where the time goes."""
        raise NotImplemented("sessions do not profile: use the command 'braid profile'")

    # ---- running
    def _input(self, name: str) -> NodeArg:
        if name not in self._inputs:
            raise InvalidArgument(f"Invalid input name: {name}; the inputs are {', '.join(self._inputs)}")
        return self._inputs[name]

    def _output(self, name: str) -> NodeArg:
        if name not in self._outputs:
            raise InvalidArgument(f"Invalid output name: {name}; the outputs are {', '.join(self._outputs)}")
        return self._outputs[name]

    def _run(self, feed: dict[str, Any], run_options: RunOptions | None,
             out: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
        missing = [name for name in self._needed if name not in feed]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")
        for name in feed:
            self._input(name)
        if run_options is not None and run_options.terminate:
            raise RuntimeException("the run options say terminate")
        if run_options is not None:
            run_options._running.append(self._session)
        try:
            with translated():
                return self._session.run(feed, out=out)
        finally:
            if run_options is not None:
                run_options._running.remove(self._session)

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Any],
            run_options: RunOptions | None = None) -> list[Any]:
        """Runs the model.

        output_names: which outputs, in this order; None or []: all.
        input_feed: name to array or OrtValue (list of arrays for a sequence, None for an empty optional).
        Returns a list of arrays, lists for sequences, None for empty optionals. InvalidArgument:
        a wrong name, element type or shape. RuntimeException: a check failed in the run.
        """
        names = list(output_names) if output_names else list(self._outputs)
        for name in names:
            self._output(name)
        feed = {name: v._value if isinstance(v, OrtValue) else v for name, v in dict(input_feed).items()}
        values = self._run(feed, run_options)
        return [values[name] for name in names]

    def run_async(self, output_names: Sequence[str] | None, input_feed: dict[str, Any],
                  callback: Callable[[list[Any], Any, str], None], user_data: Any = None,
                  run_options: RunOptions | None = None) -> None:
        """Runs the model in another thread, which then calls callback(results, user_data, error);
        `error` is "" where the run succeeded."""

        def work() -> None:
            results: list[Any] = []
            error = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as e:  # noqa: BLE001 (the callback gets it)
                error = str(e) or type(e).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: dict[str, OrtValue],
                            run_options: RunOptions | None = None) -> list[OrtValue]:
        """run() with values of class OrtValue."""
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A new binding of inputs and outputs, without any."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs the model with what is bound. The results are iobinding.get_outputs()."""
        given = {name: array for name, array in iobinding._output.items() if array is not None}
        values = self._run(iobinding._input, run_options, given or None)
        iobinding._result = [OrtValue(values[name]) for name in iobinding._output]
