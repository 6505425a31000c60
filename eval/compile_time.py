#!/usr/bin/env python3
"""How long compiling takes by the number of a graph's nodes: unrolled cells, and layers with weights of their own.

    compile_time.py [--nodes 1000,2000,4000,8000] [--braid build/release/braid] [--out FILE.json] [--plot FILE.png] [MODEL.onnx...]

A line for each graph: nodes, seconds, seconds of processor time of Braid and of the compilers that it runs, the largest
memory of one of these processes. For each kind the line fitted to the processor time, and how far the points are from it. Models: the
same for files. What is kept of earlier compilations (object files that are the same for many models) is there already.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
import units  # noqa: E402  (the graphs are those of the test)


def measure(braid, model, so, cache):
    """(seconds, processor seconds, MB); in a process of its own, for the numbers of its children alone."""
    code = ("import resource, subprocess, sys, time\nbegin = time.monotonic()\nsubprocess.run(sys.argv[1:], check=True)\n"
            "u = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(time.monotonic() - begin, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024)")
    r = subprocess.run([sys.executable, "-c", code, braid, "compile", model, "-o", so], env={**os.environ, "BRAID_CACHE": cache},
                       capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(f"{model}: {r.stderr.strip()}")
    return tuple(map(float, r.stdout.split()))


def table(a, work):
    rng = np.random.default_rng(0)
    rows = []
    cache = f"{work}/cache"
    units.stack(f"{work}/first.onnx", [8, 8], rng)
    measure(a.braid, f"{work}/first.onnx", f"{work}/first.so", cache)
    for kind in ("cell", "stack"):
        for n in a.nodes:
            model = f"{work}/{kind}{n}.onnx"
            if kind == "cell":
                units.cell(model, n // 6, rng, 64)
            else:
                units.stack(model, [64] * (n // 3 + 1), rng)
            rows.append((kind, n) + measure(a.braid, model, f"{work}/m.so", cache))
    for path in a.model:
        n = sum(1 for _ in nodes_of(onnx.load(path, load_external_data=False).graph))
        rows.append((os.path.basename(path), n) + measure(a.braid, path, f"{work}/m.so", cache))
    return rows


def nodes_of(graph):
    """All nodes, also those of subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for g in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from nodes_of(g)


def fit(rows, kind):
    """(ms a node, ms at zero nodes, the largest deviation from that line)"""
    n, seconds = (np.array([r[i] for r in rows if r[0] == kind], float) for i in (1, 3))
    slope, zero = np.polyfit(n, seconds, 1)
    return slope * 1e3, zero * 1e3, float(np.max(np.abs(seconds / (slope * n + zero) - 1)))


def plot(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for kind in ("cell", "stack"):
        axes.plot([r[1] for r in rows if r[0] == kind], [r[3] for r in rows if r[0] == kind], marker="o", label=kind)
    axes.set_xlabel("nodes")
    axes.set_ylabel("processor seconds")
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=lambda s: [int(x) for x in s.split(",")], default=[1000, 2000, 4000, 8000])
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--out")
    p.add_argument("--plot")
    p.add_argument("model", nargs="*")
    a = p.parse_args()
    a.braid = os.path.abspath(a.braid)
    with tempfile.TemporaryDirectory() as work:
        rows = table(a, work)
    print(f"{'graph':32} {'nodes':>6} {'s':>7} {'cpu s':>7} {'MB':>6}")
    for kind, n, s, cpu, mb in rows:
        print(f"{kind:32} {n:6} {s:7.2f} {cpu:7.2f} {mb:6.0f}")
    for kind in ("cell", "stack"):
        if len(a.nodes) > 1:
            print("%s: %.3f ms a node + %.0f ms, within %.0f %%" % (kind, *fit(rows, kind)[:2], 100 * fit(rows, kind)[2]))
    if a.out:
        with open(a.out, "w") as f:
            json.dump([dict(zip(("graph", "nodes", "seconds", "cpu_seconds", "megabytes"), r)) for r in rows], f, indent=1)
    if a.plot:
        plot(rows, a.plot)


if __name__ == "__main__":
    main()
