"""Draw the judgement of tuned modules: `python -m benchmarks.trees.tuned_plots FOLDER/tuned.json`.

One PNG a device beside the file: the chosen config and vLLM's fixed choice over the best of each scenario,
and below the times themselves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.drawing import draw_command

KINDS = ("decode", "spec", "mixed", "chunk", "prefill")
SETS = ("tuned", "untuned")
# Colours that colour-blind readers tell apart (Okabe and Ito), and a marker each.
STYLES = {
    "vllm": ("vLLM's fixed choice", "#e69f00", "^"),
    "chosen": ("chosen by the generated module", "#0072b2", "o"),
}
BEST = "best config measured"
SLOWDOWNS = (1, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
DPI = 130
INCHES = (12.3, 9.2)  # 1,600 pixels wide


@dataclass(frozen=True)
class Point:
    """A scenario: microseconds of the best config, and of each choice or None."""

    set: str
    kind: str
    best: float
    times: dict[str, float | None]


def points_of(tables: Sequence[dict[str, Any]]) -> list[Point]:
    """The scenarios of a device's tables: kind by kind, then by best time."""
    points = [
        Point(
            table["set"],
            entry["kind"],
            entry["best"][1],
            {name: entry["choices"][name][1] for name in STYLES},
        )
        for table in tables
        for entry in table["scenarios"]
    ]
    return sorted(points, key=lambda point: (KINDS.index(point.kind), point.best))


def edges_of(points: Sequence[Point]) -> list[int]:
    """Where each kind begins, and the end."""
    begins = [i for i in range(1, len(points)) if points[i].kind != points[i - 1].kind]
    return [0, *begins, len(points)]


def scatter(axes: Any, points: Sequence[Point], name: str, *, relative: bool) -> None:
    """Small marks of tuned scenarios, larger ones with an edge of those that were not tuned."""
    label, colour, marker = STYLES[name]
    for own in SETS:
        shown = [
            (place, time / point.best if relative else time)
            for place, point in enumerate(points)
            if point.set == own and (time := point.times[name]) is not None
        ]
        untuned = own == "untuned"
        axes.scatter(
            [place for place, _ in shown],
            [value for _, value in shown],
            s=42 if untuned else 13,
            color=colour,
            alpha=1.0 if untuned else 0.7,
            marker=marker,
            edgecolors="black" if untuned else "none",
            linewidths=0.8 if untuned else 0,
            zorder=4 if untuned else 3,
            label=f"{label}{', untuned scenario' if untuned else ''}" if shown else None,
        )


def crosses(axes: Any, points: Sequence[Point], top: float) -> None:
    """At the top, scenarios in which the chosen config was not timed."""
    places = [place for place, point in enumerate(points) if point.times["chosen"] is None]
    if places:
        axes.scatter(
            places, [top] * len(places), marker="x", s=30, color="#d55e00", label="chosen, but not timed"
        )


def name_kinds(axes: Any, points: Sequence[Point], *, labels: bool) -> None:
    """Faint lines between the kinds and, above the axes, their names."""
    for start, stop in pairwise(edges_of(points)):
        if start:
            axes.axvline(start - 0.5, color="black", linewidth=0.7, alpha=0.35)
        if labels:
            axes.annotate(
                f"{points[start].kind} ({stop - start})",
                ((start + stop - 1) / 2, 1.015),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=10,
            )


def draw_device(plt: Any, tables: Sequence[dict[str, Any]]) -> Any:
    points = points_of(tables)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=INCHES, sharex=True, gridspec_kw={"height_ratios": (3, 2), "hspace": 0.06}
    )
    above.set_yscale("log")
    below.set_yscale("log")
    for name in STYLES:
        scatter(above, points, name, relative=True)
        scatter(below, points, name, relative=False)
    above.axhline(1.0, color="black", linewidth=1.4, zorder=2, label=BEST)
    for start, stop in pairwise(edges_of(points)):
        rising = [point.best for point in points[start:stop]]
        below.plot(range(start, stop), rising, color="black", linewidth=1.4, zorder=2)
    most = max((time / p.best for p in points for time in p.times.values() if time), default=1.0)
    crosses(above, points, 1.25 * most)
    above.set_ylim(0.95, 1.4 * most)
    ticks = [tick for tick in SLOWDOWNS if tick <= 1.4 * most]
    above.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    above.minorticks_off()
    below.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    above.set_ylabel("time / best time measured (log)")
    below.set_ylabel("microseconds a launch (log)")
    below.set_xlabel("scenarios, grouped by kind, each by its best time")
    above.set_xlim(-2, len(points) + 1)
    below.set_xticks([])
    for axes in (above, below):
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
        name_kinds(axes, points, labels=axes is above)
    figure.align_ylabels((above, below))
    above.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.045), ncols=3, fontsize=9.5, frameon=False)
    return figure


def title(tables: Sequence[dict[str, Any]]) -> str:
    run = tables[0]["run"]
    counts = ", ".join(f"{len(table['scenarios'])} {table['set']}" for table in tables)
    means = ", ".join(
        f"{table['set']} {mean:.3f}"
        for table in tables
        if (mean := table["figures"]["all"]["chosen"]["geomean"]) is not None
    )
    date = str(run.get("date", ""))[:10]
    return f"{run['device']['name']}, {date}: {counts} scenarios; time chosen / best, geometric mean: {means}"


def draw(source: Path) -> list[Path]:
    """Write tuned_DEVICE.png of each device; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    devices: dict[str, list[dict[str, Any]]] = {}
    for table in json.loads(source.read_text())["tables"]:
        if table["set"] in SETS:
            devices.setdefault(table["device"], []).append(table)
    written = []
    for device, tables in devices.items():
        figure = draw_device(plt, tables)
        figure.suptitle(title(tables), x=0.07, y=0.985, ha="left", fontsize=11)
        figure.subplots_adjust(left=0.068, right=0.985, top=0.865, bottom=0.045)
        written.append(source.with_name(f"tuned_{device}.png"))
        figure.savefig(written[-1], dpi=DPI)
        plt.close(figure)
    return written


if __name__ == "__main__":
    draw_command(draw, __doc__, "tuned.json", "benchmarks.trees.tuned")
