"""The calls of onnxruntime's Python package that people use, run by Braid: change one import.

    import braid.onnxruntime as ort          # was: import onnxruntime as ort
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {"x": x})

What differs: a model is compiled when its session is made (kept in Braid's cache, so only the first
time), and runs on the CPU whatever `providers` says, unless `target` names another one. Settings of
onnxruntime's own optimizer, allocator and logger are accepted and mean nothing here.
"""
from braid import __version__
from braid.onnxruntime._binding import IOBinding, OrtDevice, OrtValue
from braid.onnxruntime._options import (ExecutionMode, ExecutionOrder, GraphOptimizationLevel,
                                        RunOptions, SessionOptions)
from braid.onnxruntime._session import InferenceSession, ModelMetadata, NodeArg

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "IOBinding",
           "InferenceSession", "ModelMetadata", "NodeArg", "OrtDevice", "OrtValue", "RunOptions",
           "SessionOptions", "disable_telemetry_events", "enable_telemetry_events",
           "get_all_providers", "get_available_providers", "get_build_info", "get_device", "preload_dlls",
           "set_default_logger_severity", "set_default_logger_verbosity", "set_seed"]


def get_available_providers() -> list[str]:
    """The providers that a session can have: the CPU's alone."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """The same as get_available_providers."""
    return get_available_providers()


def get_device() -> str:
    """Where sessions run: "CPU"."""
    return "CPU"


def get_build_info() -> str:
    """One line that names the library."""
    return f"Braid {__version__}"


def set_seed(seed: int) -> None:
    """Sets the seed of the random numbers of sessions that are made afterwards."""
    InferenceSession.default_seed = int(seed)


def set_default_logger_severity(severity: int) -> None:
    """Nothing is logged; accepted so that programs need no change."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Nothing is logged; accepted so that programs need no change."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """There are none: sessions run on the CPU."""


def disable_telemetry_events() -> None:
    """There is no telemetry."""


def enable_telemetry_events() -> None:
    """There is no telemetry."""
