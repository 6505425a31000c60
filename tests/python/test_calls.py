"""Compiling, sessions, state, wrong calls, Ctrl-C, and text about it all."""
import copy
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import braid
import numpy as np
import onnx
from models import ADD, COUNT, DRAW, NEG, OPEN_STEP, PICK, STEP, TWO, carried, library, source

X = np.float32([1, 2])


class Compile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_models(self):
        path = f"{self.folder}/m.onnx"
        with open(path, "wb") as f:
            f.write(source(NEG))
        for model in (path, pathlib.Path(path), source(NEG), bytearray(source(NEG)),
                      onnx.load(path)):
            lib = braid.compile(model, target="interp", progress=False)
            self.assertEqual(lib(X).tolist(), [-1, -2])
            self.assertEqual((lib.name, lib.target, lib.path, lib.draws, lib.carry), ("g", "interp", None, False, ()))
        self.assertEqual(lib.inputs, (braid.IO("x", "tensor", "float32", (2,)),))

    def test_library(self):
        path = f"{self.folder}/m.so"
        lib = braid.compile(source(ADD), output=path, progress=False, threads=1, cpu="x86-64-v2")
        self.assertEqual((lib.path, lib.target), (path, "cpu"))
        self.assertTrue(os.path.exists(path))
        self.assertEqual(lib.inputs[0].shape, ("N",))
        again = braid.load(path, target="cpu")
        self.assertEqual(again(X, X).tolist(), [2, 4])
        self.assertEqual(again.path, path)
        with self.assertRaisesRegex(braid.UsageError, "for target 'cpu'"):
            braid.load(path, target="interp")

    def test_written_anew(self):
        """A file that is written anew is opened anew, also while what it was is in use."""
        path, kept = f"{self.folder}/m.so", []
        for i, text in enumerate((NEG, ADD, COUNT, NEG)):
            lib = braid.compile(source(text), output=path, progress=False)
            kept.append((lib, lib.session()))
            self.assertEqual([x.name for x in lib.inputs], [["x"], ["a", "b"], ["n", "x"], ["x"]][i])
            for again in (braid.load(path), braid.load(os.path.relpath(path))):
                self.assertEqual(again.inputs, lib.inputs)
        self.assertEqual(kept[0][1](X).tolist(), [-1, -2])
        self.assertEqual(kept[1][1](X, X).tolist(), [2, 4])
        self.assertEqual(kept[3][0](X).tolist(), [-1, -2])
        os.remove(path)
        with self.assertRaises(braid.FileError):
            braid.load(path)

    def test_fold(self):
        for scan in ("input", ("input", 0), ["input"], [("input", 0)], {"input": 0}):
            for carry in ({"state": "stateN"}, [("state", "stateN")]):
                lib = braid.compile(source(STEP), target="interp", scan=scan, carry=carry, progress=False)
                self.assertEqual(lib.carry, (("state", "stateN"),))
        y, state = lib(np.float32([[1, 1], [2, 2]]), np.float32([10, 20]))
        self.assertEqual((y.tolist(), state.tolist()), ([[-11, -21], [-13, -23]], [13, 23]))

    def test_wrong(self):
        with open(f"{self.folder}/text.onnx", "w") as f:
            f.write("this is no model")
        with open(f"{self.folder}/elf.so", "wb") as f:
            f.write(b"\x7fELF but no library")
        good, call = source(NEG), braid.compile
        wrong = [
            (braid.FileError, lambda: call("missing.onnx")),
            (braid.FileError, lambda: braid.load("missing.so")),
            (braid.FileError, lambda: braid.load(f"{self.folder}/elf.so")),
            (braid.ModelError, lambda: braid.load(f"{self.folder}/text.onnx")),
            (braid.ModelError, lambda: call(b"")),
            (braid.ModelError, lambda: call(b"no model")),
            (braid.UnsupportedError, lambda: call(source("g (float[2] x) => (float[2] y) { y = NoSuchThing(x) }"))),
            (braid.UsageError, lambda: call(7)),
            (braid.UsageError, lambda: call(None)),
            (braid.UsageError, lambda: call(good, target="abacus")),
            (braid.UsageError, lambda: call(good, schedule="no=such")),
            (braid.UsageError, lambda: call(good, scan="z")),
            (braid.UsageError, lambda: call(good, scan=3)),
            (braid.UsageError, lambda: call(good, scan=[("x", "y")])),
            (braid.UsageError, lambda: call(good, carry={"x": 1})),
            (braid.UsageError, lambda: call(good, carry={"x": "q"})),
            (braid.UsageError, lambda: call(good, carry="xy")),
            (braid.UsageError, lambda: call(good, shapes={"x": (3,)})),
            (braid.UsageError, lambda: call(good, shapes={"x": 3})),
            (braid.UsageError, lambda: call(good, shapes={"x": ("a",)})),
            (braid.UsageError, lambda: call(good, shapes={"x": (2**70,)})),
            (braid.UsageError, lambda: call(good, threads=2**40)),
            (braid.UsageError, lambda: call(good, threads=-1)),
            (braid.UsageError, lambda: call(good, progress=7)),
            (braid.UsageError, lambda: call(good, target="a\0b")),
            (braid.FileError, lambda: call(good, output="/no/such/folder/m.so")),
            (braid.FileError, lambda: call(good, cc="no-such-compiler", cache=False)),
            (TypeError, lambda: call(good, 7)),
            (TypeError, lambda: call(good, nothing=7)),
            (TypeError, lambda: call()),
        ]
        for i, (error, f) in enumerate(wrong):
            with self.subTest(i), self.assertRaises(error):
                f()

    def test_library_of_another_machine(self):
        path = f"{self.folder}/m.so"
        braid.compile(source(NEG), output=path, progress=False)
        with open(path, "r+b") as f:
            f.seek(18)
            f.write(b"\xb7\x00")  # AArch64
        with self.assertRaises(braid.FileError):
            braid.load(path)
        with self.assertRaisesRegex(braid.InputError, "not a library made by braid compile"):
            braid.load(sys.modules["_ctypes"].__file__ if "_ctypes" in sys.modules else braid._braid.__file__)

    def test_progress(self):
        steps = []
        braid.compile(source(NEG), cache=False, progress=lambda step, seconds: steps.append((step, seconds)))
        self.assertTrue(steps and all(isinstance(s, str) and t >= 0 for s, t in steps), steps)
        with self.assertRaises(braid.CancelledError):
            braid.compile(source(NEG), cache=False, progress=lambda *_: False)

        def fails(*_):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            braid.compile(source(NEG), cache=False, progress=fails)

    def test_no_compiler(self):
        """Without a C compiler: the ziglang wheel's, or a message with both ways out."""
        empty = tempfile.mkdtemp(dir=self.folder)
        env = {k: v for k, v in os.environ.items() if k != "CC"}
        with mock.patch.dict(os.environ, {**env, "PATH": empty}, clear=True):
            with mock.patch("importlib.util.find_spec", return_value=None), \
                    self.assertRaisesRegex(braid.FileError, r"build-essential.*braid\[cc\]"):
                braid.compile(source(NEG), cache=False, progress=False)
            with mock.patch("importlib.util.find_spec", return_value=object()):
                self.assertEqual(braid._load._compiler("cpu", None), f"{sys.executable} -m ziglang cc")
                self.assertIsNone(braid._load._compiler("interp", None))

    def test_errors_have_a_status(self):
        numbers = {braid.Error: 0, braid.ModelError: 1, braid.UnsupportedError: 2, braid.InputError: 3, braid.RunError: 4,
                   braid.OutOfMemoryError: 5, braid.FileError: 6, braid.UsageError: 7, braid.CancelledError: 8}
        for error, status in numbers.items():
            self.assertEqual(error.status, status)
            self.assertTrue(issubclass(error, braid.Error) and error.__doc__)
        for error, base in ((braid.InputError, ValueError), (braid.RunError, RuntimeError), (braid.FileError, OSError),
                            (braid.OutOfMemoryError, MemoryError), (braid.UsageError, ValueError)):
            self.assertTrue(issubclass(error, base))


