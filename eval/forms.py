#!/usr/bin/env python3
"""Every model of models/ in each of its forms, beside the fastest of them: speed must not depend on how a model was written.

    forms.py [--only NAME,…] [--batch 1,64] [--threads 1,2] [--seconds S] [--out FILE] [--work DIR]

All forms of a model are compiled, their outputs compared with the model's reference, and their runs alternate in this
process. The table has the median and the least time of each form and the ratio of its least to the least of the fastest
form. Exits with 1 if a ratio is above 1.15, except where EXCEPTIONS has a reason, or if an output is wrong.
"""
import argparse
import concurrent.futures
import os
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

import braid_api  # noqa: E402: after the path of models/
import models  # noqa: E402
from machine import machine  # noqa: E402
from models.__main__ import write  # noqa: E402
from models.check import difference  # noqa: E402

MOST = 1.15
ROUNDS = 6
# Other models of models/ that are forms of the same computation.
RELATED = {
    "lstm": ("lstm_split", "lstm_four", "lstm_gemm", "lstm_scan", "lstm_chain"),
    "nasrnn": ("nasrnn", "nasrnn_eight"),
    "attention": ("attention", "attention_added", "attention_where", "attention_chosen", "attention_grow"),
    "seq2seq": ("seq2seq", "seq2seq_scan", "seq2seq_gemm"),
    "mamba": ("mamba", "mamba_inside", "mamba_loop", "mamba_hoisted"),
    "experts": ("experts", "experts_gather", "experts_dispatch"),
    "rae": ("rae", "rae_levels"),
    "treelstm": ("treelstm", "treelstm_levels"),
    "dagrnn": ("dagrnn", "dagrnn_fixed", "dagrnn_levels"),
}
# Sizes where the published ones take long to compile or to run and show no more.
SIZES = {
    "lstm": dict(layers=4),
    "nasrnn": dict(length=50),
    "mamba": dict(length=100),
    "rnnt": dict(length=20),
    "bert": dict(layers=2, vocabulary=2000, length=64),
    "skipnet": dict(blocks=(1, 2, 2, 1), size=64, classes=100),
}
# (model, form): why it may be slower.
EXCEPTIONS = {
    ("experts", "naive"): "other work: every token by each expert that some token chose",
    ("experts", "(experts)"): "other work: every token by each expert that some token chose",
    ("experts", "(experts_gather)"): "other work: weights of its own for each token",
}


def numbers(text):
    return [int(word) for word in text.split(",")]


def members(name):
    """{form: name in models/}"""
    own = {form: full for full, (model, form, _) in models.forms().items() if model == name}
    return {**own, **{f"({case})": case for case in RELATED.get(name, ())}}


class Form:
    """A form of a model at a batch, compiled."""

    def __init__(self, name, full, batch, a):
        self.folder = os.path.join(a.work, f"{full}-{batch}")
        options = dict(SIZES.get(name, {}))
        if "batch" in models.options(full):
            options["batch"] = batch
        self.built = models.build(full, **options)
        write(self.built, self.folder)
        self.library = os.path.join(self.folder, "model.so")
        subprocess.run([a.braid, "compile", os.path.join(self.folder, "model.onnx"), "-o", self.library], check=True)

    def open(self, threads):
        self.session = braid_api.Compiled(os.path.abspath(self.library), threads)
        self.session.bind({k: np.ascontiguousarray(v) for k, v in self.built.inputs.items()})
        self.session.run()
        got = [self.session.out(n) for n in self.session.outputs]
        self.times = []
        return [d for g, w in zip(got, self.built.expected, strict=True) if (d := difference(g, np.asarray(w)))]

    def time(self, seconds, clock):
        """Runs for so long, after one run that brings its memory into the caches."""
        self.session.run()
        end = clock() + seconds
        while True:
            begin = clock()
            self.session.run()
            now = clock()
            self.times.append(now - begin)
            if now > end:
                return


def measure(name, forms, threads, a):
    """[(form, median, least, ratio, verdict)], in seconds."""
    wrong = {k: w for k, f in forms.items() if (w := f.open(threads))}
    # The processor's time of the one thread, so that other processes disturb less.
    clock = time.thread_time if threads == 1 else time.perf_counter
    for _ in range(ROUNDS):
        for f in forms.values():
            time.sleep(0.01)  # the last one's team falls asleep
            f.time(a.seconds / ROUNDS, clock)
    best = min(min(f.times) for k, f in forms.items() if k not in wrong)
    found = []
    for k, f in forms.items():
        ratio = min(f.times) / best
        why = wrong.get(k) and f"WRONG: {wrong[k][0]}"
        if not why and ratio > MOST:
            why = EXCEPTIONS.get((name, k), "SLOW")
        found.append((k, statistics.median(f.times), min(f.times), ratio, why or ""))
        del f.session
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", metavar="NAME,…", help="models; all of them")
    p.add_argument("--batch", type=numbers, default=[1, 64])
    p.add_argument("--threads", type=numbers, default=[1, 2])
    p.add_argument("--seconds", type=float, default=0.6, help="of each form at each batch and number of threads")
    p.add_argument("--out", metavar="FILE", help="where the table goes, too")
    p.add_argument("--work", default=os.path.join(ROOT, "build/forms"))
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    a = p.parse_args()
    names = list(dict.fromkeys(model for model, _, _ in models.forms().values()))
    chosen = a.only.split(",") if a.only else names
    if unknown := set(chosen) - set(names):
        p.error(f"no model {', '.join(unknown)}; there are {', '.join(names)}")
    os.makedirs(a.work, exist_ok=True)
    lines, failed = [], 0

    def say(line):
        print(line, flush=True)
        lines.append(line)

    say(f"{machine()}\n")
    say("| model | batch | threads | form | median µs | least µs | ratio | |\n|---|---|---|---|---|---|---|---|")
    for name in chosen:
        batches = a.batch if "batch" in models.options(next(iter(members(name).values()))) else a.batch[:1]
        for batch in batches:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                made = pool.map(lambda item: (item[0], Form(name, item[1], batch, a)), members(name).items())
                forms = dict(made)
            for threads in a.threads:
                for form, median, least, ratio, why in measure(name, forms, threads, a):
                    say(f"| {name} | {batch} | {threads} | {form} | {median * 1e6:.1f} | {least * 1e6:.1f} "
                        f"| {ratio:.2f} | {why} |")
                    failed += why.startswith(("WRONG", "SLOW"))
    say(f"\n{failed} forms slower than {MOST} times the fastest, or wrong")
    if a.out:
        with open(a.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
