"""onnxruntime's names for types, and NumPy's types for ONNX's."""
import numpy as np

# Names that differ from Braid's, which are NumPy's and ml_dtypes'.
_ORT_NAME = {"float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn",
             "float8_e4m3fnuz": "float8e4m3fnuz", "float8_e5m2": "float8e5m2",
             "float8_e5m2fnuz": "float8e5m2fnuz"}
# The numbers of ONNX's TensorProto.DataType, which callers may give as element types.
_BY_NUMBER = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
              9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
              17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz",
              21: "uint4", 22: "int4"}
# ml_dtypes' names for them.
_ML_DTYPE = {"bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn",
             "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2",
             "float8e5m2fnuz": "float8_e5m2fnuz", "uint4": "uint4", "int4": "int4"}


def tensor_type(dtype: str) -> str:
    """ "float32" as "tensor(float)"."""
    return f"tensor({_ORT_NAME.get(dtype, dtype)})"


def numpy_type(element: object) -> np.dtype:
    """The NumPy type for an element type given as a NumPy type, a number of ONNX's or a name."""
    name = _BY_NUMBER.get(element) if isinstance(element, int) else None
    if isinstance(element, str):
        name = element[7:-1] if element.startswith("tensor(") else element
        name = {"float": "float32", "double": "float64"}.get(name, name)
    if name is None:
        return np.dtype(element)
    if name in _ML_DTYPE:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, _ML_DTYPE[name]))
    return np.dtype(name)


def element_number(dtype: np.dtype) -> int:
    """The number of a NumPy type in ONNX's TensorProto.DataType."""
    return next(number for number, name in _BY_NUMBER.items() if _ML_DTYPE.get(name, name) == dtype.name)
