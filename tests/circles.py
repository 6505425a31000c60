#!/usr/bin/env python3
"""Files that need each other are few and lie together.

    circles.py BUILD_DIR

A file needs another one when its object uses a symbol that the other's defines (nm of the library and the command in
BUILD_DIR). A circle is a set of files that all need each other, some through others. It lies in one folder, and has at
most MOST files. Prints the others. Exit status 1 when there are any.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 6


def needs(build):
    """{file: files that it needs}"""
    defines, uses = {}, {}
    for target in ("braid_core", "braid"):
        top = os.path.join(build, "CMakeFiles", target + ".dir")
        for d, _, files in os.walk(top):
            for f in files:
                path = os.path.join(d, f)
                name = os.path.relpath(path, top)[:-len(".o")]
                if os.path.exists(os.path.join(ROOT, name)):  # else generated, or left by an earlier build
                    uses[name] = set()
                    for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
                        *_, kind, symbol = line.split()
                        if kind == "U":
                            uses[name].add(symbol)
                        elif kind in "TDRBVW":
                            defines[symbol] = name
    return {name: {defines[s] for s in used if s in defines} - {name} for name, used in uses.items()}


def reached(graph, begin):
    seen, todo = set(), [begin]
    while todo:
        for x in graph[todo.pop()] - seen:
            seen.add(x)
            todo.append(x)
    return seen


def circles(graph):
    """Each as the sorted names of its files; largest first."""
    reach = {x: reached(graph, x) for x in graph}
    found = {tuple(sorted(y for y in reach[x] if x in reach[y])) for x in graph if x in reach[x]}
    return sorted(found, key=lambda c: (-len(c), c))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    graph = needs(sys.argv[1])
    found = circles(graph)
    bad = [c for c in found if len(c) > MOST or len({os.path.dirname(f) for f in c}) > 1]
    for c in bad:
        print(f"{len(c)} files need each other: {' '.join(c)}")
    print(f"{len(graph)} files, {len(found)} circles of {sum(map(len, found))}, {len(bad)} wrong")
    return bool(bad) or not graph


if __name__ == "__main__":
    sys.exit(main())
