"""Results as Markdown, JSON and plots."""
import json
import math
import os

import plots

FRAMEWORKS = {"braid": "Braid", "onnxruntime": "onnxruntime", "openvino": "OpenVINO",
              "pytorch": "PyTorch", "jax": "JAX", "dynet": "DyNet"}
SAME_FILE = ("onnxruntime", "openvino")


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ms(v):
    return "–" if v is None else f"{v:.3g}" if v < 100 else f"{v:.0f}"


def ratio(v):
    return "–" if v is None or math.isnan(v) else f"{v:.2f}"


def at(record):
    return tuple(record[k] for k in ("task", "file", "batch", "threads"))


class Figures:
    """Looks the records up."""

    def __init__(self, records, which="min_ms"):
        self.records, self.which = [r for r in records if which in r], which

    def braid(self, task, file, batch, threads):
        return next((r[self.which] for r in self.records if r["peer"] == "braid"
                     and r["form"] == "kernel" and at(r) == (task, file, batch, threads)), None)

    def best(self, task, batch, threads, node_by_node=False):
        """The record of the fastest peer, over all its forms and all files of the task."""
        found = [r for r in self.records if r["peer"] != "braid"
                 and (r["task"], r["batch"], r["threads"]) == (task, batch, threads)
                 and (r["node_by_node"] or not node_by_node)]
        return min(found, key=lambda r: r[self.which], default=None)

    def same_file(self, peer, file, task, batch, threads):
        return next((r[self.which] for r in self.records if r["peer"] == peer and r["same_file"]
                     and at(r) == (task, file, batch, threads)), None)

    def rows(self, batch):
        """The (task, file) pairs that Braid ran, in order."""
        return list(dict.fromkeys((r["task"], r["file"], r["group"], r["main"])
                                  for r in self.records
                                  if r["peer"] == "braid" and r["batch"] == batch))


def name_of(record):
    return f"{FRAMEWORKS[record['peer']]}, {record['form']}"


def against_best(figures, batch, threads, lines, groups, node_by_node=False, only_main=True):
    """Rows of Braid beside the best peer; returns the ratios by number of threads."""
    ratios = {t: [] for t in threads}
    head = "| model |" + "".join(f" Braid, {t} T | best peer, {t} T | ratio |" for t in threads)
    lines += [head, "|---|" + "--:|---|--:|" * len(threads)]
    for task, file, group, main in figures.rows(batch):
        if group not in groups or only_main and not main:
            continue
        cells = [label(task, file)]
        for t in threads:
            ours = figures.braid(task, file, batch, t)
            best = figures.best(task, batch, t, node_by_node)
            r = best[figures.which] / ours if ours and best else None
            if r:
                ratios[t].append(r)
            theirs = f"{ms(best[figures.which])} {name_of(best)}" if best else "–"
            cells += [ms(ours), theirs, ratio(r)]
        lines.append("| " + " | ".join(cells) + " |")
    if any(ratios.values()):
        cells = ["**geometric mean**"]
        for t in threads:
            cells += ["", "", f"**{ratio(geomean(ratios[t]))}**"]
        lines.append("| " + " | ".join(cells) + " |")
        cells = ["least"]
        for t in threads:
            cells += ["", "", ratio(min(ratios[t], default=None))]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    return ratios


def against_same_file(figures, batch, threads, lines):
    lines += ["| file |" + "".join(f" {FRAMEWORKS[p]} / Braid, {t} T |" for t in threads
                                   for p in SAME_FILE),
              "|---|" + "--:|" * (len(threads) * len(SAME_FILE))]
    found = {}
    for task, file, group, main in figures.rows(batch):
        if not any(r["same_file"] for r in figures.records if r["task"] == task):
            continue
        cells = [file]
        for t in threads:
            ours = figures.braid(task, file, batch, t)
            for p in SAME_FILE:
                theirs = figures.same_file(p, file, task, batch, t)
                r = theirs / ours if ours and theirs else None
                cells.append(ratio(r))
                if r and group in ("loops", "branches"):
                    found.setdefault((main, t, p), []).append(r)
        lines.append("| " + " | ".join(cells) + " |")
    summary = {}
    for title, keep in (("models above", (True,)), ("all forms of them", (True, False))):
        cells = [f"**geometric mean, {title}**"]
        for t in threads:
            for p in SAME_FILE:
                values = [v for k in keep for v in found.get((k, t, p), [])]
                summary[f"{title}, {t} threads, {p}"] = geomean(values)
                cells.append(f"**{ratio(geomean(values))}**")
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    return summary