class Broken:
    """A mapping that cannot be read."""

    def keys(self):
        raise KeyError("no such luck")


class Sessions(unittest.TestCase):
    def test_ways(self):
        s = library(TWO).session()
        for got in (s(X), s(x=X), tuple(s.run({"x": X}).values()), tuple(s.run([X]).values()), library(TWO)(X)):
            self.assertEqual([g.tolist() for g in got], [[-1, -2], [2]])
        self.assertEqual(list(s.run({"x": X})), ["y", "n"])

    def test_mappings(self):
        """Any mapping names inputs, outputs and state: what np.load opens, too."""
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/in.npz", x=X)
            with np.load(f"{folder}/in.npz") as feed:
                self.assertEqual(library(NEG).session().run(feed)["y"].tolist(), [-1, -2])
        y = np.empty(2, np.float32)
        s = library(NEG).session()
        self.assertIs(s(X, out=types.MappingProxyType({"y": y})), y)
        with self.assertRaisesRegex(braid.UsageError, "out: .*no such luck"):
            s(X, out=Broken())
        s = carried(STEP).session()
        s.state = types.MappingProxyType({"state": X})
        self.assertEqual(s.step(X).tolist(), [-2, -4])
        with self.assertRaisesRegex(braid.UsageError, "state: .*no such luck"):
            s.state = Broken()
        self.assertEqual(s.step(X).tolist(), [-3, -6])

    def test_an_input_called_self(self):
        lib = library("g (float[2] self) => (float[2] y) { y = Neg(self) }")
        for run in (lib, lib.session()):
            self.assertEqual(run(self=X).tolist(), [-1, -2])

    def test_wrong(self):
        s, add = library(NEG).session(), library(ADD).session()
        for call, why in ((lambda: s(), "'x' is missing"), (lambda: s(X, X), "2 inputs are given, the model has 1"),
                          (lambda: s(X, x=X), "'x' is given twice"), (lambda: s(z=X), "no input 'z'; there are: x"),
                          (lambda: s.run(X), "a dict, or a list"), (lambda: s.run({1: X}), "no input 1"),
                          (lambda: s.run({}), "missing"), (lambda: s.run(Broken()), "inputs: .*no such luck"), (lambda: s.run([X, X]), "2 inputs"),
                          (lambda: s(None), "got None")):
            with self.subTest(why), self.assertRaisesRegex(braid.InputError, why):
                call()
        with self.assertRaises(braid.Error):
            add(X, np.zeros(3, np.float32))  # two sizes with one name
        for call in (lambda: s.run(), lambda: s.run(X, 7), lambda: s.seed(), lambda: s.close(1)):
            with self.assertRaises(TypeError):
                call()
        for options in ({"threads": -1}, {"threads": 2**40}, {"threads": "a"}, {"device": -1}, {"seed": -1}, {"seed": 2**64},
                        {"max_memory": -5}, {"stack_depth": 1.5}):
            with self.subTest(str(options)), self.assertRaises(braid.UsageError):
                library(NEG).session(**options)
        for f in (braid.Session, braid._braid.Model, braid.DeviceTensor, braid.Library, lambda: braid.Library(None),
                  lambda: copy.copy(s), lambda: pickle.dumps(s), lambda: object.__new__(braid.Session)):
            with self.assertRaises(TypeError):
                f()

    def test_an_input_called_out(self):
        lib = library("g (float[2] out) => (float[2] y) { y = Neg(out) }")
        self.assertEqual(lib(out=X).tolist(), [-1, -2])
        y = np.empty(2, np.float32)
        self.assertIs(lib.session().run({"out": X}, out=y)["y"], y)

    def test_close(self):
        with library(NEG, "cpu").session() as s:
            self.assertFalse(s.closed)
        self.assertTrue(s.closed)
        s.close()
        s.cancel()
        for call in (lambda: s(X), lambda: s.run([X]), lambda: s.seed(1), lambda: s.stats, lambda: s.finish(),
                     lambda: s.__enter__(), lambda: setattr(s, "stream", 0)):
            with self.assertRaisesRegex(braid.UsageError, "closed"):
                call()

    def test_run_errors(self):
        for target in ("interp", "cpu"):
            with self.assertRaisesRegex(braid.RunError, "Gather.*index 9"):
                library(PICK, target)([1, 2, 3, 4], 9)
            with self.assertRaisesRegex(braid.RunError, "iterations"):
                library(COUNT, target).session(max_iterations=5)(100, [1, 2, 3, 4])

    def test_seed(self):
        x = np.zeros(4, np.float32)
        self.assertTrue(library(DRAW).draws)
        for target in ("interp", "cpu"):
            a, b = library(DRAW, target).session(seed=5), library(DRAW, target).session()
            b.seed(5)
            self.assertEqual(a(x).tolist(), b(x).tolist())
            self.assertNotEqual(a(x).tolist(), library(DRAW, target)(x).tolist())

    def test_stats(self):
        s = library(NEG, "cpu").session(threads=1)
        s(X)
        self.assertEqual(set(s.stats), {"synchronizations", "working_bytes", "restarts", "threads", "device"})
        self.assertEqual(s.stats["threads"], 1)

    def test_profile(self):
        s = braid.compile(source(COUNT), profile=True, progress=False, threads=1).session(threads=1)
        s(5, [1, 2, 3, 4])
        self.assertIn('"count"', json.dumps(s.profile()))
        for session in (s, library(COUNT).session(), library(COUNT, "cpu").session()):  # no run since; not compiled so
            with self.assertRaises(braid.UsageError):
                session.profile()

    def test_text(self):
        for s in (library(TWO).session(), library(TWO, "cpu").session(), library(TWO), carried(STEP)):
            text, html = repr(s), s._repr_html_()
            self.assertIn("float32[", text)
            for word in ("<table>", "input", "output", "target", s.name if hasattr(s, "name") else "two"):
                self.assertIn(word, html)
        self.assertIn("next value: stateN", html)
        s = library(NEG).session()
        s.close()
        self.assertIn("closed", repr(s))
        self.assertEqual(repr(library(NEG)), "<braid.Library 'g' for interp: (x: float32[2]) -> (y: float32[2])>")


