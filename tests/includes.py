#!/usr/bin/env python3
"""Includes go one way, from a layer to those below it.

    includes.py

Looks at every `#include "…"` of the sources. RANKS orders the layers; a file may include its own layer and those of
lower ranks, and of its own rank what SIDEWAYS says. Prints the includes that go another way. Exit status 1 when there
is one that KNOWN does not have, or KNOWN has one that is gone.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("base", "frontend", "utask", "stack", "scheduler", "codegen", "api", "cli")
SOURCES = (".c", ".h", ".def", ".inc", ".cc")

# codegen/text travels with a model: it includes nothing else of ours, and all may include it.
RANKS = [
    ("codegen/text", "include"),
    ("base",),
    ("frontend",),
    ("utask",),
    ("scheduler/cost",),
    ("scheduler/passes.h",),
    ("scheduler/kernel", "scheduler/plan", "scheduler/transform", "stack"),
    ("codegen",),  # the files in the folder itself
    ("codegen/build", "codegen/emit", "codegen/emulate"),
    ("api",),
    ("cli",),
]
RANK = {layer: i for i, layers in enumerate(RANKS) for layer in layers}
SIDEWAYS = {
    ("codegen/text", "include"),  # the example beside a library as C files
    ("scheduler/plan", "scheduler/kernel"),
    ("scheduler/transform", "scheduler/plan"),
    ("scheduler/transform", "scheduler/kernel"),
}
GENERATED = {"onnx.pb-c.h": "frontend"}

# Includes that go up today. Nothing is added here: the list has to get empty.
KNOWN = set()


def layer(path):
    """The longest layer that the path lies in, or None."""
    return max((x for x in RANK if path == x or path.startswith(x + "/")), key=len, default=None)


def found(path, name):
    """The included file, from the project's folder: beside the file that includes it, in the project, or public."""
    if name in GENERATED:
        return f"{GENERATED[name]}/{name}"
    for place in (os.path.join(os.path.dirname(path), name), name, os.path.join("include", name)):
        if os.path.exists(os.path.join(ROOT, place)):
            return os.path.normpath(place)
    return None


def includes():
    for folder in FOLDERS:
        for d, _, files in sorted(os.walk(os.path.join(ROOT, folder))):
            for f in sorted(files):
                if f.endswith(SOURCES):
                    path = os.path.relpath(os.path.join(d, f), ROOT)
                    with open(os.path.join(ROOT, path)) as text:
                        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text.read(), re.M):
                            yield path, name


def goes_down(a, b):
    return a == b or RANK[b] < RANK[a] or (a, b) in SIDEWAYS


def main():
    bad, up, n = [], set(), 0
    for path, name in includes():
        n += 1
        to = found(path, name)
        if to is None:
            bad.append(f"{path} includes {name}, which is not there")
        elif None in (layer(path), layer(to)):
            bad.append(f"{path} includes {to}: RANKS of tests/includes.py has no layer for {path if layer(path) is None else to}")
        elif not goes_down(layer(path), layer(to)):
            up.add((path, to))
    bad += [f"{path} includes {to}: {layer(path)} may not include {layer(to)}" for path, to in sorted(up - KNOWN)]
    bad += [f"{path} no longer includes {to}: take it out of KNOWN in tests/includes.py" for path, to in sorted(KNOWN - up)]
    print("\n".join(bad + [f"{n} includes, {len(up & KNOWN)} known ones go up, {len(bad)} wrong"]))
    return bool(bad) or not n


if __name__ == "__main__":
    sys.exit(main())
