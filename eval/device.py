"""The device of the contestants: how runs are timed, where PyTorch's tensors are, how graphs are replayed.

The peers' programs are the same for the CPU and a GPU. All that differs is in the two classes here.
"""
import os
import time

WARM_RUNS = 3  # before a capture: libraries take their handles and their workspaces then


class HostClock:
    """Times by a clock of the host: a run has ended when its call returns, or when `wait` does."""

    def __init__(self, group=0.0, warm=0.0, wait=None, now=time.perf_counter):
        self.group, self.warm, self.wait, self.now = group, warm, wait, now

    def time(self, run, count):
        """Seconds that so many runs take."""
        begin = self.now()
        for _ in range(count):
            run()
        if self.wait:
            self.wait()
        return self.now() - begin


class EventClock:
    """Times by the device's clock: by events on the stream before and after a group of enqueued runs. If
    the host is slower than the device, that counts, too."""

    def __init__(self, cuda, stream, group, warm):
        self.group, self.warm, self.stream = group, warm, stream
        self.first, self.last = (cuda.Event(enable_timing=True) for _ in range(2))

    def time(self, run, count):
        self.first.record(self.stream)
        for _ in range(count):
            run()
        self.last.record(self.stream)
        self.last.synchronize()
        return self.first.elapsed_time(self.last) * 1e-3


class Cpu:
    """A run has ended when its call returns."""
    torch, jax, channels_last = "cpu", "cpu", True
    stream = None  # for Braid

    def begin(self):
        """In the contestant's own process."""

    def clock(self, wait=None):
        return HostClock(wait=wait)

    def wait(self):
        """Waits until the stream is empty."""

    def pinned(self, tensor):
        """A tensor like this one in host memory, to which the device can copy by itself."""
        import torch
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def captured(self, function):
        """A function that replays function() by a graph and returns its result."""
        return function


class Cuda:
    """One stream for everything, tensors in PyTorch's memory, runs in groups of `GROUP` seconds."""
    GROUP, WARM = 2e-3, 20e-3  # the clocks have to rise before a run counts
    jax, channels_last = "cuda", False  # without tensor cores, convolutions are faster in NCHW

    def __init__(self, where="cuda"):
        self.torch = where

    def begin(self):
        import torch
        self.cuda = torch.cuda
        torch.backends.cuda.matmul.allow_tf32 = False  # all compute in float32
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.flow = torch.cuda.Stream()
        torch.cuda.set_stream(self.flow)
        self.stream = self.flow.cuda_stream

    def clock(self, wait=None):
        """The clock for runs. With `wait`, the runs are on streams of their own, so it is the host's clock."""
        if wait:
            return HostClock(self.GROUP, self.WARM, wait)
        return EventClock(self.cuda, self.flow, self.GROUP, self.WARM)

    def wait(self):
        self.flow.synchronize()

    def pinned(self, tensor):
        import torch
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def captured(self, function):
        for _ in range(WARM_RUNS):
            function()
        self.cuda.synchronize()
        graph = self.cuda.CUDAGraph()
        with self.cuda.graph(graph):
            result = function()

        def replay():
            graph.replay()
            return result
        return replay


# Set before any framework is imported: no process takes all memory, and asking whether there is a GPU does not open
# it, so that the process can still fork.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
KINDS = {"cpu": Cpu, "cuda": Cuda}
here = Cpu()


def choose(name):
    global here
    here = KINDS[name]()
    if name != "cpu":
        os.environ.update(ENVIRONMENT)