class State(unittest.TestCase):
    def test_steps(self):
        for target in ("interp", "cpu"):
            s = carried(STEP, target).session()
            self.assertEqual(s.state, {})
            for want in ([-1, -2], [-2, -4], [-3, -6]):
                self.assertEqual(s.step(X).tolist(), want)
            self.assertEqual(s.state["state"].tolist(), [3, 6])
            kept = s.state
            s.reset()
            self.assertEqual(s.step(input=X).tolist(), [-1, -2])
            s.state = kept
            self.assertEqual(s.step(X).tolist(), [-4, -8])
            self.assertEqual(s.step(X, np.float32([10, 10])).tolist(), [-11, -12])
            self.assertEqual(s.step(X, state=[20, 20]).tolist(), [-21, -22])
            y, state = s(X, X)  # a call keeps nothing
            self.assertEqual((y.tolist(), s.state["state"].tolist()), ([-2, -4], [21, 22]))
            with self.assertRaises(braid.InputError):
                s.step([1])
            self.assertEqual(s.state["state"].tolist(), [21, 22])

    def test_folded(self):
        s = braid.compile(source(STEP), scan="input", carry={"state": "stateN"}, target="interp", progress=False).session()
        self.assertEqual(s.step(np.ones((3, 2), np.float32)).tolist(), [[-1, -1], [-2, -2], [-3, -3]])
        self.assertEqual(s.step(np.ones((1, 2), np.float32)).tolist(), [[-4, -4]])

    def test_open(self):
        s = carried(OPEN_STEP).session()
        with self.assertRaisesRegex(braid.InputError, "'state': its first value is needed"):
            s.step(X)
        s.step(X, X)
        self.assertEqual(s.step(X).tolist(), [-3, -6])

    def test_wrong(self):
        with self.assertRaisesRegex(braid.UsageError, "no state"):
            library(NEG).session().step(X)
        s = carried(STEP).session()
        for state in (3, {"input": X}, {"z": X}, {3: X}):
            with self.assertRaises(braid.UsageError):
                s.state = state
        with self.assertRaises(braid.UsageError):
            del s.state
        s.state = {"state": "abc"}
        with self.assertRaises(braid.InputError):
            s.step(X)
        s.close()
        with self.assertRaises(braid.UsageError):
            s.step(X)


