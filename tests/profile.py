#!/usr/bin/env python3
"""braid profile against what models do: trips, arms, activations, barriers, times, traces, messages.

    profile.py BRAID

On the CPU with one and two threads and on emulated GPUs. What a profile counts is compared with what numpy or the
tree's structure says, its barriers with those that `explain` and `bench` count, its times with one another.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BRAID = os.path.abspath(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
F, I, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
KINDS = {"program", "loop", "branch", "arm", "call", "function", "activation", "group", "body", "product", "barrier"}
ONE, TWO = ["--threads", "1"], ["--threads", "2"]
GPU, HIP = ["--target", "emulate:cuda"], ["--target", "emulate:hip"]
RUNS = 3
count = bad = 0


def check(what, good, detail=""):
    global count, bad
    count += 1
    if not good:
        bad += 1
        print(f"FAIL: {what} {detail}")


def braid(*args):
    r = subprocess.run([BRAID, *map(str, args)], capture_output=True, text=True)
    return r.returncode, r.stdout, r.stderr


def good(*args):
    code, out, err = braid(*args)
    if code:
        sys.exit(f"braid {' '.join(map(str, args))}: {err}")
    return out


# ---- models --------------------------------------------------------------------------------------
def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def const(name, x):
    return numpy_helper.from_array(np.array(x), name)


def save(name, nodes, inputs, outputs, init):
    graph = helper.make_graph(nodes, name, inputs, outputs, init)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), name + ".onnx")
    return name + ".onnx"


def loops_model():
    """For each row of x: adds v = v * w + row until the sum of v exceeds `limit`, at most m times; rows whose first
    element is negative are skipped by a branch."""
    n = helper.make_node
    inner = helper.make_graph(
        [n("MatMul", ["u", "w"], ["u1"]), n("Add", ["u1", "row"], ["u2"]), n("Tanh", ["u2"], ["u3"]),
         n("ReduceSum", ["u3"], ["total"], keepdims=0), n("Less", ["total", "limit"], ["on"])],
        "inner", [value("j", I, []), value("c", BOOL, []), value("u", F, [1, 32])], [value("on", BOOL, []), value("u3", F, [1, 32])])
    then = helper.make_graph([n("Loop", ["m", "yes", "v"], ["vt"], name="inner", body=inner)], "then", [], [value("vt", F, [1, 32])])
    otherwise = helper.make_graph([n("Mul", ["v", "half"], ["ve"])], "else", [], [value("ve", F, [1, 32])])
    body = helper.make_graph(
        [n("Gather", ["x", "i"], ["row1"], axis=0), n("Unsqueeze", ["row1", "zero"], ["row"]), n("Gather", ["row1", "i0"], ["first"]),
         n("Greater", ["first", "nought"], ["take"]),
         n("If", ["take"], ["v1"], name="if", then_branch=then, else_branch=otherwise), n("Identity", ["c"], ["c1"])],
        "body", [value("i", I, []), value("c", BOOL, []), value("v", F, [1, 32])], [value("c1", BOOL, []), value("v1", F, [1, 32])])
    rng = np.random.default_rng(3)
    w = (rng.standard_normal((32, 32)) * 0.05).astype(np.float32)
    init = [const("w", w), const("half", np.float32(0.5)), const("nought", np.float32(0)), const("limit", np.float32(1.0)),
            const("zero", np.array([0])), const("i0", np.int64(0)), const("yes", True)]
    path = save("loops", [n("Loop", ["rows", "yes", "v0"], ["y"], name="outer", body=body)],
                [value("x", F, ["r", 32]), value("v0", F, [1, 32]), value("rows", I, []), value("m", I, [])], [value("y", F, [1, 32])], init)
    x = rng.standard_normal((17, 32)).astype(np.float32) * 0.3
    trips, taken, v = [], 0, np.zeros((1, 32), np.float32)
    for row in x:
        if row[0] > 0:
            taken += 1
            k = 0
            while k < 6:
                v = np.tanh(v @ w + row)
                k += 1
                if not v.sum() < 1.0:
                    break
            trips.append(k)
        else:
            v = v * 0.5
    data = {"x": x, "v0": np.zeros((1, 32), np.float32), "rows": np.int64(17), "m": np.int64(6)}
    return path, data, trips, taken


def steps_model(width, steps):
    """A recurrent loop that units share: products with barriers in each of its steps."""
    n = helper.make_node
    body = helper.make_graph(
        [n("Gather", ["x", "i"], ["row"], axis=0), n("MatMul", ["h", "w"], ["p"]), n("Add", ["p", "row"], ["q"]), n("Tanh", ["q"], ["h1"]),
         n("Identity", ["c"], ["c1"])],
        "body", [value("i", I, []), value("c", BOOL, []), value("h", F, [1, width])], [value("c1", BOOL, []), value("h1", F, [1, width])])
    rng = np.random.default_rng(4)
    init = [const("w", (rng.standard_normal((width, width)) * 0.03).astype(np.float32)), const("yes", True), const("t", np.int64(steps))]
    path = save(f"steps{width}", [n("Loop", ["t", "yes", "h0"], ["y"], name="steps", body=body)],
                [value("x", F, [steps, 1, width]), value("h0", F, [1, width])], [value("y", F, [1, width])], init)
    return path, {"x": rng.standard_normal((steps, 1, width)).astype(np.float32), "h0": np.zeros((1, width), np.float32)}


def tree_model():
    """treelstm of models/, with its test: activations and depth follow from its arrays."""
    subprocess.run([sys.executable, "-m", "models", "treelstm", "--small", "--out", os.getcwd()], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    model = onnx.load("treelstm/model.onnx")
    data = {}
    for k, i in enumerate(model.graph.input):
        with open(f"treelstm/test_data_set_0/input_{k}.pb", "rb") as f:
            data[i.name] = numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))

    def walk(node):
        if data["is_leaf"][node]:
            return 1, 1
        a, b = walk(data["left"][node]), walk(data["right"][node])
        return 1 + a[0] + b[0], 1 + max(a[1], b[1])

    walked = [walk(r) for r in data["roots"]]
    return "treelstm/model.onnx", data, sum(n for n, _ in walked), max(d for _, d in walked)


# ---- a profile -----------------------------------------------------------------------------------
def given(data):
    args = []
    for name, x in data.items():
        np.save(f"in_{name}.npy", x)
        args += ["-i", f"{name}=in_{name}.npy"]
    return args


def profile(model, data, *args):
    good("profile", model, *given(data), "--runs", RUNS, "--json", "p.json", "--trace", "t.json", *args)
    with open("p.json") as f:
        p = json.load(f)
    with open("t.json") as f:
        t = json.load(f)
    what = f"{model} {' '.join(args)}:"
    tree(what, p)
    times(what, p)
    timeline(what, p)
    trace(what, p, t)
    return p


def tree(what, p):
    units, parts = p["units"], p["parts"]
    check(f"{what} runs", p["runs"] == RUNS and p["format"] == 1, p["runs"])
    check(f"{what} the first part is the program", parts[0]["kind"] == "program" and parts[0]["parent"] is None)
    statement = -1
    for i, part in enumerate(parts):
        check(f"{what} part {i} stands in its place", part["id"] == i and (i == 0 or parts[part["parent"]]["id"] < i), part)
        check(f"{what} part {i}: its kind is known", part["kind"] in KINDS, part["kind"])
        check(f"{what} part {i} has numbers of each unit", all(len(part[k]) == units for k in ("executions", "timed")))
        every = part["every"]
        check(f"{what} part {i}: one of a power of two is timed", every >= 0 and every & (every - 1) == 0, every)
        check(f"{what} part {i}: times where it is timed", (part["ns"] is None) == (every == 0))
        if every == 1:
            check(f"{what} part {i}: all executions are timed", part["timed"] == part["executions"], part)
        if every > 1:
            check(f"{what} part {i}: few executions are timed",
                  all(t <= -(-e // every) + every for t, e in zip(part["timed"], part["executions"])), part)
        if part["kind"] not in ("program", "barrier", "arm", "function"):
            check(f"{what} part {i}: statements are in order", part["statement"] >= statement, part["statement"])
            statement = part["statement"]
        inside = parts[part["parent"]] if i else None
        if part["kind"] == "arm":
            check(f"{what} part {i}: an arm is in a branch", inside["kind"] == "branch")
        if inside and inside["kind"] == "loop" and part["kind"] not in ("barrier", "arm"):
            check(f"{what} part {i}: it is executed once a trip", part["executions"] == inside["trips"], (part["executions"], inside["trips"]))
        if part["kind"] == "branch":
            arms = [a["executions"] for a in parts if a["parent"] == i and a["kind"] == "arm"]
            check(f"{what} part {i}: one of two arms is taken each time", len(arms) == 2 and [sum(x) for x in zip(*arms)] == part["executions"])
        if part["kind"] == "loop":
            for n, all_, lo, hi in zip(part["executions"], part["trips"], part["trips_min"], part["trips_max"]):
                check(f"{what} part {i}: least and most trips fit the sum", lo <= hi and n * lo <= all_ <= n * hi, part)


def times(what, p):
    parts, children = p["parts"], {}
    for part in parts[1:]:
        children.setdefault(part["parent"], []).append(part)
    check(f"{what} the run takes as long as its longest unit", abs(max(parts[0]["ns"]) - p["run_ns"]) <= 0.2, p["run_ns"])
    for part in parts:
        if part["every"] != 1:
            continue
        for u in range(p["units"]):
            inside = sum(c["ns"][u] or 0 for c in children.get(part["id"], []) if c["every"] == 1)
            check(f"{what} part {part['id']}: what is inside takes no longer", inside <= part["ns"][u] * 1.001 + 200, (inside, part["ns"]))


def timeline(what, p):
    parts, last, open_ = p["parts"], None, []
    check(f"{what} nothing is dropped", p["timeline"]["dropped"] == [0] * p["units"])
    seen = [0] * p["units"]
    for unit, part, begin, end, trips in p["timeline"]["events"]:
        if unit != last:
            last, open_ = unit, []
        while open_ and open_[-1][1] <= begin:
            open_.pop()
        check(f"{what} events are nested", begin <= end and (not open_ or end <= open_[-1][1]), (unit, part, begin, end))
        inside, around = parts[part]["parent"], set()
        while inside is not None and parts[inside]["every"] != 1:  # these are timed now and then, or never
            around.add(inside)
            inside = parts[inside]["parent"]
        if parts[part]["every"] == 1 and inside is not None and "call" not in {x["kind"] for x in parts}:
            check(f"{what} an event is in that of the part around it", open_ and open_[-1][0] in around | {inside}, (part, open_))
        if parts[part]["kind"] == "loop":
            check(f"{what} a loop's event has its trips", parts[part]["trips_min"][unit] <= trips <= parts[part]["trips_max"][unit], trips)
        open_.append((part, end))
        seen[unit] += part == 0
    check(f"{what} each unit has one run", seen == [1] * p["units"], seen)


def trace(what, p, t):
    stack, last, names = {}, {}, set()
    for e in t["traceEvents"]:
        check(f"{what} trace: an event of a known kind", e["ph"] in "MBEC" and e["pid"] == 1, e)
        if e["ph"] == "M":
            names.add(e.get("tid"))
            continue
        tid = e["tid"]
        check(f"{what} trace: a track with a name", tid in names, tid)
        check(f"{what} trace: time goes on", e["ts"] >= last.get(tid, 0), e)
        last[tid] = e["ts"]
        if e["ph"] == "B":
            stack.setdefault(tid, []).append(e)
            part = p["parts"][e["args"]["part"]]
            check(f"{what} trace: a part's name, path and level", e["cat"] == part["kind"] and e["args"]["path"] == part["path"] and
                  e["args"]["level"] == part["level"] and e["name"], e)
        elif e["ph"] == "E":
            check(f"{what} trace: every end has a begin", stack.get(tid), e)
            stack[tid].pop()
        else:
            check(f"{what} trace: counters are numbers", list(e["args"]) == ["trips"] and e["args"]["trips"] >= 0, e)
    check(f"{what} trace: every begin has an end", not any(stack.values()) and len(stack) == p["units"], stack)


def of_kind(p, kind, path=""):
    return [x for x in p["parts"] if x["kind"] == kind and path in x["path"]]


# ---- counts --------------------------------------------------------------------------------------
def check_loops():
    model, data, trips, taken = loops_model()
    for args in (ONE, TWO, GPU, ["--target", "plain"]):
        p = profile(model, data, *args)
        what = f"{model} {' '.join(args)}:"
        ran = np.zeros(p["units"], int)  # by each unit: of what one core runs alone only that one counts
        for loop in of_kind(p, "loop", "inner"):
            ran += np.array(loop["trips"]) * loop["step"]
        check(f"{what} trips of the inner loop", ran.max() == RUNS * sum(trips) and set(ran) <= {0, RUNS * sum(trips)}, (ran, sum(trips)))
        outer = [x for x in of_kind(p, "loop", "outer") if "inner" not in x["path"]]
        ran = sum(np.array(x["trips"]) * x["step"] for x in outer)
        check(f"{what} trips of the outer loop", max(ran) == RUNS * 17, ran)
        inner = of_kind(p, "loop", "inner")
        if len(inner) == 1 and inner[0]["step"] == 1:
            check(f"{what} least and most trips", max(inner[0]["trips_max"]) == max(trips) and
                  [x for x in inner[0]["trips_min"] if x] == [min(trips)] * sum(x > 0 for x in ran), (inner[0], min(trips), max(trips)))
        for branch in of_kind(p, "branch", "if"):
            arms = [max(a["executions"]) for a in p["parts"] if a["parent"] == branch["id"]]
            check(f"{what} arms of the branch", arms == [RUNS * taken, RUNS * (17 - taken)], (arms, taken))
        check(f"{what} there is a branch", of_kind(p, "branch", "if"))
    check("the loop ends at different trips", len(set(trips)) > 1 and 0 < taken < 17, trips)


def check_barriers():
    for args, width, steps in ((GPU, 128, 10), (TWO, 512, 100)):
        model, data = steps_model(width, steps)
        what = f"{model} {' '.join(args)}:"
        p = profile(model, data, *args)
        waits = np.sum([x["executions"] for x in of_kind(p, "barrier")], axis=0)
        e = json.loads(good("explain", model, *args, "--json"))
        inside = sum(x["barriers"] + x["flags"] for x in e["loops"])
        trips = {x["path"]: x["trips"][0] // RUNS for x in of_kind(p, "loop")}
        planned = e["barriers"] + e["flags"] - inside + sum((x["barriers"] + x["flags"]) * trips[x["path"]] for x in e["loops"])
        check(f"{what} barriers as explain plans them", list(waits) == [RUNS * planned] * p["units"] and planned > 0, (waits, planned))
        check(f"{what} trips", sum(x["trips"][0] * x["step"] for x in of_kind(p, "loop", "steps")) == RUNS * steps)
        check(f"{what} waits take time", all(sum(x["ns"][u] or 0 for x in of_kind(p, "barrier")) > 0 for u in range(p["units"])))
    ran = json.loads(good("bench", model, *given(data), *args, "--json"))["synchronizations"]
    check(f"{what} barriers as bench counts them", planned == ran > steps, (planned, ran))
    p = profile(model, data, *ONE)
    check("one unit waits for nobody", not np.any([x["executions"] for x in of_kind(p, "barrier")]))


def check_recursion():
    model, data, nodes, depth = tree_model()
    for args, unrolled in ((ONE, "on"), (TWO, "off"), (HIP, "off")):
        p = profile(model, data, *args, "--schedule", f"linearize=off,batch=off,unroll-recursion={unrolled},parallel=off")
        what = f"{model} {' '.join(args)} unroll-recursion={unrolled}:"
        parts = of_kind(p, "function") + of_kind(p, "activation")
        ran = np.sum([x["executions"] for x in parts], axis=0)
        check(f"{what} activations", list(ran) == [RUNS * nodes] * p["units"], (ran, nodes))
        check(f"{what} depth", np.max([x["deepest"] for x in parts], axis=0).tolist() == [depth] * p["units"], depth)
    p = profile(model, data, *TWO, "--schedule", "linearize=off,batch=off,unroll-recursion=off,parallel=on")
    ran = np.sum([x["executions"] for x in of_kind(p, "function")], axis=0)
    check("calls that units run alone are counted once", ran.max() <= RUNS * nodes <= ran.sum(), (ran, nodes))
    for args in (ONE, TWO):  # by heights
        p = profile(model, data, *args, "--schedule", "linearize=on")
        ran = [x["executions"] for x in of_kind(p, "body") if x["name"] == "linearize"]
        check("one unit numbers the nodes", len(ran) == 1 and max(ran[0]) == RUNS, ran)
        heights = of_kind(p, "loop")
        check("heights", [max(x["trips"]) for x in heights] == [RUNS * depth], (heights, depth))
        said = json.loads(good("bench", model, *given(data), *args, "--schedule", "linearize=on", "--json"))["linearizer"]
        check("nodes and heights", (said["nodes"], said["heights"]) == (nodes, depth) and said["ns"] > 0, said)


# ---- libraries and messages ----------------------------------------------------------------------
def check_libraries():
    model, data = steps_model(512, 100)
    inputs = given(data)
    good("compile", model, "-o", "plain.so", *TWO)
    good("compile", model, "-o", "own.so", "--profile", *TWO)
    for lib in ("plain.so", "own.so"):
        good("run", f"./{lib}", *inputs, *TWO, "-o", lib + ".out")
    a, b = (np.load(x + ".so.out/output_0.npy") for x in ("plain", "own"))
    check("a library that measures itself gives equal results", np.array_equal(a, b), np.abs(a - b).max())
    p = profile("./own.so", data, *TWO)
    check("a library's trips", sum(x["trips"][0] * x["step"] for x in of_kind(p, "loop", "steps")) == RUNS * 100)
    out = good("profile", model, *inputs, "--runs", 1, *TWO)
    check("the table shows the loop and its trips", "loop steps (Loop)" in out and "100.00" in out and "2 units, 1 run of" in out, out)
    out = good("profile", model, *inputs, "--runs", 1, "--json", "-")
    check("--json - prints nothing else", json.loads(out)["runs"] == 1)
    for args, code, words in (
            (["./plain.so"], 2, "compiled without a profile"), ([model, "--target", "interp"], 2, "interpreter"),
            ([model, "--json", "-", "--shapes"], 2, "--shapes"), ([model, "--runs", "0"], 2, "--runs"),
            ([model, "--json", "no/folder/p.json"], 1, "no/folder/p.json"), (["missing.onnx"], 1, "missing.onnx")):
        c, out, err = braid("profile", *args, *(inputs if args[0] != "missing.onnx" else []))
        check(f"profile {' '.join(args)}: {words}", c == code and words in err and not out, (c, err))


def check_shapes():
    """A loop that grows its value by a row of 4 in each of 5 trips."""
    n = helper.make_node
    body = helper.make_graph([n("Concat", ["v", "row"], ["v1"], axis=0, name="more"), n("Identity", ["c"], ["c1"])], "body",
                             [value("i", I, []), value("c", BOOL, []), value("v", F, ["k", 4])], [value("c1", BOOL, []), value("v1", F, ["k1", 4])])
    init = [const("yes", True), const("t", np.int64(5))]
    path = save("grows", [n("Loop", ["t", "yes", "v0"], ["y"], name="grow", body=body)], [value("v0", F, ["n", 4]), value("row", F, [1, 4])],
                [value("y", F, ["m", 4])], init)
    data = {"v0": np.zeros((2, 4), np.float32), "row": np.ones((1, 4), np.float32)}
    out = good("profile", path, *given(data), "--runs", 1, "--shapes", *ONE)
    lines = [x.split() for x in out.splitlines() if x.startswith("v1 grow/")]
    check("--shapes: times, shapes, first, least and most", len(lines) == 1 and lines[0][-5:] == ["5", "5", "[3,4]", "[3,4]", "[7,4]"], out)


def check_counted():
    """The counted path of emulated GPUs: its parts make it up, and a longer loop has a longer one by whole steps."""
    rng = np.random.default_rng(5)
    for target, barrier in ((GPU, 604), (HIP, 1088)):
        path = {}
        for length in (4, 8, 12):
            weights = [const("w", 0.1 * rng.standard_normal((1, 64, 16)).astype(np.float32)), const("r", 0.1 * rng.standard_normal((1, 64, 16)).astype(np.float32))]
            model = save(f"counted{length}", [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)],
                         [value("x", F, (length, 2, 16))], [value("y", F, (length, 1, 2, 16))], weights)
            p = profile(model, {"x": rng.standard_normal((length, 2, 16)).astype(np.float32)}, *target, "--schedule", "core=off,unroll=off,hoist=off,team=on,grid=on,cluster=off")
            check("one launch is counted", len(p["counted"]) == 1, p["counted"])
            c = p["counted"][0]
            parts = sum(f["ns"] for f in c["functions"])
            check("functions make up the path", abs(parts - c["ns"]) < 1, (parts, c["ns"]))
            check("and so do kinds", abs(sum(c["by"].values()) - c["ns"]) < 1, (c["by"], c["ns"]))
            met = [f for f in c["functions"] if f["name"] == "bk_barrier"]
            # what stores wait for on their way is the group's that made them: a fifth to a quarter of the hop
            check("a barrier is one hop", met and 0.7 * barrier < met[0]["ns"] / met[0]["times"] < 0.9 * barrier, met)
            path[length] = c["ns"]
        check("steps are alike", 0.9 < (path[12] - path[8]) / (path[8] - path[4]) < 1.1, path)


def check_compilers():
    """The device's texts compile where there are compilers."""
    tools = {"cuda:sm_80": shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc"), "hip:gfx90a": shutil.which("hipcc")}
    for target, tool in tools.items():
        if not tool:
            print(f"no compiler: nothing is compiled for {target}")
            continue
        code, _, err = braid("compile", "treelstm/model.onnx", "--profile", "--target", target, "--schedule", "batch=off,unroll-recursion=off", "-o", "gpu.so")
        check(f"compile --profile for {target}", code == 0, err)


def main():
    with tempfile.TemporaryDirectory() as work:
        os.environ.setdefault("BRAID_CACHE", work + "/cache")
        os.chdir(work)
        check_loops()
        check_barriers()
        check_recursion()
        check_libraries()
        check_shapes()
        check_counted()
        check_compilers()
    print(f"{count - bad} checks passed, {bad} failed")
    return bad > 0 or count < 1000


sys.exit(main())
