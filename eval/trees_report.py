"""The results of trees.py as Markdown, JSON and a plot."""
import json
import os

import plots
from report import FRAMEWORKS, geomean, ms, ratio

ONE_STRUCTURE = "levels of this forest"  # forms that are compiled for the sizes of one forest only
NOTE = ("Least and median ms of alternating runs. Braid's time includes the numbering of the nodes. The level "
        "batches of PyTorch, JAX and onnxruntime, and Braid's own, are numbered beforehand, which is not timed; "
        "DyNet finds its batches in each run, as its users do. JAX's \"levels of this forest\" is a program for the sizes of this "
        "very forest, which would be compiled again for another; ratios are with it, and, in the last column, without.")


def ms_of(record, which="min_ms"):
    return record.get(which) if record else None


def over(a, b):
    return a / b if a and b else None


class Rows:
    """One for each model, width, batch and number of threads."""

    def __init__(self, records):
        self.groups = {}
        for r in records:
            self.groups.setdefault((r["task"], r["hidden"], r["batch"], r["threads"]), []).append(r)

    def own(self, key, form, which="min_ms"):
        return next((r.get(which) for r in self.groups[key] if (r["peer"], r["form"]) == ("braid", form)), None)

    def best(self, key, which="min_ms", any_structure=False):
        found = [r for r in self.groups[key] if r["peer"] != "braid" and which in r
                 and not (any_structure and ONE_STRUCTURE in r["form"])]
        return min(found, key=lambda r: r[which], default=None)

    def against_best(self, key, which="min_ms", any_structure=False):
        return over(ms_of(self.best(key, which, any_structure), which), self.own(key, "kernel", which))

    def against_levels(self, key):
        return over(self.own(key, "kernel"), self.own(key, "levels"))

    def ratios(self, batch, *args):
        return [v for k in self.groups if k[2] == batch and (v := self.against_best(k, *args))]


def both(low, middle):
    return f"{ms(low)} ({ms(middle)})" if low else "–"


def peers(rows, lines):
    lines += ["## Beside the best peer", "", NOTE, "",
              "| model | H | batch | T | Braid | best peer | ratio | by medians | Braid / its own levels | ratio, any forest |",
              "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|"]
    for key in rows.groups:
        best = rows.best(key)
        theirs = f"{both(best['min_ms'], best['median_ms'])} {FRAMEWORKS[best['peer']]}, {best['form']}" if best else "–"
        cells = [*map(str, key), both(rows.own(key, "kernel"), rows.own(key, "kernel", "median_ms")), theirs,
                 ratio(rows.against_best(key)), ratio(rows.against_best(key, "median_ms")),
                 ratio(rows.against_levels(key)), ratio(rows.against_best(key, "min_ms", True))]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| | batch | geometric mean | by medians | least | geometric mean, any forest | least, any forest |",
              "|---|--:|--:|--:|--:|--:|--:|"]
    for batch in sorted({k[2] for k in rows.groups}):
        found, medians, free = (rows.ratios(batch, *a) for a in (("min_ms",), ("median_ms",), ("min_ms", True)))
        lines.append(f"| best peer / Braid | {batch} | {ratio(geomean(found))} | {ratio(geomean(medians))} | "
                     f"{ratio(min(found, default=None))} | {ratio(geomean(free))} | {ratio(min(free, default=None))} |")
    lines.append("")


def forests(result, lines):
    if not result["forests"]:
        return
    lines += ["## A forest beside one tree", "", "| model | H | T | batches | ms | ratio |", "|---|--:|--:|---|---|--:|"]
    for r in result["forests"]:
        lines.append(f"| {r['task']} | {r['hidden']} | {r['threads']} | {', '.join(map(str, r['batch']))} | "
                     f"{', '.join(map(ms, r['ms']))} | {ratio(over(r['ms'][-1], r['ms'][0]))} |")
    lines.append("")


def growth(result, lines):
    if not result["growth"]:
        return
    lines += ["## Time a node, ns", "", "A forest has random trees of 37 nodes; a tree is one random tree. Bytes are the working memory of the last.", "",
              "| model | H | T | shape | nodes | ns a node | bytes a node |", "|---|--:|--:|---|---|---|--:|"]
    for r in result["growth"]:
        each = [f"{f['min_ms'] * 1e6 / n:.0f}" if "min_ms" in f else f["failed"][:80] for n, f in zip(r["nodes"], r["found"])]
        bytes_ = r["found"][-1].get("working_bytes")
        lines.append(f"| {r['model']} | {r['hidden']} | {r['threads']} | {r['shape']} | {', '.join(map(str, r['nodes']))} | "
                     f"{', '.join(each)} | {bytes_ // r['nodes'][-1] if bytes_ else '–'} |")
    lines.append("")


