#!/usr/bin/env python3
"""Compares the machine code of GPU programs with what `braid explain` says of them.

    gpu_sass.py [--braid B] [--nvdisasm N] [--chip sm_90] [FOLDER]

Reads the code by nvdisasm: N, or that of the wheel nvidia-cuda-nvdisasm below FOLDER, or of the CUDA toolkit;
without one nothing is checked. Where there is no nvcc, NVRTC may be a wheel below FOLDER, too. The models are some of models/ at full size, as that is where weights stay on chip.

- A loop of the model is a loop of the code where all units meet as often, and with as many flags, as explain counts
  for an iteration; the compiler may have written several iterations.
- Where explain keeps all packed weights on chip, the products in the functions that the loop calls load one factor
  from the block's memory (LDS) and the other from where its part of the weights is (LD: a run with fewer blocks
  has larger parts, which may not fit), and none from the memory of the whole device (LDG). Where it keeps none, LD
  does not occur there.
- No load goes through the cache that is not coherent (LDG….CONSTANT): it may show what was there before a barrier. A
  load that is planted in a text is found.
- The code that an iteration runs through is no larger than CODE_MOST: that of the loop and of all functions it calls, but
  for what only a fault, a warp whose lanes went apart, or weights in the memory of the device need; and the kernel's text
  is no larger than TEXT_MOST.
"""
import argparse
import collections
import glob
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

# Bytes of the code that an iteration runs through: no more than it has.
CODE_MOST = {"lstm_operator": 16 << 10}
TEXT_MOST = 250 << 10
MODELS = ["lstm_operator", "nasrnn", "seq2seq_scan", "attention_grow"]
EM_CUDA = 190
PLANTED = "((const uint4 *)from)[i]", "__ldg(&((const uint4 *)from)[i])"  # in bk_move, which copies outputs
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


Function = collections.namedtuple("Function", "name code")  # code: (address, opcode, operands, whether under a condition)


