"""onnxruntime's exceptions, under its name for the module that has them."""
from braid.onnxruntime._errors import (EPFail, EngineError, Fail, InvalidArgument, InvalidGraph,
                                       InvalidProtobuf, ModelLoaded, NoModel, NoSuchFile,
                                       NotImplemented, RuntimeException)

__all__ = ["EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
           "ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented", "RuntimeException"]
