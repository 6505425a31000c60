"""The results of trees.py as Markdown, JSON and a plot."""
import json
import os

import plots
from report import FRAMEWORKS, geomean, ms, name_of, ratio

ONE_STRUCTURE = "levels of this forest"  # forms that are compiled for the sizes of one forest only
NOTE = ("Least and median ms of alternating runs. All runs have one structure, so Braid numbers the nodes in the first one "
        "only, and looks whether they are the same in each; what numbering takes is a table of its own. The level batches "
        "of PyTorch, JAX and onnxruntime, and Braid's own, are numbered beforehand, which is not timed; DyNet finds its "
        "batches in each run, as its users do. JAX's \"levels of this forest\" is a program for the sizes of this very "
        "forest, which would be compiled again for another: the ratio is with it, the last column without it.")


def table(lines, title, head, rows, note=None):
    """Adds a table. head: columns by |, those that begin with < are words, the others numbers."""
    if not rows:
        return
    columns = head.split("|")
    lines += [f"## {title}", ""] if title else []
    lines += [note, ""] if note else []
    lines.append("| " + " | ".join(c.lstrip("<") for c in columns) + " |")
    lines.append("|" + "|".join("---" if c.startswith("<") else "--:" for c in columns) + "|")
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines.append("")


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


def many(values):
    return ", ".join(map(str, values))


def both(low, middle):
    return f"{ms(low)} ({ms(middle)})" if low else "–"


def peers(rows, lines):
    found = []
    for key in rows.groups:
        best = rows.best(key)
        theirs = f"{both(best['min_ms'], best['median_ms'])} {name_of(best)}" if best else "–"
        found.append([*key, both(rows.own(key, "kernel"), rows.own(key, "kernel", "median_ms")), theirs,
                      ratio(rows.against_best(key)), ratio(rows.against_best(key, "median_ms")),
                      ratio(rows.against_levels(key)), ratio(rows.against_best(key, "min_ms", True))])
    table(lines, "Beside the best peer", "<model|H|batch|T|Braid|<best peer|ratio|by medians|Braid / its own levels|"
          "ratio, any forest", found, NOTE)
    found = []
    for batch in sorted({k[2] for k in rows.groups}):
        all_, medians, free = (rows.ratios(batch, *a) for a in (("min_ms",), ("median_ms",), ("min_ms", True)))
        found.append([batch, *(ratio(geomean(v)) for v in (all_, medians, free)),
                      *(ratio(min(v, default=None)) for v in (all_, free))])
    table(lines, "", "batch|best peer / Braid, geometric mean|by medians|any forest|least|least, any forest", found)


def forests(result, lines):
    table(lines, "A forest beside one tree", "<model|H|T|<batches|<ms|ratio",
          [[r["task"], r["hidden"], r["threads"], many(r["batch"]), many(map(ms, r["ms"])),
            ratio(over(r["ms"][-1], r["ms"][0]))] for r in result["forests"]])


def growth(result, lines):
    found = []
    for r in result["growth"]:
        each = [f"{f['min_ms'] * 1e6 / n:.0f}" if "min_ms" in f else f["failed"][:80]
                for n, f in zip(r["nodes"], r["found"])]
        size = r["found"][-1].get("working_bytes")
        found.append([r["model"], r["hidden"], r["shape"], many(r["nodes"]), many(each),
                      size // r["nodes"][-1] if size else "–"])
    table(lines, "Time a node, ns", "<model|H|<shape|<nodes|<ns a node|bytes a node", found,
          "A forest has random trees of 37 nodes; a tree is one random tree. The time of the processor on one thread, "
          "because a long run seldom has the machine for itself. Bytes are the working memory at the most nodes.")


def dags(result, lines):
    found = []
    for r in result["dags"]:
        faster = over(ms_of(r["plain_tree"]), ms_of(r["grid"]))
        found.append([
            r["hidden"], r["threads"], ms(ms_of(r["grid"])), r["grid"].get("synchronizations", "–"),
            ms(ms_of(r["levels"])), ms(ms_of(r["plain_tree"])),
            ratio(faster and faster * r["nodes"] / r["tree_nodes"]), ms(ms_of(r["tree"])),
            ms(ms_of(r["diamond"])) if ms_of(r["diamond"]) else r["diamond"]["failed"][:60]])
    table(lines, "DAGs", "H|T|grid|its barriers|its own levels|plain recursion, a tree|plain / grid|tree|diamond",
          found, "DAG-RNN on a grid of 10 × 10 nodes, beside the same network on a random binary tree as a plain "
          "recursion; on a diamond of 64 nodes, each of which needs the one before it twice. ms a run; the ratio is "
          "that of the times a node.")


def bounds(result, rows, lines):
    found = []
    for b in result["bounds"]:
        for t, least in b["ms"].items():
            key = b["task"], b["hidden"], b["batch"], t
            ours = rows.own(key, "kernel")
            found.append([*key, ms(least), ms(ours), ratio(over(ours, least)),
                          ratio(over(ms_of(rows.best(key)), least))])
    table(lines, "Time over the physical bound", "<model|H|batch|T|bound|Braid|time / bound|best peer / bound", found,
          "The last column is the ratio to the best peer that a program at the bound would have.")


def linearizer(result, lines):
    table(lines, "The linearizer, as `braid bench` has it", "<model|H|batch|T|<",
          [[r["task"], r["hidden"], r["batch"], r["threads"], r["said"]] for r in result["linearizer"]])


def everything(rows, lines):
    found = []
    for key, records in rows.groups.items():
        for r in records:
            took = [ms(r["min_ms"]), ms(r["median_ms"])] if "min_ms" in r else \
                [str(r.get("wrong") or r.get("failed")).replace("|", "/")[:90], ""]
            found.append([*key, name_of(r), *took])
    table(lines, "Every contestant", "<model|H|batch|T|<contestant|min|median", found)


def draw(result, out):
    plt = plots.pyplot()
    series = [(f"{r['model']}, {r['shape']}", r["nodes"], [f["min_ms"] for f in r["found"]])
              for r in result["growth"] if all("min_ms" in f for f in r["found"])]
    if plt and series:
        plots.growth(plt, os.path.join(out, "trees-linear.png"), "Braid, 1 thread", "nodes", series)


def save(result, out):
    if out:
        with open(os.path.join(out, "trees.json"), "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


def write(result, out):
    """Returns the tables; writes them, the records and the plot if there is a folder."""
    rows = Rows(result["records"])
    versions = many(f"{FRAMEWORKS[k]} {v}" if isinstance(v, str)
                    else f"{FRAMEWORKS[k]} is missing ({v['missing']})" for k, v in result["peers"].items())
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
    for r in result["dags"]:
        assert all(r[k]["min_ms"] > 0 for k in ("grid", "levels", "plain_tree", "tree", "diamond")), r
    for r in result["growth"]:
        assert all(f.get("min_ms", 0) > 0 for f in r["found"]), r
    assert len(result["growth"]) == 4 and len(result["forests"]) == 1 and len(result["bounds"]) == 2
    assert len(result["dags"]) == 1
    print(f"trees: {len(result['records'])} contestants compared and timed")