def functions_of(text):
    """What nvdisasm prints, as functions by name; addresses of labels are put in place of them."""
    label, out, code, names = {}, [], None, []
    for line in text.splitlines():
        if m := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*([A-Z][\w.]*) ?(.*?) ?;", line):
            address = int(m[1], 16)
            for name in names:
                label[name] = address
            if code is None or any(not n.startswith(".") for n in names):
                name = next((n for n in names if not n.startswith(".")), "")
                out.append(Function(name, code := []))
            names = []
            code.append((address, m[3], m[4], bool(m[2])))
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
        functions, self.label = functions_of(text)
        self.code, self.place = {}, {}
        for f in functions:  # of one template by their whole names
            name = plain_name(f.name)
            self.code[f.name if name in self.code else name] = f.code
        for name, code in self.code.items():
            self.place.update({c[0]: (name, i) for i, c in enumerate(code)})

    def target(self, operands):
        m = re.search(r"`\(([^)]+)\)", operands)
        return self.label.get(m[1]) if m else None

    def loops(self, function):
        """Ranges of addresses from where a jump goes back to, to the last such jump."""
        last = {}
        for address, op, operands, _ in self.code[function]:
            to = self.target(operands) if op.startswith("BRA") else None
            if to is not None and to < address:
                last[to] = max(address, last.get(to, 0))
        return [[c for c in self.code[function] if at <= c[0] <= end] for at, end in sorted(last.items())]

    def after(self, address, within):
        """Where the code goes on, in the range `within` of the kernel: of a call, in the function and behind it."""
        name, i = self.place[address]
        code = self.code[name]
        _, op, operands, condition = code[i]
        out = [self.target(operands)] if op.startswith(("BRA", "CALL")) and op != "BRA.DIV" else []
        if not op.startswith(("BRA", "RET", "EXIT")) or condition or op == "BRA.DIV" or re.match(r"!?U?P\d", operands):
            out += [code[i + 1][0]] if i + 1 < len(code) else []
        return [x for x in out if x in self.place and (self.place[x][0] != "braid_kernel" or within[0] <= x <= within[1])]

    def walk(self, loop, left_out=frozenset()):
        within = loop[0][0], loop[-1][0]
        seen, todo = set(), [within[0]]
        while todo:
            address = todo.pop()
            if address not in seen and address not in left_out:
                seen.add(address)
                todo += self.after(address, within)
        return seen

    def executed(self, loop):
        """Names of the functions that an iteration runs through, and bytes of all its code."""
        within = loop[0][0], loop[-1][0]
        all_code = self.walk(loop)
        rare = set()
        for address in all_code:
            name, i = self.place[address]
            _, op, operands, _ = self.code[name][i]
            if re.match(r"LD\..*128", op) or (op.startswith("CALL") and "bk_fault" in operands):
                rare.add(address)
        while True:  # and what leads only there
            more = set()
            for address in all_code - rare:
                name, i = self.place[address]
                to = self.after(address, within)
                to = to[-1:] if self.code[name][i][1].startswith("CALL") else to
                if to and all(x in rare for x in to):
                    more.add(address)
            if not more:
                break
            rare |= more
        seen = self.walk(loop, rare)
        return {self.place[x][0] for x in all_code}, 16 * len(seen)

    def calls(self, code):
        """Names of functions called there, in order; code within a function may be called, too."""
        found = (re.search(r"`\((\$[^)]+)\)", operands) for _, op, operands, _ in code if op.startswith("CALL"))
        return [plain_name(m[1]) for m in found if m]

    def blocks(self, function):
        """Code without jumps in it or to it."""
        begins, block = set(self.label.values()), []
        for c in self.code.get(function, []):
            if c[0] in begins and block:
                yield block
                block = []
            block.append(c)
            if c[1].startswith("BRA"):
                yield block
                block = []
        yield block

    def products(self, function):
        """Loads of four floats at once, by kind, in blocks that multiply and add."""
        out = collections.Counter()
        for block in self.blocks(function):
            op = [c[1] for c in block]
            if sum(x.startswith("FFMA") for x in op) >= 4:
                out.update(x.split(".")[0] for x in op if re.match(r"LD[SG]?\..*128", x))
        return out


def meetings(calls):
    have = collections.Counter(MEETING[c] for c in calls if c in MEETING)
    return have["barriers"], have["flags"]


def iterations(calls):
    """Of these models: each has a group that an iteration computes once."""
    return math.gcd(*collections.Counter(c for c in calls if c not in MEETING).values())


def incoherent(name, code):
    """Complaints about loads that do not see what other units have written."""
    found = collections.Counter((f, op) for f, ops in code.code.items() for _, op, _, _ in ops
                                if re.match(r"LDG?\.(?=.*CONSTANT)", op))
    return [f"{name}: {f}: {n} {op}, which need not see what other units have written" for (f, op), n in found.items()]


def check(name, code, facts):
    """Complaints."""
    bad = incoherent(name, code)
    bodies = code.loops("braid_kernel")
    loops = [code.calls(x) for x in bodies]
    kept = [r["kept"] for r in facts["residents"]]
    for loop in facts["loops"]:
        want = (loop["barriers"], loop["flags"])
        found = []
        for calls, body in zip(loops, bodies):
            n = iterations(calls)
            if n and meetings(calls) == (n * want[0], n * want[1]):
                found.append((n, calls, body))
        if not found:
            bad.append(f"{name}: {loop['path']}: {want[0]} barriers and {want[1]} flags are planned; the loops of the "
                       f"code have {sorted({meetings(c) for c in loops})}")
            continue
        n, calls, code_of = max(found, key=lambda f: len(f[1]) / f[0])
        functions, size = code.executed(code_of)
        loads = {f: code.products(f) for f in functions if f != "braid_kernel"}
        total = sum(loads.values(), collections.Counter())
        print(f"{name}: {loop['path']}: {want[0]} barriers, {want[1]} flags, in code for {n} iterations, {size} bytes; "
              f"products load {total['LDS']} LDS, {total['LD']} LD, {total['LDG']} LDG")
        if size > CODE_MOST.get(name, size):
            bad.append(f"{name}: {loop['path']}: {size} bytes of code, more than {CODE_MOST[name]}")
        if kept and all(kept) and (total["LDG"] or not total["LD"] or not total["LDS"]):
            bad.append(f"{name}: {loop['path']}: all weights are on chip in the plan; loads of products: {loads}")
        if not any(kept) and total["LD"]:
            bad.append(f"{name}: {loop['path']}: no weights are on chip in the plan; loads of products: {loads}")
    return bad


