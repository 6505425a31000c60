#!/usr/bin/env python3
"""One name for one thing.

    names.py

Two source files have one name only where they are the same thing for two families (cpu/, gpu/, plain/), or one is what
scheduler/kernel/ or scheduler/plan/ decides and the other what codegen/emit/ prints of it; two files of the compiler's
middle do not define a type of one name. Prints what is otherwise. Exit status 1 when there is a name
that is not in KNOWN_FILES or KNOWN_TYPES, or one of those is no longer there.
"""
import collections
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("base", "frontend", "utask", "stack", "scheduler", "codegen", "api", "cli")
SOURCES = (".c", ".h", ".def", ".inc", ".cc")
TYPES_OF = ("utask/", "scheduler/", "stack/", "codegen/emit/")

# What stands in several places today, and in how many. Nothing is added here, no number grows: both have to get empty.
KNOWN_FILES = {"driver.inc": 2, "entry.inc": 2}
KNOWN_TYPES = {}


def sources():
    for folder in FOLDERS:
        for d, _, files in os.walk(os.path.join(ROOT, folder)):
            yield from (os.path.relpath(os.path.join(d, f), ROOT) for f in files if f.endswith(SOURCES))


def family(path):
    """The path with its family left open; one path for what is decided and what is printed of it."""
    return re.sub(r"^(scheduler/kernel|scheduler/plan|codegen/emit(/\*)?)/", "plan/", re.sub(r"/(cpu|gpu|plain)/", "/*/", path))


def several(pairs):
    """{name: its places} of those that have more than one."""
    places = collections.defaultdict(set)
    for name, place in pairs:
        places[name].add(place)
    return {name: tuple(sorted(p)) for name, p in places.items() if len(p) > 1}


def types(path):
    with open(os.path.join(ROOT, path)) as f:
        return re.findall(r"^\s*typedef\s+(?:struct|enum|union)\s+(\w+)\s*\{", f.read(), re.M)


def check(what, table, found, known):
    for name in sorted({*found, *known}):
        places, n = found.get(name, ()), known.get(name, 0)
        if len(places) > n:
            yield f"{what} {name} stands in {' and '.join(places)}"
        elif len(places) < n:
            yield f"{what} {name} stands in fewer places than {table} of tests/names.py says: {' and '.join(places) or 'in one at most'}"


def main():
    paths = sorted(sources())
    files = several((os.path.basename(p), family(p)) for p in paths)
    defined = several((t, p) for p in paths if p.startswith(TYPES_OF) for t in types(p))
    bad = [*check("a file", "KNOWN_FILES", files, KNOWN_FILES), *check("a type", "KNOWN_TYPES", defined, KNOWN_TYPES)]
    print("\n".join(bad + [f"{len(paths)} files, {len(KNOWN_FILES) + len(KNOWN_TYPES)} names known to stand in several, {len(bad)} wrong"]))
    return bool(bad) or not paths


if __name__ == "__main__":
    sys.exit(main())
