"""The tasks that are measured side by side, with their files and sizes.

A task is one computation on one set of inputs. Its files are its ONNX forms in models/; the peers
have forms of their own. Its first file (`main`) enters the geometric means.
"""
import argparse
import dataclasses
import functools
import json
import os

import numpy as np
import onnx

import models
import node_loop

SST_NODES = 37  # a treebank's sentence of its mean size


@dataclasses.dataclass(frozen=True)
class Task:
    kind: str  # which program of a peer computes it
    group: str  # loops, branches, trees, other, trips
    main: tuple  # names of models/
    variants: tuple = ()
    options: dict = dataclasses.field(default_factory=dict)
    batches: tuple = (1, 64)

    @property
    def files(self):
        return self.main + self.variants


def tree(model, kind="random", group="trees", **options):
    return Task("tree", group, (model,), (), dict(tree=kind, **options), (1, 10))


TASKS = {
    "lstm": Task("lstm", "loops", ("lstm_split", "lstm_operator"),
                 ("lstm_four", "lstm_gemm", "lstm_scan", "lstm_steps", "lstm_chain",
                  "lstm_chain_four", "lstm_chain_gemm", "lstm_chain_scan")),
    "nasrnn": Task("nasrnn", "loops", ("nasrnn",), ("nasrnn_eight",)),
    "seq2seq": Task("seq2seq", "loops", ("seq2seq",), ("seq2seq_scan", "seq2seq_gemm")),
    "attention": Task("attention", "loops", ("attention",), ("attention_nd", "attention_where")),
    "attention_grow": Task("attention", "loops", ("attention_grow",)),
    "mamba": Task("mamba", "loops", ("mamba",), ("mamba_inside", "mamba_loop")),
    "rnnt": Task("rnnt", "loops", ("rnnt",)),
    "blockdrop": Task("blockdrop", "branches", ("blockdrop",)),
    "skipnet": Task("skipnet", "branches", ("skipnet",), batches=(1,)),
    "earlyexit": Task("earlyexit", "branches", ("earlyexit_1",)),
    "earlyexit_0": Task("earlyexit", "other", ("earlyexit_0",)),
    "earlyexit_2": Task("earlyexit", "other", ("earlyexit_2",)),
    "earlyexit_3": Task("earlyexit", "other", ("earlyexit_3",)),
    "blockdrop_policy": Task("blockdrop", "other", ("blockdrop_policy",)),
    "experts": Task("experts", "other", ("experts",), ("experts_gather", "experts_dispatch")),
    "bert": Task("bert", "other", ("bert",), batches=(1,)),
    "rae": tree("rae"),
    "rae_sentences": tree("rae", "treebank", "other", length=SST_NODES),
    "rae_perfect": tree("rae", "perfect"),
    "treelstm": tree("treelstm", "treebank", length=SST_NODES),
    "treelstm_perfect": tree("treelstm", "perfect", length=127),
    "treegru": tree("treegru", "treebank", length=SST_NODES),
    "treegru_perfect": tree("treegru", "perfect", length=127),
    "treefc": tree("treefc", "treebank", length=SST_NODES),
    "treefc_perfect": tree("treefc", "perfect", length=255),
    "treelstm_words": tree("treelstm_words", "treebank", "other", length=SST_NODES),
    "treernn": tree("treernn", "treebank", "other", length=SST_NODES),
    "simpletreegru": tree("simpletreegru", "treebank", "other", length=SST_NODES),
    "mvrnn": tree("mvrnn", "treebank", "other", length=SST_NODES),
    "trips": Task("trips", "trips", ("trips",), batches=(1,)),
    "trips_if": Task("trips", "trips", ("trips_if",), batches=(1,)),
}


def chosen(text):
    """The tasks for these names of tasks and of groups."""
    found = []
    for word in text.split(","):
        if word in TASKS:
            found.append(word)
        elif word == "all" or any(t.group == word for t in TASKS.values()):
            found += [n for n, t in TASKS.items() if word in ("all", t.group)]
        else:
            raise argparse.ArgumentTypeError(
                f"no model or group {word}; there are {', '.join(TASKS)}")
    return list(dict.fromkeys(found))


def nodes_of(line):
    return sum(token.startswith("(") for token in line.strip("\n").split(" "))


