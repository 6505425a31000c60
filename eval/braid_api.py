"""Braid from Python through ctypes, for the checks and benchmarks here.

Model and Session use the C API (include/braid.h) of libbraid.so and work for every target. Compiled
opens a library made by `braid compile` (include/braid_model.h) and needs nothing else. It prepares
its calls beforehand, so that a timed call costs as much as in a C program.
"""
import ctypes as C
import os

import numpy as np

MAX_RANK = 12
DTYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32,
          7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64}
NUMBERS = {np.dtype(v): k for k, v in DTYPES.items()}


class BraidError(Exception):
    pass


class Error(C.Structure):
    _fields_ = [("status", C.c_int), ("message", C.c_char * 1024)]


class Fold(C.Structure):
    _fields_ = [("scan_count", C.c_int32), ("scan_input", C.POINTER(C.c_char_p)),
                ("scan_axis", C.POINTER(C.c_int32)), ("carry_count", C.c_int32),
                ("carry_input", C.POINTER(C.c_char_p)), ("carry_output", C.POINTER(C.c_char_p))]


class Options(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("target", C.c_char_p), ("cpu", C.c_char_p),
                ("fold", C.POINTER(Fold)), ("emit_path", C.c_char_p), ("tune", C.c_bool),
                ("no_cache", C.c_bool), ("cache_dir", C.c_char_p)]


class SessionOptions(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("threads", C.c_int32), ("max_iterations", C.c_int64),
                ("stack_depth", C.c_int64), ("device", C.c_int32), ("max_memory", C.c_int64)]


class Io(C.Structure):
    _fields_ = [("name", C.c_char_p), ("kind", C.c_int), ("element", C.c_int), ("dtype", C.c_int),
                ("rank", C.c_int32), ("dim", C.POINTER(C.c_int64)),
                ("dim_name", C.POINTER(C.c_char_p))]


class Api:
    """libbraid.so with the types of the functions used here."""

    def __init__(self, path):
        self.lib = lib = C.CDLL(os.path.abspath(path))
        lib.braid_value_data.restype = C.c_void_p
        lib.braid_value_dim.restype = C.POINTER(C.c_int64)
        lib.braid_value_rank.restype = C.c_int32
        lib.braid_value_dtype.restype = C.c_int
        lib.braid_model_input.restype = lib.braid_model_output.restype = C.POINTER(Io)
        lib.braid_session_stat.restype = C.c_int64
        for name in ("data", "dim", "rank", "dtype", "free"):
            getattr(lib, f"braid_value_{name}").argtypes = [C.c_void_p]
        for name in ("free", "input_count", "output_count"):
            getattr(lib, f"braid_model_{name}").argtypes = [C.c_void_p]
        lib.braid_model_input.argtypes = lib.braid_model_output.argtypes = [C.c_void_p, C.c_int32]
        lib.braid_session_free.argtypes = [C.c_void_p]
        lib.braid_session_stat.argtypes = [C.c_void_p, C.c_int]

    def check(self, function, *args):
        error = Error()
        if getattr(self.lib, function)(*args, C.byref(error)):
            raise BraidError(error.message.decode())


class Model:
    """An ONNX file or a compiled library, ready to run. `carry` is {input: output}."""

    def __init__(self, api, path, target="cpu", scan=(), carry=None):
        carry = carry or {}
        self.api, self.handle = api, C.c_void_p()
        fold = Fold(len(scan), (C.c_char_p * len(scan))(*map(str.encode, scan)),
                    (C.c_int32 * len(scan))(), len(carry),
                    (C.c_char_p * len(carry))(*map(str.encode, carry)),
                    (C.c_char_p * len(carry))(*map(str.encode, carry.values())))
        options = Options(struct_size=C.sizeof(Options), target=target.encode())
        if scan or carry:
            options.fold = C.pointer(fold)
        api.check("braid_load", os.fsencode(path), C.byref(options), C.byref(self.handle))
        lib = api.lib
        self.inputs = [lib.braid_model_input(self.handle, i).contents.name.decode()
                       for i in range(lib.braid_model_input_count(self.handle))]
        self.outputs = [lib.braid_model_output(self.handle, i).contents.name.decode()
                        for i in range(lib.braid_model_output_count(self.handle))]

    def __del__(self):
        self.api.lib.braid_model_free(self.handle)


