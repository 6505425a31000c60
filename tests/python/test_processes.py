"""Libraries and sessions in other processes, threads that end, and files with any name."""
import copy
import gc
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree
from concurrent.futures import ProcessPoolExecutor
from unittest import mock

import braid
import numpy as np
import onnx
from models import COUNT, NEG, STEP, library, source
from onnx import TensorProto, helper

X = np.float32([1, 2])


def use(lib):
    return lib(X).tolist(), os.getpid()


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = self.file(NEG)

    def file(self, text, name="m.onnx"):
        path = f"{self.folder}/{name}"
        with open(path, "wb") as f:
            f.write(source(text))
        return path


class Pickled(Folder):
    def test_from_files(self):
        so = f"{self.folder}/m.so"
        for lib in (braid.compile(self.model, target="interp"), braid.compile(self.model, output=so, threads=1, progress=False),
                    braid.load(so), braid.load(self.model, target="interp")):
            again = pickle.loads(pickle.dumps(lib))
            self.assertEqual((again(X).tolist(), again.target, again.name), ([-1, -2], lib.target, "g"))
        step = braid.compile(self.file(STEP, "step.onnx"), target="interp", scan="input", carry={"state": "stateN"})
        again = pickle.loads(pickle.dumps(step))
        self.assertEqual((again.carry, again.inputs), (step.carry, step.inputs))
        relative = os.path.relpath(so)
        kept = pickle.dumps(braid.load(relative))
        os.chdir("/")
        self.addCleanup(os.chdir, os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual(pickle.loads(kept)(X).tolist(), [-1, -2])
        os.remove(so)
        with self.assertRaisesRegex(braid.FileError, "m.so"):
            pickle.loads(kept)

    def test_from_memory(self):
        with self.assertRaisesRegex(TypeError, "output=FILE"):
            pickle.dumps(library(NEG))

    def test_copies(self):
        lib = library(NEG)
        self.assertIs(copy.copy(lib), lib)
        self.assertIs(copy.deepcopy({"a": [lib]})["a"][0], lib)
        self.assertEqual(pickle.loads(pickle.dumps(lib.inputs)), lib.inputs)

    def test_pools(self):
        lib = braid.compile(self.model, target="interp")
        for method in ("fork", "spawn"):
            with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
                found, pid = pool.submit(use, lib).result(60)
            self.assertEqual(found, [-1, -2])
            self.assertNotEqual(pid, os.getpid())


class Forked(unittest.TestCase):
    def forked(self, f):
        """What f returns in a forked process, an exit code."""
        pid = os.fork()
        if not pid:
            code = 99
            try:
                code = f()
            finally:
                os._exit(code)
        for _ in range(200):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.1)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "it hangs"

    def test_idle(self):
        for target, threads in (("interp", 1), ("cpu", 1), ("cpu", 2)):
            s = library(NEG, target).session(threads=threads)
            s(X)
            self.assertEqual(self.forked(lambda s=s: 7 if s(X).tolist() == [-1, -2] else 8), 7)
            self.assertEqual(s(X).tolist(), [-1, -2])

    def test_busy(self):
        """A session that another thread was running says so; the library makes another one."""
        for target in ("interp", "cpu"):
            lib = library(COUNT, target)
            s = lib.session(max_iterations=2**50)

            def run(s=s):
                with self.assertRaises(braid.CancelledError):
                    s(2**40, [1, 2, 3, 4])
            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(0.2)
            self.assertIn("running", repr(s))

            def child(s=s, lib=lib):
                for call in (lambda: s(1, X), lambda: s.stats, lambda: s.seed(1)):
                    try:
                        call()
                        return 1
                    except braid.UsageError as e:
                        if "forked" not in str(e):
                            return 2
                repr(s)
                s.cancel()
                s.close()
                return 7 if lib.session()(0, [1, 2, 3, 4]).tolist() == [1, 2, 3, 4] else 3
            self.assertEqual(self.forked(child), 7)
            s.cancel()
            thread.join(20)
            self.assertEqual(s(0, [1, 2, 3, 4]).tolist(), [1, 2, 3, 4])


