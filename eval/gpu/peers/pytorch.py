"""PyTorch: eager, in CUDA graphs, torch.compile in CUDA graphs, torch.compile with its own graphs, cuDNN.

The programs are those of peers/ and of graphs.py.
"""
import torch

import device
from peers import pytorch as base
from peers import pytorch_branches as branches
from peers import pytorch_trees as trees

from .graphs import PROGRAMS, plain, whole

OWN_GRAPHS, TUNED = "torch.compile, reduce-overhead", "torch.compile, max-autotune"
HOW = {OWN_GRAPHS: {"mode": "reduce-overhead"}, TUNED: {"mode": "max-autotune-no-cudagraphs"}}
STRUCTURE = ("left", "right", "is_leaf", "roots")


def version():
    return torch.__version__


def static(eager, compiled):
    """The forms of a program whose control flow is the same for all inputs."""
    return {"eager": eager, "CUDA graph": whole(eager), "torch.compile": whole(compiled),
            TUNED: whole(compiled)}


def dynamic(kind):
    """The forms of a program whose control flow depends on its inputs."""
    def compiled(work):
        return PROGRAMS[kind](work, base.loops.compiled)
    return {"eager": base.FORMS[kind]["eager"],
            "CUDA graphs": lambda work: PROGRAMS[kind](work, plain), "torch.compile": compiled,
            OWN_GRAPHS: base.FORMS[kind]["torch.compile"], TUNED: compiled}


def of(kind):
    return static(*(base.FORMS[kind][form] for form in ("eager", "torch.compile")))


def gathered(work):
    return branches.experts_eager(work, branches.experts_gathered)


LSTM, SDPA = base.loops.lstm_fused, base.FORMS["attention"]["eager, sdpa"]
FORMS = {
    "lstm": {**static(base.loops.lstm_eager, base.loops.lstm_compiled), "cuDNN": LSTM,
             "cuDNN, CUDA graph": whole(LSTM)},
    "attention": {**of("attention"), "CUDA graph, sdpa": whole(SDPA)},
    "experts": {**static(gathered, branches.experts_compiled), "eager": branches.experts_eager},
    **{kind: of(kind) for kind in ("nasrnn", "mamba", "bert", "trips")},
    **{kind: dynamic(kind) for kind in PROGRAMS},
    "tree": {"eager, node by node": base.FORMS["tree"]["recursive"],
             "eager, levels": trees.by_levels(plain),
             "CUDA graph, levels": whole(trees.by_levels(plain)),
             "torch.compile, node by node": base.FORMS["tree"]["recursive, torch.compile"],
             "torch.compile, levels": whole(trees.by_levels(
                 lambda f: torch.compile(f, dynamic=True)))},
}
NODE_BY_NODE = ("eager, node by node", "torch.compile, node by node")


def build(work, form):
    device.here.begin()
    base.loops.HOW.update(HOW.get(form, {}))
    run, fetch = base.calls(work, FORMS[work.kind][form], STRUCTURE if work.kind == "tree" else ())
    if form != OWN_GRAPHS:
        return run, fetch

    def next_run():
        torch.compiler.cudagraph_mark_step_begin()  # what the last one returned may be written over
        return run()
    return next_run, fetch
