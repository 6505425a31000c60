#!/usr/bin/env python3
"""Every model of models/ by Braid and by its peers, side by side.

    side_by_side.py --out DIR [--models lstm,trees] [--batch 1,64] [--threads 1,2] [--quick]

Each contestant is a process of its own, bound to as many CPUs as it may have threads. First its
outputs are compared with the model's reference; if they are wrong, it is shown as wrong and not
timed. Then all contestants of a model run in turn, for several rounds; the least and the median of
the runs count.
Writes DIR/table.md, DIR/results.json, plots, and the peers' messages (*.log). --self-test tries everything with small models.
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import contestants  # noqa: E402: after the path of models/
import extras  # noqa: E402
import report  # noqa: E402
import tasks  # noqa: E402
from machine import machine  # noqa: E402

PEERS = ("braid", "onnxruntime", "openvino", "pytorch", "jax", "dynet")
PAUSE = 0.02  # seconds for the last contestant's threads to fall asleep
LOAD_SECONDS = 300
SLOW, SLOW_ROUNDS = 0.5, 3  # what runs so many seconds is steady enough in fewer rounds


class Progress:
    """Shows one line of progress on a terminal; prints nothing elsewhere."""

    def __init__(self):
        self.shown, self.begin = sys.stderr.isatty(), time.monotonic()

    def __call__(self, text):
        if self.shown:
            spent = time.monotonic() - self.begin
            width = shutil.get_terminal_size().columns - 1
            line = f"{int(spent) // 60}:{int(spent) % 60:02d} {text}"[:width]
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Bench:
    """The peers, the folders, and how long to measure."""

    def __init__(self, args, folder, progress):
        self.args, self.folder, self.progress = args, folder, progress
        self.rounds, self.budget = (3, 0.05) if args.quick else (args.rounds, args.budget)
        self.peers = {}
        self.folders = {}

    def peer(self, name, threads):
        if (name, threads) not in self.peers:
            self.progress(f"starting {name}")
            self.peers[name, threads] = contestants.Peer(name, threads, self.folder, self.args.out)
        return self.peers[name, threads]

    def files(self, task):
        return task.main if self.args.quick or self.args.main_only else task.files

    def prepare(self, name, file, batch, **changed):
        key = name, file, batch, *changed.items()
        if key not in self.folders:
            self.progress(f"writing {name}, {file}")
            at = os.path.join(self.folder, "-".join([f"b{batch}", *map(str, changed.values())]))
            self.folders[key] = tasks.prepare(at, name, tasks.TASKS[name], file, batch,
                                              self.args.treebank, self.args.small, **changed)
        return self.folders[key]

    def load(self, peer, form, file, folder, kind, what, seconds=LOAD_SECONDS, **more):
        c = contestants.Contestant(peer, form, file)
        self.progress(f"{what}: {peer.name}, {form}, {file}")
        begin = time.monotonic()
        c.load(seconds, folder=folder, kind=kind, braid=os.path.abspath(self.args.braid),
               **more)
        c.load_seconds = time.monotonic() - begin
        return c

    def measure(self, group, what):
        """Round robin over the contestants."""
        for n in range(self.rounds):
            for c in group:
                slow = c.times and min(c.times) > SLOW
                if c.ready and not (slow and n >= SLOW_ROUNDS):
                    self.progress(f"{what}: round {n + 1}, {c.peer.name}, {c.form}, {c.file}")
                    time.sleep(PAUSE)
                    c.time(self.budget)
        for c in group:
            c.check()

    def task(self, name, batch, threads, without=(), **changed):
        """The records of all contestants of a task, less the forms `without`."""
        task = tasks.TASKS[name]
        what = ", ".join([name, f"batch {batch}", f"{threads} threads",
                          *(f"{k} {v}" for k, v in changed.items())])
        group = []
        for peer_name in self.args.peers:
            peer = self.peer(peer_name, threads)
            if peer.missing:
                continue
            for file in self.files(task) if peer.any_file else task.main[:1]:
                folder = self.prepare(name, file, batch, **changed)
                for form in peer.forms_for(task.kind):
                    there = not peer.any_file or form != "levels" or tasks.has_levels(folder)
                    if there and form not in without:
                        group.append(self.load(peer, form, file, folder, task.kind, what))
        self.measure(group, what)
        records = [{**self.record(c, name, batch), **changed} for c in group]
        for c in group:
            c.close()
        return records

    def record(self, c, name, batch):
        r = {"task": name, "group": tasks.TASKS[name].group, "file": c.file,
             "main": c.file in tasks.TASKS[name].main, "batch": batch,
             "threads": c.peer.threads, "peer": c.peer.name, "form": c.form,
             "node_by_node": c.form in c.peer.node_by_node,
             "same_file": (c.peer.any_file and c.peer.name != "braid"
                           and tasks.TASKS[name].kind != "tree"),
             "load_seconds": round(c.load_seconds, 1), **c.state}
        if tasks.TASKS[name].group == "trips":
            with open(os.path.join(self.prepare(name, c.file, batch), "options.json")) as f:
                r["trips"] = json.load(f)["length"]
        if c.ready and c.times:
            r.update(min_ms=min(c.times) * 1e3, median_ms=statistics.median(c.times) * 1e3,
                     runs=len(c.times))
        return r

    def forget(self):
        """Removes the models written so far."""
        for folder in self.folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        self.folders.clear()

    def close(self):
        for peer in self.peers.values():
            peer.close()


def numbers(text):
    return [int(word) for word in text.split(",")]


def options():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", metavar="DIR", help="where results go")
    p.add_argument("--models", type=tasks.chosen, default=tasks.chosen("all"), metavar="NAME,…",
                   help="models or groups (loops, branches, trees, other, trips); all of them")
    p.add_argument("--peers", type=lambda t: t.split(","), default=list(PEERS), metavar="NAME,…")
    p.add_argument("--batch", type=numbers, default=[1], metavar="N,…",
                   help="1 (the default), 64, or 10 for trees")
    p.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,…")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--budget", type=float, default=0.12, metavar="SECONDS",
                   help="of each contestant in each round")
    p.add_argument("--quick", action="store_true",
                   help="few short rounds, only the first files of a model")
    p.add_argument("--main-only", action="store_true", help="only the first files of a model")
    p.add_argument("--small", action="store_true", help="models in sizes for tests")
    p.add_argument("--treebank", metavar="FILE",
                   help="trees are the first of average size in it; without it, random trees")
    p.add_argument("--no-extras", action="store_true",
                   help="without traces, linearity, and the bound")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--self-test", action="store_true", help="try the machinery in small")
    return p


def run(args, folder):
    progress = Progress()
    bench = Bench(args, folder, progress)
    result = {"machine": machine(), "records": [], "peers": {}}
    begin, found = time.monotonic(), []
    try:
        for batch in args.batch:
            for name in args.models:
                if batch in tasks.TASKS[name].batches or args.small:
                    for threads in args.threads:
                        result["records"] += bench.task(name, batch, threads)
                    if not args.no_extras:
                        found += extras.phases(bench, name, batch)
                    bench.forget()
                    report.save(result, args.out)
        for (name, _), peer in bench.peers.items():
            result["peers"][name] = peer.missing and {"missing": peer.missing} or peer.version
        if not args.no_extras:
            extras.add(bench, found, result)
    finally:
        bench.close()
        progress.end()
    result["seconds"] = round(time.monotonic() - begin)
    return result


def self_test(braid):
    """Runs small models against ONNX Runtime: compares outputs, finds wrong ones, writes tables."""
    with tempfile.TemporaryDirectory() as folder:
        args = options().parse_args([
            "--out", folder, "--models", "seq2seq,blockdrop", "--peers", "braid,onnxruntime",
            "--small", "--quick", "--threads", "1", "--no-extras", "--braid", braid])
        result = run(args, folder)
        report.write(result, folder)
        records = result["records"]
        assert len(records) == 4, records
        for r in records:
            assert r.get("difference") is not None and r["min_ms"] > 0, r
        with open(os.path.join(folder, "results.json")) as f:
            assert json.load(f)["records"] == records
        with open(os.path.join(folder, "table.md")) as f:
            text = f.read()
        for word in ("seq2seq", "blockdrop", "geometric mean", "onnxruntime"):
            assert word in text, word
    zeros = [tasks.np.zeros(3, tasks.np.float32)]
    assert tasks.difference(zeros, zeros) == (0.0, None)
    assert tasks.difference([zeros[0] + 1], zeros)[1] and tasks.difference([], zeros)[1]
    print("side_by_side: 4 contestants compared and timed")


def main():
    p = options()
    args = p.parse_args()
    if args.self_test:
        return self_test(args.braid)
    if not args.out:
        p.error("needs --out DIR")
    if not os.path.exists(args.braid):
        p.error(f"no {args.braid}: build it, or say --braid")
    os.makedirs(args.out, exist_ok=True)
    kept = os.path.join(ROOT, "build/eval")
    os.makedirs(kept, exist_ok=True)
    for path in glob.glob(os.path.join(kept, "inductor/*/*.so")):
        if not os.path.getsize(path):  # a run was stopped while torch.compile wrote it
            os.remove(path)
    with tempfile.TemporaryDirectory(prefix="run-", dir=kept) as folder:
        result = run(args, folder)
    print(report.write(result, args.out))
    return None


if __name__ == "__main__":
    sys.exit(main())
