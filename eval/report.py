"""Results as Markdown, JSON and plots."""
import json
import math
import os

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


class Figures:
    """Looks the records up."""

    def __init__(self, records, which="min_ms"):
        self.records, self.which = [r for r in records if which in r], which

    def braid(self, task, file, batch, threads):
        return next((r[self.which] for r in self.records if r["peer"] == "braid"
                     and (r["task"], r["file"], r["batch"], r["threads"]) == (task, file, batch, threads)
                     and r["form"] == "kernel"), None)

    def best(self, task, batch, threads, node_by_node=False):
        """The fastest peer's record, in whatever form and of whatever file of the task."""
        found = [r for r in self.records if r["peer"] != "braid"
                 and (r["task"], r["batch"], r["threads"]) == (task, batch, threads)
                 and (r["node_by_node"] or not node_by_node)]
        return min(found, key=lambda r: r[self.which], default=None)

    def same_file(self, peer, file, task, batch, threads):
        return next((r[self.which] for r in self.records if r["peer"] == peer
                     and (r["task"], r["file"], r["batch"], r["threads"]) == (task, file, batch, threads)),
                    None)

    def rows(self, batch):
        """(task, file) pairs that Braid ran, in order."""
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
        cells = [file if file.startswith(task) or group != "trees" else task]
        if group == "trees":
            cells = [task]
        for t in threads:
            ours = figures.braid(task, file, batch, t)
            best = figures.best(task, batch, t, node_by_node)
            r = best[figures.which] / ours if ours and best else None
            if r:
                ratios[t].append(r)
            cells += [ms(ours), f"{ms(best[figures.which])} {name_of(best)}" if best else "–", ratio(r)]
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
        if group not in ("loops", "branches", "other"):
            continue
        cells = [file]
        for t in threads:
            ours = figures.braid(task, file, batch, t)
            for p in SAME_FILE:
                theirs = figures.same_file(p, file, task, batch, t)
                r = theirs / ours if ours and theirs else None
                cells.append(ratio(r))
                if r and group != "other":
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
    """All contestants; least and median of the runs in ms."""
    lines += ["| model | contestant |" + "".join(f" min, {t} T | median, {t} T |" for t in threads),
              "|---|---|" + "--:|--:|" * len(threads)]
    keys = dict.fromkeys((r["task"], r["file"], r["peer"], r["form"]) for r in records
                         if r["batch"] == batch)
    by_key = {(r["task"], r["file"], r["peer"], r["form"], r["threads"]): r for r in records
              if r["batch"] == batch}
    for key in keys:
        task, file, peer, form = key
        cells = [task if task == file or task.startswith(file) else f"{task}: {file}",
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


def write(result, out):
    """DIR/results.json, DIR/table.md, plots; returns the table's first part."""
    records = result["records"]
    threads = sorted({r["threads"] for r in records})
    batches = sorted({r["batch"] for r in records})
    lines = ["# Braid and its peers", "", result["machine"] + ". " + ", ".join(
        f"{FRAMEWORKS[k]} {v}" if isinstance(v, str) else f"{FRAMEWORKS[k]} is missing ({v['missing']})"
        for k, v in result["peers"].items()) + ".", "",
        "Milliseconds are the least of the runs. T: threads.", ""]
    summary = result["summary"] = {}
    figures, medians = Figures(records), Figures(records, "median_ms")
    for batch in batches:
        for title, groups, walking in (
                ("loops and branches, against the best peer in its best form", ("loops", "branches"), False),
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
        if any(g in ("loops", "branches", "other") for _, _, g, _ in figures.rows(batch)):
            lines += [f"## Batch {batch}: the same file", ""]
            summary[f"batch {batch}: the same file"] = against_same_file(figures, batch, threads, lines)
    shown = len(lines)
    for batch in batches:
        lines += [f"## Batch {batch}: every contestant", ""]
        everything(records, batch, threads, lines)
    with open(os.path.join(out, "results.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    with open(os.path.join(out, "table.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines))
    return "\n".join(lines[:shown])