class Session:
    def __init__(self, model, threads=1):
        self.model, self.api, self.handle = model, model.api, C.c_void_p()
        options = SessionOptions(C.sizeof(SessionOptions), threads, 0)
        self.api.check("braid_session_new", model.handle, C.byref(options), C.byref(self.handle))

    def __del__(self):
        self.api.lib.braid_session_free(self.handle)

    def seed(self, n):
        """Sets the seed of the following runs' random numbers."""
        self.api.check("braid_session_set_seed", self.handle, C.c_uint64(n))

    def working_bytes(self):
        return self.api.lib.braid_session_stat(self.handle, 1)

    def run(self, feed):
        """Runs on {name: array}; returns {name: array}."""
        lib, names = self.api.lib, self.model.inputs
        values = (C.c_void_p * len(names))()
        results = (C.c_void_p * len(self.model.outputs))()
        arrays = [np.ascontiguousarray(feed[n]).reshape(np.shape(feed[n])) for n in names]
        try:
            for i, a in enumerate(arrays):
                value = C.c_void_p()
                self.api.check("braid_value_borrow_tensor", NUMBERS[a.dtype], a.ndim,
                               (C.c_int64 * a.ndim)(*a.shape), C.c_void_p(a.ctypes.data),
                               C.byref(value))
                values[i] = value.value
            self.api.check("braid_session_run", self.handle, values, results)
            return {n: self.array(v) for n, v in zip(self.model.outputs, results)}
        finally:
            for v in [*values, *results]:
                lib.braid_value_free(v)

    def array(self, value):
        lib = self.api.lib
        shape = tuple(lib.braid_value_dim(value)[:lib.braid_value_rank(value)])
        a = np.empty(shape, DTYPES[lib.braid_value_dtype(value)])
        C.memmove(a.ctypes.data, lib.braid_value_data(value), a.nbytes)
        return a


class TensorV1(C.Structure):
    _fields_ = [("data", C.c_void_p), ("dtype", C.c_int32), ("rank", C.c_int32),
                ("dim", C.c_int64 * MAX_RANK)]


class IoV1(C.Structure):
    _fields_ = [("name", C.c_char_p), ("kind", C.c_int32), ("dtype", C.c_int32),
                ("rank", C.c_int32), ("dim", C.c_int64 * MAX_RANK),
                ("dim_name", C.c_char_p * MAX_RANK)]


class ModelV1(C.Structure):
    _fields_ = [("abi_version", C.c_uint32), ("struct_size", C.c_uint32), ("name", C.c_char_p),
                ("target", C.c_char_p), ("ninput", C.c_int32), ("noutput", C.c_int32),
                ("input", C.POINTER(IoV1)), ("output", C.POINTER(IoV1)),
                ("session_new", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.c_void_p))),
                ("session_free", C.CFUNCTYPE(None, C.c_void_p)),
                ("run", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_void_p, C.c_char_p,
                                    C.c_size_t)),
                ("stat", C.CFUNCTYPE(C.c_int64, C.c_void_p, C.c_int)),
                ("device_type", C.c_int32),
                ("run_on", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_void_p, C.c_void_p,
                                       C.c_char_p, C.c_size_t)),
                ("finish", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p, C.c_size_t)),
                ("memory_new", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_size_t, C.POINTER(C.c_void_p),
                                           C.POINTER(C.c_void_p), C.c_char_p, C.c_size_t)),
                ("memory_free", C.CFUNCTYPE(None, C.c_void_p)),
                ("memory_copy", C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_int, C.c_void_p,
                                            C.c_void_p, C.c_size_t, C.c_char_p, C.c_size_t))]


class SessionConfigV1(C.Structure):
    _fields_ = [("struct_size", C.c_uint32), ("threads", C.c_int32), ("max_iterations", C.c_int64),
                ("stack_depth", C.c_int64), ("device", C.c_int32), ("message", C.c_void_p),
                ("message_size", C.c_size_t), ("max_memory", C.c_int64)]


COPY_IN, COPY_OUT, COPY_WAIT = 0, 1, 4


def table(path):
    """The library, and its braid_model_v1."""
    lib = C.CDLL(os.path.abspath(path))
    lib.braid_model.restype = C.POINTER(ModelV1)
    model = lib.braid_model().contents
    if model.abi_version != 1:
        raise BraidError(f"{path}: interface version {model.abi_version}")
    return lib, model


