#!/usr/bin/env python3
"""How the scheduler's choices change from published to measured costs. Needs no GPU.

    choices.py --braid BRAID --costs MACHINE.json --data FOLDER [--out FILE.json] [--jobs N]

MACHINE.json comes from machine.cu or `braid device TARGET --json`, and names the target. Prints the
expected times and the choices that differ, for each model.onnx below FOLDER.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

SHOWN = 6  # choices of a model


def schedule(args, model, costs):
    """The expected ns and {(construct, transformation): choice}."""
    done = subprocess.run([args.braid, "explain", model, "--target", args.target, "--costs", costs,
                           "--json"], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    found = json.loads(done.stdout)["schedule"]
    return found["estimate_ns"], {
        (d.get("transformation") or d["parameter"], d["path"], d["key"]): d["value"]
        for d in found["decisions"]}


def compare(args, model):
    name = os.path.relpath(os.path.dirname(model), args.data)
    try:
        before, published = schedule(args, model, "published")
        after, measured = schedule(args, model, args.costs)
    except (ValueError, KeyError) as e:
        return {"model": name, "failed": str(e)}
    changed = [{"choice": k[0], "path": k[1], "published": published[k], "measured": measured[k]}
               for k in published.keys() & measured.keys() if published[k] != measured[k]]
    # Which choices there are may depend on earlier choices.
    return {"model": name, "published_ns": before, "measured_ns": after, "choices": len(published),
            "only_published": len(published.keys() - measured.keys()),
            "only_measured": len(measured.keys() - published.keys()),
            "changed": sorted(changed, key=lambda c: (c["choice"], c["path"]))}


def show(r):
    if "failed" in r:
        return f"{r['model']}: {r['failed']}"
    lines = [f"{r['model']}: {r['published_ns'] / 1000:.1f} us by published costs, "
             f"{r['measured_ns'] / 1000:.1f} us by measured ones; "
             f"{len(r['changed'])} of {r['choices']} choices differ"]
    lines += [f"    {c['choice']} {c['path']}: {c['published']} -> {c['measured']}"
              for c in r["changed"][:SHOWN]]
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "braid", "costs", "data":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--out")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    args = p.parse_args()
    with open(args.costs) as f:
        args.target = json.load(f)["target"]
    models = sorted(os.path.join(at, "model.onnx") for at, _, files in os.walk(args.data)
                    if "model.onnx" in files)
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for r in pool.map(lambda model: compare(args, model), models):
            results.append(r)
            print(show(r), flush=True)
            if args.out:
                with open(args.out + ".part", "w") as f:
                    json.dump(results, f)
                os.replace(f.name, args.out)
    differ = sum(bool(r.get("changed")) for r in results)
    failed = sum("failed" in r for r in results)
    print(f"{len(results)} models, {differ} with other choices, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
