"""Inputs and outputs of all kinds, compared with NumPy."""
import array
import gc
import sys
import types
import unittest
import weakref

import braid
import ml_dtypes
import numpy as np
from models import (ADD, IDENTITY, JOIN, MAYBE, MAYBE_ADD, NEG, PICK, SPLIT, TWO, WRAP, library, move)

PLAIN = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
SMALL = {"bfloat16": "bfloat16", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
         "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "uint4": "uint4", "int4": "int4",
         "float4e2m1": "float4_e2m1fn"}
ONNX = {"float32": "float", "float64": "double"}
TARGETS = ("interp", "cpu")


class Dtypes(unittest.TestCase):
    def check(self, onnx_name, dtype):
        a = np.arange(6).reshape(2, 3).astype(dtype)
        if dtype == np.bool_:
            a = a.astype(np.uint8) % 2 == 1
        for lib in (library(move(onnx_name)),):
            y = lib(a)
            self.assertEqual((y.dtype, y.shape), (a.dtype, (3, 2)))
            self.assertEqual(y.tobytes(), np.ascontiguousarray(a.T).tobytes())
            self.assertEqual(lib.inputs[0].dtype, np.dtype(dtype).name)

    def test_plain(self):
        for name in PLAIN:
            with self.subTest(name):
                self.check(ONNX.get(name, name), np.dtype(name))

    def test_small(self):
        for onnx_name, name in SMALL.items():
            with self.subTest(name):
                self.check(onnx_name, np.dtype(getattr(ml_dtypes, name)))

    def test_wrong(self):
        for name in PLAIN:
            lib = library(move(ONNX.get(name, name)))
            other = np.zeros((2, 3), "int32" if name != "int32" else "float32")
            with self.subTest(name), self.assertRaisesRegex(braid.InputError, f"'x': expected {name}.*, got {other.dtype}"):
                lib(other)

    def test_unknown(self):
        for a in (np.zeros(2, complex), np.array(["a", "b"]), np.array([None, 1]), np.zeros(2, "M8[s]"),
                  np.zeros(2, [("a", "f4")])):
            with self.subTest(str(a.dtype)), self.assertRaisesRegex(braid.InputError, "'x': expected float32"):
                library(NEG)(a)

    def test_codes_of_few_bits(self):
        """Bits that no int4 has are not looked at."""
        a = np.array([[0x1F, 0xF2]], np.uint8).view(ml_dtypes.int4)
        y = library(move("int4"))(a)
        self.assertEqual(y.view(np.uint8).ravel().tolist(), [0x0F, 0x02])

    def test_c_names(self):
        """long and long long are one type for us."""
        for code in "lq":
            y = library(move("int64"))(np.array([[1, 2]], code))
            self.assertEqual(y.tolist(), [[1], [2]])


class Layouts(unittest.TestCase):
    def same(self, a, text=IDENTITY):
        for target in TARGETS:
            y = library(text, target)(a)
            np.testing.assert_array_equal(y, a)
            self.assertTrue(y.flags.c_contiguous and y.flags.writeable and y.flags.aligned)

    def test_strides(self):
        base = np.arange(24, dtype=np.float32)
        for a in (base[::2], base[::-1], base[3:3], np.broadcast_to(np.float32(4), (5,))):
            self.same(a)
        for target in TARGETS:
            a = np.arange(12, dtype=np.float32).reshape(3, 4)
            for b in (a.T, a[::-1, ::2], np.asfortranarray(a), a[:, 1:2], a[:0]):
                np.testing.assert_array_equal(library(move("float"), target)(b), b.T)

    def test_byte_order(self):
        self.same(np.arange(5, dtype=">f4"))
        with self.assertRaises(braid.InputError):
            library(IDENTITY)(np.arange(5, dtype=">f8"))

    def test_not_aligned(self):
        raw = np.frombuffer(bytes(1) + np.arange(5, dtype=np.float32).tobytes(), np.uint8)
        self.same(raw[1:].view(np.float32))

    def test_read_only(self):
        a = np.arange(5, dtype=np.float32)
        a.flags.writeable = False
        self.same(a)

    def test_scalar(self):
        y = library(PICK)(np.arange(4, dtype=np.float32), np.array(2))
        self.assertEqual((y.shape, y.dtype, float(y)), ((), np.float32, 2.0))

    def test_empty(self):
        y, n = library(TWO, "cpu")(np.zeros(0, np.float32))
        self.assertEqual((y.shape, n.tolist()), ((0,), [0]))

    def test_ranks(self):
        with self.assertRaises(braid.InputError):
            library(NEG)(np.zeros((1,) * 20, np.float32))
        with self.assertRaisesRegex(braid.InputError, r"expected float32\[2\], got float32\[3\]"):
            library(NEG)(np.zeros(3, np.float32))

    def test_subclass(self):
        class Mine(np.ndarray):
            pass
        y = library(NEG)(np.float32([1, 2]).view(Mine))
        self.assertIs(type(y), np.ndarray)


