#!/usr/bin/env python3
"""Finds unneeded synchronizations of GPU programs, and blind spots of the emulator that watches them: leaves out each
one that a run passes, barriers of the grid, of a block, and flags, which the emulator has to report.

    each_barrier_gpu.py [--braid BRAID] [--target T] [--units N] [--schedule S] FOLDER...

Each FOLDER holds model.onnx and test_data_set_0/input_N.pb. The last barrier of a run stays: the end of the kernel is
a meeting, too. Prints a line for each failure and, last, how much was run.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import onnx

GROUP = re.compile(r"\b(?:f\d+|bk|bx)_\w*\(")  # functions of the prelude, and of groups: these know their own threads
SITE = re.compile(r"\bbk_block\(\)(?=;)|\bbk_gather\(k, unit, [^;]*?\)(?=;)|(?<=\(st = )bk_(?:barrier|release)\(k, unit(?:, [^)]*)?\)")
REPORT = re.compile(r": (race|uninitialized|divergent [a-z_]+|deadlock|out of bounds|misaligned): ")
HEAD = """#include <stdio.h>
#include <stdlib.h>
static int bk_left_out = -1;
static bool bk_passed[%d];
__attribute__((constructor, no_sanitize("thread"))) static void bk_meetings_begin(void) {
    const char *s = getenv("BK_LEFT_OUT");
    if (s) bk_left_out = atoi(s);
}
__attribute__((destructor, no_sanitize("thread"))) static void bk_meetings_end(void) {
    const char *s = getenv("BK_PASSED");
    FILE *f = s ? fopen(s, "w") : NULL;
    for (int i = 0; f && i < (int)sizeof bk_passed; i++)
        if (bk_passed[i]) fprintf(f, "%%d\\n", i);
    if (f) fclose(f);
}
__attribute__((noinline, no_sanitize("thread"))) static bool bk_is_left_out(int i) {
    bk_passed[i] = true;
    return i == bk_left_out;
}
#line 1
"""


def compiler(argv):
    """Stands in for the C++ compiler: numbers the synchronizations of a kernel's text."""
    for path in argv:
        if not path.endswith(".cu"):
            continue
        with open(path) as f:
            text = f.read()
        sites = []

        def meeting(found):
            function = text[text.rfind("\nstatic ", 0, found.start()) + 1:].split("\n", 1)[0]
            if GROUP.search(function):
                return found.group()
            nothing = "BK_OK" if text[:found.start()].endswith("(st = ") else "(void)0"
            sites.append("%d: %s" % (text.count("\n", 0, found.start()) + 1, found.group()))
            return "(bk_is_left_out(%d) ? %s : %s)" % (len(sites) - 1, nothing, found.group())
        changed = SITE.sub(meeting, text)
        with open(path, "w") as f:
            f.write(HEAD % (len(sites) + 1) + changed)
        with open(os.environ["BK_SITES"], "w") as f:
            f.write("\n".join(sites))
    return subprocess.call(["c++"] + argv)


class Model:
    def __init__(self, args, folder, work):
        self.args, self.library, self.passed_file = args, os.path.join(work, "model.so"), os.path.join(work, "passed")
        wrapper, sites = os.path.join(work, "c++"), os.path.join(work, "sites")
        with open(wrapper, "w") as f:
            f.write("#!/bin/sh\nexec '%s' '%s' --compiler \"$@\"\n" % (sys.executable, os.path.abspath(__file__)))
        os.chmod(wrapper, 0o755)
        names = [i.name for i in onnx.load(folder + "/model.onnx", load_external_data=False).graph.input]
        self.inputs = []
        for i, name in enumerate(names):
            self.inputs += ["-i", "%s=%s/test_data_set_0/input_%d.pb" % (name, folder, i)]
        schedule = ["--schedule", args.schedule] if args.schedule else []
        done = subprocess.run([args.braid, "compile", folder + "/model.onnx", "-o", self.library, "--target", args.target, *schedule],
                              env={**os.environ, "CXX": wrapper, "BK_SITES": sites}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        with open(sites) as f:
            self.sites = f.read().splitlines()

    def run(self, left_out=-1):
        """What the emulator reports, or ""; RuntimeError when the run failed otherwise."""
        done = subprocess.run([self.args.braid, "run", self.library, "--threads", str(self.args.units)] + self.inputs,
                              env={**os.environ, "BK_LEFT_OUT": str(left_out), "BK_PASSED": self.passed_file},
                              capture_output=True, text=True)
        if done.returncode and not REPORT.search(done.stderr):
            raise RuntimeError(done.stderr.strip()[-500:])
        return done.stderr.strip() if done.returncode else ""

    def passed(self):
        with open(self.passed_file) as f:
            return [int(line) for line in f]


def check(args, folder):
    """(failures, synchronizations left out)"""
    with tempfile.TemporaryDirectory() as work:
        try:
            model = Model(args, folder, work)
            report = model.run()
            if report:
                return ["%s: %s" % (folder, report)], 0
            bad, passed = [], sorted(model.passed())[:-1]
            for i in passed:
                if not model.run(i):
                    bad.append("%s: nothing is seen without the one in line %s" % (folder, model.sites[i]))
            return bad, len(passed)
        except RuntimeError as why:
            return ["%s: %s" % (folder, why)], 0


def main():
    if sys.argv[1:2] == ["--compiler"]:
        sys.exit(compiler(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--target", default="emulate:cuda")
    parser.add_argument("--units", type=int, default=4)
    parser.add_argument("--schedule", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("folder", nargs="+")
    args = parser.parse_args()
    args.braid = os.path.abspath(args.braid)
    failures, synchronizations = 0, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for bad, n in pool.map(lambda f: check(args, f), args.folder):
            synchronizations += n
            failures += len(bad)
            for line in bad:
                print("FAIL: " + line, flush=True)
    print("%d models, %d synchronizations left out one by one, %d failed" % (len(args.folder), synchronizations, failures))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
