#!/usr/bin/env python3
"""Whether clang, too, finds nothing to warn of: clang_check.py BUILD

Reads each C file of BUILD/compile_commands.json as it is compiled there, with -Wall -Wextra -Werror, and makes nothing of
it. Exit status 1 when one fails.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def check(entry):
    words = shlex.split(entry["command"]) if "command" in entry else entry["arguments"]
    words = words[1:]
    keep = [w for w in words if w.startswith(("-D", "-I", "-W", "-std", "-isystem", "-f", "-m"))]
    done = subprocess.run(["clang", *keep, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", entry["file"]], cwd=entry["directory"], capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    with open(os.path.join(sys.argv[1], "compile_commands.json")) as f:
        entries = {e["file"]: e for e in json.load(f) if e["file"].endswith(".c")}
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, (code, text) in zip(entries, pool.map(check, entries.values())):
            if code:
                bad += 1
                print(f"FAIL {name}\n{text}")
    print(f"{len(entries)} files, {bad} failed")
    return bad > 0 or len(entries) < 100


sys.exit(main())
