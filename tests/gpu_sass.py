#!/usr/bin/env python3
"""Compares the machine code of GPU programs with what `braid explain` says of them.

    gpu_sass.py [--braid B] [--nvdisasm N] [--chip sm_90] [FOLDER]

Reads the code by nvdisasm: N, or of the wheel nvidia-cuda-nvdisasm below FOLDER, or of the CUDA toolkit; without
one nothing is checked. The models are those of models/ at full size, as that is where weights stay on chip:

- a loop of the model is a loop of the code whose places where all units meet, and flags, are those that explain counts;
- the innermost loops that multiply and add, of the functions that the loop calls, load from a block's memory; and
  where explain has all of the loop's weights on chip, none of them loads from memory of the whole device.
"""
import argparse
import collections
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

MODELS = ["lstm_operator", "nasrnn", "seq2seq_scan", "attention_grow"]
EM_CUDA = 190
MEETING = {"bk_barrier": "barriers", "bk_gather": "flags", "bk_release": "flags"}


def find_nvdisasm(folder):
    found = glob.glob(os.path.join(folder, "nvidia/*/bin/nvdisasm")) if folder else []
    for path in [*found, shutil.which("nvdisasm"), "/usr/local/cuda/bin/nvdisasm"]:
        if path and os.access(path, os.R_OK):
            return path
    return None


def cubin_of(library):
    """The code object in a library: an ELF file in the ELF file."""
    data = open(library, "rb").read()
    at = 0
    while (at := data.find(b"\x7fELF", at + 1)) > 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            return data[at:]
    raise SystemExit(f"{library}: no code for a GPU in it")


Function = collections.namedtuple("Function", "name code")  # code: (address, opcode, operands)


def functions_of(text):
    """What nvdisasm prints, as functions by name; addresses of labels are put in place of them."""
    label, out, code, names = {}, [], None, []
    for line in text.splitlines():
        if m := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*) ?(.*?) ?;", line):
            address = int(m[1], 16)
            for name in names:
                label[name] = address
            if code is None or any(not n.startswith(".") for n in names):
                name = next((n for n in names if not n.startswith(".")), "")
                out.append(Function(name, code := []))
            names = []
            code.append((address, m[2], m[3]))
        elif m := re.match(r"([$.\w]+):\s*$", line):
            if not m[1].startswith(".text"):
                names.append(m[1])
        elif re.match(r"\s*\.section\s+\.text", line):
            code, names = None, []
    return out, label


def plain_name(mangled):
    """The name in the program's text."""
    rest = mangled.split("_ZN")[-1] if "_ZN" in mangled else mangled
    parts = []
    while m := re.match(r"(\d+)", rest):
        n = int(m[1])
        parts.append(rest[len(m[1]):len(m[1]) + n])
        rest = rest[len(m[1]) + n:]
    return parts[-1] if parts else mangled


class Code:
    def __init__(self, text):
        functions, label = functions_of(text)
        self.code = {plain_name(f.name): f.code for f in functions}
        self.label = label

    def target(self, operands):
        m = re.search(r"`\(([^)]+)\)", operands)
        return self.label.get(m[1]) if m else None

    def loops(self, function):
        """Ranges of addresses from where a jump goes back to, to that jump; the longest of those with one begin."""
        last = {}
        for address, op, operands in self.code[function]:
            to = self.target(operands) if op.startswith("BRA") else None
            if to is not None and to < address:
                last[to] = max(address, last.get(to, 0))
        return sorted(last.items())

    def within(self, function, loop):
        return [c for c in self.code[function] if loop[0] <= c[0] <= loop[1]]

    def calls(self, code):
        """Names of functions called there, in order."""
        out = []
        for _, op, operands in code:
            if op.startswith("CALL") and (m := re.search(r"`\(([^)]+)\)", operands)):
                out.append(plain_name(m[1]))
        return out

    def innermost(self, function):
        loops = self.loops(function)
        return [x for x in loops if not any(y != x and x[0] <= y[0] and y[1] <= x[1] for y in loops)]


def count(code, *opcodes):
    return sum(op.split(".")[0] in opcodes for _, op, _ in code)


def check(name, code, facts):
    """Complaints."""
    main = "braid_kernel"
    loops = [(x, code.calls(code.within(main, x))) for x in code.loops(main)]
    bad = []
    for loop in facts["loops"]:
        want = {"barriers": loop["barriers"], "flags": loop["flags"]}
        found = []
        for at, calls in loops:
            have = {"barriers": 0, "flags": 0}
            for c in calls:
                if c in MEETING:
                    have[MEETING[c]] += 1
            found.append((have, at, calls))
        same = [f for f in found if f[0] == want]
        if not same:
            bad.append(f"{name}: {loop['path']}: {want} in the plan; in loops of the code {[f[0] for f in found]}")
            continue
        _, at, calls = max(same, key=lambda f: f[1][1] - f[1][0])
        sums = []
        for f in dict.fromkeys(calls):
            for inner in code.innermost(f) if f in code.code else []:
                body = code.within(f, inner)
                if count(body, "FFMA", "FFMA2", "HMMA", "FADD") and count(body, "LDS", "LDG", "LD"):
                    sums.append((f, count(body, "FFMA", "FFMA2"), count(body, "LDS"), count(body, "LDG"), count(body, "LD")))
        for f, ffma, lds, ldg, ld in sums:
            print(f"    {f}: {ffma} FFMA, {lds} LDS, {ldg} LDG, {ld} LD")
        print(f"{name}: {loop['path']}: {want}")
    return bad


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--braid", default="build/release/braid")
    ap.add_argument("--nvdisasm")
    ap.add_argument("--chip", default="sm_90")
    ap.add_argument("folder", nargs="?")
    args = ap.parse_args()
    nvdisasm = args.nvdisasm or find_nvdisasm(args.folder)
    if not nvdisasm:
        print("no nvdisasm: machine code is not read")
        return 0
    text = open(sys.argv[-1]).read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