class Python(unittest.TestCase):
    """What has no dtype gets the declared one, where nothing is lost."""

    def test_numbers(self):
        pick = library(PICK)
        self.assertEqual(float(pick([1, 2.5, True, 4], 1)), 2.5)
        self.assertEqual(library(NEG)((3, 4)).tolist(), [-3, -4])
        self.assertEqual(library(move("int8"))([[1, -128]]).tolist(), [[1], [-128]])
        self.assertEqual(library(move("bfloat16"))([[1.5]]).astype(float).tolist(), [[1.5]])
        self.assertEqual(library(move("bool"))([[True, False]]).tolist(), [[True], [False]])
        self.assertEqual(library(IDENTITY)([]).shape, (0,))

    def test_loss(self):
        for dtype, value in (("int8", [[128]]), ("uint8", [[-1]]), ("int64", [[1.0]]), ("bool", [[1]]), ("int32", [[2**40]]),
                             ("int64", [[2**70]]), ("int64", [[2**63]]), ("uint64", [[-1]]), ("int4", [[8]]), ("uint32", [[2**32]]), ("float", [["a"]]), ("float", [[1, 2], [3]]), ("float", [[1j]]),
                             ("uint4", [[16]]), ("float", {}), ("float", object()), ("float", b"abcd"),
                             ("float", bytearray(8)), ("float", memoryview(b"abcd")), ("float", {1, 2}), ("float", (x for x in "a"))):
            with self.subTest(f"{dtype} {value!r}"), self.assertRaisesRegex(braid.InputError, "input 'x'"):
                library(move(dtype))(value)

    def test_buffers(self):
        x = array.array("f", [1, 2])
        self.assertEqual(library(NEG)(x).tolist(), [-1, -2])
        self.assertEqual(library(NEG)(memoryview(x)).tolist(), [-1, -2])
        with self.assertRaises(braid.InputError):
            library(NEG)(array.array("d", [1, 2]))

    def test_numpy_scalars_keep_their_type(self):
        x = np.arange(4, dtype=np.float32)
        self.assertEqual(float(library(PICK)(x, np.int64(3))), 3)
        with self.assertRaises(braid.InputError):
            library(PICK)(x, np.int32(3))


class Kinds(unittest.TestCase):
    def test_sequences(self):
        x = np.arange(6, dtype=np.float32)
        for target in TARGETS:
            parts = library(SPLIT, target)(x)
            self.assertIsInstance(parts, list)
            self.assertEqual([p.tolist() for p in parts], [[0, 1], [2, 3], [4, 5]])
            y = library(JOIN, target)([x[:1], [7, 8], x[::2]])
            self.assertEqual(y.tolist(), [0, 7, 8, 0, 2, 4])
            self.assertEqual(library(JOIN, target)(tuple(parts)).tolist(), x.tolist())
        for bad in (x, 3, "ab", None, [x, "a"], [x, None], [x.astype(int)], {"a": x}):
            with self.subTest(repr(bad)), self.assertRaises(braid.InputError):
                library(JOIN)(bad)

    def test_items_outlive_the_list(self):
        item = library(SPLIT, "cpu")(np.arange(6, dtype=np.float32))[1]
        gc.collect()
        self.assertEqual(item.tolist(), [2, 3])

    def test_optionals(self):
        for target in TARGETS:
            maybe = library(MAYBE, target)
            self.assertEqual(maybe.inputs[0].kind, "optional(tensor)")
            for given in ((None,), ()):
                has, y = maybe(*given)
                self.assertEqual((bool(has), y.tolist()), (False, [7, 8]))
            has, y = maybe(np.float32([1, 2]))
            self.assertEqual((bool(has), y.tolist()), (True, [1, 2]))
            self.assertEqual(library(WRAP, target)([1, 2]).tolist(), [1, 2])

    def test_an_absent_optional_promises_no_sizes(self):
        for target in TARGETS:
            add = library(MAYBE_ADD, target)
            self.assertEqual(add([1, 2, 3]).tolist(), [-1, -2, -3])
            self.assertEqual(add([1, 2, 3], [3, 2, 1]).tolist(), [4, 4, 4])
            with self.assertRaisesRegex(braid.RunError, "input z: axis 0, named N, has size 2, but axis 0 of input x has 3"):
                add([1, 2, 3], [3, 2])