def endless(target):
    """A session whose runs of 2**40 iterations do not end by themselves."""
    return library(COUNT, target).session(max_iterations=2**50)


class Ending(unittest.TestCase):
    """Runs and compilations that somebody ends."""

    def test_cancel(self):
        for target in ("interp", "cpu"):
            s = endless(target)
            timer = threading.Timer(0.3, s.cancel)
            timer.start()
            with self.assertRaises(braid.CancelledError):
                s(2**40, [1, 2, 3, 4])
            timer.join()
            self.assertEqual(s(1, [0, 0, 0, 0]).tolist(), [0] * 4)

    def test_close_during_a_run(self):
        s, caught = endless("cpu"), []

        def run():
            try:
                s(2**40, [1, 2, 3, 4])
            except braid.Error as e:
                caught.append(type(e))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(0.2)
        s.close()
        s.cancel()
        thread.join(20)
        self.assertEqual(caught, [braid.CancelledError])

    def interrupted(self, what, *args):
        """Ctrl-C 0.7 s after `what` has begun."""
        child = subprocess.Popen([sys.executable, __file__, what, *args], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "begin\n")
        time.sleep(0.7)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=30)[0]
        self.assertEqual((said, child.returncode), ("KeyboardInterrupt\n", 0))

    def test_interrupt_a_run(self):
        for target in ("cpu", "interp"):
            self.interrupted("run", target)

    def test_interrupt_with_another_handler(self):
        self.interrupted("handler", "cpu")

    def test_interrupt_a_compilation(self):
        self.interrupted("compile")


def child(what, target=None):
    ticks = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here, as in a shell's background job
    if what == "compile":
        slow = os.path.join(tempfile.mkdtemp(), "slow")
        with open(slow, "w") as f:
            f.write("#!/bin/sh\nsleep 20\n")
        os.chmod(slow, 0o755)
        model = source(NEG)
        run = lambda: braid.compile(model, cc=slow, cache=False, progress=False)  # noqa: E731
    else:
        session = endless(target)
        run = lambda: session(2**40, [1, 2, 3, 4])  # noqa: E731
    if what == "handler":  # the first Ctrl-C only sets a flag: the run goes on
        def handler(*_):
            ticks.append(1)
            if len(ticks) == 1:
                os.kill(os.getpid(), signal.SIGINT)
                return
            raise KeyboardInterrupt
        signal.signal(signal.SIGINT, handler)
    print("begin", flush=True)
    try:
        run()
    except KeyboardInterrupt:
        print("KeyboardInterrupt")
        assert what != "handler" or len(ticks) == 2


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("run", "compile", "handler"):
        child(*sys.argv[1:])
    else:
        unittest.main()
