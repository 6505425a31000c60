#!/usr/bin/env python3
"""Runs the tools of compute-sanitizer on small models, several at a time.

    sanitizer.py --braid BRAID --target T --models FOLDER --out WORK [--seconds N] [--jobs N]

Each folder of FOLDER has model.onnx, test_data_set_0, and in `inputs` the names of its inputs. Writes
WORK/sanitizer.json again after each run. The grids are small: the tools make kernels larger, and all
their blocks must still run at once.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

TOOLS = ("memcheck", "racecheck", "synccheck")
BLOCKS = 8
FOUND = 9  # the exit code that stands for errors
EACH = 40  # seconds for a run


def compiled(args, name):
    """The library of a model and the arguments to run it, or why there is no library."""
    folder, library = os.path.join(args.models, name), os.path.join(args.out, f"small.{name}.so")
    done = subprocess.run([args.braid, "compile", os.path.join(folder, "model.onnx"), "--target",
                           args.target, "-o", library], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    with open(os.path.join(folder, "inputs")) as f:
        inputs = f.read().split()
    files = [f"{n}={folder}/test_data_set_0/input_{i}.pb" for i, n in enumerate(inputs)]
    return [args.braid, "run", library, "--threads", str(BLOCKS),
            *(word for file in files for word in ("-i", file))], None


def run(args, name, tool, command, end):
    """Runs a tool: {"model", "tool", "seconds", "summary" or "failed"}."""
    begin = time.monotonic()
    result = {"model": name, "tool": tool}
    try:
        done = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND),
                               *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=max(1, min(EACH, end - begin)))
        print(f"---- {name}, {tool}\n{done.stdout[-20000:]}")
        summary = re.findall(r"^=+ (\w+ SUMMARY: .*)", done.stdout, re.MULTILINE)
        if done.returncode == 0 and summary:
            result["summary"] = summary[-1]
        else:
            lines = [s for s in done.stdout.splitlines() if s.strip(" =")]
            result["failed"] = summary[-1] if done.returncode == FOUND and summary else (
                f"ended with {done.returncode}: {' / '.join(lines[-3:])}")[:400]
    except subprocess.TimeoutExpired as e:
        result["failed"] = f"not done after {e.timeout:.0f} s"
    except OSError as e:
        result["failed"] = str(e)
    result["seconds"] = round(time.monotonic() - begin, 1)
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "braid", "target", "models", "out":
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--seconds", type=float, default=90, help="for everything")
    p.add_argument("--jobs", type=int, default=4)
    args = p.parse_args()
    end = time.monotonic() + args.seconds
    names, results = sorted(os.listdir(args.models)), []

    def note(result):
        results.append(result)
        print(result["model"], result["tool"], result.get("summary") or f"FAILED: {result['failed']}")
        with open(os.path.join(args.out, "sanitizer.json.part"), "w") as f:
            json.dump(results, f)
        os.replace(f.name, os.path.join(args.out, "sanitizer.json"))

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        commands = dict(zip(names, pool.map(lambda name: compiled(args, name), names)))
    for name, (command, why) in commands.items():
        if why:
            note({"model": name, "tool": "compile", "failed": why, "seconds": 0})
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, args, name, tool, command, end) for tool in TOOLS
                   for name, (command, why) in commands.items() if not why]
        for done in concurrent.futures.as_completed(waiting):
            note(done.result())
    failed = sum("failed" in r for r in results)
    print(f"{len(results) - failed} clean, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
