#!/usr/bin/env python3
"""Plants faults in the texts of GPU programs, which the emulator has to report; without them it reports nothing.

    planted.py [--braid BRAID]

The faults are in the dialect (codegen/text/gpu/prelude.inc, dots.inc). Two runs of a session follow each
other, so that what one leaves behind meets the other.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# a model, and how it is compiled
CLUSTERS = "earlyexit_3", "--target", "emulate:cuda", "--threads", "4", "--schedule", "cluster=on,grid=on,team=on,core=off"
GRID = "lstm_operator", "--target", "emulate:cuda", "--threads", "4"
NARROW = "lstm_operator", "--target", "emulate:hip", "--threads", "3"

# Pieces of the text, and what stands there instead.
KEEPS = "own->k.words[BK_WORDS(gridDim.x) + blockIdx.x] = own->turn;"
LEAVES = "void bk_cluster_end(void) { bk_cluster_meet(); }", "void bk_cluster_end(void) {}"
LATE = "void bk_end(void) {\n", ("void bk_end(void) {\n    if (BK_LOOK(int, (int *)__cluster_map_shared_rank(bk_owned()->heard, 1)) "
                                "== 99) return;\n")
FORGETS = KEEPS, ";"
FIRST = KEEPS, "if (blockIdx.x == 0) own->k.words[BK_WORDS(gridDim.x)] = own->turn;"
EARLY = "    bk_fence();\n    BK_LOOK(unsigned, &k->words[unit]) =", "    BK_LOOK(unsigned, &k->words[unit]) ="
COPY = "emu_copy_async((to), (there) ? (from) : NULL, bytes)"
TWICE = COPY, f"({COPY}, {COPY})"
CLEARS = COPY, f"({COPY}, (void)memset((to), 0, bytes))"
UNASKED = "bk_copied(void) { emu_copied(); }", "bk_copied(void) {}"

# what it is; the program; what changes; what is reported, "" nothing
FAULTS = [
    ("nothing", CLUSTERS, (), ""),
    ("nothing", GRID, (), ""),
    ("nothing", NARROW, (), ""),
    ("a block looks at another of its cluster, which waits", CLUSTERS, (LATE,), ""),
    ("a block looks at another of its cluster, which may have ended", CLUSTERS, (LATE, LEAVES),
     "which nothing keeps from ending before"),
    ("a block forgets the turns that it took", GRID, (FORGETS,), ": race: "),
    ("a block forgets the turns that it took", NARROW, (FORGETS,), ": race: "),
    ("only block 0 keeps its turns", GRID, (FIRST,), ": race: "),
    ("two copies are begun to the same place", GRID, (TWICE,), "is on its way"),
    ("a place is cleared while a copy to it is on its way", GRID, (CLEARS,), "is on its way"),
    ("nobody waits for a copy", GRID, (UNASKED,), "which no thread has written"),
    ("a turn is posted before what it tells", GRID, (EARLY,), ": race: "),
]


def compiler(argv):
    """Stands in for the C++ compiler: plants the fault."""
    for path in (a for a in argv if a.endswith(".cu")):
        with open(path) as f:
            text = f.read()
        for old, new in json.loads(os.environ["PLANTED"]):
            if text.count(old) != 1:
                print(f"planted.py: {text.count(old)} places in the text for: {old}", file=sys.stderr)
                return 1
            text = text.replace(old, new)
        with open(path, "w") as f:
            f.write(text)
    return subprocess.call(["c++", *argv])


def test(args, work, program, changes):
    """What `braid test` prints and its exit code."""
    name, *options = program
    env = dict(os.environ, BRAID_EMULATE_SCHEDULE="random", CXX=os.path.join(work, "c++"), PLANTED=json.dumps(changes))
    done = subprocess.run([args.braid, "test", *options, os.path.join(work, name)], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.stdout, done.returncode


def main():
    if sys.argv[1:2] == ["--compiler"]:
        return compiler(sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/release/braid")
    args = p.parse_args()
    args.braid = os.path.abspath(args.braid)
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "models", CLUSTERS[0], GRID[0], "--small", "--out", work], cwd=ROOT,
                       check=True, stdout=subprocess.DEVNULL)
        for name in CLUSTERS[0], GRID[0]:
            data = os.path.join(work, name, "test_data_set_0")
            shutil.copytree(data, data[:-1] + "1")
        wrapper = os.path.join(work, "c++")
        with open(wrapper, "w") as f:
            f.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' --compiler \"$@\"\n")
        os.chmod(wrapper, 0o755)
        for what, program, changes, report in FAULTS:
            said, code = test(args, work, program, changes)
            if bool(code) != bool(report) or report not in said:
                print(f"FAIL: {what}: expected {repr(report) if report else 'no report'}, got: {said}")
                bad += 1
    print(f"{len(FAULTS)} programs, {bad} failed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
