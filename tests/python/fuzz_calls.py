#!/usr/bin/env python3
"""Random calls, right and wrong, to everything in the package: none crashes, and only declared exceptions come.

    fuzz_calls.py N [--seed S]

Declared are braid.Error, TypeError where a signature does not take a type, and what an argument's own methods raise
(Mine). A third of the calls is right: their results are compared. With the extension built with AddressSanitizer run
it as LD_PRELOAD=$(cc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0.
"""
import argparse
import array
import collections
import os
import random
import sys
import tempfile

import braid
import ml_dtypes
import numpy as np
from models import ADD, DRAW, FOLDER, JOIN, MAYBE, NEG, OPEN_STEP, PICK, SPLIT, STEP, TWO, WRAP, carried, library, move, source

DTYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "O", "U3", "M8[s]", "V5", ">f4", ">i8",
          ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2, ml_dtypes.uint4]
NAMES = ["x", "a", "b", "i", "input", "state", "parts", "out", "y", "n", "", "é", "\0", "x" * 300]


class Mine(Exception):
    """Raised by arguments."""


class Odd:
    """An object whose methods may do anything."""

    def __init__(self, r):
        self.r = r

    def __call__(self, *a, **k):
        return self.answer()

    def answer(self):
        r = self.r
        if r.random() < 0.4:
            raise Mine("no")
        return r.choice([None, 3, "a", np.zeros(2, np.float32), (1, 0), (2, 0), (1,), [], object(), -1, 2**70])

    def __array__(self, *a, **k):
        return self.answer()

    def __len__(self):
        return self.r.choice([0, 2, 5])

    def __getitem__(self, i):
        return self.answer()


class OddTensor(Odd):
    def __dlpack__(self, **k):
        return self.answer()

    def __dlpack_device__(self):
        return self.r.choice([(1, 0), (1, 0), (2, 0), (12, 0)]) if self.r.random() < 0.7 else self.answer()


class Tensor:
    def __init__(self, a, device=(1, 0)):
        self.a, self.device = a, device

    def __dlpack__(self, **k):
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return self.device


class Sub(np.ndarray):
    pass


def random_array(r, dtype=None):
    dtype = dtype or r.choice(DTYPES if r.random() < 0.5 else ["f4", "i8"])
    rank = r.choice([0, 1, 1, 1, 2, 2, 3, r.randrange(4, 20)])
    shape = tuple(r.choice([1, 2, 2, 2, 3, 4, 0]) for _ in range(rank)) if rank < 4 else (1,) * rank
    try:
        a = np.frombuffer(r.randbytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape).copy()
    except (ValueError, TypeError):
        a = np.zeros(shape, dtype)
    way = r.randrange(9)
    if way == 0 and rank:
        a = a[::-1]
    elif way == 1:
        a = a.T
    elif way == 2 and rank:
        a = np.repeat(a, 2, 0)[::2]
    elif way == 3:
        a = a.view(Sub)
    elif way == 4:
        a.flags.writeable = False
    elif way == 5 and a.dtype.kind == "f" and a.dtype.isnative and rank:
        raw = np.zeros(a.nbytes + 1, np.uint8)
        raw[1:] = np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8)
        a = raw[1:].view(a.dtype).reshape(a.shape)
    return a


def thing(r, depth=0):
    way = r.randrange(22)
    if way < 9:
        return random_array(r)
    if way < 11:
        return Tensor(random_array(r), r.choice([(1, 0)] * 3 + [(2, 0), (13, 1), (3, 0)]))
    if way < 14 and depth < 3:
        items = [thing(r, depth + 1) for _ in range(r.randrange(4))]
        return r.choice([list, tuple])(items)
    if way < 15 and depth < 3:
        return {r.choice(NAMES + [3, None]): thing(r, depth + 1) for _ in range(r.randrange(3))}
    return r.choice([None, True, 0, -1, 1.5, float("nan"), 2**31, 2**63, 2**70, -2**70, 1j, "abc", b"ab", bytearray(8),
                     array.array("f", [1, 2]), memoryview(b"abcdefgh").cast("f"), np.float32(3), np.int64(1), np.str_("x"),
                     Odd(r), OddTensor(r), object(), Tensor, np.float32, range(3), {1, 2}, Ellipsis, ml_dtypes.bfloat16(2)])


def floats(r, n):
    return np.array([r.uniform(-9, 9) for _ in range(n)], np.float32)


def right(r, lib):
    """Right inputs for a library of LIBRARIES, and the outputs (None: not known), by its name."""
    n = r.randrange(6)
    x = floats(r, n)
    same = lambda a: r.choice([a, Tensor(a), a[::-1].copy()[::-1], a.astype(">f4"), a.tolist(), memoryview(a)])  # noqa: E731
    two = floats(r, 2)
    return {
        "g": lambda: ([same(two)], [-two]),
        "add": lambda: ([same(x), same(x)], [x + x]),
        "two": lambda: ([same(x)], [-x, np.array([n])]),
        "pick": lambda: ([floats(r, 4) * 0 + 5, r.randrange(-4, 4)], [np.float32(5)]),
        "split": lambda: ([x], None),
        "join": lambda: ([[x, same(two)]], [np.concatenate([x, two])]),
        "maybe": lambda: ([two], [True, two]),
        "wrap": lambda: ([same(two)], [two]),
        "draw": lambda: ([floats(r, 4)], None),
        "step": lambda: ([two, two], [-(two + two), two + two]),
        "move": lambda: ([np.zeros((2, 3), "f4").astype(lib.inputs[0].dtype)], None),
    }[lib.name]()


