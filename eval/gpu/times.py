#!/usr/bin/env python3
"""Every model by Braid and by its peers on a GPU: device times, side by side.

    times.py --libs LIBS --data DATA --out OUT --seconds N [--device cpu] [--models NAME,…]
    times.py --self-test [--braid BINARY]

DATA/bBATCH/NAME has the model's inputs, weights and expected outputs (tasks.prepare), LIBS/bBATCH/NAME.so
is its library. If a library is missing, the end of LIBS/bBATCH/NAME.log says why.

Each contestant is a process of its own, so that others go on if it fails or hangs. Contestants are
loaded (compiled, captured, compared with the expected outputs) side by side, one per CPU, each for at
most its share of the time; one that is not ready by then is left out. When all contestants of a model
are loaded, all others stop, and these run in turn, for several rounds. What takes long to compile comes
after all models have been timed: torch.compile, and last its autotuning, if there is time left. Writes
OUT/times.json and OUT/times.md after every model, prints a line for each, and ends in time. --device
cpu runs all on the CPU.
"""
import argparse
import concurrent.futures
import json
import os
import select
import signal
import statistics
import sys
import tempfile
import time

EVAL = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [EVAL, os.path.dirname(EVAL)]

import contestants  # noqa: E402: after the paths
import tasks  # noqa: E402
from gpu import table  # noqa: E402

PEERS = ("braid", "pytorch", "jax")
COMPILED, TUNED = "torch.compile", "torch.compile, max-autotune"
WEIGHT = {COMPILED: 6, "JAX": 3}  # how long things take to load, by form
GENEROUS = 2.5  # a contestant gets so many times its share, because most need less
LEAST_SHARE, MOST_SHARE = 15, 100  # seconds
TIMING, ROUNDS = 0.35, 3  # share of all the time; rounds of a model's contestants
CALLS = 0.05  # seconds at most of runs that the host waits for
WARM = 0.03  # seconds of running before the measurement of each round
SLOW = 0.05  # a run of so many seconds needs only one round
PATIENCE = 10  # seconds to wait for an answer of a contestant that ran before
END = 5  # seconds for the end of the program
SLOTS = os.cpu_count()
ALIVE = 40  # processes at most: each has a context of its own on the GPU
ORDER = ("loops", "branches", "trees", "other", "trips")
OVER = {"late": "the time was over"}
# The forms that are not tried, and why.
NOT = {("trips_if", "CUDA graph"): "the branch depends on data, a thousand times a run",
       ("trips_if", TUNED): "it has no product to tune", ("trips", TUNED): "it has no product to tune"}


def turn(form):
    """When a form is timed: with the first ones, after all models have been timed, or last."""
    return 2 if form == TUNED else form.startswith(COMPILED)


class Row:
    """A task at a batch size. `jobs` are its contestants with the same turn."""

    def __init__(self, name, batch, turn):
        self.name, self.batch, self.turn, self.task = name, batch, turn, tasks.TASKS[name]
        self.jobs, self.measured = [], False

    @property
    def loaded(self):
        return all(job.done for job in self.jobs)


class Job:
    """The loading of a contestant."""

    def __init__(self, row, peer, form, file):
        self.row, self.peer, self.form, self.file = row, peer, form, file
        self.weight = next((w for k, w in WEIGHT.items() if form.startswith(k)), 1)
        self.contestant, self.done = None, False
        self.state = {}  # when there is no contestant

    def start(self, request, limit):
        self.limit, self.end = limit, time.monotonic() + limit
        try:
            self.contestant = contestants.Contestant(self.peer, self.form, self.file)
            self.contestant.send(command="load", form=self.form, **request)
        except OSError:
            self.end_with(failed="its peer's process has ended")

    def end_with(self, **state):
        """Ends without a contestant: `failed`, `late` or `not_tried`, and why."""
        self.state, self.done = state, True
        self.drop()

    def answer(self):
        self.contestant.state, self.done = self.contestant.answer(PATIENCE), True
        if not self.contestant.ready:
            self.state = self.contestant.state
            self.drop()

    def drop(self):
        """Ends its process."""
        if self.contestant:
            self.contestant.close()
            self.contestant = None

    @property
    def ready(self):
        return bool(self.contestant and self.done and self.contestant.ready)

    def record(self):
        c = self.contestant
        r = {"task": self.row.name, "group": self.row.task.group, "file": self.file,
             "batch": self.row.batch, "peer": self.peer.name, "form": self.form,
             "node_by_node": self.form in self.peer.node_by_node, **(c.state if c else self.state)}
        if not self.ready:
            return r
        if not c.times:
            return {**r, **OVER}
        calls = r.pop("calls", None)
        if calls:
            r.update(call_us=statistics.median(calls) * 1e6, call_min_us=min(calls) * 1e6)
        return {**r, "median_us": statistics.median(c.times) * 1e6, "min_us": min(c.times) * 1e6,
                "runs": len(c.times)}


