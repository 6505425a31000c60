#!/usr/bin/env python3
"""Finds missing barriers, and unneeded ones: runs models on several units under ThreadSanitizer, which
remembers which unit wrote and read what since the units last met, or on an emulated GPU, which does so, too.

    races.py [--braid BRAID] [--target cpu|emulate:cuda] [--units N] [--schedule S] [--each-barrier] FOLDER...

Each FOLDER holds model.onnx and test_data_set_0/input_N.pb. With --each-barrier every barrier that a run
passes is left out once, which has to be found (but for the last one: the end of a run is a meeting, too).
Prints a line for each failure and, last, how much was run.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

import onnx

RACE = 66
BARRIER = re.compile(r"\(st = (bk_barrier\(k, unit\)|bk_cluster_barrier\(\))\)")
AFTER_ONE = re.compile(r" != BK_OK\) return st; /\* after one (core|cluster)'s work \*/")
HEAD = """#include <stdio.h>
#include <stdlib.h>
#define BK_MEETINGS %d
static int bk_left_out = -1;
static char bk_passed[BK_MEETINGS + 1];
__attribute__((constructor)) static void bk_meetings_begin(void) {
    const char *s = getenv("BK_LEFT_OUT");
    if (s) bk_left_out = atoi(s);
}
__attribute__((destructor)) static void bk_meetings_end(void) {
    const char *s = getenv("BK_PASSED");
    FILE *f = s ? fopen(s, "w") : 0;
    for (int i = 0; f && i < BK_MEETINGS; i++)
        if (bk_passed[i]) fprintf(f, "%%d\\n", i);
    if (f) fclose(f);
}
#define bk_meeting(k, i, barrier) (unit == 0 ? bk_passed[i] = 1 : 0, bk_left_out == (i) ? bk_state(k) : (barrier))
"""
# Of the host's memory the emulated threads may use none: what they passed is folders in the one where they run.
HEAD_EMULATED = """#include <stdlib.h>
#include <sys/stat.h>
static inline bool bk_left_out(int i) {
    const char *s = getenv("BK_LEFT_OUT");
    return s && atoi(s) == i;
}
#define bk_meeting(k, i, barrier) (unit == 0 && threadIdx.x == 0 ? mkdir(#i, 0777) : 0, bk_left_out(i) ? BK_OK : (barrier))
"""


def compiler(argv):
    """Stands in for the compiler: numbers the barriers of the text and adds the sanitizer."""
    emulated = os.environ["BK_COMPILER"] == "c++"
    for path in argv:
        if not path.endswith(".cu" if emulated else ".c"):
            continue
        with open(path) as f:
            text = f.read()
        places = list(BARRIER.finditer(text))
        for i, m in reversed(list(enumerate(places))):
            if AFTER_ONE.match(text, m.end()): # is needed only where what it leaves is used
                continue
            text = text[:m.start()] + "(st = bk_meeting(k, %d, %s))" % (i, m[1]) + text[m.end():]
        begin = "#define BK_THREADS" if emulated else "#define BK_VEC"
        first, rest = text.split(begin, 1)
        with open(path, "w") as f:
            f.write(first + (HEAD_EMULATED if emulated else HEAD % len(places)) + begin + rest)
    if emulated:
        return subprocess.call(["c++"] + argv)
    flags = [a for a in argv if a != "-O2"]
    return subprocess.call(["gcc", "-fsanitize=thread", "-g", "-O1"] + flags)


class Model:
    def __init__(self, args, folder, work):
        self.args, self.library = args, os.path.join(work, "model.so")
        self.emulated = args.target != "cpu"
        self.passed_at = os.path.join(work, "passed")
        if self.emulated:
            os.mkdir(self.passed_at)
        folder = os.path.abspath(folder)
        wrapper = os.path.join(work, "cc")
        with open(wrapper, "w") as f:
            f.write("#!/bin/sh\nexec '%s' '%s' --compiler \"$@\"\n" % (sys.executable, os.path.abspath(__file__)))
        os.chmod(wrapper, 0o755)
        names = [i.name for i in onnx.load(folder + "/model.onnx", load_external_data=False).graph.input]
        self.inputs = []
        for i, name in enumerate(names):
            self.inputs += ["-i", "%s=%s/test_data_set_0/input_%d.pb" % (name, folder, i)]
        schedule = ["--schedule", args.schedule] if args.schedule else []
        done = subprocess.run([args.braid, "compile", folder + "/model.onnx", "-o", self.library,
                               "--target", args.target, "--threads", str(args.units)] + schedule,
                              env={**os.environ, **({"CXX": wrapper, "BK_COMPILER": "c++"} if self.emulated else
                                                    {"CC": wrapper, "BK_COMPILER": "cc"})}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())

    def run(self, left_out=None):
        """Whether a race was seen; RuntimeError when the run failed otherwise."""
        env, begin, where = dict(os.environ), [], None
        if self.emulated:
            where = self.passed_at
        else:
            tsan = subprocess.run(["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True).stdout.strip()
            env.update(LD_PRELOAD=tsan, BK_PASSED=self.passed_at, TSAN_OPTIONS="exitcode=%d halt_on_error=1" % RACE)
            begin = ["setarch", "-R"] # the sanitizer needs memory where it expects it: no random addresses
        if left_out is not None:
            env["BK_LEFT_OUT"] = str(left_out)
        done = subprocess.run(begin + [self.args.braid, "run", self.library, "--threads", str(self.args.units)] +
                              self.inputs, env=env, cwd=where, capture_output=True, text=True)
        self.report = done.stderr
        if done.returncode in (0, RACE):
            return done.returncode == RACE
        if left_out is not None:
            return True  # what it computed from was wrong
        raise RuntimeError(done.stderr.strip()[-500:])

    def passed(self):
        if self.emulated:
            return [int(name) for name in os.listdir(self.passed_at)]
        with open(self.passed_at) as f:
            return [int(line) for line in f]


def check(args, folder):
    """(failures, barriers left out)"""
    with tempfile.TemporaryDirectory() as work:
        try:
            model = Model(args, folder, work)
            if model.run():
                where = re.findall(r"#0 (\S+)", model.report)[:2]
                return ["%s: a race between units: %s" % (folder, " and ".join(where))], 0
        except RuntimeError as why:
            return ["%s: %s" % (folder, why)], 0
        bad, passed = [], sorted(model.passed())[:-1]
        for i in passed if args.each_barrier else []:
            if not model.run(i):
                bad.append("%s: nothing is seen without barrier %d" % (folder, i))
        return bad, len(passed)


def main():
    if sys.argv[1:2] == ["--compiler"]:
        sys.exit(compiler(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    parser.add_argument("--target", choices=["cpu", "emulate:cuda"], default="cpu")
    parser.add_argument("--units", type=int, default=4)
    parser.add_argument("--schedule", default="")
    parser.add_argument("--each-barrier", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("folder", nargs="+")
    args = parser.parse_args()
    args.braid = os.path.abspath(args.braid)
    failures, barriers = 0, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for bad, n in pool.map(lambda f: check(args, f), args.folder):
            barriers += n
            failures += len(bad)
            for line in bad:
                print("FAIL: " + line, flush=True)
    print("%d models, %d barriers%s, %d failed" % (len(args.folder), barriers, " left out one by one" if args.each_barrier else "", failures))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
