"""What is in the package: stubs for every name, documentation whose examples run, the command, the wheel's files."""
import ast
import doctest
import importlib.metadata
import inspect
import os
import subprocess
import sys
import sysconfig
import tempfile
import unittest

import braid
import numpy as np
from braid import _braid, _library, _load
from models import NEG, source

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.dirname(braid.__file__)
SKIP = {"__doc__", "__new__", "__module__", "__repr__", "__loader__", "__name__", "__package__", "__spec__", "__file__",
        "__vectorcalloffset__"}


def public(names):
    return {n for n in names if not n.startswith("_") or n.startswith("__")} - SKIP


class Stubs(unittest.TestCase):
    def test_same_names(self):
        with open(f"{PACKAGE}/_braid.pyi", encoding="utf-8") as f:
            tree = ast.parse(f.read())
        stubs = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        names = set(stubs) | {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
        self.assertEqual(names, public(vars(_braid)))
        for name, node in stubs.items():
            real = getattr(_braid, name)
            if isinstance(node, ast.FunctionDef):
                self.same_signature(node, real)
            elif not issubclass(real, Exception):
                members = {n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in node.body}
                self.assertEqual(public(members), public(vars(real)), name)
                for n in node.body:
                    if isinstance(n, ast.FunctionDef) and not n.decorator_list and not n.name.startswith("_"):
                        self.same_signature(n, getattr(real, n.name))

    def same_signature(self, node, real):
        given = list(inspect.signature(real).parameters)
        a = node.args
        want = [x.arg for x in a.posonlyargs + a.args] + ([a.vararg.arg] if a.vararg else [])
        want += [x.arg for x in a.kwonlyargs] + ([a.kwarg.arg] if a.kwarg else [])
        self.assertEqual(given, want, node.name)

    def test_all(self):
        for name in braid.__all__:
            self.assertTrue(name == "__version__" or inspect.getdoc(getattr(braid, name)), name)
        self.assertTrue(os.path.exists(f"{PACKAGE}/py.typed"))
        for real in (braid.Session, braid.DeviceTensor, braid.Library):
            for name in public(vars(real)) - {"__enter__", "__exit__", "__slots__"}:
                self.assertTrue(inspect.getdoc(getattr(real, name)), f"{real.__name__}.{name}")


class Documentation(unittest.TestCase):
    def test_examples(self):
        folder = os.getcwd()
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            try:
                names = {"model": source(NEG), "np": np, "braid": braid}
                tried = 0
                for module in (braid, _library, _load, braid.trees):
                    failed, n = doctest.testmod(module, extraglobs=names)
                    self.assertEqual(failed, 0)
                    tried += n
            finally:
                os.chdir(folder)
        self.assertGreaterEqual(tried, 26)

    def test_help(self):
        for thing, words in ((braid.compile, ("target:", "scan:", "carry:")), (braid.Session, ("out:", "step(", "run(")),
                             (braid.Library, ("session(", "inputs"))):
            done = subprocess.run([sys.executable, "-c", f"import braid; help(braid.{thing.__name__})"], capture_output=True,
                                  text=True, env={**os.environ, "PAGER": "cat"})
            for word in words:
                self.assertIn(word, done.stdout)


class Wheel(unittest.TestCase):
    def test_files(self):
        files = {str(f) for f in importlib.metadata.files("braid") if "__pycache__" not in str(f) and "dist-info" not in str(f)}
        want = {os.path.relpath(f"{folder}/{name}", f"{ROOT}/shim") for folder, _, names in os.walk(f"{ROOT}/shim/braid")
                for name in names if "__pycache__" not in folder}
        self.assertEqual({f for f in files if not f.endswith((".so", ".a", "/braid"))}, want)
        self.assertEqual([f for f in files if f.endswith(".so")], ["braid/_braid.abi3.so"])

    def test_needs_only_libc(self):
        done = subprocess.run(["ldd", _braid.__file__], capture_output=True, text=True, check=True)
        names = {line.split()[0].split("/")[-1].split(".")[0] for line in done.stdout.splitlines()}
        self.assertLessEqual(names, {"linux-vdso", "libm", "libc", "libdl", "libpthread", "ld-linux-x86-64",
                                     "ld-linux-aarch64"})

    def test_symbols(self):
        """Only the module's entry is seen, and only names of the limited API are asked for."""
        done = subprocess.run(["nm", "-D", "--defined-only", _braid.__file__], capture_output=True, text=True, check=True)
        self.assertEqual([line.split()[2] for line in done.stdout.splitlines()], ["PyInit__braid"])

    def test_version(self):
        self.assertEqual(importlib.metadata.version("braid"), braid.__version__)
        with open(f"{ROOT}/include/braid.h", encoding="utf-8") as f:
            self.assertIn(f'#define BRAID_VERSION "{braid.__version__}"', f.read())

    def test_command(self):
        command = os.path.join(sysconfig.get_path("scripts"), "braid")
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/m.onnx", "wb") as f:
                f.write(source(NEG))
            subprocess.run([command, "compile", f"{work}/m.onnx", "-o", f"{work}/m.so"], check=True)
            self.assertEqual(braid.load(f"{work}/m.so")([1, 2]).tolist(), [-1, -2])

    def test_emulator(self):
        """Where it is in the package, it is found; else a message says that it is missing."""
        if os.path.exists(f"{PACKAGE}/libbraid_emulate.a"):
            lib = braid.compile(source(NEG), target="emulate:cuda", progress=False)
            with lib.session() as s:
                t = s.to_device(np.float32([1, 2]))
                self.assertEqual((t.shape, t.dtype, t.__dlpack_device__()[0]), ((2,), "float32", 12))
                y = s(t)
                self.assertIsInstance(y, braid.DeviceTensor)
                self.assertEqual(s.to_host(y).tolist(), [-1, -2])
                self.assertEqual(s([3, 4]).tolist(), [-3, -4])
                with self.assertRaises(braid.UsageError):
                    s.to_host(3)
        else:
            with self.assertRaisesRegex(braid.FileError, "libbraid_emulate.a"):
                braid.compile(source(NEG), target="emulate:cuda", progress=False)


if __name__ == "__main__":
    unittest.main()
