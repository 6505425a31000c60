#!/usr/bin/env python3
"""The counted critical path of models at full width on emulated GPUs (codegen/emulate/count.cc), batch 1.

    counted.py [NAME...] [--target emulate:sm_90,emulate:gfx90a] [--schedule CHOICES] [--braid BRAID] [--out FILE.json] [--top N]

A long model is counted at two lengths and extended linearly to its own. For each: what is asked of it on an H100, for
each target microseconds, and of a step, and the functions of the longest one that take most on the first. Nothing here
is measured: the constants and what they are based on are in count.cc. Exit status 1 when a count fails.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# name: the option that is its length, two lengths that are counted, its own; us asked of emulate:sm_90
MODELS = {
    "treelstm": ("length", None, 37, 37, 45),
    "mamba": ("length", 32, 96, 1000, 80),
    "seq2seq": ("length", 2, 4, 10, 80),
    "blockdrop": (None, None, None, None, 70),
    "attention": ("length", 8, 16, 64, 150),
    "lstm_operator": ("length", 8, 16, 64, 200),
    "rnnt": ("length", 2, 4, 100, 1000),
    "nasrnn": ("length", 4, 8, 1000, 1500),
}


def launches_of(braid, model, data, target, schedule, work, seconds=None):
    """What the emulator counted in one run of the model on the inputs in the folder `data`, which may take so long: a dict
    for each launch."""
    library, counts = os.path.join(work, "counted.so"), os.path.join(work, "counted.json")
    if os.path.exists(counts):
        os.remove(counts)
    how = ["--schedule", schedule] if schedule else []
    subprocess.run([braid, "compile", model, "--target", target, *how, "-o", library], check=True)
    said = subprocess.run([braid, "explain", model, "--json"], capture_output=True, text=True, check=True).stdout
    inputs = []
    for i, x in enumerate(json.loads(said)["inputs"]):
        inputs += ["-i", f"{x['name']}={os.path.join(data, f'input_{i}.pb')}"]
    env = dict(os.environ, BRAID_EMULATE_COUNT=counts, BRAID_EMULATE_CHECKS="off")
    subprocess.run([braid, "run", library, *inputs], env=env, check=True, stdout=subprocess.DEVNULL, timeout=seconds)
    with open(counts) as f:
        return [json.loads(line) for line in f]


def count(name, option, length, target, args, work):
    folder = os.path.join(work, f"{name}{length}")
    sizes = [f"--{option}", str(length)] if option else []
    subprocess.run([sys.executable, "-m", "models", name, *sizes, "--out", folder], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    folder = os.path.join(folder, name)
    launches = launches_of(args.braid, os.path.join(folder, "model.onnx"), os.path.join(folder, "test_data_set_0"), target, args.schedule, work)
    return sum(x["ns"] for x in launches) / 1e3, launches


def top_of(launches, n):
    sums = {}
    for launch in launches:
        for f in launch["functions"]:
            s = sums.setdefault(f["name"], [0, 0])
            s[0] += f["ns"] / 1e3
            s[1] += f["times"]
    order = sorted(sums.items(), key=lambda x: -x[1][0])
    return "; ".join(f"{name} {us:.1f} in {times:.0f}" for name, (us, times) in order[:n])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*")
    p.add_argument("--target", default="emulate:sm_90,emulate:gfx90a")
    p.add_argument("--schedule")
    p.add_argument("--braid", default=os.path.join(ROOT, "build/release/braid"))
    p.add_argument("--out")
    p.add_argument("--top", type=int, default=4)
    args = p.parse_args()
    bad, rows, targets = 0, {}, args.target.split(",")
    columns = " ".join(f"{t.partition(':')[2] + ' us':>10} {'a step':>7}" for t in targets)
    print(f"{'model':<14} {'asked':>6} {columns}  longest functions, us in times ({targets[0]})", flush=True)
    with tempfile.TemporaryDirectory() as work:
        for name in args.names or MODELS:
            option, short, long, own, asked = MODELS[name]
            line, found = f"{name:<14} {asked:>6}", {}
            for target in targets:
                try:
                    us, launches = count(name, option, long, target, args, work)
                    step = (us - count(name, option, short, target, args, work)[0]) / (long - short) if short else None
                except subprocess.CalledProcessError as e:
                    line += f" {target}: {e}"
                    bad += 1
                    continue
                whole = us + step * (own - long) if step else us
                line += f" {whole:>10.1f} {f'{step:.2f}' if step else '-':>7}"
                found[target] = {"us": whole, "step_us": step, "launches": launches}
            first = found.pop(targets[0], None)
            print(f"{line}  {top_of(first['launches'], args.top) if first else ''}", flush=True)
            if first:
                rows[name] = {**first, "asked_us": asked, "length": long, "beside": found}
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"target": targets[0], "models": rows}, f, indent=1)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
