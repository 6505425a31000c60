#!/usr/bin/env python3
"""The operator table against the schemas of the onnx package: which attributes an operator has in which opset, of
what kind.

    op_table.py [--cc CC]

Every row of the domains that the package has is compared in every opset that the package knows.
"""
import argparse
import ast
import os
import re
import subprocess
import sys

import onnx
from onnx import defs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KINDS = {defs.OpSchema.AttrType.INT: "i", defs.OpSchema.AttrType.FLOAT: "f", defs.OpSchema.AttrType.STRING: "s",
         defs.OpSchema.AttrType.INTS: "I", defs.OpSchema.AttrType.FLOATS: "F", defs.OpSchema.AttrType.STRINGS: "S",
         defs.OpSchema.AttrType.TENSOR: "t", defs.OpSchema.AttrType.GRAPH: "g", defs.OpSchema.AttrType.TYPE_PROTO: "y"}


def table(cc):
    """(domain, name) to (since, attributes) of each row."""
    text = '#define OP_AS(id, ...) ROW(__VA_ARGS__)\n#define OP_OLD(name, ...) OLD(#name, __VA_ARGS__)\n#include "frontend/ops.def"\n'
    out = subprocess.run([cc, "-E", "-P", "-I", ROOT, "-x", "c", "-"], input=text, capture_output=True, text=True, check=True).stdout
    rows = {}
    for m in re.finditer(r'\b(ROW|OLD)\(((?:[^()"]|"(?:[^"\\]|\\.)*")*)\)', out):
        # A C list of strings side by side and numbers is a Python tuple, too.
        v = ast.literal_eval("(" + m.group(2).replace("\n", " ") + ")")
        if m.group(1) == "ROW":
            rows[v[1], v[0]] = (v[2], v[8])
        else:
            rows[v[1], v[0]] = (1, v[2])
    return rows


def attributes(text, opset):
    """Name to kind in an opset."""
    found = {}
    for item in text.split():
        m = re.fullmatch(r"(\w+):(\w)(?:@(\d+)(-(\d+))?)?(=\S+)?", item)
        assert m, f"'{item}' is not an attribute"
        first = int(m[3] or 1)
        last = int(m[5]) if m[5] else 1 << 30
        if first <= opset <= last:
            assert m[1] not in found, f"{m[1]} is there twice"
            found[m[1]] = {"b": "i", "B": "I"}.get(m[2], m[2])
    return found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cc", default=os.environ.get("CC", "cc").split()[0])
    a = p.parse_args()
    history = {}
    for s in defs.get_all_schemas_with_history():
        history.setdefault((s.domain, s.name), []).append(s)
    compared = failed = 0
    for key, (since, text) in sorted(table(a.cc).items()):
        versions = history.get(key)
        if not versions:
            continue
        newest = {"": defs.onnx_opset_version()}.get(key[0], max(s.since_version for s in versions))
        first = min(s.since_version for s in versions)
        if since > first or (since < first and not versions[-1].deprecated):
            failed += 1
            print(f"{key[1]}: since {since}, the package says {first}")
        for opset in range(first, newest + 1):
            s = max((s for s in versions if s.since_version <= opset), key=lambda s: s.since_version)
            want = {n: KINDS.get(x.type, "?") for n, x in s.attributes.items() if n != "consumed_inputs"}
            got = attributes(text, opset)
            compared += 1
            if got != want and not s.deprecated:
                failed += 1
                print(f"{key[1]} in opset {opset}: {got}, the package says {want}")
    print(f"onnx {onnx.__version__}")
    print(f"{compared - failed} passed, {failed} failed")
    return failed > 0 or compared < 2000


if __name__ == "__main__":
    sys.exit(main())