def compiler(argv):
    """Stands in for nvcc: plants a load that is not coherent."""
    for path in (a for a in argv if a.endswith(".cu")):
        with open(path) as f:
            text = f.read()
        if text.count(PLANTED[0]) != 1:
            print(f"gpu_sass.py: no place in the text for {PLANTED[1]}", file=sys.stderr)
            return 1
        with open(path, "w") as f:
            f.write(text.replace(*PLANTED))
    return subprocess.call([os.environ["PLANTED_NVCC"], *argv])


def plant(args, work, nvdisasm, model):
    """Complaints if a planted load is not found."""
    nvcc = shutil.which(os.environ.get("NVCC") or "nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        print("no nvcc: no load is planted")
        return []
    wrapper, library = os.path.join(work, "nvcc"), os.path.join(work, "planted.so")
    with open(wrapper, "w") as f:
        f.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' --compiler \"$@\"\n")
    os.chmod(wrapper, 0o755)
    subprocess.run([args.braid, "compile", model, "--target", f"cuda:{args.chip}", "-o", library], check=True,
                   env=dict(os.environ, NVCC=wrapper, PLANTED_NVCC=nvcc))
    found = incoherent("planted", disassembled(nvdisasm, library, work))
    return [] if found else ["a planted load that is not coherent was not found"]


def disassembled(nvdisasm, library, work):
    path = os.path.join(work, "code")
    with open(path, "wb") as f:
        f.write(cubin_of(library))
    return Code(subprocess.run([nvdisasm, "-c", path], check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    if sys.argv[1:2] == ["--compiler"]:
        return compiler(sys.argv[2:])
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
    for nvrtc in glob.glob(os.path.join(args.folder or "", "nvidia/*/lib/libnvrtc.so.13")):
        os.environ["LD_LIBRARY_PATH"] = ":".join([os.path.dirname(nvrtc), os.environ.get("LD_LIBRARY_PATH", "")])
    target = f"cuda:{args.chip}"
    bad = []
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "models", *MODELS, "--full", "--out", work], check=True,
                       stdout=subprocess.DEVNULL, cwd=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
        for name in MODELS:
            model, library = os.path.join(work, name, "model.onnx"), os.path.join(work, "model.so")
            text = os.path.join(work, "model.cu")
            made = subprocess.run([args.braid, "compile", model, "--target", target, "--emit", text, "-o", library], text=True,
                                  stderr=subprocess.PIPE)
            if made.returncode and re.search("needs nvcc|not defined|invalid value", made.stderr):
                print(f"nothing compiles for {target}: machine code is not read")
                return 0
            if made.returncode:
                bad.append(f"{name}: {made.stderr}")
                continue
            facts = subprocess.run([args.braid, "explain", model, "--target", target, "--json"], check=True,
                                   stdout=subprocess.PIPE, text=True).stdout
            bad += check(name, disassembled(nvdisasm, library, work), json.loads(facts))
            size = os.path.getsize(text)
            print(f"{name}: {size} bytes of text")
            if size > TEXT_MOST:
                bad.append(f"{name}: {size} bytes of text, more than {TEXT_MOST}")
        bad += plant(args, work, nvdisasm, os.path.join(work, MODELS[-1], "model.onnx"))
    for line in bad:
        print(line)
    print(f"{len(MODELS)} models, {len(bad)} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
