"""Further measurements: the same path without control flow, growth with length and tree size, and the
bound that the machine's peaks set."""
import os
import shutil

import onnx

import bound
import machine
import tasks
from trace import Trace

# Sizes at which compilers can still handle the graph without control flow: {file: options}.
TRACED = {
    "lstm": {"lstm_split": dict(length=6), "lstm_operator": dict(length=6)},
    "nasrnn": {"nasrnn": dict(length=40)},
    "seq2seq": {"seq2seq": {}},
    "attention": {"attention": {}},
    "attention_grow": {"attention_grow": {}},
    "mamba": {"mamba": dict(length=40)},
    "rnnt": {"rnnt": dict(length=8)},
    "blockdrop": {"blockdrop": {}},
    "skipnet": {"skipnet": {}},
    "earlyexit": {"earlyexit_1": {}},
    "rae": {"rae": dict(length=37)},
    "treelstm": {"treelstm": {}},
    "treegru": {"treegru": {}},
    "treefc": {"treefc": {}},
}
LENGTHS = {
    "lstm": ("lstm_split", (16, 32, 64, 128)),
    "nasrnn": ("nasrnn", (250, 500, 1000, 2000)),
    "seq2seq": ("seq2seq", (5, 10, 20, 40)),
    "mamba": ("mamba", (250, 500, 1000, 2000)),
    "rnnt": ("rnnt", (25, 50, 100, 200)),
    "rae": ("rae", (31, 63, 127, 255)),
    "treelstm_perfect": ("treelstm", (31, 63, 127, 255)),
    "treegru_perfect": ("treegru", (31, 63, 127, 255)),
    "treefc_perfect": ("treefc", (63, 127, 255, 511)),
}


def traced_folder(folder):
    """A folder with the same data, whose model is the path that control flow takes."""
    at = folder + ".path"
    os.makedirs(at, exist_ok=True)
    for name in ("data.npz", "options.json"):
        shutil.copyfile(os.path.join(folder, name), os.path.join(at, name))
    model = onnx.load(os.path.join(folder, "model.onnx"))
    path = Trace(model, tasks.Work(folder, "", 1).inputs).graph()
    onnx.save(path, os.path.join(at, "model.onnx"))
    return at, len(path.graph.node)


def together(bench, places, threads, what):
    """Least ms of Braid on the models in these folders, run in turn; None for a model that does not run."""
    peer = bench.peer("braid", threads)
    group = [bench.load(peer, "kernel", os.path.basename(at), at, "", what) for at in places]
    bench.measure(group, what)
    found = [min(c.times) * 1e3 if c.ready and c.times else None for c in group]
    failures = [c.state.get("failed") or c.state.get("wrong") for c in group if not c.ready]
    for c in group:
        c.close()
    return found, failures


def traces(bench, threads):
    records = []
    for name in bench.args.models:
        for file, changed in TRACED.get(name, {}).items():
            folder = bench.prepare(name, file, 1, **({} if bench.args.small else changed))
            bench.progress(f"the path of {name}, {file}")
            path, nodes = traced_folder(folder)
            for t in threads:
                (ours, straight), failures = together(bench, [folder, path], t, f"path of {file}")
                records.append({"task": name, "file": file, "options": changed, "threads": t,
                                "nodes": nodes, "ms": ours, "straight_ms": straight,
                                **({"failed": failures} if failures else {})})
    return records


def growth(bench, threads):
    records = []
    for name in bench.args.models:
        if name not in LENGTHS:
            continue
        file, lengths = LENGTHS[name]
        folders = [bench.prepare(name, file, 1, length=n) for n in lengths]
        for t in threads:
            found, _ = together(bench, folders, t, f"growth of {name}")
            records.append({"task": name, "group": tasks.TASKS[name].group, "threads": t,
                            "lengths": lengths, "ms": found})
    return records


def phases(bench, name, batch):
    """[(task, file, batch, the phases of its bound)]; needs the task's files."""
    task, found = tasks.TASKS[name], []
    for file in task.main:
        bench.progress(f"the bound of {name}")
        work = tasks.Work(bench.prepare(name, file, batch), task.kind, 1)
        found.append((name, file, batch, bound.phases(work, batch)))
    return found


def bounds(found, peaks, threads):
    return [{"task": name, "file": file, "batch": batch,
             "counts": bound.counts(parts),
             "ms": {t: bound.milliseconds(parts, peaks, t) for t in threads}}
            for name, file, batch, parts in found if parts]


def add(bench, found, result):
    threads = bench.args.threads
    bench.progress("the machine's peaks")
    result["peaks"] = machine.peaks(bench.folder)
    result["bounds"] = bounds(found, result["peaks"], threads)
    if 1 in bench.args.batch:
        result["traces"] = traces(bench, threads)
        if not bench.args.small:
            result["growth"] = growth(bench, threads)