class Bench:
    def __init__(self, args, scratch):
        self.args, self.begin = args, time.monotonic()
        self.end = self.begin + args.seconds
        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.peers = list(pool.map(lambda name: contestants.Peer(
                name, 2, scratch, args.out, args.device, "gpu.peers"), PEERS))
        there = [p for p in self.peers if not p.missing]
        keys = sorted(((b, n) for n in args.models for b in tasks.TASKS[n].batches),
                      key=lambda k: (ORDER.index(tasks.TASKS[k[1]].group), k[0] > 1))
        keys.sort(key=lambda k: k[0] > 1 or tasks.TASKS[k[1]].group in ORDER[3:])  # stable
        self.rows = [Row(n, b, turn) for turn in range(3) for b, n in keys]
        self.rows = [row for row in self.rows if self.fill(row, there)]
        self.waiting = [job for row in self.rows for job in row.jobs if not job.done]
        self.loading, self.records, self.jobs = [], [], max(1, len(self.waiting))

    def path(self, root, row, file, suffix=""):
        return os.path.join(root, f"b{row.batch}", tasks.place(row.name, file) + suffix)

    def fill(self, row, peers):
        """Makes the row's jobs. Returns whether there are any."""
        for peer in peers:
            for file in row.task.main if peer.any_file else row.task.main[:1]:
                if not os.path.exists(self.path(self.args.data, row, file, "/data.npz")):
                    continue
                for form in peer.forms_for(row.task.kind):
                    if turn(form) == row.turn:
                        self.add(row, Job(row, peer, form, file))
        return bool(row.jobs)

    def add(self, row, job):
        row.jobs.append(job)
        if (row.name, job.form) in NOT:
            job.end_with(not_tried=NOT[row.name, job.form])
        elif job.peer.name == "braid":
            library = self.path(self.args.libs, row, job.file, ".so")
            if not os.path.exists(library):
                log = said(library.removesuffix(".so") + ".log")
                job.end_with(failed="there is no library" + log)

    def left(self):
        return self.end - time.monotonic()

    def share(self, job):
        """The seconds for which a job may load."""
        weights = sum(j.weight for j in self.waiting + self.loading if j.row.turn <= job.row.turn)
        most = max(0, self.left() - self.timing(len(self.waiting))) * SLOTS * GENEROUS
        return max(LEAST_SHARE, min(MOST_SHARE, most * job.weight / weights))

    def timing(self, more=0):
        """The seconds for timing the contestants that are loaded or being loaded, and so many more."""
        return TIMING * self.args.seconds * (self.alive() + more) / self.jobs + END

    def alive(self):
        return sum(1 for row in self.rows for job in row.jobs if job.contestant)

    def start(self, complete):
        """Starts a job on each free CPU. While a model waits to be timed, Braid loads nothing, because a kernel that
        hangs would still run while others are timed."""
        alive = self.alive()
        first = next(row for row in self.rows if not row.measured)
        for job in list(self.waiting):
            row = job.row
            if len(self.loading) >= SLOTS or alive >= ALIVE and row is not first:
                break
            if complete and job.peer.name == "braid":
                continue
            limit = self.share(job)
            self.waiting.remove(job)
            job.start(dict(folder=self.path(self.args.data, row, job.file), kind=row.task.kind,
                           library=self.path(self.args.libs, row, job.file, ".so")), limit)
            if job.contestant:
                self.loading.append(job)
                alive += 1

    def collect(self):
        """Takes the contestants that are loaded, and ends those that are late."""
        fds = {job.contestant.answers: job for job in self.loading}
        for fd in select.select(list(fds), [], [], 0.1)[0]:
            fds[fd].answer()
        for job in self.loading:
            if not job.done and time.monotonic() > job.end:
                job.end_with(late=f"not ready within its share of the time, {job.limit:.0f} s")
        self.loading = [job for job in self.loading if not job.done]

    def pause(self, on):
        for job in self.loading:
            job.contestant.signal(signal.SIGSTOP if on else signal.SIGCONT)

    def time(self, row):
        """Times the row's contestants in turn, while nothing else runs."""
        begin = time.monotonic()
        self.pause(True)
        ready = [job.contestant for job in row.jobs if job.ready]
        each = TIMING * self.args.seconds / self.jobs / ROUNDS
        for _ in range(ROUNDS):
            for c in ready:
                slow = c.times and min(c.times) > SLOW
                if c.ready and not slow and self.left() > END / 2:
                    c.time(max(0.005, each - WARM), patience=PATIENCE)
        for c in ready:
            if self.left() > END / 2:
                c.call(min(CALLS, each), PATIENCE)
            c.check(PATIENCE)
        self.pause(False)
        for job in self.loading:
            job.end += time.monotonic() - begin
        self.close(row)

    def close(self, row):
        row.measured = True
        for job in row.jobs:
            self.records.append(job.record())
            job.drop()

    def give_up(self):
        """Stops loading; contestants that are loaded are still timed."""
        for job in self.waiting + self.loading:
            job.end_with(**OVER)
        self.waiting, self.loading = [], []

    def run(self, after):
        """Calls after(row) when a row is done."""
        while pending := [row for row in self.rows if not row.measured]:
            if self.left() < self.timing():
                self.give_up()
            complete = next((row for row in pending if row.loaded), None)
            if complete and not any(job.peer.name == "braid" for job in self.loading):
                self.time(complete)
                after(complete)
            else:
                self.start(complete)
                self.collect()

    def stop(self):
        for row in self.rows:
            for job in row.jobs:
                job.drop()
        for peer in self.peers:
            peer.close()


