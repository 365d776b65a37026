"""Draw the scores of the generated modules, one picture per device.

The upper panel shows slowdowns of the chosen and of the single best config, the lower one their times.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

KINDS = ("decode", "spec", "mixed", "chunk", "prefill")
SETS = ("tuned", "other models")
# Colours that colour-blind readers tell apart (Okabe and Ito), and a marker each.
STYLES = {
    "single": ("single best config", "#e69f00", "^"),
    "chosen": ("chosen by the generated module", "#0072b2", "o"),
}
SLOWDOWNS = (1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
DPI = 130
INCHES = (12.3, 9.2)  # 1,600 pixels wide

Entry = dict[str, Any]


def sorted_entries(tables: Sequence[Any]) -> list[Entry]:
    """The scenarios of a device's tables with their set: kind by kind, then by best time."""
    entries = [{**entry, "set": table.set} for table in tables for entry in table.scenarios]
    return sorted(entries, key=lambda entry: (KINDS.index(entry["kind"]), entry["best"][1]))


def scatter(axes: Any, entries: Sequence[Entry], name: str, *, relative: bool) -> None:
    """Small marks of tuned scenarios, larger ones with an edge of other models."""
    label, colour, marker = STYLES[name]
    for set_name in SETS:
        points = [
            (place, time / entry["best"][1] if relative else time)
            for place, entry in enumerate(entries)
            if entry["set"] == set_name and (time := entry["choices"][name][1]) is not None
        ]
        if points:
            look: dict[str, Any] = {"s": 13, "alpha": 0.7, "edgecolors": "none", "zorder": 3, "label": label}
            if set_name == "other models":
                look = {"s": 42, "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
                look["label"] = f"{label}, other models"
            axes.scatter(*zip(*points, strict=True), color=colour, marker=marker, **look)


def draw_device(plt: Any, tables: Sequence[Any]) -> Any:
    """The figure of one device."""
    entries = sorted_entries(tables)
    heights = {"height_ratios": (3, 2), "hspace": 0.06}
    figure, (above, below) = plt.subplots(2, 1, figsize=INCHES, sharex=True, gridspec_kw=heights)
    for axes in (above, below):
        axes.set_yscale("log")
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
        for name in STYLES:
            scatter(axes, entries, name, relative=axes is above)
    above.axhline(1.0, color="black", linewidth=1.4, zorder=2, label="best config measured")
    start = 0
    for kind, same in groupby(entries, key=lambda entry: entry["kind"]):
        best = [entry["best"][1] for entry in same]
        below.plot(range(start, start + len(best)), best, color="black", linewidth=1.4, zorder=2)
        if start:
            for axes in (above, below):
                axes.axvline(start - 0.5, color="black", linewidth=0.7, alpha=0.35)
        at = (start + (len(best) - 1) / 2, 1.015)
        centred = {"xycoords": ("data", "axes fraction"), "ha": "center", "fontsize": 10}
        above.annotate(f"{kind}\n({len(best)})", at, **centred)
        start += len(best)
    times = [(entry["choices"][name][1], entry["best"][1]) for entry in entries for name in STYLES]
    most = max((time / best for time, best in times if time), default=1.0)
    untimed = [place for place, entry in enumerate(entries) if entry["choices"]["chosen"][1] is None]
    if untimed:
        look = {"marker": "x", "s": 30, "color": "#d55e00", "label": "chosen, but not timed"}
        above.scatter(untimed, [1.25 * most] * len(untimed), **look)
    above.set_ylim(0.95, 1.4 * most)
    ticks = [tick for tick in SLOWDOWNS if tick <= 1.4 * most]
    above.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    above.minorticks_off()
    below.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    above.set_ylabel("time / best time measured (log)")
    below.set_ylabel("microseconds per launch (log)")
    below.set_xlabel("scenarios, grouped by kind, each by its best time")
    above.set_xlim(-2, len(entries) + 1)
    below.set_xticks([])
    figure.align_ylabels((above, below))
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.085), ncols=3, fontsize=9.5, frameon=False)
    figure.suptitle(title(tables), x=0.07, y=0.985, ha="left", fontsize=11)
    figure.subplots_adjust(left=0.068, right=0.985, top=0.845, bottom=0.045)
    return figure


def title(tables: Sequence[Any]) -> str:
    run = tables[0].run
    means = ", ".join(
        f"{mean:.3f} in {len(table.scenarios)} {table.set} scenarios"
        for table in tables
        if (mean := table.figures["all"]["chosen"].geomean) is not None
    )
    date = str(run.get("date", ""))[:10]
    return f"{run['device']['name']}, {date}: geometric mean of time chosen / best {means}"


def draw(tables: Sequence[Any], folder: Path) -> list[Path]:
    """Write tuned_DEVICE.png of each device's `tuned.TableScores`; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    devices: dict[str, list[Any]] = {}
    for table in tables:
        if table.set in SETS:
            devices.setdefault(table.device, []).append(table)
    written = []
    for device, of_device in devices.items():
        drawn = draw_device(plt, of_device)
        written.append(folder / f"tuned_{device}.png")
        drawn.savefig(written[-1], dpi=DPI)
        plt.close(drawn)
    return written
