#!/usr/bin/env python3
"""Reads the machine code of AMD's chips for products of 16-bit floats: by matrix instructions where the chip has them.

    gpu_gcn.py [--braid B] [--objdump O]

Compiles a model of matrix_check.py of each type by hipcc, and reads the code by llvm-objdump, with which hipcc comes;
without them nothing is read.
"""
import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "eval"))
import matrix_check  # noqa: E402: after the path
from gpu import code_object  # noqa: E402

EM_AMDGPU = 224
# The chip, and the instruction that has to multiply operands of each type; None: it has no such instruction.
CHIPS = {
    "gfx908": {"f16": "v_mfma_f32_16x16x16f16", "bf16": "v_mfma_f32_16x16x8bf16"},
    "gfx90a": {"f16": "v_mfma_f32_16x16x16f16", "bf16": "v_mfma_f32_16x16x16bf16_1k"},
    "gfx1030": {"f16": None, "bf16": None},
}
WIDTH = 64  # of the state: how many steps a sum has


def find_objdump():
    found = [shutil.which("llvm-objdump"), *sorted(glob.glob("/usr/lib/llvm-*/bin/llvm-objdump"), reverse=True),
             "/opt/rocm/llvm/bin/llvm-objdump"]
    return next((path for path in found if path and os.access(path, os.R_OK)), None)


def code_of(library):
    code = code_object.find(library, EM_AMDGPU)
    if code is None:
        raise SystemExit(f"{library}: no code for AMD's GPUs in it")
    return code


def instructions(objdump, library, work):
    """How often each instruction occurs."""
    path = os.path.join(work, "code")
    with open(path, "wb") as f:
        f.write(code_of(library))
    text = subprocess.run([objdump, "-d", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    return collections.Counter(re.findall(r"^\t([a-z]\w+)", text, re.M))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--braid", default="build/release/braid")
    ap.add_argument("--objdump", default=find_objdump())
    args = ap.parse_args()
    if not shutil.which(os.environ.get("HIPCC") or "hipcc") or not args.objdump:
        print("no hipcc or no llvm-objdump: machine code is not read")
        return 0
    bad = []
    with tempfile.TemporaryDirectory() as work:
        for kind in ("f16", "bf16"):
            folder, library = os.path.join(work, kind), os.path.join(work, "model.so")
            matrix_check.write(folder, *matrix_check.model(kind, 32, WIDTH, 0))
            for chip, by_type in CHIPS.items():
                wanted = by_type[kind]
                subprocess.run([args.braid, "compile", f"{folder}/model.onnx", "--target", f"hip:{chip}", "--schedule", "matrix=on", "-o",
                                library], check=True)
                count = instructions(args.objdump, library, work)
                products = {name: n for name, n in count.items() if "mfma" in name}
                print(f"{chip} {kind}: {sum(count.values())} instructions, products {products or 'by threads'}")
                if list(products) != ([wanted] if wanted else []):
                    bad.append(f"{chip} {kind}: {wanted or 'no matrix instruction'} was expected")
    for line in bad:
        print(line)
    print(f"{2 * len(CHIPS)} programs, {len(bad)} failed")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
