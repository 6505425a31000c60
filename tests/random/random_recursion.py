#!/usr/bin/env python3
"""Random recursive functions against numpy and the interpreter: trees, DAGs, forests, grids; calls in branches and loops.

    random_recursion.py [--count N] [--seed S] [--jobs N] [--braid PATH] [--every] [--keep DIR] [--verbose]

Member number i is made from seed S + i alone (recursive_model.py), so a failure is repeated by --count 1 and that seed.
Each is run by the interpreter and as some of what it can be compiled to: threads, the linearizer forced on and forced off,
with the other transformations of recursion on or off, emulated GPUs; --every: all numbers of threads and both GPUs, on and
off. Those of which the plain recursion would visit too many nodes run with the linearizer only. Some are run with
structures that are wrong, too: then every way has to say the same, and leave no output. Most are compiled without
optimization, which costs a third.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, TESTS + "/.."]
import backend_test  # noqa: E402
from recursive_model import Member  # noqa: E402

TOLERANCE = ["--rtol", "1e-3", "--atol", "1e-4"]
TOGETHER = 12    # members in one run of `braid test`
THREADS, BLOCKS = (1, 2, 4), (1, 3, 4)
OTHERS = ("batch", "unroll-recursion", "replicate")
WRONG = 5    # one member of so many is also run with what is wrong

Way = collections.namedtuple("Way", "target options quick")


def way(target, units, settings, quick):
    text = ",".join(f"{name}={value}" for name, value in settings.items())
    return Way(target, ("--threads", str(units), "--schedule", text), quick)


def ways(args, i, member, chosen):
    """How member number i is run; chosen: the linearizer takes it."""
    def others(turn):
        return {name: "on" if turn >> k & 1 else "off" for k, name in enumerate(OTHERS)}
    some = [Way("interp", (), False)] if member.plain else []
    plans = [("cpu", THREADS[i % 3], "on"), ("cpu", THREADS[(i + 1) % 3], "off"),
             (("emulate:cuda", "emulate:hip")[i % 2], BLOCKS[i // 2 % 3], "on" if i % 3 else "off")]
    if args.every:
        plans = [("cpu", n, how) for n in THREADS for how in ("on", "off")] + \
                [(f"emulate:{t}", BLOCKS[(i + k) % 3], how) for t in ("cuda", "hip") for k, how in enumerate(("on", "off"))]
    for k, (target, units, how) in enumerate(plans):
        if member.plain or how == "on" and chosen:
            some.append(way(target, units, {"linearize": how, **others(i // 3 + 3 * k)}, target == "cpu" and i % 4 > 0))
    return some


def braid(args, *options, quick=False, **more):
    env = {**os.environ, "CC": args.quick} if quick else None
    done = subprocess.run([args.braid, *options], capture_output=True, text=True, errors="backslashreplace", env=env, **more)
    return done.returncode, done.stdout, done.stderr


def test(args, how, folders):
    """[(folder, message)] of those that fail, by one run of `braid test`."""
    _, out, err = braid(args, "test", "--target", how.target, *how.options, "--jobs", "1", "--verbose", *TOLERANCE, *folders,
                        quick=how.quick)
    lines = out.splitlines()
    if not lines or sum(int(n.split()[0]) for n in lines[-1].split(", ") if n.split()[0].isdigit()) != len(folders):
        return [(f, "no result: " + (out + err)[-500:]) for f in folders]
    return [tuple(line.split(" ", 1)[1].split(": ", 1)) for line in lines[:-1] if line.startswith(("FAIL ", "SKIP "))]


def choice(args, folder, member):
    """(whether the linearizer takes it when it is forced on, what is wrong with that or "", why it does not)"""
    code, out, err = braid(args, "explain", "--schedule", "linearize=on", folder + "/model.onnx")
    takes = "chosen linearize" in out
    if code:
        return False, "explain: " + err.strip(), ""
    whys = [line.rsplit(": ", 1)[1] for line in out.splitlines() if "cannot be numbered ahead" in line]
    wrong = takes and member.why and not whys and member.nodes > 2    # constant arguments may leave a leaf alone
    return takes, "is linearized, although " + member.why[0] if wrong else "", whys[0] if whys else "no word"


# ---- what is wrong
def run(args, how, model, inputs, options, work):
    """(exit code, message, files left) of `braid run`, in a folder of its own."""
    os.makedirs(work + "/out")
    given = []
    for name, value in inputs.items():
        np.save(f"{work}/{name}.npy", value)
        given += ["-i", f"{name}={name}.npy"]
    target = ["--target", "interp"] if how.target == "interp" else how.options[:2]
    code, _, err = braid(args, "run", model, *given, *target, "-o", "out", *options, cwd=work)
    left = os.listdir(work + "/out")
    shutil.rmtree(work)
    said = re.sub(r"more than \d+;", "more than N;", err.strip().removeprefix(f"braid: {model}: "))    # of endless ones each way has a limit
    return code, said, left


def all_say(args, member, number, folder, work):
    """Runs a member with what is wrong with it in several ways; [message]"""
    wrong = member.wrong()
    if not wrong:
        return 0, []
    plain = {"batch": "off", "unroll-recursion": "off"}
    hows = [way("cpu", 1, {"linearize": "off", **plain}, True), Way("interp", (), False),
            way("cpu", 1 + number // 2 % 2, {"linearize": "on", **plain}, True),
            way(("emulate:cuda", "emulate:hip")[number % 2], 1, {"linearize": "on" if number % 3 else "off", **plain}, False)]
    bad, said = [], {}
    for k, how in enumerate(hows):
        model = os.path.abspath(folder + "/model.onnx")
        if how.target != "interp":
            library = f"{work}/{k}.so"
            code, _, err = braid(args, "compile", model, "--target", how.target, *how.options, "-o", library, quick=how.quick)
            if code:
                return len(wrong), [f"{' '.join(how.options)}: {err.strip()}"]
            model = library
        for name, inputs, options, part in wrong:
            code, text, left = run(args, how, model, inputs, options, f"{work}/{k}_{name}")
            where = f"{name}: {how.target} {' '.join(how.options)}"
            if part is None:    # is right
                if code:
                    bad.append(f"{where}: exit {code}: {text}")
                continue
            if code != 1 or part not in text or left:
                bad.append(f"{where}: exit {code}, outputs {left}: {text}")
            if said.setdefault(name, text) != text:
                bad.append(f"{where} says\n    {text}\nand not\n    {said[name]}")
    return len(wrong), bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--braid", default="build/release/braid")
    p.add_argument("--every", action="store_true")
    p.add_argument("--keep", metavar="DIR", help="where members that fail are left")
    p.add_argument("--verbose", action="store_true", help="also say what the members have")
    args = p.parse_args()
    args.braid = os.path.abspath(args.braid)
    sys.setrecursionlimit(50000)
    could, can, reasons = 0, 0, collections.Counter()
    failed, runs, wrong, tags, groups = {}, 0, 0, collections.Counter(), collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        args.quick = work + "/cc"
        with open(args.quick, "w") as f:
            f.write('#!/bin/sh\nexec %s "$@" -O0\n' % os.environ.get("CC", "cc"))
        os.chmod(args.quick, 0o755)
        folders, tasks, members = {}, [], []
        for i in range(args.count):
            m = Member(args.seed + i)
            folders[m.seed] = f"{work}/{m.seed}"
            backend_test.write(folders[m.seed], m.model, m.inputs.values(), m.expected)
            tags.update(set(m.tags + m.why) | (set() if m.plain else {"many visits"}))
            takes, why, reason = choice(args, folders[m.seed], m)
            could, can, reasons[reason] = could + (not m.why), can + takes, reasons[reason] + (not takes and not m.why)
            if why:
                failed[m.seed] = [why]
            for how in ways(args, i, m, takes):
                groups[how].append(folders[m.seed])
                runs += 1
            if i % WRONG == 0:
                members.append((m.seed, pool.submit(all_say, args, m, i, folders[m.seed], tempfile.mkdtemp(dir=work))))
        for how, some in groups.items():
            for k in range(0, len(some), TOGETHER):
                tasks.append((how, pool.submit(test, args, how, some[k:k + TOGETHER])))
        for how, task in tasks:
            for folder, why in task.result():
                failed.setdefault(int(os.path.basename(folder)), []).append(f"{how.target} {' '.join(how.options)}: {why}")
        for seed, task in members:
            n, bad = task.result()
            wrong += n
            if bad:
                failed.setdefault(seed, []).extend(bad)
        for seed, why in sorted(failed.items()):
            for line in why:
                print(f"FAIL seed {seed}: {line}")
            if args.keep:
                shutil.copytree(folders[seed], f"{args.keep}/{seed}", dirs_exist_ok=True)
    if args.verbose:
        print(", ".join(f"{name}: {n}" for name, n in sorted(tags.items())))
        for reason, n in reasons.most_common():
            print(f"{n} not linearized: {reason}")
    print(f"{args.count} members, {len(tags)} kinds of things in them; {can} linearized of {could} that could be; "
          f"{runs} runs, {wrong} with something wrong, {len(failed)} failed")
    return 1 if failed or not can or not wrong else 0


if __name__ == "__main__":
    sys.exit(main())
