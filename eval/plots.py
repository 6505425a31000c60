"""Plots of the results: ratios as bars, growth as lines. Without matplotlib there are no plots."""

COLOURS = {1: "#7a9cc6", 2: "#1f4e8c"}


def pyplot():
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    return plt


def bars(plt, path, title, rows, threads):
    """rows: [(label, {threads: ratio})]."""
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.38 * len(rows)))
    height = 0.8 / len(threads)
    for k, t in enumerate(threads):
        for i, (_, ratios) in enumerate(rows):
            if ratios.get(t):
                y = i + (k - (len(threads) - 1) / 2) * height
                axes.barh(y, ratios[t], height, color=COLOURS.get(t, "#888888"),
                          label=f"{t} thread{'s' * (t > 1)}" if i == 0 else None)
                axes.text(ratios[t], y, f" {ratios[t]:.2g}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [v for v in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= v <= high]
    axes.set_xticks(ticks, [f"{v:g}" for v in ticks])
    axes.minorticks_off()
    axes.set_xlabel("times as fast as the peer")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def growth(plt, path, title, label, series):
    """series: [(name, lengths, ms)]; both axes relative to the first point, so that a straight line
    of slope one is linear growth."""
    figure, axes = plt.subplots(figsize=(6, 4.5))
    largest = 1
    for name, lengths, ms in series:
        axes.plot([n / lengths[0] for n in lengths], [v / ms[0] for v in ms], marker="o",
                  label=name, linewidth=1.2, markersize=3.5)
        largest = max(largest, lengths[-1] / lengths[0])
    axes.plot([1, largest], [1, largest], color="black", linewidth=0.8, linestyle="--",
              label="linear")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel(f"{label}, relative to the smallest")
    axes.set_ylabel("time, relative to the smallest")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
