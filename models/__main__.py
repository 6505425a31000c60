"""Writes models with a test beside each, in the layout of the ONNX backend tests.

    python -m models NAME... --out DIR [--small] [--batch B --length T --OPTION VALUE ...]
    python -m models --all|--forms --small|--full --out DIR
    python -m models --list
    python -m models --check DIR...     compare written models with an independent evaluator
"""
import argparse
import ast
import os
import sys

import numpy as np
import onnx
from onnx import numpy_helper

from . import build, cases, forms, options


def write(built, folder):
    """Writes folder/model.onnx and folder/test_data_set_0."""
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(built.model, os.path.join(folder, "model.onnx"))
    order = [v.name for v in built.model.graph.input]
    for kind, names, arrays in (
            ("input", order, [built.inputs[n] for n in order]),
            ("output", [v.name for v in built.model.graph.output], built.expected)):
        for n, (name, array) in enumerate(zip(names, arrays, strict=True)):
            with open(os.path.join(data, f"{kind}_{n}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(np.asarray(array), name).SerializeToString())


def value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def add_options(parser):
    """Adds an argument for each option that any model has."""
    group = parser.add_argument_group("options of the models (--list shows which has which)")
    for k in dict.fromkeys(k for name in cases() for k in options(name)):
        group.add_argument(f"--{k}", type=value, dest=f"option_{k}", metavar=k.upper())


def given(args):
    """The options that the user gave."""
    found = {k[7:]: v for k, v in vars(args).items() if k.startswith("option_")}
    return {k: v for k, v in found.items() if v is not None}


def main():
    p = argparse.ArgumentParser(prog="python -m models", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter,
                                allow_abbrev=False)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--all", action="store_true", help="every model")
    p.add_argument("--forms", action="store_true", help="every model as an expert, an exporter and a beginner write it")
    p.add_argument("--small", action="store_true", help="sizes for tests")
    p.add_argument("--full", action="store_true", help="the published sizes (the default)")
    p.add_argument("--out", metavar="DIR", help="where a folder for each model is made")
    p.add_argument("--list", action="store_true", help="models and their options")
    p.add_argument("--check", action="store_true", help="NAMEs are folders to check")
    add_options(p)
    a = p.parse_args()
    if a.list:
        for name in [*cases(), *forms()]:
            print(name, *(f"{k}={v}" for k, v in options(name).items()))
        return 0
    if a.check:
        from .check import check
        return check(a.names)
    names = [*a.names, *(cases() if a.all else ()), *(forms() if a.forms else ())]
    if not names or not a.out or a.small and a.full:
        p.error("needs NAME, --all or --forms, --out DIR, and not both of --small and --full")
    known = {**cases(), **forms()}
    for name in names:
        if name not in known:
            p.error(f"no model {name}; there are {', '.join(known)}")
        try:
            write(build(name, a.small, **given(a)), os.path.join(a.out, name))
        except (ValueError, OSError) as e:
            p.error(str(e))
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