def everything(records, batch, threads, lines):
    """All contestants, with the least and the median ms of their runs."""
    lines += ["| model | contestant |" + "".join(f" min, {t} T | median, {t} T |" for t in threads),
              "|---|---|" + "--:|--:|" * len(threads)]
    keys = dict.fromkeys((r["task"], r["file"], r["peer"], r["form"]) for r in records
                         if r["batch"] == batch)
    by_key = {(r["task"], r["file"], r["peer"], r["form"], r["threads"]): r for r in records
              if r["batch"] == batch}
    for key in keys:
        task, file, peer, form = key
        cells = [label(task, file),
                 f"{FRAMEWORKS[peer]}, {form}"]
        for t in threads:
            r = by_key.get((*key, t), {})
            if "min_ms" in r:
                cells += [ms(r["min_ms"]), ms(r["median_ms"])]
            else:
                why = "wrong: " + r["wrong"] if "wrong" in r else r.get("failed", "–")
                cells += [why.replace("|", "/")[:90], ""]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")


def structure(result, figures, threads, lines):
    """Braid without peers: against the bound, scaling, the path without control flow, cost of iterations."""
    summary = result["summary"]
    if result.get("bounds"):
        lines += ["## Time over the physical bound, and 2 threads against 1", "",
                  "The bound counts floating point operations (a multiply-add is two) and "
                  "evaluations of exp (a logarithm is counted as one, a sigmoid or tanh as one and "
                  "a division), divisions beside them, and beside both the bytes of weights and "
                  "state from the nearest cache that has room for them, all at the measured peaks "
                  "of `eval/peaks.c`; and barriers. The exp there is a polynomial of 1.1 ulp in the "
                  "widest vectors.", "",
                  "| model | batch | flops | exps |"
                  + "".join(f" bound, {t} T | time / bound, {t} T |" for t in threads)
                  + " bound allows | scaling |",
                  "|---|--:|--:|--:|" + "--:|--:|" * len(threads) + "--:|--:|"]
        worst = {}
        for b in result["bounds"]:
            task, file, batch = b["task"], b["file"], b["batch"]
            cells, took = [label(task, file), str(batch)], {}
            cells += [f"{b['counts'][k] / 1e6:.3g} M" for k in ("flops", "exps")]
            for t in threads:
                took[t] = figures.braid(task, file, batch, t)
                over = took[t] / b["ms"][t] if took[t] else None
                cells += [ms(b["ms"][t]), ratio(over)]
                if over:
                    worst.setdefault((batch, t), []).append(over)
            both = 1 in took and 2 in took and took[1] and took[2]
            cells += ([ratio(b["ms"][1] / b["ms"][2]), ratio(took[1] / took[2])] if both
                      else ["–", "–"])
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
        summary["largest time over bound"] = {f"batch {b}, {t} threads": max(v)
                                              for (b, t), v in worst.items()}
    if result.get("traces"):
        lines += ["## Control flow against the straight-line graph of the same path", "",
                  "Both by Braid. Long loops are shortened, so that the path can be compiled.", "",
                  "| model | threads | with control flow | path | ratio | nodes of the path |",
                  "|---|--:|--:|--:|--:|--:|"]
        found = {}
        for r in result["traces"]:
            sizes = ", ".join(f"{k} {v}" for k, v in r["options"].items())
            both = r["ms"] and r["straight_ms"]
            over = r["ms"] / r["straight_ms"] if both else None
            if over:
                found.setdefault(r["threads"], []).append(over)
            name = f"{r['file']} ({sizes})" if sizes else r["file"]
            lines.append(f"| {name} | {r['threads']} | {ms(r['ms'])} | {ms(r['straight_ms'])} | {ratio(over)} | {r['nodes']} |")
        lines.append("")
        summary["control flow over its path"] = {
            t: {"geomean": geomean(v), "most": max(v)} for t, v in found.items()}
    trips = [(r, figures) for r in result["records"] if r["group"] == "trips" and "min_ms" in r]
    if trips:
        lines += ["## Nanoseconds a trip", "", "| model | contestant |"
                  + "".join(f" {t} T |" for t in threads), "|---|---|" + "--:|" * len(threads)]
        keys = dict.fromkeys((r["task"], r["peer"], r["form"]) for r, _ in trips)
        for key in keys:
            cells = [key[0], f"{FRAMEWORKS[key[1]]}, {key[2]}"]
            for t in threads:
                v = next((r for r, _ in trips if (r["task"], r["peer"], r["form"]) == key
                          and r["threads"] == t), None)
                cells.append(f"{v['min_ms'] * 1e6 / v['trips']:.1f}" if v else "–")
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    if result.get("growth"):
        lines += ["## Growth with length and tree size", "",
                  "Exponent of the time between the two largest sizes: 1 is linear.", "",
                  "| model | threads | sizes | ms | exponent |", "|---|--:|---|---|--:|"]
        for r in result["growth"]:
            n, v = r["lengths"], r["ms"]
            known = all(v)
            power = math.log(v[-1] / v[-2]) / math.log(n[-1] / n[-2]) if known else None
            r["exponent"] = power
            lines.append(f"| {r['task']} | {r['threads']} | {', '.join(map(str, n))} | "
                         f"{', '.join(map(ms, v))} | {ratio(power)} |")
        lines.append("")


