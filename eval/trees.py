#!/usr/bin/env python3
"""Networks over trees and DAGs, Braid beside its peers: level batches, forests, growth, shared nodes.

    trees.py [--treebank FILE] [--models rae_sentences,treelstm] [--hidden 256,512] [--batch 1,10]
             [--threads 1,2] [--out DIR]

The contestants, their comparison with the reference, and the alternating rounds are those of
side_by_side.py. Braid is given a tree as its model has it; all runs have one structure, so it numbers the
nodes in the first, and looks whether they are the same in the others. The level batches of the peers are
numbered beforehand, which is not timed. Prints Markdown; with
--out writes DIR/trees.md, DIR/trees.json and the plot DIR/trees-linear.png. Without a treebank, trees are
random.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np

import side_by_side  # first: it makes models/ known
import bound
import extras
import machine
import tasks
import trees_report
import models
from models import trees

ROOT = side_by_side.ROOT
PEERS = ("braid", "onnxruntime", "pytorch", "jax", "dynet")
# Tasks, and the part of --hidden that is their width: MV-RNN has a matrix at each node.
MODELS = {"rae_sentences": 1, "treelstm": 1, "treelstm_perfect": 1, "treegru": 1,
          "treefc_perfect": 1, "treernn": 1, "simpletreegru": 1, "mvrnn": 1 / 4}
# Forms that side_by_side.py has, and that were never the fastest.
WITHOUT = ("a loop over nodes", "jit.script, a loop over nodes", "node by node", "recursive, torch.compile")
FORESTS = ("rae_sentences", "treelstm")
GROWN, TREE = ("rae", "treelstm"), 37
SIZES = (100, 1000, 10000, 100000)
PLAIN = "linearize=off,batch=off"  # the recursion as it is written
DIAMOND, DIAMOND_SECONDS = 64, 30


def least(c):
    """(least ms, median ms), or why there is none."""
    if c.ready and c.times:
        return {"min_ms": min(c.times) * 1e3, "median_ms": statistics.median(c.times) * 1e3,
                **{k: c.state[k] for k in ("synchronizations", "working_bytes")}}
    return {"failed": c.state.get("failed") or c.state.get("wrong")}


def best(a, b):
    """The better of each of two measurements of peaks, one of which others may have disturbed."""
    if isinstance(a, dict):
        return {k: best(a[k], b[k]) if k != "barrier_ns" else min(a[k], b[k]) for k in a}
    return max(a, b)


class Measured:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.bench = side_by_side.Bench(args, folder, side_by_side.Progress())
        self.bounds = []
        self.result = {"machine": machine.machine(), "treebank": bool(args.treebank), "records": [], "forests": [],
                       "linearizer": [], "growth": [], "dags": []}

    def all(self):
        first = machine.peaks(self.folder)
        self.dags()
        self.growth()
        for name in self.args.models:
            for hidden in self.args.hidden:
                self.model(name, max(4, int(hidden * MODELS[name])))
                trees_report.save(self.result, self.args.results)
        found = first if self.args.quick else best(first, machine.peaks(self.folder))
        self.result["bounds"] = [{**r, "ms": {t: bound.milliseconds(parts, found, t) for t in self.args.threads}}
                                 for r, parts in self.bounds]
        self.result["peers"] = {name: peer.missing and {"missing": peer.missing} or peer.version
                                for (name, _), peer in self.bench.peers.items()}
        return self.result

    def model(self, name, hidden):
        """A model beside its peers in all batches, then a forest beside one of its trees."""
        bench, file = self.bench, tasks.TASKS[name].main[0]
        for batch in self.args.batch:
            for threads in self.args.threads:
                self.result["records"] += bench.task(name, batch, threads, WITHOUT, hidden=hidden)
            folder = bench.prepare(name, file, batch, hidden=hidden)
            at = {"task": name, "hidden": hidden, "batch": batch}
            for threads in self.args.threads:
                said = self.said(folder, threads)
                if said:
                    self.result["linearizer"].append({**at, "threads": threads, "said": said})
            self.bounds.append((at, bound.phases(tasks.Work(folder, "tree", 1), batch)))
        if name in FORESTS and len(self.args.batch) > 1:
            folders = [bench.prepare(name, file, batch, hidden=hidden) for batch in self.args.batch]
            for threads in self.args.threads:
                found, _ = extras.together(bench, folders, threads, f"forests of {name}")
                self.result["forests"].append({"task": name, "hidden": hidden, "threads": threads,
                                               "batch": self.args.batch, "ms": found})
        bench.forget()

    def said(self, folder, threads):
        """What `braid bench` says about the linearizer of a library that was compiled there."""
        inputs = []
        for k, v in tasks.Work(folder, "tree", 1).inputs.items():
            path = os.path.join(folder, f"{k}.npy")
            np.save(path, v)
            inputs += ["-i", f"{k}={path}"]
        library = os.path.join(folder, f"model.{threads}.so")
        ran = subprocess.run([self.args.braid, "bench", "--threads", str(threads), *inputs, library], text=True,
                             capture_output=True)
        return next((line for line in ran.stdout.splitlines() if "lineari" in line), None)

    def together(self, contestants, threads, what):
        """[what least() says] of Braid on (folder, form, further arguments of load) in turn."""
        peer = self.bench.peer("braid", threads)
        group = [self.bench.load(peer, form, os.path.basename(at), at, "tree", what, **more)
                 for at, form, more in contestants]
        self.bench.measure(group, what)
        found = [least(c) for c in group]
        for c in group:
            c.close()
        return found

    def growth(self):
        """Forests of small trees, and one tree, of more and more nodes: the time of the processor, because a
        long run seldom has the machine for itself. Threads that wait for others would count, so there is one."""
        hidden = self.args.hidden[0]
        for file in GROWN:
            for shape in ("forest", "tree"):
                folders, counts = [], []
                for size in self.args.sizes:
                    many = dict(batch=max(1, size // TREE), length=TREE) if shape == "forest" \
                        else dict(batch=1, length=size - 1)
                    self.bench.progress(f"writing a {shape} of {size} nodes for {file}")
                    built = models.build(file, hidden=hidden, tree="random", **many)
                    folders.append(os.path.join(self.folder, f"{file}-{shape}-{size}"))
                    tasks.save(folders[-1], built)
                    counts.append(len(built.inputs["left"]))
                found = self.together([(at, "kernel", {"processor_time": True}) for at in folders], 1,
                                      f"growth of {file}")
                self.result["growth"].append({"model": file, "shape": shape, "hidden": hidden, "nodes": counts,
                                              "found": found})

    def dags(self):
        """A grid, whose nodes are shared, beside the plain recursion over a tree of as many nodes."""
        for hidden in self.args.hidden:
            grid, tree, diamond = (os.path.join(self.folder, f"{n}-{hidden}") for n in ("grid", "tree", "diamond"))
            built = models.build("dagrnn", hidden=hidden)
            tasks.save(grid, built, tasks.levels_of(built))
            nodes = len(built.inputs["x"])
            as_tree(built)
            tasks.save(tree, built)
            tasks.save(diamond, models.build("dagrnn_diamond", length=DIAMOND, hidden=hidden))
            places = {"grid": (grid, "kernel", {}), "levels": (grid, "levels", {}), "tree": (tree, "kernel", {}),
                      "plain_tree": (tree, "kernel", {"schedule": PLAIN}),
                      "diamond": (diamond, "kernel", {"seconds": DIAMOND_SECONDS})}
            for threads in self.args.threads:
                found = self.together(places.values(), threads, "DAGs")
                self.result["dags"].append({"hidden": hidden, "threads": threads, "nodes": nodes,
                                            "tree_nodes": len(built.inputs["x"]), **dict(zip(places, found))})


def as_tree(built):
    """Gives a DAG-RNN over the grid the inputs and the outputs of a random binary tree."""
    x, w = built.inputs["x"], built.weights
    a, _ = trees.make("random", 1, len(x) - 1, np.random.default_rng(0), 1)
    children = [[] if leaf else [l, r] for l, r, leaf in zip(a["left"], a["right"], a["is_leaf"])]
    built.inputs.update(x=x[:len(children)], child_begin=np.cumsum([0] + [len(c) for c in children]),
                        child=np.asarray([c for both in children for c in both], np.int64),
                        roots=a["roots"])
    h = np.zeros((len(children), built.options["hidden"]))
    for n in range(len(children) - 1, -1, -1):  # children have larger numbers
        h[n] = np.tanh(x[n] @ w["U"] + h[children[n]].sum(0) @ w["W"] + w["b"])
    built.expected = [h[:1].astype(np.float32)]


def names(text):
    found = text.split(",")
    for name in found:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"no model {name}; there are {', '.join(MODELS)}")
    return found


def options():
    numbers = side_by_side.numbers
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", dest="results", metavar="DIR", help="where trees.md, trees.json and the plot go")
    p.add_argument("--treebank", metavar="FILE", help="sentences are the first of average size in it")
    p.add_argument("--models", type=names, default=list(MODELS), metavar="NAME,…", help=", ".join(MODELS))
    p.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), metavar="NAME,…")
    p.add_argument("--hidden", type=numbers, default=[256, 512], metavar="N,…", help="widths of the states")
    p.add_argument("--batch", type=numbers, default=[1, 10], metavar="N,…")
    p.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,…")
    p.add_argument("--sizes", type=numbers, default=list(SIZES), metavar="N,…", help="nodes, for the growth")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--budget", type=float, default=0.06, metavar="SECONDS", help="of each contestant in each round")
    p.add_argument("--quick", action="store_true", help="tries everything with small models, in a few seconds")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    return p


def main():
    p = options()
    args = p.parse_args()
    if not os.path.exists(args.braid):
        p.error(f"no {args.braid}: build it, or say --braid")
    if args.quick:
        args.models, args.peers, args.hidden = ["treelstm"], ["braid", "onnxruntime"], [16]
        args.threads, args.sizes = [1], [100]
    kept = os.path.join(ROOT, "build/eval")
    os.makedirs(kept, exist_ok=True)
    args.small, args.main_only = args.quick, True
    if args.results:
        os.makedirs(args.results, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trees-", dir=kept) as folder:
        args.out = folder  # for the messages of the peers
        measured = Measured(args, folder)
        try:
            result = measured.all()
        finally:
            measured.bench.close()
            measured.bench.progress.end()
    print(trees_report.write(result, args.results))
    if args.quick:
        trees_report.check(result)


if __name__ == "__main__":
    sys.exit(main())
