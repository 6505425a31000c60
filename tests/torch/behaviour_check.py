#!/usr/bin/env python3
"""What braid.torch promises beside equal results: signatures, state, gradients, warnings, what is kept.

    behaviour_check.py [CHECK…]
"""
import copy
import doctest
import os
import pickle
import sys
import tempfile
import threading
import traceback
import warnings
from collections import namedtuple

import torch
from torch import nn
from torch._higher_order_ops import map as torch_map, while_loop
from torch.export import Dim

import braid
import braid.torch
from braid.torch import EagerWarning
from braid.torch.backend import _compiled

CHECKS = []
Pair = namedtuple("Pair", "first second")


def check(function):
    CHECKS.append(function)
    return function


def equal(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def raises(kind, words, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {words!r}")


def warned(function, *args):
    """The result and the warnings of a call."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function(*args)
    return result, [str(w.message) for w in found if issubclass(w.category, EagerWarning)]


class Signature(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x, pair, *, scale=2, extra=None):
        y = self.lin(x) * scale
        return {"sum": pair.first + pair.second, "all": Pair(y, [x, y]), "rows": x.shape[0], "name": "a name", "none": None}


class Counter(nn.Module):
    """Buffers that forward writes: a cache of fixed length, and how many are in it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("count", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.inner.cache.index_copy_(0, self.count.reshape(1) % 4, x[None])
        self.count.add_(1)
        return self.inner.cache.sum(0) + x, self.count


class Decides(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Unknown(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x) + 1


class Complex(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x):
        return torch.relu(self.lin(x))


class Square(nn.Module):
    def forward(self, x):
        return x * x


class Constants(nn.Module):
    """Tensors that are made in a branch and in a body."""

    def forward(self, x):
        def step(k, x):
            return k + torch.tensor(1), torch.cond(x.sum() > 10, lambda x: x - torch.tensor([1.0, 2.0]), lambda x: x * torch.tensor(2.0), (x,))

        return while_loop(lambda k, x: k < 6, step, (torch.tensor(0), x))


@check
def signature():
    m = Signature().eval()
    x, pair = torch.randn(4, 3), Pair(torch.ones(2), torch.ones(2))
    fast = braid.torch.compile(m, (x, pair), kwargs={"scale": 3, "extra": None}, dynamic_shapes={
        "x": {0: Dim.DYNAMIC}, "pair": Pair(None, None), "scale": None, "extra": None})
    for n in (4, 7):
        x = torch.randn(n, 3)
        with torch.no_grad():
            equal_trees(fast(x, pair, extra=None, scale=3), m(x, pair, scale=3))
            equal_trees(fast(pair=pair, x=x, extra=None, scale=3), m(x, pair, scale=3))
    raises(braid.InputError, "compiled for", fast, x, pair, x=x)
    raises(braid.InputError, "compiled for", fast, x, pair, scale=3)
    raises(braid.InputError, "compiled for 3", fast, x, pair, scale=4, extra=None)
    raises(braid.InputError, "compiled for", fast, x)
    raises(braid.InputError, "", fast, torch.randn(4, 5), pair, scale=3, extra=None)
    raises(braid.UnsupportedError, "trained", fast.train)
    assert not fast.training and not list(fast.parameters())


def equal_trees(found, wanted):
    from torch.utils import _pytree as pytree
    (a, s), (b, t) = pytree.tree_flatten(found), pytree.tree_flatten(wanted)
    assert s == t, f"{s} {t}"
    for x, y in zip(a, b):
        equal(x, y) if isinstance(y, torch.Tensor) else None
        assert isinstance(y, torch.Tensor) or (x == y and type(x) is type(y)), (x, y)


@check
def state():
    eager, x = Counter().eval(), torch.tensor([1.0, 2.0])
    fast = braid.torch.compile(eager, (x,))
    behind_of = Counter().eval()
    behind = torch.compile(behind_of, backend="braid", fullgraph=True)
    made = len(_compiled)
    for i in range(6):
        x = torch.randn(2)
        wanted = [t.clone() for t in eager(x)]
        equal(list(fast(x)), wanted)
        with torch.no_grad():
            equal(list(behind(x)), wanted)
        equal(fast.inner_cache, eager.inner.cache)
        equal(behind_of.inner.cache, eager.inner.cache)
    assert len(_compiled) == made + 1, "state is no reason to compile anew"
    again = copy.deepcopy(fast)
    wanted = [t.clone() for t in eager(x)]
    equal(list(again(x)), wanted)
    equal(again.inner_cache, eager.inner.cache)
    equal(list(fast(x)), wanted)
    assert again.library is fast.library
    raises(TypeError, "cannot be pickled", pickle.dumps, fast)


@check
def writes_arguments():
    class Writes(nn.Module):
        def forward(self, x, out):
            out.copy_(x * 2)
            return x + 1

    x, out = torch.randn(3), torch.zeros(3)
    fast = braid.torch.compile(Writes(), (x, torch.zeros(3)))
    equal(fast(x, out), x + 1)
    equal(out, x * 2)
    out.zero_()
    with torch.no_grad():
        equal(torch.compile(Writes(), backend="braid", fullgraph=True)(x, out), x + 1)
    equal(out, x * 2)


@check
def constants_in_bodies():
    x = torch.tensor([1.0, 0.5])
    with torch.no_grad():
        wanted = Constants()(x)
        equal(braid.torch.compile(Constants(), (x,))(x), wanted)
        equal(torch.compile(Constants(), backend="braid", fullgraph=True)(x), wanted)


@check
def maps():
    class Mapped(nn.Module):
        def forward(self, x, y):
            return torch_map(lambda row, y: torch.relu(row * 2 + y), x, y)

    fast = braid.torch.compile(Mapped(), (torch.randn(4, 3), torch.randn(3)), dynamic_shapes=({0: Dim.DYNAMIC}, None))
    for n in (4, 6):
        x, y = torch.randn(n, 3), torch.randn(3)
        equal(fast(x, y), torch.relu(x * 2 + y))


@check
def gradients():
    m = Linear()
    fast = braid.torch.compile(m, (torch.ones(1, 3),))
    assert m.training, "the module's mode is as it was"
    raises(braid.UnsupportedError, "no_grad", fast, torch.ones(1, 3, requires_grad=True))
    equal(fast(torch.ones(1, 3)), m(torch.ones(1, 3)).detach())
    behind = torch.compile(m, backend="braid", fullgraph=True)
    y, said = warned(behind, torch.ones(2, 3))
    y.sum().backward()
    assert m.lin.weight.grad is not None and len(said) == 1 and "gradient" in said[0], said
    _, said = warned(behind, torch.ones(2, 3))
    assert not said, said


@check
def refusals():
    x = torch.ones(2)
    raises(braid.UnsupportedError, "behaviour_check.py:", braid.torch.compile, Decides(), (x,))
    raises(braid.UnsupportedError, "complex", braid.torch.compile, Complex(), (x,))
    raises(braid.UsageError, "write (x,)", braid.torch.compile, Linear(), x)
    raises(braid.UsageError, "not a function", braid.torch.compile, lambda x: x, (x,))
    raises(braid.UsageError, "a tuple of its arguments", braid.compile, Linear(), example_args=x)
    raises(braid.UnsupportedError, "bessel_j0", braid.torch.compile, Unknown(), (x,))
    behind = torch.compile(Unknown(), backend="braid", fullgraph=True)
    with torch.no_grad():
        y, said = warned(behind, x)
        equal(y, Unknown()(x))
        assert len(said) == 1 and "bessel_j0" in said[0], said
        y, said = warned(behind, x)
        equal(y, Unknown()(x))
        assert not said, said
    with torch.no_grad():  # torch itself cuts this one into graphs
        y, said = warned(torch.compile(Decides(), backend="braid"), x)
        equal(y, Decides()(x))
        assert not said, said


@check
def kept():
    x = torch.randn(2, 3)
    m, twin = Linear().eval(), Linear().eval()
    twin.load_state_dict(m.state_dict())
    before = len(_compiled)
    with torch.no_grad():
        behind = torch.compile(m, backend="braid", fullgraph=True)
        equal(behind(x), m(x))
        equal(torch.compile(twin, backend="braid", fullgraph=True)(x), m(x))
        assert len(_compiled) == before + 1, "equal graphs with equal weights are one"
        m.lin.weight.mul_(2)  # seen
        equal(behind(x), m(x))
        assert len(_compiled) == before + 2
        for _ in range(4):  # weights that go on changing become arguments
            m.lin.bias.add_(1)
            equal(behind(x), m(x))
        made = len(_compiled)
        m.lin.bias.add_(1)
        equal(behind(x), m(x))
        assert len(_compiled) == made
    with torch.inference_mode():
        equal(behind(x), m(x))


@check
def sizes():
    class Sizes(nn.Module):
        def forward(self, x, n):
            return x[:, :n].sum() + n, x.shape[0] * n

    with torch.no_grad():
        behind = torch.compile(Sizes(), backend="braid", fullgraph=True, dynamic=True)
        before = len(_compiled)
        for rows, n in ((4, 3), (6, 2), (9, 5)):
            x = torch.randn(rows, 8)
            found, said = warned(behind, x, n)
            equal_trees(found, Sizes()(x, n))
            assert not said, said
        assert len(_compiled) == before + 1, "compiled once for all sizes"


@check
def kinds():
    class Kinds(nn.Module):
        def forward(self, b, h, i):
            return ~b, h * 2, i + 1

    args = torch.tensor([True, False]), torch.randn(3).to(torch.bfloat16), torch.tensor([1, 2], dtype=torch.int32)
    fast = braid.torch.compile(Kinds(), args)
    for found, wanted in zip(fast(*args), Kinds()(*args)):
        equal(found, wanted)
    strided = torch.randn(4, 6).t()
    equal(braid.torch.compile(Linear(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))(strided[:, :3]).shape, torch.Size([6, 2]))


@check
def tensors():
    """Sessions take and write tensors of PyTorch; what they cannot take has a reason."""
    lib = braid.torch.compile(Linear().eval(), (torch.ones(2, 3),)).library
    s, x, y = lib.session(), torch.randn(2, 3), torch.empty(2, 2)
    wanted = s(x)
    assert s(x, out=y) is y and s.run([x], out=[y])[lib.outputs[0].name] is y
    equal(y, wanted)
    whole = torch.zeros(3, 2)
    s(x.numpy(), out=whole[1:])
    equal(whole, torch.cat([torch.zeros(1, 2), wanted]))
    for out, why in ((torch.empty(2, 2, dtype=torch.float64), "float64"), (torch.empty(3, 2), "3,2"), (torch.empty(2, 2).T, "row-major"),
                     (torch.empty(2, 2, device="meta"), "meta"), (torch.empty(2, 3), "2,3"), ([1.0], "NumPy array"),
                     (torch.empty(2, 2, dtype=torch.complex64), "element type")):
        raises(braid.UsageError, why, s, x, out=out)
    square = braid.torch.compile(Square(), (torch.ones(2, 2),)).library.session()
    raises(braid.UsageError, "shares memory", square, y, out=y)
    raises(braid.InputError, "detach", s, x, out=y.clone().requires_grad_())
    for wrong, why in ((x.to("meta"), "meta"), (x.to_sparse(), "layout"), (x.clone().requires_grad_(), "detach"), (x.double(), "float64"),
                       (x.to(torch.complex64), "element type")):
        raises(braid.InputError, why, s, wrong)


@check
def operators_by_relative_path():
    folder, here = tempfile.TemporaryDirectory(), os.getcwd()
    os.chdir(folder.name)
    try:
        braid.compile(Square(), example_args=[torch.ones(2, 2)], output="square.so", torch_name="behaviour::square", progress=False)
        op = braid.torch.load_library("square.so")
        assert braid.torch.load_library("square.so") is op
        braid.compile(Linear(), example_args=(torch.ones(2, 3),), output="square.so", torch_name="behaviour::other", progress=False)
        other = braid.torch.load_library("square.so")  # the file is another one now
        assert str(other) == "behaviour.other" and other(torch.ones(2, 3)).shape == (2, 2)
    finally:
        os.chdir(here)
    equal(op(torch.full((2, 2), 3.0)), torch.full((2, 2), 9.0))


@check
def threads():
    m = Linear().eval()
    fast = braid.torch.compile(m, (torch.ones(2, 3),), dynamic_shapes=({0: Dim.DYNAMIC},), threads=1)
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            x = torch.randn(seed + 1, 3, generator=generator)
            with torch.no_grad():
                if not torch.allclose(fast(x), m(x), atol=1e-6):
                    wrong.append(seed)

    pool = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert not wrong, wrong


@check
def exported():
    m = Linear().eval()
    data = braid.torch.export(m, (torch.ones(2, 3),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    library = braid.compile(data)
    assert [i.name for i in library.inputs] == ["x"] and [o.name for o in library.outputs] == ["output"], library
    with torch.no_grad():
        x = torch.randn(5, 3)
        equal(library(x), m(x))
        equal(braid.compile(m, example_args=(torch.ones(5, 3),))(x), m(x))


@check
def examples():
    found = doctest.testmod(sys.modules["braid.torch.compile"])
    assert found.attempted and not found.failed, found


def main():
    failed = 0
    chosen = [function for function in CHECKS if not sys.argv[1:] or function.__name__ in sys.argv[1:]]
    for function in chosen:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            function()
            print(f"ok   {function.__name__}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {function.__name__}: {type(error).__name__}: {error}", flush=True)
            if sys.argv[1:]:
                traceback.print_exc()
    print(f"{len(chosen) - failed} of {len(chosen)} hold")
    return failed > 0 or not chosen


if __name__ == "__main__":
    sys.exit(main())