def sentences(treebank, count, folder):
    """A file with the first `count` trees of the treebank that are of about mean size."""
    path = os.path.join(folder, f"treebank{count}.txt")
    with open(treebank, encoding="utf-8", newline="\n") as f:
        lines = list(f)
    lines.sort(key=lambda line: abs(nodes_of(line) - SST_NODES))  # stable
    own = f"{path}.{os.getpid()}"  # others may be writing it, too
    with open(own, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(lines[:count])
    os.replace(own, path)
    return path


def options(task, batch, folder, treebank=None, small=False):
    """The options for models.build."""
    o = dict(task.options)
    if o.get("tree") == "treebank":
        o["tree"] = sentences(treebank, batch, folder) if treebank and not small else "random"
    if small:
        o.pop("length", None)
        o = {**o, "length": 15} if task.kind == "tree" else o
    return {**o, "batch": batch} if task.group != "trips" else o


def place(name, file):
    """The folder of a task's file."""
    return f"{name}.{file}" if name != file else file


def levels_of(built):
    """(model, inputs) of the form of a model that is level batches written by hand, None if there is none."""
    module = models.cases()[built.name]
    o = {**built.options, "form": "levels"}
    try:
        return module.export(**o), module.inputs(**o)
    except (ValueError, TypeError):
        return None


def prepare(folder, name, task, file, batch, treebank=None, small=False, **changed):
    """Writes folder/file/model.onnx, data.npz and options.json; returns that folder. Trees have other forms,
    too: nodes.onnx, and where there are level batches levels.onnx with inputs of its own."""
    at = os.path.join(folder, place(name, file))
    os.makedirs(at, exist_ok=True)
    o = {**options(task, batch, folder, treebank, small), **changed}
    built = models.build(file, small, **o)
    save(at, built, levels_of(built) if task.kind == "tree" else None)
    if task.kind == "tree":
        nodes = node_loop.export(built.weights, built.inputs, **built.options)
        onnx.save(nodes, os.path.join(at, "nodes.onnx"))
    return at


def save(at, built, levels=None):
    """Writes a folder for Work."""
    os.makedirs(at, exist_ok=True)
    onnx.save(built.model, os.path.join(at, "model.onnx"))
    arrays = {f"in.{k}": v for k, v in built.inputs.items()}
    if levels:
        onnx.save(levels[0], os.path.join(at, "levels.onnx"))
        arrays.update({f"levels.{k}": v for k, v in levels[1].items()})
    arrays.update({f"w.{k}": v for k, v in built.weights.items()})
    arrays.update({f"out.{n}": v for n, v in enumerate(built.expected)})
    np.savez(os.path.join(at, "data.npz"), **arrays)
    with open(os.path.join(at, "options.json"), "w") as f:
        json.dump({k: list(v) if isinstance(v, tuple) else v for k, v in built.options.items()}, f)


def has_levels(folder):
    return os.path.exists(os.path.join(folder, "levels.onnx"))


class Work:
    """What a contestant gets, read from the folder that `prepare` wrote."""

    def __init__(self, folder, kind, threads):
        self.folder, self.kind, self.threads = folder, kind, threads
        self.model, self.nodes, self.levels = (
            os.path.join(folder, f"{n}.onnx") for n in ("model", "nodes", "levels"))
        with open(os.path.join(folder, "options.json")) as f:
            self.options = json.load(f)
        self.inputs = self.part("in")
        self.expected = list(self.part("out").values())

    def part(self, wanted):
        with np.load(os.path.join(self.folder, "data.npz")) as data:
            split = [k.partition(".") for k in data.files]
            return {rest: data[f"{part}.{rest}"] for part, _, rest in split if part == wanted}

    @functools.cached_property
    def weights(self):
        return self.part("w")

    def for_form(self, form):
        """(ONNX file, inputs) of a form of a tree's model."""
        if form == "levels":
            return self.levels, self.part("levels")
        return self.nodes if form == "a loop over nodes" else self.model, self.inputs


def difference(got, expected):
    """(largest difference, what is wrong or None)."""
    if len(got) != len(expected):
        return None, f"{len(got)} outputs, not {len(expected)}"
    worst = 0.0
    for n, (a, b) in enumerate(zip(got, expected)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return None, f"output {n} has shape {a.shape}, not {b.shape}"
        if b.dtype.kind != "f":
            if (a != b).any():
                return None, f"output {n} differs in {(a != b).sum()} of {b.size} elements"
            continue
        if not b.size:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        off = np.abs(a - b)
        largest = float(off.max())
        allowed = 1e-4 * max(1, np.abs(b).max()) + 1e-3 * np.abs(b)
        if not np.isfinite(largest) or (off > allowed).any():
            return largest, f"output {n} is off by {largest:.3g}"
        worst = max(worst, largest)
    return worst, None
