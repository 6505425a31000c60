#!/usr/bin/env python3
"""Plants faults in the texts of GPU programs, which the emulator has to report; without them it reports nothing.

    planted.py [--braid BRAID]

The faults are in the dialect (codegen/text/gpu/prelude.inc, dots.inc, matrix.inc). Two runs of a session follow each
other, so that what one leaves behind meets the other. Operands of matrix units in other lanes than the instruction takes
them from make wrong results.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import matrix_check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# a model, and how it is compiled
CLUSTERS = "earlyexit_3", "--target", "emulate:cuda", "--threads", "4", "--schedule", "cluster=on,grid=on,team=on,core=off"
GRID = "lstm_operator", "--target", "emulate:cuda", "--threads", "4"
NARROW = "lstm_operator", "--target", "emulate:hip", "--threads", "3"
UNITS = "--schedule", "matrix=on", "--rtol", "1.6e-2", "--atol", "1.6e-2"
HALVES = "f16", "--target", "emulate:hip", "--threads", "3", *UNITS
BRAINS = "bf16", "--target", "emulate:hip", "--threads", "3", *UNITS
PAIRS = "f16", "--target", "emulate:cuda", "--threads", "3", *UNITS

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
LINES = "bk_matrix_line(void) { return bk_lane() % 16; }", "bk_matrix_line(void) { return bk_lane() / 4; }"
PARTS = "bk_matrix_part(void) { return bk_lane() / 16; }", "bk_matrix_part(void) { return bk_lane() % 4; }"
ROWS = "{ return (void)i, bk_lane() % 16; }", "{ return bk_lane() / 16 * 4 + i; }"
WORDS = "a->z, a->w, b.z, b.w", "a->z, a->w, b.w, b.z"
ORDER = "a[0].x, a[1].x, a[0].y, a[1].y", "a[0].x, a[0].y, a[1].x, a[1].y"
OLDER = "#ifdef __gfx908__", "#if 1"
BEGINS = "bk_matrix_bits<V>(a1, 0)", "bk_matrix_bits<V>(0, a1)"

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
    ("half as many steps at once", BRAINS, (OLDER,), ""),
    ("the second half of these steps is in another word", BRAINS, (OLDER, BEGINS), " differ)"),
    ("lanes have the lines of matrix units as a warp of 32 has them", HALVES, (LINES, PARTS), " differ)"),
    ("lanes take the columns of their sums for rows", HALVES, (ROWS,), ": race: "),
    ("words of a line are in another order than those of the other operand", HALVES, (WORDS,), " differ)"),
    ("words of two lines are in another order", PAIRS, (ORDER,), " differ)"),
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
        for kind in HALVES[0], BRAINS[0]:
            matrix_check.write(os.path.join(work, kind), *matrix_check.model(kind, 20, 48, 0))
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
