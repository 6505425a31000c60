#!/usr/bin/env python3
"""How well the scheduler's estimates rank what groups take: against their counted paths on an emulated GPU.

    correlate.py [NAME...] [--target emulate:cuda] [--braid BRAID] [--schedule CHOICES] [--wide] [--jobs N] [--seconds N]
                 [--least R] [--out FILE | --all] [-- OPTION...]

A NAME is a model of `models/` or a folder of one (model.onnx, test_data_set_0); without any, all models. They are small, or
of their full width and short with --wide (`short`, below), or as the options after -- say, which go to `models`. Each is
compiled, run once, for at most so many --seconds, and of every group on the path that had something to do the estimate and
the counted ns of its longest call are compared (both by codegen/emulate/count.cc); --jobs models at once, 1. Prints Spearman's rank correlation over the groups of all
models, the median ratio, and the groups that are furthest off: every group with --all, and into FILE with --out.
Exit status 1 when the correlation is below --least, or a model fails.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

import onnx

import counted

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)
from models import cases, options

ABOUT = """Groups on the path of one run: ns by the scheduler's estimate, and as counted by published latencies (eval/gpu/README.md),
never measured, with what a call waits for on the path. Those that are furthest off come first."""

LEAST = 3  # groups to compare


def ranks(values):
    """Ranks from 1 on; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    rank, i = [0.0] * len(values), 0
    while i < len(order):
        k = i
        while k + 1 < len(order) and values[order[k + 1]] == values[order[i]]:
            k += 1
        for j in order[i:k + 1]:
            rank[j] = (i + k) / 2 + 1
        i = k + 1
    return rank


def spearman(a, b):
    x, y = ranks(a), ranks(b)
    mean = (len(x) + 1) / 2
    both = sum((p - mean) * (q - mean) for p, q in zip(x, y))
    own = sum((p - mean) ** 2 for p in x) * sum((q - mean) ** 2 for q in y)
    return both / own ** 0.5 if own else 0.0


def fixed(folder, path):
    """The model with the sizes of the inputs that it is run on, as the scheduler takes one for any that it does not know."""
    model = onnx.load(os.path.join(folder, "model.onnx"))
    sizes = {}
    for i, x in enumerate(model.graph.input):
        data = os.path.join(folder, "test_data_set_0", f"input_{i}.pb")
        if not x.type.HasField("tensor_type") or not os.path.exists(data):
            continue
        value = onnx.TensorProto()
        with open(data, "rb") as f:
            value.ParseFromString(f.read())
        for d, n in zip(x.type.tensor_type.shape.dim, value.dims):
            if d.dim_param:
                sizes[d.dim_param] = n
            d.dim_value = n
    for x in model.graph.output:
        for d in x.type.tensor_type.shape.dim if x.type.HasField("tensor_type") else []:
            if d.dim_param in sizes:
                d.dim_value = sizes[d.dim_param]
    onnx.save(model, path)
    return path


def short(name):
    """Options that make a model short, as wide as it is."""
    own = options(name)
    if "graph" in own:
        return ["--length", "9", "--rows", "3", "--columns", "3"]
    most = {"length": 7 if "tree" in own or "program" in own else 4, "layers": 3, "size": 64}
    return [x for k, n in most.items() if k in own for x in (f"--{k}", str(min(n, own[k])))]


