#!/usr/bin/env python3
"""Eight threads on one session, on a session each, and through the library: right answers, no leak, cores in use.

    threads.py [--minute]

A second each, or with --minute twenty. Prints calls a second for one thread and for eight.
"""
import argparse
import os
import sys
import threading
import time

import numpy as np
from models import library

THREADS = 8
# Enough work that a call's time is the kernel's, not Python's: what threads share is Python.
MODEL = """work (float[M,16] x) => (float[M,16] y) {
    n = Constant<value = int64 {20000}>()
    yes = Constant<value = bool {1}>()
    half = Constant<value = float {0.5}>()
    y = Loop(n, yes, x) <body = body (int64 i, bool go, float[M,16] v) => (bool more, float[M,16] w) {
        more = Identity(go)
        s = Mul(v, half)
        w = Add(s, x) }> }"""


def answer(x):
    y = x
    for _ in range(20000):
        y = y * np.float32(0.5) + x
    return y


def cases(k):
    """The inputs of a thread, and the answers."""
    r = np.random.default_rng(k)
    inputs = [r.standard_normal((n, 16)).astype(np.float32) for n in (1, 7, 40)]
    return inputs, [answer(x) for x in inputs]


CASES = [cases(k) for k in range(THREADS)]


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hammer(calls, seconds, wrong):
    """Calls a second, each of `calls` in a thread of its own."""
    done, end = [0] * len(calls), time.monotonic() + seconds

    def work(k):
        inputs, answers = CASES[k]
        while time.monotonic() < end:
            x, want = inputs[done[k] % 3], answers[done[k] % 3]
            try:
                if not np.allclose(calls[k](x), want, rtol=1e-5):
                    wrong.append(f"thread {k}: another answer")
            except Exception as e:
                wrong.append(f"thread {k}: {e!r}")
                return
            done[k] += 1
    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(calls))]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(done) / (time.monotonic() - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--minute", action="store_true")
    seconds = 20 if p.parse_args().minute else 1
    lib, wrong = library(MODEL, "cpu", threads=1), []
    sessions = [lib.session(threads=1) for _ in range(THREADS)]
    ways = {"one thread": [sessions[0]], "8 threads, one session": [sessions[0]] * THREADS,
            "8 threads, 8 sessions": sessions, "8 threads, the library": [lib] * THREADS}
    rate = {}
    for name, calls in ways.items():
        hammer(calls, 0.2, wrong)
        before = resident()
        rate[name] = hammer(calls, seconds, wrong)
        grown = resident() - before
        print(f"{name:24} {rate[name]:8.0f} calls/s, memory {grown / 1e6:+.1f} MB")
        if grown > 8e6:
            wrong.append(f"{name}: memory has grown by {grown} bytes")
    cores = len(os.sched_getaffinity(0))
    print(f"{rate['8 threads, 8 sessions'] / rate['one thread']:.2f} times one thread's on {cores} cores")
    print("\n".join(wrong[:20]) or "all answers right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
