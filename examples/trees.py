#!/usr/bin/env python3
"""trees.py: a model over trees on bracketed sentences, all of them as one forest in one run.

    trees.py MODEL.onnx [TEXT] [--vocabulary FILE] [--threads N]

MODEL.onnx has inputs named left, right, is_leaf, roots and word, as `python -m models treelstm --tree FILE --batch N` writes
it for the N first sentences of FILE. TEXT, or what comes from the standard input, has binary trees such as
"(3 (2 It) (4 works)) (2 Fine)". A word's number is its line in the vocabulary (from 0; of a word that is not there 0), or
without one the order in which words come first. Prints what the model says of each sentence's root.
"""
import argparse
import sys

import numpy as np

import braid


def main() -> str | None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("text", nargs="?")
    p.add_argument("--vocabulary", metavar="FILE", help="a word on each line")
    p.add_argument("--threads", type=int)
    a = p.parse_args()
    numbers: dict[str, int] = {}
    if a.vocabulary:
        with open(a.vocabulary, encoding="utf-8", newline="\n") as f:
            numbers = {line.rstrip("\r\n"): i for i, line in enumerate(f)}
    try:
        forest = braid.trees.from_text(sys.stdin.read() if a.text is None else a.text)
        arrays = {"word": forest.numbers(numbers, 0 if a.vocabulary else None), **forest.binary()}
        library = braid.compile(a.model)
        asked = {io.name: arrays[io.name] for io in library.inputs if io.name in arrays}
        found = library.session(threads=a.threads).run(asked)
    except (ValueError, braid.Error) as e:
        return f"{p.prog}: {e}"
    rows = {name: np.reshape(y, (len(forest.roots), -1)) for name, y in found.items()}
    for i, words in enumerate(forest.split_nodes(forest.word)):
        print(" ".join(w for w in words if w is not None))
        for name, y in rows.items():
            print(f"    {name} = {' '.join(f'{v:.5f}' for v in y[i, :6])}{' …' if y.shape[1] > 6 else ''}")
    return None


if __name__ == "__main__":
    sys.exit(main())
