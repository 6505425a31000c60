#!/usr/bin/env python3
"""PyTorch modules through braid.torch.compile and torch.compile(backend="braid"), compared with eager.

    modules_check.py [NAME…] [--target TARGET]
"""
import argparse
import os
import sys
import time
import warnings

import torch
from torch.utils import _pytree as pytree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import modules  # noqa: E402

import braid  # noqa: E402
import braid.torch  # noqa: E402

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def compare(found, wanted, where):
    """Returns the number of elements compared."""
    a, spec = pytree.tree_flatten(found)
    b, expected = pytree.tree_flatten(wanted)
    assert spec == expected, f"{where}: {spec} instead of {expected}"
    for x, y in zip(a, b):
        torch.testing.assert_close(x, y, **TOLERANCE, msg=lambda m: f"{where}: {m}")
    return sum(y.numel() if isinstance(y, torch.Tensor) else 1 for y in b)


def mark(args, shapes):
    """Tells TorchDynamo which sizes are open."""
    for x, spec in zip(args, shapes.values()):
        for name, tensor in x.items() if isinstance(x, dict) else [(None, x)]:
            for dim in (spec[name] if name else spec) or ():
                torch._dynamo.mark_dynamic(tensor, dim)


def check(case, target):
    module = modules.make(case)
    compiled = braid.torch.compile(module, module.inputs(module.sizes[0]), dynamic_shapes=module.shapes, target=target)
    torch._dynamo.reset()
    behind = torch.compile(module, backend="braid", fullgraph=True, dynamic=module.dynamic, options={"target": target})
    count = 0
    for n in module.sizes:
        for seed in (0, 1):
            args = module.inputs(n, seed)
            if not module.dynamic:
                mark(args, module.shapes)
            wanted = module(*args)
            count += compare(compiled(*args), wanted, f"{case.__name__}, size {n}, compile")
            count += compare(behind(*args), wanted, f"{case.__name__}, size {n}, backend")
    return count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--target", default="cpu")
    a = p.parse_args()
    torch.set_grad_enabled(False)
    torch._dynamo.config.allow_rnn = True  # recurrent layers in the graph, too
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", braid.torch.EagerWarning)
    failed = total = 0
    for case in modules.CASES:
        if a.names and case.__name__ not in a.names:
            continue
        begin = time.monotonic()
        try:
            count = check(case, a.target)
            print(f"ok   {time.monotonic() - begin:5.1f} s  {case.__name__}: {count} elements")
            total += count
        except Exception as error:
            failed += 1
            print(f"FAIL {case.__name__}: {type(error).__name__}: {error}")
    print(f"{total} elements equal, {failed} modules failed")
    return failed > 0 or total == 0


if __name__ == "__main__":
    sys.exit(main())
