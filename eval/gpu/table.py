"""The measurements of times.py as Markdown and JSON."""
import json
import os
import subprocess

from machine import machine
from report import geomean, ratio

COLUMNS = {"eager": "PyTorch eager", "CUDA graph": "CUDA graphs", "torch.compile": "torch.compile",
           "cuDNN": "cuDNN", "JAX": "JAX"}
GROUPS = {"loops": "loops", "branches": "branches", "trees": "trees, level batches included",
          "node by node": "trees, against what walks node by node", "other": "others", "trips": "trips"}


def device(kind):
    if kind == "cpu":
        return machine()
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version",
                                "--format=csv,noheader"], capture_output=True, text=True, check=True)
        return found.stdout.strip().replace(", ", ", driver ")
    except (OSError, subprocess.CalledProcessError) as e:
        return f"a GPU that nvidia-smi does not name ({e})"


# Why a record has no time.
WHY = ("wrong", "failed", "late", "not_tried")


def us(v):
    return "–" if v is None else f"{v:.3g}" if v < 1000 else f"{v:.0f}"


def timed(records, which="median_us"):
    return [r for r in records if which in r]


def least(records, which="median_us"):
    return min(timed(records, which), key=lambda r: r[which], default=None)


def of(records, task, batch):
    """The records of a task: Braid's and the peers'."""
    found = [r for r in records if (r["task"], r["batch"]) == (task, batch)]
    return ([r for r in found if r["peer"] == "braid"], [r for r in found if r["peer"] != "braid"])


def by_file(braid):
    """One record of each file."""
    return {r["file"]: r for r in braid}


def line(records, task, batch):
    """A line with what was timed together: the forms from fast to slow, then those that have no time."""
    found = [f"{named(r)} {us(r['median_us'])}" for r in sorted(timed(records), key=lambda r: r["median_us"])]
    found += [f"{named(r)} {short(r)}" for r in records if "median_us" not in r]
    return f"{task}, batch {batch}, µs: {'; '.join(found)}"


def named(record):
    return record["form"] + (f" ({record['file']})" if record["peer"] == "braid" else "")


def short(record):
    if "median_us" in record:
        return us(record["median_us"])
    return next(word for word in WHY if word in record).replace("_", " ")


def reason(record):
    return next(record[word] for word in WHY if word in record)


def column(records, prefix):
    return [r for r in records if r["form"].startswith(prefix)]


def cell(records):
    """The time of the best form, or why there is none."""
    best = least(records)
    if best:
        return us(best["median_us"])
    return next((word.replace("_", " ") for word in WHY if any(word in r for r in records)), "–")


class Rows:
    """The table's rows at one batch size, and the ratios of their groups."""

    def __init__(self, records, batch):
        self.records, self.batch = records, batch
        self.ratios = {}

    def keys(self):
        """(task, file, group) in order; trees twice."""
        for r in {(r["task"], r["file"]): r for r in self.records
                  if r["peer"] == "braid" and r["batch"] == self.batch}.values():
            yield r["task"], r["file"], r["group"]
            if r["group"] == "trees":
                yield r["task"], r["file"], "node by node"

    def lines(self):
        found = []
        for task, file, group in self.keys():
            braid, peers = of(self.records, task, self.batch)
            ours = by_file(braid)[file]
            if group == "node by node":
                peers = [r for r in peers if r["node_by_node"]]
            best = least(peers)
            label = (file if task in file else task) + ", node by node" * (group == "node by node")
            over = None
            if best and "median_us" in ours:
                over = best["median_us"] / ours["median_us"]
                fastest = least(peers, "min_us")["min_us"] / ours["min_us"]
                self.ratios.setdefault(group, []).append((over, fastest))
            cells = [label, short(ours), us(best and best["median_us"]),
                     best["form"] if best else "–", ratio(over)]
            cells += [cell(column(peers, prefix)) for prefix in COLUMNS]
            found.append("| " + " | ".join(cells) + " |")
        return found


def summary(rows):
    """{group: {"geomean", "geomean of minima", "least", "count"}}"""
    return {group: {"geomean": geomean(r for r, _ in found),
                    "geomean of minima": geomean(r for _, r in found),
                    "least": min(r for r, _ in found), "count": len(found)}
            for group, found in rows.ratios.items()}


def counted(paths, records):
    """The lines of a table: the counted critical paths (counted.py) beside what was measured."""
    rows = []
    for name, path in (paths or {}).get("models", {}).items():
        ours = least([r for r in records if r["peer"] == "braid" and r["batch"] == 1 and name in (r["file"], r["task"])])
        if ours:
            rows.append(f"| {name} | {us(path['us'])} | {us(ours['median_us'])} | {us(ours['min_us'])} | "
                        f"{ratio(ours['median_us'] / path['us'])} |")
    if not rows:
        return []
    return ["## Counted and measured", "", f"The critical path as it is counted on {paths['target']}, by published latencies, and the "
            "time of a run here.", "", "| model | counted | median | least | median over counted |", "|---|--:|--:|--:|--:|", *rows, ""]


def write(out, facts, records):
    versions = "; ".join(f"{k} {v}" for k, v in facts["peers"].items() if k != "braid")
    lines = ["# Braid and its peers", "", f"{facts['device']}. {versions}.", "",
             "Microseconds of a run: medians over rounds in turn, torch.compile's after all others. "
             "Braid's and PyTorch's are the device's, by events on the stream before and behind runs "
             "that are enqueued one behind the other; JAX's are the host's, around such runs. All "
             "compute in float32, without TF32. Outputs were compared with the reference first and "
             "afterwards. A ratio is the best peer's time over Braid's; –: there is none; words: see "
             "below.", ""]
    found = {}
    for batch in sorted({r["batch"] for r in records}):
        rows = Rows(records, batch)
        body = rows.lines()
        if not body:
            continue
        lines += [f"## Batch {batch}", "",
                  "| model | Braid | best peer | | ratio | " + " | ".join(COLUMNS.values()) + " |",
                  "|---|--:|--:|---|--:|" + "--:|" * len(COLUMNS), *body, ""]
        found[batch] = summary(rows)
        if not found[batch]:
            continue
        lines += ["| geometric means | of medians | of least times | least ratio | models |",
                  "|---|--:|--:|--:|--:|"]
        lines += [f"| {GROUPS[g]} | {ratio(s['geomean'])} | {ratio(s['geomean of minima'])} | "
                  f"{ratio(s['least'])} | {s['count']} |" for g, s in found[batch].items()]
        lines.append("")
    missing = [f"- {r['task']}, batch {r['batch']}, {named(r)}: {reason(r)}"
               for r in records if "median_us" not in r]
    if missing:
        lines += ["## What is not there", "", *missing, ""]
    lines += counted(facts.get("counted"), records)
    lines += ["## Every contestant", "", "The time of a call is the host's, until it knows that the run is done.", "",
              "| model | batch | contestant | median | least | call, median | call, least | difference |",
              "|---|--:|---|--:|--:|--:|--:|--:|"]
    lines += [f"| {r['task']} | {r['batch']} | {named(r)} | {us(r['median_us'])} | {us(r['min_us'])} | {us(r.get('call_us'))} | "
              f"{us(r.get('call_min_us'))} | {r['difference']:.1e} |" for r in timed(records)]
    everything = json.dumps({**facts, "summary": found, "records": records}, indent=1)
    for name, text in (("times.json", everything), ("times.md", "\n".join(lines))):
        path = os.path.join(out, name)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(text + "\n")
        os.replace(path + ".new", path)