class Threads(unittest.TestCase):
    def test_sessions_end_with_their_threads(self):
        lib = library(NEG, "cpu", threads=2)
        number = lambda: len(os.listdir("/proc/self/task"))  # noqa: E731
        lib(X)
        before, gate = number(), threading.Barrier(9)

        def run():
            lib(X)
            gate.wait()
        threads = [threading.Thread(target=run) for _ in range(8)]
        for t in threads:
            t.start()
        gate.wait()
        for t in threads:
            t.join()
        gc.collect()
        self.assertLessEqual(number(), before)

    def test_daemons_at_the_end(self):
        """A program ends while daemon threads run sessions."""
        code = ("import threading, time, sys; sys.path.insert(0, sys.argv[1])\n"
                "from models import *\n"
                "import numpy as np\n"
                "s = library(COUNT, 'cpu').session(max_iterations=2**50)\n"
                "l, x = library(NEG, 'cpu', threads=2), np.float32([1, 2])\n"
                "threading.Thread(target=lambda: s(2**40, [1, 2, 3, 4]), daemon=True).start()\n"
                "threading.Thread(target=lambda: [l(x) for _ in range(10**9)], daemon=True).start()\n"
                "time.sleep(0.3); print('end')")
        done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code, os.path.dirname(os.path.abspath(__file__))],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))


class Names(Folder):
    def test_any_file_name(self):
        for name in ("with spaces", "ümläut 日本", os.fsdecode(b"latin \xff")):
            folder = f"{self.folder}/{name}"
            os.mkdir(folder)
            shutil.copy(self.model, f"{folder}/m.onnx")
            lib = braid.compile(f"{folder}/m.onnx", output=f"{folder}/m.so", cache_dir=f"{folder}/cache", progress=False)
            self.assertEqual((lib.path, lib(X).tolist()), (f"{folder}/m.so", [-1, -2]))
            self.assertEqual(braid.load(f"{folder}/m.so")(X).tolist(), [-1, -2])
            with self.assertRaisesRegex(braid.FileError, "none.so"):
                braid.load(f"{folder}/none.so")

    def test_no_paths(self):
        for path in (b"m.onnx", None, 3, source(NEG)):
            with self.assertRaisesRegex(braid.UsageError, "load takes the path of a file"):
                braid.load(path)
        for path in ("a\0b", "\ud800"):
            with self.assertRaisesRegex(braid.UsageError, "a wrong argument: "):
                braid.load(path)
        with open("/proc/self/maps") as f:
            libc = next(line.split()[-1] for line in f if "/libc" in line)
        with self.assertRaisesRegex(braid.InputError, "libc.*not a library made by braid compile"):
            braid.load(libc)

    def test_names_in_models(self):
        x, y, n = "für <b>&\"'x", "y/ü 1", "<i>N</i>"
        graph = helper.make_graph([helper.make_node("Neg", [x], [y])], "<script>g&",
                                  [helper.make_tensor_value_info(x, TensorProto.FLOAT, [n])],
                                  [helper.make_tensor_value_info(y, TensorProto.FLOAT, [n])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(model, f"{self.folder}/names.onnx")
        for lib in (braid.compile(f"{self.folder}/names.onnx", target="interp"), braid.compile(model, progress=False)):
            self.assertEqual({k: v.tolist() for k, v in lib.session().run({x: X}).items()}, {y: [-1, -2]})
            self.assertEqual(lib(**{x: X}).tolist(), [-1, -2])
            with self.assertRaises(braid.InputError) as caught:
                lib(**{x: np.float64([1])})
            self.assertEqual(str(caught.exception), f"input '{x}': expected float32[{n}], got float64[1]")
            page = xml.etree.ElementTree.fromstring(lib._repr_html_())
            self.assertEqual([e.text for e in page.iter("code")], ["<script>g&", x, f"float32[{n}]", y, f"float32[{n}]"])

    def test_no_c_compiler_is_not_a_wrong_one(self):
        with mock.patch.dict(os.environ), self.assertRaises(braid.FileError) as caught:
            os.environ.pop("CC", None)
            braid.compile(source(NEG), cpu="no-such-processor", cache=False, progress=False)
        self.assertNotIn("install", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