class Compiled:
    """A session of a compiled library. `bind` names the input arrays once; `run` may be called
    again after their contents have changed; `out(name)` is a view, good until the next run."""

    def __init__(self, path, threads=1, max_memory=0):
        self.lib, self.model = table(path)
        self.message = C.create_string_buffer(512)
        options = SessionConfigV1(C.sizeof(SessionConfigV1), threads, 0, 0, 0,
                                  C.addressof(self.message), C.sizeof(self.message), max_memory)
        self.handle = C.c_void_p()
        self.check(self.model.session_new(C.addressof(options), C.byref(self.handle)))
        self.inputs = [self.model.input[i].name.decode() for i in range(self.model.ninput)]
        self.outputs = [self.model.output[i].name.decode() for i in range(self.model.noutput)]
        self.tensors_in = (TensorV1 * len(self.inputs))()
        self.tensors_out = (TensorV1 * len(self.outputs))()
        self.tensors = C.addressof(self.tensors_in), C.addressof(self.tensors_out)
        self.said = self.message, C.sizeof(self.message)
        self.call = (self.handle, *self.tensors, *self.said)

    def __del__(self):
        if getattr(self, "handle", None):
            self.model.session_free(self.handle)

    def check(self, status):
        if status:
            raise BraidError(self.message.value.decode() or f"status {status}")

    def bind(self, feed):
        self.kept = []
        for t, name in zip(self.tensors_in, self.inputs):
            a = feed[name]
            assert a.flags.c_contiguous, name
            self.kept.append(a)
            t.data, t.dtype, t.rank = a.ctypes.data, NUMBERS[a.dtype], a.ndim
            t.dim[:a.ndim] = a.shape

    def point(self, name, address):
        """Moves a bound input to other memory of the same shape."""
        self.tensors_in[self.inputs.index(name)].data = address

    def run(self):
        if self.model.run(*self.call):
            raise BraidError(self.message.value.decode())

    def form(self, name):
        """An output's data address, shape and element type."""
        t = self.tensors_out[self.outputs.index(name)]
        return t.data, tuple(t.dim[:t.rank]), np.dtype(DTYPES[t.dtype])

    def finish(self):
        """Waits for the runs, if they are only enqueued."""

    def out(self, name):
        data, shape, dtype = self.form(name)
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer((C.c_char * size).from_address(data), dtype).reshape(shape)

    def working_bytes(self):
        return self.model.stat(self.handle, 1)


class OnDevice(Compiled):
    """The same with tensors in the memory of the library's device. `bind` copies the arrays there, `run`
    enqueues on `stream` (None: the default one) and need not wait, `out` copies back."""

    def __init__(self, path, threads=0, stream=None):
        super().__init__(path, threads)
        self.stream, self.memory = C.c_void_p(stream), []
        self.call = (self.handle, self.stream, *self.tensors, *self.said)

    def __del__(self):
        for memory in getattr(self, "memory", ()):
            self.model.memory_free(memory)
        super().__del__()

    def bind(self, feed):
        super().bind(feed)
        for t, a in zip(self.tensors_in, self.kept):
            memory, data = C.c_void_p(), C.c_void_p()
            self.check(self.model.memory_new(self.handle, max(a.nbytes, 1), C.byref(memory),
                                             C.byref(data), *self.said))
            self.memory.append(memory)
            self.copy(COPY_IN, data, a.ctypes.data, a.nbytes)
            t.data = data.value

    def copy(self, direction, to, source, size):
        self.check(self.model.memory_copy(self.handle, self.stream, direction | COPY_WAIT, to, source,
                                          size, *self.said))

    def run(self):
        self.check(self.model.run_on(*self.call))

    def finish(self):
        """Waits for all runs, and raises if one of them failed."""
        self.check(self.model.finish(self.handle, *self.said))

    def out(self, name):
        data, shape, dtype = self.form(name)
        a = np.empty(shape, dtype)
        self.copy(COPY_OUT, a.ctypes.data, data, a.nbytes)
        return a


def session(path, threads=1, stream=None):
    """OnDevice if the library is for a device, else Compiled."""
    model = table(path)[1]
    if model.struct_size >= C.sizeof(ModelV1) and model.run_on:
        return OnDevice(path, 0, stream)
    return Compiled(path, threads)
