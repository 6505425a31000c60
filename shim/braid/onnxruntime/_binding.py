"""Values and bindings of them to a session's inputs and outputs."""
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from braid.onnxruntime._errors import InvalidArgument, NotImplemented
from braid.onnxruntime._types import element_number, numpy_type, tensor_type


class OrtDevice:
    """Where a value lies: the CPU's memory."""

    def __init__(self, device_type: str = "cpu", memory_type: int = 0, device_id: int = 0) -> None:
        self._type = device_type
        self._id = device_id

    @staticmethod
    def make(device_name: str, device_id: int) -> "OrtDevice":
        """A device by its name."""
        _cpu(device_name)
        return OrtDevice(device_name, 0, device_id)

    def device_type(self) -> str:
        """ "cpu"."""
        return self._type

    def device_id(self) -> int:
        """The device's number."""
        return self._id


def _cpu(device_type: object) -> None:
    if str(device_type).lower() not in ("cpu", "cpu_pinned"):
        raise NotImplemented(f"values on device '{device_type}' cannot be bound: sessions run on the CPU")


def array_at(address: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array over memory that somebody else keeps: bytes at `address`, dense and row-major."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    if not address:
        raise InvalidArgument("a buffer's address is 0")
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)


class OrtValue:
    """A tensor, a sequence of tensors (a list), or nothing (None)."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        """A value with a copy of the array, which may change afterwards."""
        _cpu(device_type)
        return OrtValue(np.array(array, order="C"))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(array: np.ndarray, onnx_element_type: int) -> "OrtValue":
        """A value over the array's own memory, as elements of another type of the same size."""
        return OrtValue(np.ascontiguousarray(array).view(numpy_type(onnx_element_type)))

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: object = np.float32,
                                     device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        """A tensor with undefined elements, to be bound as an output."""
        _cpu(device_type)
        return OrtValue(np.empty(tuple(shape), numpy_type(element_type)))

    @staticmethod
    def ort_value_from_sparse_tensor(tensor: Any) -> "OrtValue":
        """Not supported: there are no sparse tensors."""
        raise NotImplemented("sparse tensors cannot be inputs")

    def _tensor(self) -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise InvalidArgument(f"the value is {'a sequence' if isinstance(self._value, list) else 'empty'}, "
                                  "not a tensor")
        return self._value

    def numpy(self) -> np.ndarray:
        """The tensor. It shares the value's memory."""
        return self._tensor()

    def to_dlpack(self) -> Any:
        """The tensor as a DLPack capsule."""
        return self._tensor().__dlpack__()

    def shape(self) -> list[int]:
        """The tensor's shape."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """ "tensor(float)", "seq(tensor(int64))", …"""
        if isinstance(self._value, list):
            return f"seq({tensor_type(self._value[0].dtype.name if self._value else 'float32')})"
        return tensor_type(self._tensor().dtype.name)

    def element_type(self) -> int:
        """The number of the element type in ONNX's TensorProto.DataType."""
        return element_number(self._tensor().dtype)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._tensor().ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """The size of the tensor's data."""
        return self._tensor().nbytes

    def device_name(self) -> str:
        """ "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """False for an empty optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def update_inplace(self, array: np.ndarray) -> None:
        """Copies the array into the value's memory. Shape and element type must be the same."""
        own = self._tensor()
        if own.shape != array.shape or own.dtype != array.dtype:
            raise InvalidArgument(f"the value is {own.dtype}{list(own.shape)}, "
                                  f"the array {array.dtype}{list(array.shape)}")
        own[...] = array


class IOBinding:
    """Inputs and outputs of a session that stay bound from run to run. Outputs that have memory
    are written there."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._input: dict[str, Any] = {}
        self._output: dict[str, np.ndarray | None] = {}
        self._result: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Binds an array as it is: a later run sees what it then holds."""
        self._session._input(name)
        self._input[name] = array

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: object,
                   shape: Sequence[int], buffer_ptr: int) -> None:
        """Binds memory that the caller keeps: dense elements of `element_type` at an address."""
        _cpu(device_type)
        self._session._input(name)
        self._input[name] = array_at(int(buffer_ptr), tuple(shape), numpy_type(element_type))

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Binds a value."""
        self._session._input(name)
        self._input[name] = value._value

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0,
                    element_type: object = None, shape: Sequence[int] | None = None,
                    buffer_ptr: int | None = None) -> None:
        """Asks for an output: in memory of the caller (`buffer_ptr`), else in new memory."""
        _cpu(device_type)
        self._session._output(name)
        self._output[name] = None
        if buffer_ptr is not None:
            if shape is None or element_type is None:
                raise InvalidArgument(f"output '{name}': a buffer needs a shape and an element type")
            self._output[name] = array_at(int(buffer_ptr), tuple(shape), numpy_type(element_type))

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Asks for an output in the memory of a value."""
        self._session._output(name)
        self._output[name] = value._tensor()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on the CPU."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._result)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same as get_outputs."""
        return list(self._result)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays; they share memory with get_outputs."""
        return [value._value for value in self._result]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._input.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs and the last results."""
        self._output.clear()
        self._result = []