def make(names, args, sizes, out):
    """Writes models into a folder for each."""
    command = [sys.executable, "-m", "models"]
    for one in [[x] for x in names or cases()] if args.wide else [names or ["--all"]]:
        how = short(one[0]) if args.wide else sizes or ["--small"]
        subprocess.run([*command, *one, *how, "--out", out], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def groups_of(folder, args, work):
    """(function, estimate, counted ns, times, what it waits for) of each group on the path. Counted is the longest call by
    any block, as blocks that have no part of the group also call it, without what the caller has begun."""
    work = os.path.join(work, "run-" + os.path.basename(folder.rstrip("/")))
    os.makedirs(work)
    model = fixed(folder, os.path.join(work, "model.onnx"))
    launches = counted.launches_of(args.braid, model, os.path.join(folder, "test_data_set_0"), args.target, args.schedule, work, args.seconds)
    found = {}
    for launch in launches:
        for x in launch["functions"]:
            if "estimate" not in x or x["times"] < 1:
                continue
            row = found.setdefault(x["name"], [x["name"], x["estimate"], 0, 0, {}])
            row[2] = max(row[2], x["longest"])
            row[3] += x["times"]
            for kind, ns in x["by"].items():
                row[4][kind] = row[4].get(kind, 0) + ns
    return [(n, e, ns, times, {k: v / times for k, v in by.items()}) for n, e, ns, times, by in found.values()]


def report(rows, args):
    """The correlation, a line about all groups, and a line for each, the one that is furthest off first."""
    r = spearman([x[2] for x in rows], [x[3] for x in rows])
    ratio = sorted(x[2] / x[3] for x in rows)
    lines = []
    for name, function, estimate, ns, times, by in sorted(rows, key=lambda x: -max(x[2] / x[3], x[3] / max(x[2], 1))):
        kinds = ", ".join(f"{k} {v:.0f}" for k, v in sorted(by.items(), key=lambda x: -x[1])[:5])
        lines.append(f"{name:<20} {function:<28} x{times:<5.0f} estimate {estimate:>8.0f} counted {ns:>8.0f}: {kinds}")
    summary = (f"{args.target}: {len(rows)} groups of {len({x[0] for x in rows})} models: rank correlation {r:.3f}; "
               f"estimate / counted: median {ratio[len(ratio) // 2]:.2f}, least {ratio[0]:.2f}, most {ratio[-1]:.2f}")
    return r, summary, lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--target", default="emulate:cuda")
    p.add_argument("--schedule")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--least", type=float, default=0.0)
    p.add_argument("--all", action="store_true")
    p.add_argument("--wide", action="store_true")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=int)
    p.add_argument("--out")
    own = sys.argv[1:]
    sizes = own[own.index("--") + 1:] if "--" in own else []
    args = p.parse_args(own[:own.index("--")] if "--" in own else own)
    rows, bad = [], []
    with tempfile.TemporaryDirectory() as work:
        folders = [x for x in args.names if os.path.isdir(x) and os.path.exists(os.path.join(x, "model.onnx"))]
        made = [x for x in args.names if x not in folders]
        if made or not args.names:
            make(made, args, sizes, os.path.join(work, "models"))
            folders += sorted(os.path.join(work, "models", x) for x in os.listdir(os.path.join(work, "models")))
        folders.sort(key=lambda x: os.path.getsize(os.path.join(x, "model.onnx")))  # the quick ones first
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            running = {pool.submit(groups_of, x, args, work): os.path.basename(x.rstrip("/")) for x in folders}
            for done in concurrent.futures.as_completed(running):
                name = running[done]
                try:
                    rows += [(name, *x) for x in done.result()]
                except (subprocess.SubprocessError, OSError) as e:
                    bad.append(f"{name}: not counted: {'it takes longer' if isinstance(e, subprocess.TimeoutExpired) else e}")
                    print(bad[-1], flush=True)
                if args.out and len(rows) >= LEAST:
                    _, summary, lines = report(rows, args)
                    with open(args.out, "w") as f:
                        f.write("\n".join([" ".join(["eval/gpu/correlate.py", *own]), "", ABOUT, "", summary, *bad, "", *lines]) + "\n")
    if len(rows) < LEAST:
        sys.exit(f"only {len(rows)} groups: nothing to compare")
    r, summary, lines = report(rows, args)
    print("\n".join([*(lines if args.all else lines[:10]), summary]))
    return len(bad) > 0 or r < args.least


if __name__ == "__main__":
    sys.exit(main())
