#!/usr/bin/env python3
"""What the blocks of GPU programs wait for, from the traces that they leave (traced.py).

    traces.py --libs LIBS --data DATA --out OUT [--seconds N]

LIBS/NAME.so is a library that traced.compile() made, DATA/NAME/data.npz has its inputs. Each runs a few times; of the last
run this prints for each synchronization how often it was passed, the median wait, and how much later than half of the
blocks the last one came, and which that was most often; and for each function how long the slowest block was at it. Writes
OUT/NAME.txt, the same as OUT/NAME.json, and OUT/NAME.trace.json, the beginning of the run for ui.perfetto.dev.
"""
import argparse
import ctypes as C
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

import numpy as np  # noqa: E402: after the paths

import braid_api  # noqa: E402
from traced import BLOCK, CAME, FUNCTION, LAUNCH, LEFT, RECORD, ROOM  # noqa: E402

UNITS = 3  # of stat
RUNS = 3  # before the one that is shown
SHOWN = 30000  # events in a file for perfetto


class Trace:
    """The records of a block since `before`: kinds, places, and times in ns since the first one."""

    def __init__(self, ring, before=0):
        self.count = int(ring[0])
        self.new = (self.count - before) & 0xffffffff
        kept = min(self.new, ROOM)
        at = (self.count - kept + np.arange(kept)) % ROOM + 1
        r = ring.reshape(-1, RECORD // 4)[at]
        self.kind, self.place = r[:, 0] % 4, r[:, 0] // 4
        ticks = r[:, 2].astype(np.int64) | r[:, 3].astype(np.int64) << 32
        wall = np.cumsum(np.diff(r[:, 1], prepend=r[:1, 1]).astype(np.int64))  # it wraps every 4 s
        spent = ticks[-1] - ticks[0] if kept else 0
        self.wall = r[0, 1] if kept else 0
        self.ns = (ticks - ticks[:1]) * (wall[-1] / spent if spent and wall[-1] else 1.0)


def lengths(traces, kinds):
    """{place: (array [block, time] of ns until the next record, from the last time backwards; its blocks)}."""
    found = {}
    for b, t in enumerate(traces):
        here = np.flatnonzero(np.isin(t.kind[:-1], kinds))
        for place in np.unique(t.place[here]):
            i = here[t.place[here] == place]
            found.setdefault(int(place), {})[b] = (t.ns[i + 1] - t.ns[i])[::-1]
    out = {}
    for place, blocks in found.items():
        n = min(map(len, blocks.values()))
        out[place] = np.array([x[:n] for x in blocks.values()]), list(blocks)
    return out


def summary(traces, places):
    """What main() prints, as a dict."""
    meets = []
    for place, (wait, blocks) in lengths(traces, [CAME]).items():
        name, line, behind = places[place]
        last = np.argmin(wait, axis=0)
        often = int(np.argmax(np.bincount(last, minlength=len(blocks))))
        meets.append({"place": place, "name": name, "line": line, "behind": behind, "passes": wait.shape[1], "blocks": len(blocks),
                      "wait_ns": float(np.median(wait)), "late_ns": float(np.median(np.median(wait, axis=0) - wait.min(axis=0))),
                      "last": blocks[often], "last_share": float(np.mean(last == often))})
    functions = []
    for place, (ns, blocks) in lengths(traces, [FUNCTION]).items():
        name, line, what = places[place]
        slowest = ns.max(axis=0)
        functions.append({"place": place, "name": name, "line": line, "model": what, "times": ns.shape[1], "blocks": len(blocks),
                          "ns": float(np.median(slowest)), "all_ns": float(slowest.sum())})
    run = max((float(t.ns[-1]) for t in traces if len(t.ns)), default=0.0)
    out = {"blocks": len(traces), "run_ns": run, "records": int(max(t.new for t in traces)), "meets": meets, "functions": functions}
    if meets:
        most = max(meets, key=lambda m: m["passes"])
        t = next(t for t in traces if ((t.place == most["place"]) & (t.kind == LEFT)).any())
        left = t.ns[(t.place == most["place"]) & (t.kind == LEFT)]
        if len(left) > 1:
            out["step"] = {"place": most["place"], "passes": most["passes"], "ns": float(np.median(np.diff(left)))}
            for f in functions:
                f["step_ns"] = f["ns"] * f["times"] / most["passes"]
    return out


def told(name, s):
    yield f"{name}: {s['blocks']} blocks, {s['run_ns'] / 1000:.1f} us"
    if s["records"] > ROOM:
        yield f"  of which the last {ROOM} of {s['records']} records are shown"
    if "step" in s:
        yield f"  a step from synchronization {s['step']['place']} to the next: {s['step']['ns'] / 1000:.2f} us, {s['step']['passes']} of them"
    yield f"  {'synchronization':<24} {'line':>6} {'passes':>6} {'wait ns':>9} {'last ns':>8}  block"
    for m in sorted(s["meets"], key=lambda m: -m["wait_ns"] * m["passes"]):
        yield (f"  {m['place']:>3} {m['name']:<20} {m['line']:>6} {m['passes']:>6} {m['wait_ns']:>9.0f} {m['late_ns']:>8.0f}  "
               f"{m['last']} in {m['last_share']:.0%} of the passes; {m['behind']}")
    yield f"  {'function':<24} {'line':>6} {'times':>6} {'ns':>9} {'a step':>8}"
    for f in sorted(s["functions"], key=lambda f: -f["all_ns"]):
        yield f"  {f['name']:<24} {f['line']:>6} {f['times']:>6} {f['ns']:>9.0f} {f.get('step_ns', f['all_ns']):>8.0f}  {f['model']}"


def perfetto(traces, places):
    """The first events of as many blocks as there is room for, in turn from the first and the last one."""
    each = max((len(t.ns) for t in traces), default=1) or 1
    shown = max(2, SHOWN // each)
    step = max(1, len(traces) // shown)
    zero = min((int(t.wall) for t in traces), default=0)
    for b, t in list(enumerate(traces))[::step]:
        begin = (int(t.wall) - zero) / 1000
        for i in range(min(len(t.ns) - 1, SHOWN // shown)):
            if t.kind[i] in (FUNCTION, CAME):
                yield {"name": places[t.place[i]][0], "cat": "wait" if t.kind[i] == CAME else "work", "ph": "X", "pid": 0, "tid": b,
                       "ts": begin + float(t.ns[i]) / 1000, "dur": float(t.ns[i + 1] - t.ns[i]) / 1000}


def rings(s):
    """What braid_trace copies out of session s: an array of words for each block."""
    n = int(s.model.stat(s.handle, UNITS))
    all_of = np.zeros((n, BLOCK // 4), np.uint32)
    s.lib.braid_trace.argtypes = [C.c_void_p, C.c_void_p, C.c_int]
    found = s.lib.braid_trace(s.handle, all_of.ctypes.data, n)
    if found < 1:
        raise braid_api.BraidError("the trace cannot be read")
    return all_of[:found]


def trace(library, feed, runs=RUNS, blocks=0):
    """The session after its runs, and its blocks' traces of the last one."""
    s = braid_api.OnDevice(library, blocks)
    s.bind(feed)
    for _ in range(runs):
        s.run()
        s.finish()
    before = [int(r[0]) for r in rings(s)]
    s.run()
    s.finish()
    return s, [Trace(r, n) for r, n in zip(rings(s), before)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "libs", "data", "out":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--seconds", type=float, default=25)
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    end, done, failed = time.monotonic() + args.seconds, 0, 0
    files = os.listdir(args.libs) if os.path.isdir(args.libs) else []
    for name in sorted(f.removesuffix(".so") for f in files if f.endswith(".so")):
        if time.monotonic() > end:
            print(f"{name}: no time was left")
            failed += 1
            continue
        try:
            with np.load(os.path.join(args.data, name, "data.npz")) as data:
                feed = {k.removeprefix("in."): np.ascontiguousarray(data[k]) for k in data if k.startswith("in.")}
            with open(os.path.join(args.libs, name + ".places.json")) as f:
                places = json.load(f)
            _, traces = trace(os.path.join(args.libs, name + ".so"), feed)
        except (braid_api.BraidError, OSError, KeyError) as e:
            print(f"{name}: {e}")
            failed += 1
            continue
        found = summary(traces, places)
        lines = "\n".join(told(name, found))
        for ending, content in (("txt", lines + "\n"), ("json", json.dumps(found)), ("trace.json", json.dumps(list(perfetto(traces, places))))):
            with open(os.path.join(args.out, f"{name}.{ending}"), "w") as f:
                f.write(content)
        print(lines, flush=True)
        done += 1
    print(f"{done} traced, {failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