def dags(result, lines):
    if not result["dags"]:
        return
    lines += ["## DAGs", "", "DAG-RNN on a grid of 10 × 10 nodes, beside the same network, as a plain recursion, on a random binary tree; "
              "a diamond of 64 nodes, each of which needs the one before it twice. ms a run; the ratio is that of times a node.", "",
              "| H | T | grid | meetings | its own levels | plain recursion over a tree | plain / grid | tree | diamond |",
              "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for r in result["dags"]:
        faster = over(ms_of(r["plain_tree"]), ms_of(r["grid"]))
        cells = [str(r["hidden"]), str(r["threads"]), ms(ms_of(r["grid"])), str(r["grid"].get("synchronizations", "–")),
                 ms(ms_of(r["levels"])), ms(ms_of(r["plain_tree"])),
                 ratio(faster and faster * r["nodes"] / r["tree_nodes"]), ms(ms_of(r["tree"])),
                 ms(ms_of(r["diamond"])) if ms_of(r["diamond"]) else r["diamond"]["failed"][:60]]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")


def bounds(result, rows, lines):
    lines += ["## Time over the physical bound", "", "| model | H | batch | T | bound | Braid | time / bound |",
              "|---|--:|--:|--:|--:|--:|--:|"]
    for b in result["bounds"]:
        for t, least in b["ms"].items():
            ours = rows.own((b["task"], b["hidden"], b["batch"], t), "kernel")
            lines.append(f"| {b['task']} | {b['hidden']} | {b['batch']} | {t} | {ms(least)} | {ms(ours)} | {ratio(over(ours, least))} |")
    lines.append("")


def linearizer(result, lines):
    if result["linearizer"]:
        lines += ["## The linearizer, as `braid bench` has it", "", "| model | H | batch | T | |", "|---|--:|--:|--:|---|"]
        lines += [f"| {r['task']} | {r['hidden']} | {r['batch']} | {r['threads']} | {r['said']} |" for r in result["linearizer"]]
        lines.append("")


def everything(rows, lines):
    lines += ["## Every contestant", "", "| model | H | batch | T | contestant | min | median |", "|---|--:|--:|--:|---|--:|--:|"]
    for key, records in rows.groups.items():
        for r in records:
            found = [ms(r["min_ms"]), ms(r["median_ms"])] if "min_ms" in r else \
                [str(r.get("wrong") or r.get("failed")).replace("|", "/")[:90], ""]
            lines.append("| " + " | ".join([*map(str, key), f"{FRAMEWORKS[r['peer']]}, {r['form']}", *found]) + " |")
    lines.append("")


def draw(result, out):
    plt = plots.pyplot()
    most = max((r["threads"] for r in result["growth"]), default=None)
    series = [(f"{r['model']}, {r['shape']}", r["nodes"], [f["min_ms"] for f in r["found"]]) for r in result["growth"]
              if r["threads"] == most and all("min_ms" in f for f in r["found"])]
    if plt and series:
        plots.growth(plt, os.path.join(out, "trees-linear.png"), f"Braid, {most} thread{'s' * (most > 1)}", "nodes", series)


def save(result, out):
    if out:
        with open(os.path.join(out, "trees.json"), "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


def write(result, out):
    """Returns the tables; writes them, the records and the plot if there is a folder."""
    rows = Rows(result["records"])
    versions = ", ".join(f"{FRAMEWORKS[k]} {v}" if isinstance(v, str) else f"{FRAMEWORKS[k]} is missing ({v['missing']})"
                         for k, v in result["peers"].items())
    lines = ["# Trees, beside peers", "", f"{result['machine']}. {versions}. "
             + ("Sentences of a treebank." if result["treebank"] else "Random trees.") + " T: threads.", ""]
    peers(rows, lines)
    forests(result, lines)
    dags(result, lines)
    growth(result, lines)
    bounds(result, rows, lines)
    linearizer(result, lines)
    shown = "\n".join(lines)
    everything(rows, lines)
    save(result, out)
    if out:
        draw(result, out)
        with open(os.path.join(out, "trees.md"), "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
    return shown


def check(result):
    """For tests: all contestants were compared with the reference and timed."""
    rows = Rows(result["records"])
    assert len(rows.groups) == 2 and len(result["records"]) >= 4, result["records"]
    for r in result["records"]:
        assert r["difference"] is not None and r["min_ms"] > 0, r
    for r in result["growth"]:
        assert all(f.get("min_ms", 0) > 0 for f in r["found"]), r
    assert len(result["growth"]) == 4 and len(result["forests"]) == 1 and len(result["bounds"]) == 2
    print(f"trees: {len(result['records'])} contestants compared and timed")
