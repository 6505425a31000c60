#!/usr/bin/env python3
"""Captures a run of a compiled model on a caller's stream, in an emulated GPU's graph, and replays it with other inputs.

    captured.py [--braid BRAID] [--target T]...

Each replay has to give the bits of an ordinary run of the same inputs, also after a run that was not captured and after a
fault, which `finish` tells. The stream and the graph belong to the library's own emulated device, so functions for them are
added to its host text.
"""
import argparse
import ctypes as C
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "eval")]

import numpy as np  # noqa: E402: after the paths
import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402

import braid_api  # noqa: E402
from gpu.pack import fault  # noqa: E402

GRAPH = """
#define SEEN __attribute__((visibility("default")))
static int in_context(int r, int (*then)(void *), void *what) {
    void *context;
    r = r ? r : bk_driver_open->context_push(bk_devices->context);
    if (!r) r = then(what);
    bk_driver_open->context_pop(&context);
    return r;
}
typedef struct Made { void *stream, *graph, *exec; } Made;
static int make_stream(void *what) { return emu_stream_create(&((Made *)what)->stream, 0); }
static int begin(void *what) { return emu_stream_begin_capture(((Made *)what)->stream, 0); }
static int end(void *what) {
    Made *m = what;
    const int r = emu_stream_end_capture(m->stream, &m->graph);
    return r ? r : emu_graph_instantiate(&m->exec, m->graph, 0);
}
static int replay(void *what) {
    Made *m = what;
    const int r = emu_graph_launch(m->exec, m->stream);
    return r ? r : emu_stream_synchronize(m->stream);
}
SEEN int test_stream(Made *m) { return in_context(0, make_stream, m); }
SEEN int test_begin(Made *m) { return in_context(0, begin, m); }
SEEN int test_end(Made *m) { return in_context(0, end, m); }
SEEN int test_replay(Made *m) { return in_context(0, replay, m); }
"""
# a model, and how it is compiled
CASES = [("lstm_operator", ()), ("blockdrop", ()), ("lstm_split", ("--schedule", "library=on")), ("fault", ())]
UNITS = 4


def compiler(argv):
    """Stands in for the C compiler: adds functions to the host text."""
    for path in (a for a in argv if a.endswith(".c")):
        with open(path) as f:
            text = f.read()
        if "bk_session_fill" in text:
            with open(path, "a") as f:
                f.write(GRAPH)
    return subprocess.call(["cc", *argv])


class Made(C.Structure):
    _fields_ = [("stream", C.c_void_p), ("graph", C.c_void_p), ("exec", C.c_void_p)]


def must(result, what):
    if result:
        raise braid_api.BraidError(f"{what}: error {result}")


class Captured:
    """A session on a stream of its own, of which one run is captured."""

    def __init__(self, library, feed):
        self.s = braid_api.OnDevice(library, UNITS)
        self.made = Made()
        must(self.s.lib.test_stream(C.byref(self.made)), "making a stream")
        self.s.stream = C.c_void_p(self.made.stream)
        self.s.call = (self.s.handle, self.s.stream, *self.s.tensors, *self.s.said)
        self.s.bind(feed)

    def run(self):
        self.s.run()
        self.s.finish()
        return self.bits()

    def capture(self):
        """Also when the run is refused, the capture ends."""
        must(self.s.lib.test_begin(C.byref(self.made)), "beginning a capture")
        try:
            self.s.run()
        finally:
            must(self.s.lib.test_end(C.byref(self.made)), "ending a capture")

    def feed(self, feed):
        for t, name in zip(self.s.tensors_in, self.s.inputs):
            a = np.ascontiguousarray(feed[name])
            self.s.copy(braid_api.COPY_IN, t.data, a.ctypes.data, a.nbytes)

    def replay(self):
        must(self.s.lib.test_replay(C.byref(self.made)), "replaying")
        self.s.finish()
        return self.bits()

    def bits(self):
        return [self.s.out(name).tobytes() for name in self.s.outputs]


def other(feed, seed):
    """Inputs of the same shapes and other values: the elements of each in another order."""
    r = np.random.default_rng(seed)
    return {k: np.ascontiguousarray(r.permutation(a.reshape(-1)).reshape(a.shape)) for k, a in feed.items()}


def check(library, feed, expected, name):
    """What is wrong, in words; "" if nothing is."""
    feeds = [feed, other(feed, 1), other(feed, 2)]
    plain = Captured(library, feed)
    wanted = []
    for x in feeds:
        plain.feed(x)
        wanted.append(plain.run())
    got = np.frombuffer(wanted[0][0], expected.dtype).reshape(expected.shape)
    if not np.allclose(got, expected, rtol=1e-3, atol=1e-4):
        return "an ordinary run is wrong"
    if len({tuple(w) for w in wanted}) < 2:
        return "all inputs give the same"
    c = Captured(library, feed)
    try:
        c.capture()
        return "a session that never ran is captured"
    except braid_api.BraidError as e:
        if "before the capture" not in str(e):
            return f"a session that never ran: {e}"
    c.run()
    c.capture()
    for turn in (1, 2, 0, 0, 1):
        c.feed(feeds[turn])
        if c.replay() != wanted[turn]:
            return f"a replay with inputs {turn} has other bits than a run"
        if turn == 2:
            c.feed(feeds[1])
            if c.run() != wanted[1]:
                return "a run between replays has other bits"
    if name != "fault":
        return ""
    c.feed({k: np.full_like(a, 1 << 20) for k, a in feed.items()})
    try:
        c.replay()
        return "a replay with bad indices is not told"
    except braid_api.BraidError as e:
        if "1048576" not in str(e):
            return f"a replay with bad indices: {e}"
    c.feed(feeds[1])
    return "" if c.replay() == wanted[1] else "a replay behind a fault has other bits"


def load(folder):
    """The inputs and the first output of a folder with a model."""
    graph = onnx.load(os.path.join(folder, "model.onnx")).graph
    data = os.path.join(folder, "test_data_set_0")

    def array(file):
        with open(os.path.join(data, file), "rb") as f:
            return np.ascontiguousarray(numpy_helper.to_array(onnx.TensorProto.FromString(f.read())))
    return {v.name: array(f"input_{i}.pb") for i, v in enumerate(graph.input)}, array("output_0.pb")


def main():
    if sys.argv[1:2] == ["--compiler"]:
        return compiler(sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--target", action="append")
    args = p.parse_args()
    bad = runs = 0
    with tempfile.TemporaryDirectory() as work:
        wrapper = os.path.join(work, "cc")
        with open(wrapper, "w") as f:
            f.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' --compiler \"$@\"\n")
        os.chmod(wrapper, 0o755)
        names = [name for name, _ in CASES if name != "fault"]
        subprocess.run([sys.executable, "-m", "models", *names, "--small", "--out", work], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        fault(work)
        for target in args.target or ["emulate:cuda", "emulate:hip"]:
            for name, options in CASES:
                folder = os.path.join(work, name)
                library = os.path.join(work, f"{name}.{target.replace(':', '.')}.so")
                done = subprocess.run([os.path.abspath(args.braid), "compile", os.path.join(folder, "model.onnx"), "--target", target,
                                       *options, "-o", library], env=dict(os.environ, CC=wrapper), capture_output=True, text=True)
                why = done.stderr.strip() if done.returncode else check(library, *load(folder), name)
                runs += 1
                if why:
                    print(f"FAIL: {name}, {target}: {why}", flush=True)
                    bad += 1
    print(f"{runs} models captured and replayed, {bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
