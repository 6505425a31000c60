"""Tests times.py with small models on the CPU.

Contestants are compared and timed, and wrong or late ones are found. Libraries for a GPU run on the
emulated one. CUDA graphs replay what was recorded and nothing else, as on a GPU. Functions that only
a GPU has are replaced by a stand-in."""
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import types

import numpy as np

SECONDS, SHARE = 120, 40  # at most; the test ends when all is done
MODELS = ("seq2seq", "blockdrop")
COMPILED = ("seq2seq", "torch.compile")  # one is enough, as compilers take long


class Calls:
    """Stands in for torch.cuda: records the calls, and lets time pass between events."""

    def __init__(self):
        self.noted = []
        calls = self

        class Stream:
            cuda_stream = 17

            def synchronize(self):
                calls.noted.append("wait")

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self, stream):
                assert stream is calls.current
                self.at = time.perf_counter()

            def synchronize(self):
                calls.noted.append("event")

            def elapsed_time(self, last):
                return (last.at - self.at) * 1e3

        class CUDAGraph:
            def replay(self):
                calls.noted.append("replay")

        @contextlib.contextmanager
        def graph(captured):
            assert isinstance(captured, CUDAGraph)
            calls.noted.append("capture")
            yield

        self.Stream, self.Event, self.CUDAGraph, self.graph = Stream, Event, CUDAGraph, graph

    def set_stream(self, stream):
        self.current = stream

    def synchronize(self):
        self.noted.append("all")


def check_cuda():
    """Runs every line of device.Cuda."""
    import torch

    import device
    from worker import measure
    kept, torch.cuda = torch.cuda, Calls()
    empty, torch.empty = torch.empty, lambda *a, pin_memory, **k: empty(*a, **k)
    try:
        here = device.Cuda("cpu")
        here.begin()
        assert not torch.backends.cuda.matmul.allow_tf32 and here.stream == 17
        ran = []
        replay = here.captured(lambda: ran.append(1) or len(ran))
        assert len(ran) == device.WARM_RUNS + 1 and replay() == len(ran) == replay()
        here.wait()
        assert torch.cuda.noted == ["all", "capture", "replay", "replay", "wait"], torch.cuda.noted
        assert here.pinned(torch.zeros(2, 3)).shape == (2, 3)
        found = measure(lambda: time.sleep(1e-4), here.clock(), 0.02, 100)
        assert found and all(1e-4 < t < 1e-2 for t in found), found
        waits = []
        measure(lambda: time.sleep(1e-4), here.clock(lambda: waits.append(1)), 0.01, 100)
        assert waits
    finally:
        torch.cuda, torch.empty = kept, empty
    kept = dict(os.environ), device.here
    try:
        device.choose("cuda")
        assert isinstance(device.here, device.Cuda)
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    finally:
        device.here = kept[1]
        for k in device.ENVIRONMENT:
            os.environ.pop(k)
        os.environ.update(kept[0])


def check_graphs(folder):
    """Compares programs of graphs with eager ones, also with inputs that changed after the capture."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    import device
    import tasks
    from gpu.peers import pytorch as peer

    class Recording(device.Cpu):
        channels_last = device.Cuda.channels_last

        def captured(self, function):
            function()
            graph = make_fx(function)()
            kept = [t.clone() if isinstance(t, torch.Tensor) else t for t in flat(graph())]
            single = isinstance(graph(), torch.Tensor)

            def replay():
                for to, t in zip(kept, flat(graph())):
                    if isinstance(t, torch.Tensor):
                        to.copy_(t)
                return kept[0] if single else kept
            return replay

    def flat(result):
        return list(result) if isinstance(result, (tuple, list)) else [result]

    device.here = Recording()
    try:
        for name in (*peer.PROGRAMS, "lstm"):
            at = tasks.prepare(folder, name, tasks.TASKS[name], tasks.TASKS[name].main[0], 3, small=True)
            work = tasks.Work(at, tasks.TASKS[name].kind, 1)
            forms = [f for f in peer.FORMS[work.kind] if f.startswith("CUDA graph")]
            made = [peer.build(work, form) for form in (*forms, "eager")]
            for _ in range(2):
                *graphs, eager = [fetch(run()) for run, fetch in made]
                for form, found in zip(forms, graphs):
                    wrong = tasks.difference(found, eager)[1]
                    assert wrong is None, (name, form, wrong)
                for a in work.inputs.values():
                    a[...] = a[::-1].copy()
    finally:
        device.here = device.Cpu()


def compile_model(braid, model, library, target):
    subprocess.run([braid, "compile", model, "-o", library, "--target", target], check=True,
                   stdout=subprocess.DEVNULL)


def check_emulated(braid, data, library):
    """Runs Braid's contestant on device memory."""
    import tasks
    from gpu.peers import braid as peer
    compile_model(braid, os.path.join(data, "model.onnx"), library, "emulate:cuda")
    work = tasks.Work(data, "seq2seq", 1)
    work.library = library
    run, fetch = peer.build(work, "Braid")
    for _ in range(2):
        assert tasks.difference(fetch(run()), work.expected)[1] is None
    assert work.facts["units"] > 0


