#!/usr/bin/env python3
"""Checks libraries that are operators of PyTorch (`braid compile --torch`): values, errors, tracing, threads.

    operator_check.py [--braid BRAID]

Run with a Python that has torch and onnx. Ends with the number of checks, and the time of a call beside that of the C interface.
"""
import argparse
import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import models_of_operators  # noqa: E402


def find_load_library():
    """braid.torch.operator alone: the package needs more than this check does."""
    spec = importlib.util.spec_from_file_location("operator_of_braid", HERE + "/../../shim/braid/torch/operator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load_library


load_library = find_load_library()

done = 0


def check(good, what):
    global done
    if not good:
        raise SystemExit("FAIL " + what)
    done += 1


def same(got, want, what):
    """Tensors, lists and None are equal, with type, shape and device."""
    if isinstance(want, (list, tuple)):
        check(isinstance(got, (list, tuple)) and len(got) == len(want), what + ": number of items")
        for g, w in zip(got, want):
            same(g, w, what)
    elif want is None:
        check(got is None, what + ": is not None")
    else:
        check(got.dtype == want.dtype and got.shape == want.shape and got.is_contiguous() and torch.equal(got, want), "%s: %s" % (what, got))


def fails(call, error, *texts):
    try:
        call()
    except error as why:
        for text in texts:
            check(text in str(why), "'%s' is not in: %s" % (text, why))
        return
    raise SystemExit("FAIL no %s for %s" % (error, texts))


def load(braid, folder, paths):
    for name, path in paths.items():
        library = os.path.join(folder, name + ".so")
        subprocess.run([braid, "compile", path, "--torch", "braidtest::" + name, "-o", library], check=True)
        if name == "halves":  # as a thread would that does not hold Python's lock
            dlopen = ctypes.CDLL(None).dlopen
            dlopen.restype = ctypes.c_void_p
            check(dlopen(library.encode(), os.RTLD_NOW), library)
        else:
            torch.ops.load_library(library)
    return torch.ops.braidtest


def values(ops):
    x, y = torch.arange(12.).reshape(3, 4), torch.ones(3, 4)
    check(str(ops.add.default._schema) == "braidtest::add(Tensor x, Tensor x_in) -> (Tensor, Tensor)", "schema of add")
    check(str(ops.lists.default._schema) == "braidtest::lists(Tensor[] s, Tensor x) -> (Tensor[], Tensor)", "schema of lists")
    check(str(ops.maybe.default._schema) == "braidtest::maybe(Tensor x, Tensor? y=None) -> (Tensor, Tensor?)", "schema of maybe")
    check(str(ops.names.default._schema).startswith("braidtest::names(Tensor a_b, Tensor a_b_2, Tensor x_1, Tensor x_self, Tensor x___)"), "schema of names")
    same(ops.names(*(torch.tensor(float(10 ** i)) for i in range(5))), torch.tensor(11111.), "names")
    check(torch.Tag.pt2_compliant_tag in ops.add.default.tags, "tags")
    same(ops.add(x, y), (x + y, torch.cat([x, y])), "add")
    same(ops.add(x_in=y, x=x), (x + y, torch.cat([x, y])), "add by name")
    for a, b in ((x.t().contiguous().t(), y), (torch.arange(24.).reshape(3, 8)[:, ::2], y), (x[:1].expand(3, 4), x), (x[1:], y[:2])):
        same(ops.add(a, b), (a + b, torch.cat([a, b])), "add of strides")
    same(ops.add(x[:0], y[:0]), (x[:0], x[:0]), "add of nothing")
    s0 = torch.tensor([1., 2.])
    for m in (0, 1, 5):
        want = [s0 * 2 ** (i + 1) for i in range(m)]
        same(ops.loop(torch.tensor(m), s0), (s0 * 2 ** m, torch.stack(want) if m else torch.empty(0, 2)), "loop")
    same(ops.branch(torch.tensor(True), s0), s0 + 1, "branch")
    same(ops.branch(torch.tensor(False), s0), -s0, "branch")
    for n in (0, 1, 3):
        items = [torch.full((i + 1, 2), float(i)) for i in range(n)]
        last = torch.arange(6.).reshape(2, 3).t()
        same(ops.lists(items, last), (items + [last], torch.cat(items + [last])), "lists")
    same(ops.maybe(s0), (s0, None), "maybe")
    same(ops.maybe(s0, s0 + 1), (2 * s0 + 1, s0 + 1), "maybe")
    where = torch.tensor([[0., 1, 0], [2, 0, 3]])
    same(ops.nonzero(where), where.nonzero().t().contiguous(), "nonzero")
    for n in (0, 1, 5):
        x = torch.arange(3. * n).reshape(n, 3)
        same(ops.halves(x), (x[:n // 2].bfloat16(), torch.tensor([2 * n])), "halves")
    same(ops.ones(), torch.ones(3), "ones")
    with torch.inference_mode():
        same(ops.add(y, y)[0], y + y, "inference mode")
    same(ops.add(torch._neg_view(y), y + 1)[0], torch.ones(3, 4), "add of what is to be negated")
    big = torch.ones(1000, 4)
    first, second = ops.add(big, big)
    check(len({t.data_ptr() for t in (big, first, second)}) == 3, "outputs have memory of their own")


def errors(ops):
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    fails(lambda: ops.add(x, y.double()), RuntimeError, "input 'in': expected float32[n,4], got float64[3,4]")
    fails(lambda: ops.add(x[0], y), RuntimeError, "input 'x': expected float32[n,4], got float32[4]")
    fails(lambda: ops.add(x, torch.ones(2, 4)), RuntimeError, "named n, has size 2")
    fails(lambda: ops.add(x, y + 0j), RuntimeError, "input 'in': its element type is not supported")
    fails(lambda: ops.add(x, y.to_sparse()), (RuntimeError, NotImplementedError), "Sparse")
    fails(lambda: ops.add(torch.ones([1] * 13), y), RuntimeError, "rank 13")
    fails(lambda: ops.add(x), RuntimeError, "x_in")
    fails(lambda: ops.lists([x, x.double()], x[:, :2]), RuntimeError, "input 's': expected a sequence of float32, got one of float64")
    fails(lambda: ops.maybe(x[0], x), RuntimeError, "input 'y'")
    same(ops.add(x, y)[0], x + y, "after the errors")


def traced(ops):
    def f(a, b):
        z, c = ops.add(a * 2, b)
        return z.relu(), c.sum(0), ops.halves(z[:, :3])[0]

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for n in (3, 5, 6, 9):  # from the second on, sizes are symbols
        a, b = torch.arange(4. * n).reshape(n, 4), torch.ones(n, 4)
        same(compiled(a, b), f(a, b), "compiled")

    class Module(torch.nn.Module):
        def forward(self, a, b):
            return f(a, b)

    n = torch.export.Dim("n", min=4, max=100)  # half of it is never 1, for which PyTorch would want another graph
    program = torch.export.export(Module(), (torch.ones(4, 4), torch.ones(4, 4)), dynamic_shapes=({0: n}, {0: n}))
    check(any("braidtest.add" in str(node.target) for node in program.graph.nodes), "the operator is in the exported graph")
    for n in (4, 9):
        a, b = torch.arange(4. * n).reshape(n, 4), torch.ones(n, 4)
        same(program.module()(a, b), f(a, b), "exported")
    whole = torch.compile(lambda x: ops.nonzero(x).sum(), fullgraph=True, backend="aot_eager")
    same(whole(torch.eye(3)), torch.tensor(6), "compiled nonzero")  # 3 columns, known only when it has run
    broken = torch.compile(lambda x, s: ops.lists([s, s], x)[1] * 2, backend="aot_eager")
    same(broken(torch.ones(1, 2), torch.ones(2, 2)), torch.full((5, 2), 2.), "a list breaks the graph")
    with FakeTensorMode():
        z, c = ops.add(x_in=torch.empty(5, 4), x=torch.empty(5, 4))
        y, twice = ops.halves(torch.empty(5, 3))
        check((z.shape, c.shape, y.shape, y.dtype, twice.shape) == ((5, 4), (10, 4), (2, 3), torch.bfloat16, (1,)), "fake shapes")
        check(ops.ones().shape == (3,), "fake shape of ones")
        fails(lambda: ops.maybe(torch.empty(3)), Exception, "braidtest.maybe")
    for op, arguments in ((ops.add, (torch.ones(3, 4), torch.ones(3, 4))), (ops.branch, (torch.tensor(True), torch.ones(3))), (ops.halves, (torch.ones(4, 3),))):
        results = torch.library.opcheck(op.default, arguments)
        check(results and all(v == "SUCCESS" for v in results.values()), "opcheck %s" % results)


def gradient(ops):
    x = torch.ones(3, 4, requires_grad=True)
    z, _ = ops.add(x, torch.ones(3, 4))
    same(z.detach(), torch.full((3, 4), 2.), "forward of what needs a gradient")
    fails(lambda: z.sum().backward(), UserWarning, "braidtest::add: an autograd kernel was not registered")
    with torch.no_grad():
        check(not ops.add(x, x)[0].requires_grad, "no gradient is asked for")


def threads(ops):
    wrong = []

    def work(k):
        for i in range(200):
            a = torch.full((3 + i % 4, 4), float(k))
            z, c = ops.add(a, a)
            last, _ = ops.loop(torch.tensor(i % 3), a[0])
            if not (torch.equal(z, a + a) and torch.equal(c, torch.cat([a, a])) and torch.equal(last, a[0] * 2 ** (i % 3))):
                wrong.append((k, i))

    for count in (torch.get_num_threads(), 1):
        torch.set_num_threads(count)
        team = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in team:
            t.start()
        for t in team:
            t.join()
    check(not wrong, "threads %s" % wrong[:3])


def leaks(ops):
    """Of tensors, lists and optionals, also after errors."""
    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    big, wide = torch.ones(1 << 18), torch.ones(1 << 17, 2)
    for i in range(220):
        if i == 20:
            before = resident()
        ops.maybe(big, big)
        ops.maybe(big)
        ops.lists([wide, wide.t().contiguous().t()], wide)
        fails(lambda: ops.lists([wide, wide.double()], wide), RuntimeError, "got one of float64")
        fails(lambda: ops.maybe(big, big.double()), RuntimeError, "float64")
    check(resident() - before < 40 << 20, "memory grows by %d MB" % ((resident() - before) >> 20))


def again(braid, folder):
    """A library of the same name does not take the operator's place; outside of PyTorch a library is as any other."""
    path = os.path.join(folder, "other.so")
    subprocess.run([braid, "compile", os.path.join(folder, "branch.onnx"), "--torch", "braidtest::add", "-o", path], check=True)
    said = os.path.join(folder, "said")
    stderr, log = os.dup(2), os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    try:
        fails(lambda: load_library(path), RuntimeError, "did not take the operator of " + path)
    finally:
        os.dup2(stderr, 2)
    with open(said) as f:
        text = f.read()
    check("braidtest::add cannot be registered" in text and "other.so" in text and "add.so" in text, "a second braidtest::add: " + text)
    same(torch.ops.braidtest.add(torch.ones(1, 4), torch.ones(1, 4))[0], torch.full((1, 4), 2.), "the first braidtest::add")
    out = subprocess.run([braid, "run", os.path.join(folder, "ones.so")], capture_output=True, text=True)
    check(out.returncode == 0 and out.stderr == "", "without PyTorch: " + out.stderr)
    check(load_library(os.path.join(folder, "ones.so")) is torch.ops.braidtest.ones, "load_library")
    plain = os.path.join(folder, "plain.so")
    subprocess.run([braid, "compile", os.path.join(folder, "ones.onnx"), "-o", plain], check=True)
    fails(lambda: load_library(plain), ValueError, "compiled without --torch")
    fails(lambda: load_library(os.path.join(folder, "none.so")), OSError, "none.so")


def example(folder):
    """The program in C++, without Python."""
    program = os.path.join(folder, "torch_operator")
    subprocess.run([HERE + "/../../examples/torch_operator/build.sh", sys.executable, program], check=True)
    call = [program, os.path.join(folder, "add.so"), "braidtest::add"]
    out = subprocess.run(call + ["3x4", "3x4"], capture_output=True, text=True)
    check(out.returncode == 0 and out.stdout.splitlines()[1:] == ["float[3, 4] sum 132", "float[6, 4] sum 132"], "C++: %s" % out)
    out = subprocess.run(call + ["3x4", "4"], capture_output=True, text=True)
    check(out.returncode == 1 and "input 'in': expected float32[n,4], got float32[4]" in out.stderr, "C++: %s" % out)


def overhead(ops, folder):
    helper = os.path.join(folder, "call_time.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-I", HERE + "/../../include", "-o", helper, HERE + "/call_time.c", "-ldl"], check=True)
    call = ctypes.CDLL(helper).call_time
    call.restype = ctypes.c_double
    x, y, f, n = torch.ones(3, 4), torch.ones(3, 4), ops.add.default, 100
    torch.set_num_threads(1)
    least = 1e18
    for _ in range(500):  # short series: others use the machine, too
        begin = time.perf_counter()
        for _ in range(n):
            f(x, y)
        least = min(least, (time.perf_counter() - begin) / n * 1e9)
    direct = call(os.path.join(folder, "add.so").encode(), 3, n)
    check(direct > 0, "call_time")
    return least, direct


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", default="build/release/braid")
    braid = os.path.abspath(parser.parse_args().braid)
    with tempfile.TemporaryDirectory() as folder:
        ops = load(braid, folder, models_of_operators.write(folder))
        values(ops)
        errors(ops)
        threads(ops)
        gradient(ops)
        leaks(ops)
        traced(ops)
        again(braid, folder)
        example(folder)
        operator, direct = overhead(ops, folder)
    print("%d checks with torch %s; a call takes %.2f us from Python, %.2f us in C" % (done, torch.__version__, operator / 1e3, direct / 1e3))


if __name__ == "__main__":
    main()
