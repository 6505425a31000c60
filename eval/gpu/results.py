#!/usr/bin/env python3
"""Combines what the parts of eval/gpu/check.sh have written so far, as JSON and as Markdown.

    results.py --work WORK --out OUT

Every file of WORK may be missing or incomplete; then its part of the result is, too. Prints a summary.
"""
import argparse
import json
import os
import re
import shutil

# The parts in the order of check.sh, and their purposes.
PARTS = {
    "machine-build": "builds the next",
    "machine": "what launches, barriers and memory cost",
    "conformance": "ONNX backend tests, compiled here, against their stored outputs",
    "build": "writes and compiles all models",
    "choices": "what the scheduler would choose by these costs",
    "models": "every model against the outputs that numpy expects",
    "times": "every model beside its peers",
    "traces": "what blocks wait for, at full size for batch 1",
    "stress": "thousands of runs with random delays: the same bits",
    "sanitizer": "compute-sanitizer on small models",
}
SHOWN = 40  # failures of a part


def read(folder, name):
    try:
        with open(os.path.join(folder, name), errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def read_json(folder, name):
    try:
        return json.loads(read(folder, name))
    except ValueError:
        return None


def fields(text):
    return [line.split("\t") for line in text.splitlines() if "\t" in line]


def parts(work):
    found = []
    for name, status, seconds, limit in (f for f in fields(read(work, "parts.tsv")) if len(f) == 4):
        lines = [s for s in read(work, f"{name}.log").splitlines() if s.strip()]
        code = int(status)
        found.append({"name": name, "status": code, "seconds": int(seconds),
                      "limit": int(limit) if limit else None,
                      "said": lines[-1][-300:] if lines else "",
                      "outcome": {0: "done", 124: "out of time", 137: "out of time"}.get(
                          code, f"failed ({code})")})
    return found


def tests(work, name):
    """The results of tests, from the output of `braid test`."""
    log = read(work, f"{name}.log")
    counts = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", log, re.MULTILINE)
    if not counts:
        return None
    passed, failed, skipped = map(int, counts[-1])
    return {"passed": passed, "failed": failed, "skipped": skipped,
            "failures": re.findall(r"^FAIL (.*)", log, re.MULTILINE),
            "skips": re.findall(r"^SKIP (.*)", log, re.MULTILINE)}


def traces(folder):
    """{model: what traces.py found}; None if there are none."""
    names = sorted(f for f in (os.listdir(folder) if os.path.isdir(folder) else ()) if f.endswith(".json") and not f.endswith(".trace.json"))
    return {f.removesuffix(".json"): read_json(folder, f) for f in names} or None


def gather(work):
    facts = dict(f[:2] for f in fields(read(work, "facts.tsv")))
    return {"facts": facts, "parts": parts(work), "machine": read_json(work, "machine.json"),
            "conformance": tests(work, "conformance"),
            "sanitizer": read_json(work, "sanitizer.json"), "build": read_json(work, "build.json"),
            "choices": read_json(work, "choices.json"), "models": tests(work, "models"),
            "traces": traces(os.path.join(work, "traces")),
            "stress": read_json(work, "stress.json"), "times": read_json(work, "times/times.json")}


# ---- Markdown
def cell(text):
    return " ".join(str(text).replace("|", "/").split())


def table(heads, rows):
    numbers = [bool(rows) and all(isinstance(r[i], (int, float)) for r in rows) for i in range(len(heads))]
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "|".join("--:" if n else "---" for n in numbers) + "|"
    for row in rows:
        yield "| " + " | ".join(cell(v) for v in row) + " |"
    yield ""


def listed(title, items):
    if items:
        yield f"{title}:"
        yield ""
        yield from (f"- {cell(i)[:500]}" for i in items[:SHOWN])
        if len(items) > SHOWN:
            yield f"- and {len(items) - SHOWN} more"
        yield ""


def machine(m):
    yield "## The machine"
    yield ""
    yield (f"{m['name']}, {m['target']}, {m['multiprocessors']} multiprocessors, {m['clock_mhz']} MHz, "
           f"{m['memory_bytes'] / 2**30:.0f} GiB, L2 {m['l2_bytes'] / 2**20:.0f} MiB, "
           f"driver for CUDA {m['driver']}.")
    yield ""
    yield from table(["", "", "", "what"], [
        [k["name"], "failed" if k["value"] is None else f"{k['value']:.5g}", k["unit"],
         k["about"] + (f" ({k['problem']})" if "problem" in k else "")] for k in m["measured"]])


def checks(title, t):
    yield f"## {title}"
    yield ""
    yield f"{t['passed']} passed, {t['failed']} failed, {t['skipped']} skipped."
    yield ""
    yield from listed("Failures", t["failures"])


def sanitizer(runs):
    yield "## compute-sanitizer"
    yield ""
    yield from table(["model", "tool", "result", "s"], [
        [r["model"], r["tool"], r.get("summary") or f"FAILED: {r['failed']}", r["seconds"]]
        for r in sorted(runs, key=lambda r: (r["model"], r["tool"]))])


def stress(runs):
    yield "## Runs with random delays"
    yield ""
    yield from table(["model", "", "blocks", "sessions", "runs", "result"], [
        [r["model"], r["kind"], r["blocks"], r["sessions"], r["runs"], f"FAILED: {r['failed']}" if "failed" in r else "the same bits"]
        for r in runs])


def waits(found):
    yield "## What blocks wait for"
    yield ""
    yield "Of the last run: the synchronization where most time is spent, and the function that takes most in the slowest block."
    yield ""
    rows = []
    for name, t in found.items():
        meet = max(t["meets"], key=lambda m: m["wait_ns"] * m["passes"], default=None)
        f = max(t["functions"], key=lambda f: f["all_ns"], default=None)
        rows.append([name, t["blocks"], round(t["run_ns"] / 1000, 1), round(t["step"]["ns"] / 1000, 2) if "step" in t else "",
                     f"{meet['name']} {meet['behind']}: {meet['passes']} × {meet['wait_ns']:.0f} ns, block {meet['last']} comes "
                     f"{meet['late_ns']:.0f} ns late" if meet else "",
                     f"{f['name']}: {f['times']} × {f['ns']:.0f} ns" if f else ""])
    yield from table(["model", "blocks", "µs", "a step, µs", "synchronization", "function"], rows)


def build(b):
    failed = [r for r in b["done"] if "failed" in r]
    yield "## Compiled models"
    yield ""
    yield f"{len(b['done']) - len(failed)} of {b['wanted']}, {len(failed)} failed."
    yield ""
    yield from listed("Failures", [f"{r['name']}: {r['failed']}" for r in failed])


def choices(rows):
    good = [r for r in rows if "failed" not in r]
    changed = [r for r in good if r["changed"]]
    yield "## Choices by measured costs in place of published ones"
    yield ""
    yield f"Of {len(good)} models {len(changed)} would be compiled otherwise."
    yield ""
    yield from listed("Failures", [f"{r['model']}: {r['failed']}" for r in rows if "failed" in r])
    yield from table(["model", "published, µs", "measured, µs", "choices that differ"], [
        [r["model"], round(r["published_ns"] / 1000, 1), round(r["measured_ns"] / 1000, 1),
         "; ".join(f"{c['choice']} {c['path']}: {c['published']} → {c['measured']}"
                   for c in r["changed"][:4]) + ("; …" if len(r["changed"]) > 4 else "")]
        for r in changed])


def markdown(r, times):
    facts = r["facts"]
    card = facts.get("card") or (r["machine"] or {}).get("name")
    yield f"# Braid on {card or 'an unknown GPU'}"
    yield ""
    yield ", ".join(f"{k} {v}" for k, v in facts.items() if k != "card" and v) + "."
    yield ""
    yield from table(["part", "outcome", "s", "", "its last line"], [
        [p["name"], p["outcome"], p["seconds"], PARTS.get(p["name"], ""), p["said"]] for p in r["parts"]])
    for key, section in (("machine", machine), ("conformance", lambda t: checks("Conformance", t)),
                         ("models", lambda t: checks("Models", t)), ("traces", waits), ("stress", stress),
                         ("sanitizer", sanitizer), ("build", build), ("choices", choices)):
        if r[key] is not None:
            try:
                yield from list(section(r[key]))
            except (KeyError, TypeError, ValueError) as e:
                yield f"{key}: not in the expected form ({e!r})"
                yield ""
    if times:
        yield "## Times"
        yield ""
        yield re.sub(r"^#", "##", times, flags=re.MULTILINE)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    results = gather(args.work)
    text = "\n".join(markdown(results, read(args.work, "times/times.md")))
    for name in "machine.json", "times/times.json", "times/times.md":
        if os.path.exists(os.path.join(args.work, name)):
            shutil.copy(os.path.join(args.work, name), args.out)
    for name, content in ("results.json", json.dumps(results, indent=1)), ("results.md", text):
        part = os.path.join(args.work, name)
        with open(part, "w") as f:
            f.write(content + "\n")
        shutil.copy(part, os.path.join(args.out, name))
    for part in results["parts"]:
        print(f"{part['outcome']:12} {part['seconds']:4} s  {part['name']:12} {part['said']}")


if __name__ == "__main__":
    main()
