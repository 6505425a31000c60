"""PyTorch: eager, torch.jit.script and torch.compile, each model written for speed.

Input products are hoisted out of the recurrences, an embedding table that only feeds a product is
folded into it, batch normalizations are folded into convolutions, gates are in an order that needs
one sigmoid for three of them, and caches are written in place. A chunk of steps or a block is
compiled, and Python does the control flow around it.
"""
import os
import warnings

warnings.filterwarnings("ignore", category=FutureWarning)  # torch.jit.script is to go
warnings.filterwarnings("ignore", category=DeprecationWarning)
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import numpy as np  # noqa: E402: after the settings
import torch  # noqa: E402

import device  # noqa: E402

if device.here.torch == "cpu":  # a GPU must not be opened before the fork, which this may do
    import torch._inductor.compile_fx  # noqa: E402,F401: takes seconds, here once for all contestants

from . import pytorch_branches as branches  # noqa: E402
from . import pytorch_loops as loops  # noqa: E402
from . import pytorch_trees as trees  # noqa: E402

FORMS = {**loops.FORMS, **branches.FORMS, **trees.FORMS}
NODE_BY_NODE = trees.NODE_BY_NODE


def version():
    return torch.__version__.split("+")[0]


def build(work, form):
    return calls(work, FORMS[work.kind][form])


def calls(work, make, on_host=()):
    """Returns run and fetch. The inputs `on_host` are only used for control flow."""
    torch.set_num_threads(work.threads)
    torch.set_grad_enabled(False)
    forward = make(work)
    inputs = [torch.from_numpy(v) if k in on_host else loops.tensor(v).reshape(v.shape)
              for k, v in work.inputs.items()]

    def run():
        with torch.inference_mode():
            return forward(*inputs)

    def fetch(result):
        return [v.cpu().numpy().copy() if isinstance(v, torch.Tensor) else np.asarray(v)
                for v in (result if isinstance(result, (tuple, list)) else [result])]

    return run, fetch