def check_times(braid, folder):
    """Runs the whole program: one good model, one without a library, one with a wrong reference."""
    import tasks
    from gpu import table, times
    from gpu.peers import pytorch
    times.SLOTS, times.LEAST_SHARE, times.MOST_SHARE = 16, SHARE, SHARE
    times.NOT.update({(name, form): "takes long" for name in MODELS for form in pytorch.FORMS[name]
                      if times.turn(form) and (name, form) != COMPILED})
    data, libs, out = (os.path.join(folder, n) for n in ("data", "libs", "out"))
    good, wrong = (tasks.prepare(os.path.join(data, "b1"), name, tasks.TASKS[name], name, 1, small=True)
                   for name in MODELS)
    os.makedirs(os.path.join(libs, "b1"))
    compile_model(braid, os.path.join(good, "model.onnx"), os.path.join(libs, "b1", "seq2seq.so"), "cpu")
    with open(os.path.join(libs, "b1", "blockdrop.log"), "w") as f:
        f.write("no such compiler\n")
    with np.load(os.path.join(wrong, "data.npz")) as f:
        arrays = dict(f)
    arrays["out.0"] = arrays["out.0"] + 1
    np.savez(os.path.join(wrong, "data.npz"), **arrays)
    records = times.run(types.SimpleNamespace(libs=libs, data=data, out=out, seconds=SECONDS, device="cpu", counted=None,
                                              models=list(MODELS)))
    by = {(r["task"], r["form"]): r for r in records}
    for form in ("Braid", "eager", "CUDA graphs"):
        assert by["seq2seq", form]["min_us"] > 0, by["seq2seq", form]
        assert by["seq2seq", form]["difference"] == 0
    assert by["blockdrop", "Braid"]["failed"] == "there is no library: no such compiler"
    for form in ("eager", "CUDA graphs"):
        assert "off by 1" in by["blockdrop", form]["wrong"], by["blockdrop", form]
    assert by["blockdrop", "torch.compile"]["not_tried"] == "takes long"
    assert "median_us" in by[COMPILED] or "late" in by[COMPILED], by[COMPILED]
    assert all("median_us" in r or table.reason(r) for r in records)
    with open(os.path.join(out, "times.json")) as f:
        assert json.load(f)["records"] == records
    with open(os.path.join(out, "times.md"), encoding="utf-8") as f:
        text = f.read()
    for word in ("| seq2seq |", "| blockdrop | failed |", "wrong |", "geometric means", "no such compiler"):
        assert word in text, word
    check_emulated(braid, good, os.path.join(libs, "emulated.so"))


def run(braid):
    for needed in ("torch", "onnx"):
        if not importlib.util.find_spec(needed):
            print(f"times: skipped: {sys.executable} has no {needed}")
            return 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        check_times(braid, folder)
        check_graphs(folder)
    check_cuda()
    print(f"times: self-test passed in {time.monotonic() - begin:.0f} s")
    return 0