def said(log):
    """The end of a log, if there is one."""
    if not os.path.exists(log):
        return ""
    with open(log, errors="replace") as f:
        return ": " + " ".join(f.read().split())[-300:]


def run(args):
    os.makedirs(args.out, exist_ok=True)
    kept = os.path.join(tempfile.gettempdir(), "braid-times")  # torch.compile's cache
    os.makedirs(kept, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=kept) as scratch:
        bench = Bench(args, scratch)
        facts = {"device": table.device(args.device), "peers": {
            p.name: f"missing: {p.missing}" if p.missing else p.version for p in bench.peers}}
        if args.counted and os.path.exists(args.counted):
            with open(args.counted) as f:
                facts["counted"] = json.load(f)

        def after(row):
            table.write(args.out, facts, bench.records)
            if all({"late", "not_tried"} & job.state.keys() for job in row.jobs):
                return
            print(f"{time.monotonic() - bench.begin:5.0f} s  "
                  f"{table.line(bench.records[-len(row.jobs):], row.name, row.batch)}", flush=True)
        try:
            bench.run(after)
        finally:
            bench.stop()
        table.write(args.out, facts, bench.records)
    return bench.records


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--libs", metavar="LIBS")
    p.add_argument("--data", metavar="DATA")
    p.add_argument("--out", metavar="OUT", help="where times.json, times.md and logs go")
    p.add_argument("--seconds", type=float, default=240, metavar="N", help="for everything")
    p.add_argument("--counted", metavar="FILE", help="counted paths (counted.py --out), for the table")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--models", type=tasks.chosen, default=tasks.chosen("all"), metavar="NAME,…",
                   help="models or groups (loops, branches, trees, other, trips); all of them")
    p.add_argument("--self-test", action="store_true", help="try the machinery in small")
    p.add_argument("--braid", default=os.path.join(os.path.dirname(EVAL), "build/release/braid"),
                   help="for the self-test")
    args = p.parse_args()
    if args.self_test:
        from gpu import self_test
        return self_test.run(args.braid)
    if not (args.libs and args.data and args.out):
        p.error("needs --libs, --data and --out")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # contestants that are stopped must end, too
    return 0 if any("median_us" in r for r in run(args)) else 1


if __name__ == "__main__":
    sys.exit(main())
