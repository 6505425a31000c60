#!/usr/bin/env python3
"""Files that need each other are few and lie together.

    circles.py BUILD_DIR

A file needs another one when its object uses a symbol that the other's defines (nm of the library and the command in
BUILD_DIR). A circle is a set of files that all need each other, some through others. One within a folder may have
MOST files. Prints the others. Exit status 1 when a circle is larger than KNOWN says, or no longer as large.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 6
# Circles over several folders, or with more than MOST files: folders, and the files of the largest such circle today.
# Nothing is added here and no number grows: the table has to get empty.
KNOWN = {
    
    ("frontend",): 9,
    ("api",): 8,
}


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
    graph, largest, bad = needs(sys.argv[1]), {}, []
    for files in circles(graph):
        folders = tuple(sorted({os.path.dirname(f) for f in files}))
        if len(files) <= MOST and len(folders) == 1:
            continue
        if folders not in largest:
            largest[folders] = len(files)
        if len(files) > KNOWN.get(folders, 0):
            bad.append(f"{len(files)} files of {', '.join(folders)} need each other, {KNOWN.get(folders, 0)} are known: {' '.join(files)}")
    for folders, n in KNOWN.items():
        if largest.get(folders, 0) < n:
            bad.append(f"{largest.get(folders, 0)} files of {', '.join(folders)} need each other: KNOWN in tests/circles.py says {n}")
    print("\n".join(bad + [f"{len(graph)} files, {len(largest)} known circles of {sum(largest.values())}, {len(bad)} wrong"]))
    return bool(bad) or not graph


if __name__ == "__main__":
    sys.exit(main())