class Memory(unittest.TestCase):
    def test_out(self):
        x = np.float32([1, 2, 3])
        for target in TARGETS:
            session = library(TWO, target).session()
            y, n = np.empty(3, np.float32), np.empty(1, np.int64)
            for out in ((y, n), [y, n], {"y": y, "n": n}, (y, None), {"y": y}):
                y[:] = 0
                got = session(x, out=out)
                self.assertIs(got[0], y)
                self.assertEqual((y.tolist(), got[1].tolist()), ([-1, -2, -3], [3]))
            self.assertIs(session.run({"x": x}, out={"y": y})["y"], y)
            one = library(NEG, target).session()
            z = np.empty(2, np.float32)
            self.assertIs(one([1, 2], out=z), z)

    def test_out_wrong(self):
        x = np.zeros(4, np.float32)
        frozen = np.zeros(4, np.float32)
        frozen.flags.writeable = False
        session = library(TWO, "cpu").session()
        for out in (np.zeros(4), np.zeros(5, np.float32), np.zeros(8, np.float32)[::2], frozen, x, x[:], [1, 2, 3, 4],
                    np.zeros(4, ">f4"), "abc", np.zeros(4, complex)):
            with self.subTest(str(out)), self.assertRaises(braid.UsageError):
                session(x, out=(out, None))
        for out in (np.zeros(4, np.float32), (None,), {"q": None}, 3):
            with self.subTest(str(out)), self.assertRaises(braid.UsageError):
                session(x, out=out)
        self.assertEqual(x.tolist(), [0] * 4)
        with self.assertRaises(braid.UsageError):
            library(SPLIT).session()(x, out=np.zeros(4, np.float32))

    def test_failure_writes_nothing(self):
        y = np.full((), 7, np.float32)
        with self.assertRaises(braid.RunError):
            library(PICK, "cpu").session()([1, 2, 3, 4], 9, out=y)
        self.assertEqual(float(y), 7)

    def test_owner(self):
        """Arrays live longer than the session, and their memory goes with them."""
        session = library(IDENTITY, "cpu").session()
        y = session(np.arange(1000, dtype=np.float32))
        owner = y.base
        self.assertEqual(type(owner).__name__, "PyCapsule")
        session.close()
        del session
        gc.collect()
        self.assertEqual(y.sum(), 499500)

    def test_no_copy(self):
        """100 MB come in at their own address, and what the library writes is what is returned."""
        x = np.zeros(25_000_000, np.float32)
        out = np.empty_like(x)
        session = library("neg (float[N] x) => (float[N] y) { y = Neg(x) }", "cpu").session()
        before = resident()
        got = session(x, out=out)
        self.assertIs(got, out)
        self.assertEqual(got.__array_interface__["data"], out.__array_interface__["data"])
        grown = resident() - before - out.nbytes  # out's pages were not there before
        self.assertLess(grown, 150e6)
        fake = Fake(x)
        session(fake, out=out)
        self.assertEqual(fake.pointers, [x.__array_interface__["data"][0]])

    def test_inputs_are_let_go(self):
        x = np.arange(10, dtype=np.float32)
        gone = weakref.ref(x)
        session = library(IDENTITY, "cpu").session()
        y = session(x)
        del x
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(y[9], 9)


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


class Fake:
    """A tensor of another library, as DLPack shows it."""

    def __init__(self, a, device=(1, 0)):
        self.a, self.device, self.pointers = a, device, []

    def __dlpack__(self, **kw):
        self.pointers.append(self.a.__array_interface__["data"][0])
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return self.device


class Dlpack(unittest.TestCase):
    def test_in(self):
        x = np.arange(6, dtype=np.float32)
        for target in TARGETS:
            for a in (x, x[::2], x[::-1], x[:0]):
                y = library(IDENTITY, target)(Fake(a))
                self.assertIs(type(y), np.ndarray)
                np.testing.assert_array_equal(y, a)
        a = x.reshape(2, 3).T
        np.testing.assert_array_equal(library(move("float"))(Fake(a)), a.T)
        self.assertEqual(library(JOIN)([Fake(x), x]).tolist(), [*x, *x])

    def test_bad(self):
        class Raises:
            def __dlpack__(self, **kw):
                raise RuntimeError("it needs a gradient")

            def __dlpack_device__(self):
                return 1, 0

        class Nothing(Raises):
            def __dlpack__(self, **kw):
                return None
        for bad, why in ((Raises(), "input 'x': it needs a gradient"), (Nothing(), "no DLPack tensor"),
                         (Fake(np.float32([1, 2]), (2, 0)), "device"), (Fake(np.float64([1, 2])), "expected float32"),
                         (Fake(np.float32([1, 2]), None), "__dlpack_device__"),
                         (Fake(np.complex64([1, 2])), "element type")):
            with self.subTest(why), self.assertRaisesRegex(braid.InputError, why):
                library(NEG)(bad)

    def test_out_is_of_the_same_library(self):
        class Tensor(Fake):
            pass
        Tensor.__module__ = "cupy.stand_in"
        cupy = types.ModuleType("cupy")
        cupy.from_dlpack = lambda t: Tensor(np.from_dlpack(t))
        sys.modules["cupy"] = cupy
        try:
            x, y = np.float32([1, 2]), Tensor(np.float32([3, 4]))
            for got in (library(ADD)(y, y), library(ADD)(x, y)):
                self.assertIsInstance(got, Tensor)
            self.assertEqual(got.a.tolist(), [4, 6])
            del got
            self.assertIsInstance(library(ADD)(x, x), np.ndarray)
        finally:
            del sys.modules["cupy"]

    def test_torch(self):
        torch = sys.modules.get("torch")
        if torch is None:
            self.skipTest("without PyTorch")
        x = torch.arange(4, dtype=torch.float32)
        y = library(IDENTITY)(x)
        self.assertTrue(torch.equal(x, y))
        b = torch.ones(2, 3, dtype=torch.bfloat16)
        self.assertTrue(torch.equal(library(move("bfloat16"))(b), b.T))


if __name__ == "__main__":
    unittest.main()