def equal(got, want):
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-6)


def a_right_call(r, lib, session):
    args, want = right(r, lib)
    names = [io.name for io in lib.inputs]
    way = r.randrange(4)
    if way == 0:
        got = session(*args)
    elif way == 1:
        got = session(**dict(zip(names, args)))
    elif way == 2:
        got = tuple(session.run(dict(zip(names, args))).values())
    else:
        got = lib(*args)
    if want is not None:
        equal(got, want)


def a_wrong_call(r, lib, session):
    args = [thing(r) for _ in range(r.randrange(4))]
    names = {r.choice(NAMES): thing(r) for _ in range(r.choice([0, 0, 1, 2]))}
    if r.random() < 0.3:  # nearly right
        args, names = right(r, lib)[0], {}
        if args:
            args[r.randrange(len(args))] = thing(r)
    ways = [lambda: session(*args, **names), lambda: session(*args, out=thing(r), **{k: v for k, v in names.items() if k != "out"}),
            lambda: session.run(r.choice([args, names, thing(r)]), out=thing(r)), lambda: session.run(*args, **names),
            lambda: session.step(*args, **names), lambda: session.seed(thing(r)), lambda: session.stats, session.reset,
            lambda: setattr(session, "state", thing(r)), lambda: session.state, lambda: session.to_device(thing(r)),
            lambda: session.to_host(thing(r)), lambda: setattr(session, "stream", thing(r)), session.finish, session.cancel,
            lambda: session.__exit__(*args), lambda: lib(*args, **names), lambda: repr(session), session._repr_html_,
            lambda: lib.session(**{r.choice(["threads", "seed", "max_memory", "device", "max_iterations", "x"]):
                                   r.choice([1, 2, thing(r)])})]
    r.choice(ways)()


def a_compilation(r):
    model = r.choice([source(r.choice([NEG, STEP, TWO])), source(NEG)[:r.randrange(60)], thing(r), f"{FOLDER.name}/{r.choice(NAMES)}"])
    options = {"target": "interp", "progress": False}
    for _ in range(r.randrange(3)):
        name = r.choice(["target", "threads", "cpu", "scan", "carry", "shapes", "schedule", "cc", "cache", "cache_dir", "progress",
                         "tune_inputs", "tune_seconds", "ignore_dim_names", "weights", "torch_name", "example_args", "z"])
        options[name] = r.choice([thing(r), "x", {"x": "y"}, {"x": 0}, [("x", 0)], {"x": (2,)}, {"state": "stateN"}, 1])
    if not isinstance(options["target"], str) or options["target"] != "interp":
        options.update(cc="/bin/false", cache=False)
    if r.random() < 0.1:
        return braid._braid.load(thing(r), **{k: v for k, v in options.items() if k != "example_args"})
    return braid.load(model, target="interp") if r.random() < 0.1 else braid.compile(model, **options)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("calls", type=int)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    libraries = [library(t) for t in (NEG, ADD, TWO, PICK, SPLIT, JOIN, MAYBE, WRAP, DRAW, move("bfloat16"), move("int4"))]
    libraries += [library(t, "cpu") for t in (NEG, TWO, JOIN, MAYBE)] + [carried(STEP), carried(STEP, "cpu"), carried(OPEN_STEP)]
    sessions = [lib.session(threads=1) for lib in libraries]
    ended, work = collections.Counter(), tempfile.TemporaryDirectory()
    os.chdir(work.name)  # names without a folder are here
    for i in range(a.calls):
        r = random.Random(a.seed * 1_000_003 + i)
        k = r.randrange(len(libraries))
        if sessions[k].closed or r.random() < 0.01:
            sessions[k] = libraries[k].session(threads=1)
        try:
            kind = r.random()
            if kind < 0.33:
                a_right_call(r, libraries[k], sessions[k])
            elif kind < 0.95:
                with np.errstate(all="ignore"):
                    a_wrong_call(r, libraries[k], sessions[k])
            else:
                a_compilation(r)
            ended["done"] += 1
        except (braid.Error, TypeError, Mine) as e:
            if kind < 0.33:
                print(f"call {i}: a right call failed")
                raise
            ended[type(e).__name__] += 1
        except BaseException:
            print(f"call {i} of seed {a.seed}: {libraries[k]}", file=sys.stderr)
            raise
    few = [e for e in ("done", "InputError", "UsageError", "TypeError") if ended[e] < a.calls // 100]
    print(", ".join(f"{k} {n}" for k, n in ended.most_common()))
    return 1 if few else 0


if __name__ == "__main__":
    sys.exit(main())