def label(task, file):
    return file if task in file else task


def draw(result, figures, batches, threads, out):
    plt = plots.pyplot()
    if not plt:
        return
    for batch in batches:
        rows = []
        for task, file, group, main in figures.rows(batch):
            if group not in ("loops", "branches", "trees") or not main:
                continue
            ratios = {}
            for t in threads:
                ours = figures.braid(task, file, batch, t)
                best = figures.best(task, batch, t, group == "trees")
                if ours and best:
                    ratios[t] = best[figures.which] / ours
            rows.append((label(task, file), ratios))
        if rows:
            plots.bars(plt, os.path.join(out, f"ratios-batch{batch}.png"),
                       f"Batch {batch}: Braid against the best peer (trees: node by node)", rows,
                       threads)
    for what, groups, axis in (("length", ("loops",), "length"), ("trees", ("trees",), "nodes")):
        for t in threads:
            series = [(r["task"], r["lengths"], r["ms"]) for r in result.get("growth", [])
                      if r["group"] in groups and r["threads"] == t and all(r["ms"])]
            if series:
                plots.growth(plt, os.path.join(out, f"growth-{what}-{t}.png"),
                             f"Braid, {t} thread{'s' * (t > 1)}", axis, series)


def save(result, out):
    with open(os.path.join(out, "results.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


def write(result, out):
    """Writes DIR/results.json, DIR/table.md and plots; returns the table's first part."""
    records = result["records"]
    threads = sorted({r["threads"] for r in records})
    batches = sorted({r["batch"] for r in records})
    versions = [f"{FRAMEWORKS[k]} {v}" if isinstance(v, str)
                else f"{FRAMEWORKS[k]} is missing ({v['missing']})"
                for k, v in result["peers"].items()]
    lines = ["# Braid and its peers", "", f"{result['machine']}. {', '.join(versions)}.", "",
        "Milliseconds are the least of the runs. T: threads.", ""]
    summary = result["summary"] = {}
    figures, medians = Figures(records), Figures(records, "median_ms")
    for batch in batches:
        for title, groups, walking in (
                ("loops and branches, against the best peer in its best form",
                 ("loops", "branches"), False),
                ("trees, against the best peer that walks node by node", ("trees",), True),
                ("trees, against the best peer, level batches included", ("trees",), False),
                ("the others", ("other", "trips"), False)):
            if not any(g in groups for _, _, g, _ in figures.rows(batch)):
                continue
            lines += [f"## Batch {batch}: {title}", ""]
            key = f"batch {batch}: {title}"
            r = against_best(figures, batch, threads, lines, groups, walking)
            m = against_best(medians, batch, threads, [], groups, walking)
            summary[key] = {t: {"geomean": geomean(r[t]), "least": min(r[t], default=None),
                                "geomean of medians": geomean(m[t])} for t in threads}
            lines += ["By medians, the geometric mean is " + ", ".join(
                f"{ratio(geomean(m[t]))} on {t} T" for t in threads) + ".", ""]
        if any(r["same_file"] for r in records if r["batch"] == batch):
            lines += [f"## Batch {batch}: the same file", ""]
            summary[f"batch {batch}: the same file"] = against_same_file(
                figures, batch, threads, lines)
    structure(result, figures, threads, lines)
    draw(result, figures, batches, threads, out)
    shown = len(lines)
    for batch in batches:
        lines += [f"## Batch {batch}: every contestant", ""]
        everything(records, batch, threads, lines)
    save(result, out)
    with open(os.path.join(out, "table.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines))
    return "\n".join(lines[:shown])
