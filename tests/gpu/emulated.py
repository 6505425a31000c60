#!/usr/bin/env python3
"""GPU programs on the emulator: each is compiled once for each target and run under three schedules of its threads.

    emulated.py PART... [--braid BRAID] [--jobs N] [--seed S] [--graphs N] [--folders N | --all] [--data DIR]

PART is one of
    models        the benchmark models in small, each on 1, 3 and 4 blocks under each schedule
    recursion     the models of recursion.py: trees, mutual recursion, with loops and branches; by turns on one target
    field         control flow that other systems got wrong (field_cases.py)
    silero        the voice detector with the loop over 20 chunks folded in, against ONNX Runtime
    graphs        random nested control flow (random_graphs.py), against ONNX Runtime and the interpreter
    conformance   ONNX backend tests, those that the interpreter passes: some that have every operator, or all

A program runs fair on some number of blocks, at random on another, and adversarially on a third one; which
numbers and which seeds differ from one program to the next. Prints a line for each failure, and what was run.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS + "/conformance", TESTS + "/random"]

TARGETS = ["emulate:cuda", "emulate:hip"]
SCHEDULES = ["fair", "random", "adversarial"]
UNITS = [1, 3, 4]
ADVERSARIES = 8  # kinds of adversarial schedules, by seed (codegen/emulate/README.md)
TURNS = len(UNITS) * ADVERSARIES
CHUNKS = 20


class Case:
    """A program: a folder with model.onnx and data sets, in which of the turns it is run, and on which targets."""

    def __init__(self, folder, turns, options=(), targets=TARGETS):
        self.folder, self.turns, self.options, self.targets = folder, turns, list(options), targets
        self.name = os.path.basename(folder)


def run_tests(args, target, folder, environment=None, options=()):
    """{folder's name: message} of those that failed or were skipped, by `braid test`."""
    done = subprocess.run([args.braid, "test", "--verbose", "--target", target, "--jobs", str(args.jobs), *options, folder],
                          env={**os.environ, **(environment or {})}, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if not lines or not re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", lines[-1]):
        sys.exit("no result of %s: %s%s" % (folder, done.stdout, done.stderr))
    bad = {}
    for line in lines[:-1]:
        where, message = line.split(" ", 1)[1].split(": ", 1)
        bad[os.path.basename(where)] = message
    return bad


def given_ranks(folder):
    """--input-shape for the inputs that declare no rank, with the rank of their data: a library has no room for all."""
    path = os.path.join(folder, "model.onnx")
    if os.path.islink(path):
        return []
    given, model = [], onnx.load(path)
    constant = {t.name for t in model.graph.initializer}
    for i, v in enumerate(v for v in model.graph.input if v.name not in constant):
        if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape"):
            rank = len(onnx.load_tensor(f"{folder}/test_data_set_0/input_{i}.pb").dims)
            given += ["--input-shape", f"{v.name}=[{','.join('?' * rank)}]"]
    return given


def build(args, target, case, work):
    """Compiles into a folder for `braid test`, one for each turn; returns what is wrong, or ""."""
    folders = ["%s/%d/%s" % (work, turn, case.name) for turn in case.turns]
    for folder in folders:
        os.makedirs(folder)
        for name in os.listdir(case.folder):
            if name.startswith("test_data_set_"):
                os.symlink(os.path.join(case.folder, name), os.path.join(folder, name))
    library = os.path.join(folders[0], "model.onnx")  # `braid test` takes what is in the file
    done = subprocess.run([args.braid, "compile", os.path.join(case.folder, "model.onnx"), "-o", library, "--target", target,
                           *given_ranks(case.folder), *case.options], capture_output=True, text=True)
    if done.returncode:
        for folder in folders:
            shutil.rmtree(folder)
        return "compile: " + done.stderr.strip()[-500:]
    for folder in folders[1:]:
        os.symlink(library, os.path.join(folder, "model.onnx"))
    return ""


def check(args, cases, tolerance):
    """Runs each on its targets; returns (programs, failures)."""
    failed = {}
    for target in TARGETS:
        mine = [case for case in cases if target in case.targets]
        with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for case, why in zip(mine, pool.map(lambda c: build(args, target, c, work), mine)):
                if why:
                    failed[case.name, target] = why
            for turn in sorted(int(name) for name in os.listdir(work) if os.listdir(os.path.join(work, name))):
                for k, schedule in enumerate(SCHEDULES):
                    units = UNITS[(turn + k) % len(UNITS)]
                    seed = args.seed + turn if schedule == "random" else turn % ADVERSARIES
                    how = "%s, %s %d, %d blocks" % (target, schedule, seed, units)
                    bad = run_tests(args, target, "%s/%d" % (work, turn),
                                    {"BRAID_EMULATE_SCHEDULE": schedule, "BRAID_EMULATE_SEED": str(seed)},
                                    ["--threads", str(units), "--max-iterations", "100000", *tolerance])
                    for name, message in bad.items():
                        failed.setdefault((name, target), "%s: %s" % (how, message))
    for (name, target), message in sorted(failed.items()):
        print("FAIL %s: %s" % (name, message if target in message else "%s: %s" % (target, message)), flush=True)
    return sum(len(case.targets) for case in cases), len(failed)


def all_in(folder):
    return [Case(os.path.join(folder, name), [i % TURNS]) for i, name in enumerate(sorted(os.listdir(folder)))]


def models(args, work):
    subprocess.run([sys.executable, "-m", "models", "--all", "--small", "--out", work], check=True,
                   cwd=os.path.dirname(TESTS))
    # Two turns, each with another number of blocks under each schedule.
    cases = [Case(os.path.join(work, name), [(i + j) % TURNS for j in (0, 7)]) for i, name in enumerate(sorted(os.listdir(work)))]
    return check(args, cases, [])


def recursion(args, work):
    import recursion as made
    for name, make in made.cases.items():
        graph, inputs, expected = make(np.random.default_rng(args.seed))
        made.write(os.path.join(work, name), graph.model(), inputs, expected)
    for i, name in enumerate(made.CELLS):
        b = made.build(name, True, batch=3, length=9, seed=args.seed + i)
        made.write(os.path.join(work, name), b.model, b.inputs, b.expected)
    cases = all_in(work)
    for i, case in enumerate(cases):
        case.targets = [TARGETS[(i + args.seed) % 2]]
    return check(args, cases, ["--rtol", "1e-4", "--atol", "1e-4"])


def field(args, work):
    import field_cases as made
    for part in (made.shapes, made.scoping, made.scans, made.recurrent, made.exporters, made.firsts, made.people):
        part()
    for name, model, sets in made.CASES:
        made.write(os.path.join(work, name), model, sets)
    return check(args, all_in(work), ["--rtol", "1e-4"])


def silero(args, work):
    import silero_check
    path, rate = silero_check.model_path("silero_vad.onnx"), 16000
    x = silero_check.audio.chunks(silero_check.audio.speech(rate, 2), rate)[-CHUNKS:]
    want, state = silero_check.reference(path, x, rate)
    names = [i.name for i in onnx.load(path).graph.input]
    feed = {"input": x, "state": np.zeros((2, x.shape[1], 128), np.float32), "sr": np.array(rate, np.int64)}
    folder = os.path.join(work, "silero")
    os.makedirs(folder + "/test_data_set_0")
    os.symlink(path, folder + "/model.onnx")
    for kind, values in (("input", [feed[n] for n in names]), ("output", [want, state])):
        for i, value in enumerate(values):
            with open("%s/test_data_set_0/%s_%d.pb" % (folder, kind, i), "wb") as f:
                f.write(numpy_helper.from_array(value).SerializeToString())
    return check(args, [Case(folder, [0], ["--scan", "input", "--carry", "state=stateN"])], [])


def graphs(args, work):
    import random_graphs
    tolerance = ["--rtol", "1e-3", "--atol", "1e-4"]
    seeds = range(args.seed, args.seed + args.graphs + args.graphs // 10 + 3)  # ONNX Runtime cannot run them all
    random_graphs.make_all(seeds, work, args.jobs)
    folders = [random_graphs.folder_of(work, seed, 1) for seed in seeds]
    folders = [folder for folder in folders if os.path.isdir(folder)]
    for folder in folders[args.graphs:]:
        shutil.rmtree(folder)
    bad = run_tests(args, "interp", work, options=["--max-iterations", "100000", *tolerance])
    for name, message in bad.items():
        print("FAIL %s: interp: %s" % (name, message))
    n, failed = check(args, [Case(folder, [i % TURNS]) for i, folder in enumerate(folders[:args.graphs])], tolerance)
    return n, failed + len(bad) + max(0, args.graphs - len(folders))


def operators(graph):
    """(domain, name) of all nodes."""
    for node in graph.node:
        yield node.domain or "ai.onnx", node.op_type
        for a in node.attribute:
            for g in [a.g, *a.graphs]:
                yield from operators(g)


def conformance(args, work):
    rows = subprocess.run([args.braid, "ops"], capture_output=True, text=True, check=True).stdout
    missing = {(row.split()[1], row.split()[0]) for row in rows.split("\n\n")[0].splitlines()[1:]}
    bad = run_tests(args, "interp", args.data)
    found = [where for where, _, files in sorted(os.walk(args.data)) if "model.onnx" in files]
    found = [where for where in found if os.path.basename(where) not in bad]
    chosen = []
    for where in found:
        used = set(operators(onnx.load(os.path.join(where, "model.onnx"), load_external_data=False).graph))
        if used & missing:
            chosen.append(where)
            missing -= used
    more = [where for where in found if where not in set(chosen)]
    left = max(0, args.folders - len(chosen))
    chosen = found if args.all else sorted(chosen + [more[i * len(more) // left] for i in range(left)])
    if len(chosen) < args.folders:
        sys.exit("%s has %d tests that the interpreter passes" % (args.data, len(chosen)))
    print("%d of %d folders; operators that none has: %s" % (len(chosen), len(found), " ".join(sorted(n for _, n in missing)) or "none"))
    return check(args, [Case(where, [i % TURNS]) for i, where in enumerate(chosen)], [])


PARTS = [models, recursion, field, silero, graphs, conformance]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="+", choices=[p.__name__ for p in PARTS])
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--folders", type=int, default=300)
    parser.add_argument("--all", action="store_true", help="all backend tests")
    parser.add_argument("--data", default=os.path.join(onnx.__path__[0], "backend/test/data"))
    args = parser.parse_args()
    args.braid = os.path.abspath(args.braid)
    os.environ["HIPIFY"] = "own"  # hipify_check.py compares it with the other
    passed = failed = 0
    for part in PARTS:
        if part.__name__ in args.part:
            with tempfile.TemporaryDirectory() as work:
                n, bad = part(args, work)
            print("%s: %d programs, each under %s" % (part.__name__, n, ", ".join(SCHEDULES)), flush=True)
            passed, failed = passed + n - bad, failed + bad
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
