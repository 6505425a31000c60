#!/usr/bin/env python3
"""Writes the node tests that an onnx package makes as folders for `braid test`.

    PYTHONPATH=PACKAGE onnx_cases.py OUT [--new-to FOLDER]

Newer packages carry only some of their tests as files; the others are made by code. With --new-to only those that
FOLDER, the tests of an older package, does not have in the same form (graph and opset of the operator), go to OUT.
"""
import argparse
import os
import sys
import warnings

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases


def save(value, typ, path):
    if isinstance(value, onnx.TensorProto):
        proto = value
    elif typ.HasField("sequence_type"):
        proto = numpy_helper.from_list(value)
    elif typ.HasField("optional_type"):
        proto = numpy_helper.from_optional(value)
    else:
        proto = numpy_helper.from_array(value)
    with open(path, "wb") as f:
        f.write(proto.SerializeToString())


def versions(model):
    """The opset with which each operator of the model got its form."""
    at = {o.domain: o.version for o in model.opset_import}
    found = []
    for n in model.graph.node:
        try:
            found.append(onnx.defs.get_schema(n.op_type, at[n.domain], n.domain).since_version)
        except (onnx.defs.SchemaError, KeyError):
            found.append(0)
    return found


def known(case, folder):
    path = os.path.join(folder, case.name, "model.onnx")
    if not os.path.exists(path):
        return False
    old = onnx.load(path)
    return old.graph.SerializeToString() == case.model.graph.SerializeToString() and versions(old) == versions(case.model)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--new-to")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    written = 0
    for case in collect_testcases(None):
        roots = [a.new_to, os.path.join(a.new_to, "node")] if a.new_to else []
        if any(known(case, r) for r in roots):
            continue
        written += 1
        folder = os.path.join(a.out, case.name)
        os.makedirs(folder, exist_ok=True)
        onnx.save(case.model, os.path.join(folder, "model.onnx"))
        for i, (ins, outs) in enumerate(case.data_sets):
            data = os.path.join(folder, f"test_data_set_{i}")
            os.makedirs(data, exist_ok=True)
            for kind, values, infos in (("input", ins, case.model.graph.input), ("output", outs, case.model.graph.output)):
                for k, (v, info) in enumerate(zip(values, infos)):
                    save(v, info.type, os.path.join(data, f"{kind}_{k}.pb"))
    print(f"onnx {onnx.__version__}: {written} tests written")
    return written == 0


if __name__ == "__main__":
    sys.exit(main())
