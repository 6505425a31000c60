#!/usr/bin/env python3
"""How well the scheduler's estimates rank what groups take: against their counted paths on an emulated GPU.

    correlate.py [NAME...] [--target emulate:cuda] [--braid BRAID] [--schedule CHOICES] [--size=VALUE...] [--least R] [--all]

A NAME is a model of `models/` or a folder of one (model.onnx, test_data_set_0); without any, all small models. Each is
compiled, run once, and of every group on the path the estimate and the counted ns of its longest call are compared (both
by codegen/emulate/count.cc). Prints Spearman's rank correlation over the groups of all models, the ones that are
furthest off, and the median ratio. --all prints every group; options after -- go to `models` (`-- --length 4`).
Exit status 1 when the correlation is below --least.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import onnx

import counted

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


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


def groups_of(folder, args, work):
    """(function, estimate, counted ns, times, what it waits for) of each group on the path. Counted is the longest call by
    any block, as blocks that have no part of the group also call it, without what the caller has begun."""
    model = fixed(folder, os.path.join(work, os.path.basename(folder.rstrip("/")) + ".onnx"))
    launches = counted.launches_of(args.braid, model, os.path.join(folder, "test_data_set_0"), args.target, args.schedule, work)
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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--target", default="emulate:cuda")
    p.add_argument("--schedule")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--least", type=float, default=0.0)
    p.add_argument("--all", action="store_true")
    own = sys.argv[1:]
    sizes = own[own.index("--") + 1:] if "--" in own else []
    args = p.parse_args(own[:own.index("--")] if "--" in own else own)
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as work:
        folders = [x for x in args.names if os.path.isdir(x) and os.path.exists(os.path.join(x, "model.onnx"))]
        made = [x for x in args.names if x not in folders]
        if made or not args.names:
            which = made if made else ["--all"]
            small = sizes if sizes else ["--small"]
            subprocess.run([sys.executable, "-m", "models", *which, *small, "--out", os.path.join(work, "models")], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            folders += sorted(os.path.join(work, "models", x) for x in os.listdir(os.path.join(work, "models")))
        for folder in folders:
            name = os.path.basename(folder.rstrip("/"))
            try:
                rows += [(name, *x) for x in groups_of(folder, args, work)]
            except (subprocess.CalledProcessError, OSError) as e:
                print(f"{name}: {e}", flush=True)
                bad += 1
    if len(rows) < 3:
        sys.exit(f"only {len(rows)} groups: nothing to compare")
    r = spearman([x[2] for x in rows], [x[3] for x in rows])
    ratio = sorted(x[2] / x[3] for x in rows)
    far = sorted(rows, key=lambda x: -max(x[2] / x[3], x[3] / max(x[2], 1)))
    for name, function, estimate, ns, times, by in far if args.all else far[:10]:
        kinds = ", ".join(f"{k} {v:.0f}" for k, v in sorted(by.items(), key=lambda x: -x[1])[:5])
        print(f"{name:<20} {function:<28} x{times:<5.0f} estimate {estimate:>8.0f} counted {ns:>8.0f}: {kinds}")
    print(f"{args.target}: {len(rows)} groups of {len({x[0] for x in rows})} models: rank correlation {r:.3f}; "
          f"estimate / counted: median {ratio[len(ratio) // 2]:.2f}, least {ratio[0]:.2f}, most {ratio[-1]:.2f}")
    return bad > 0 or r < args.least


if __name__ == "__main__":
    sys.exit(main())
