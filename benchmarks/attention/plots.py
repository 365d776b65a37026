"""Draw a comparison: `python -m benchmarks.attention.plots FOLDER/compare.json` writes PNGs beside the file.

Each plot answers one question:
- ratios: is ours faster than the rivals?
- roofline: how near are the kernels to the hardware's limit?
- rates: how many bytes or operations a second do they reach?
- variants: how much slower than the best of ours is each variant? Only a sweep has these times.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.drawing import draw_command

RIVALS = ("fa3", "vllm", "sdpa")
VARIANTS = ("naive", "prefix_prefill", "split", "qblock", "segmented", "static_grid")
KINDS = ("decode", "spec", "mixed", "varlen", "chunk", "prefill")
COMPUTE_BOUND = ("prefill", "chunk")  # memory bounds decode
# Colours that colour-blind readers tell apart (Okabe and Ito), and a marker each.
STYLES = {
    "best": ("#0072b2", "o"),
    "ours": ("#56b4e9", "o"),
    "fa3": ("#d55e00", "s"),
    "vllm": ("#009e73", "^"),
    "sdpa": ("#999999", "D"),
}
ROW_INCHES = 0.2
RATIO_TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 32, 64, 128)
SLOWEST = 4.0  # end of the heat map's colours

JsonRecords = dict[str, dict[str, Any]]  # by implementation
Value = Callable[[JsonRecords, str], float | None]


@dataclass(frozen=True)
class PlottedBatch:
    """One row of a plot."""

    label: str
    kind: str
    records: JsonRecords  # of the implementations that were timed and right


def read_batches(data: dict[str, Any]) -> list[PlottedBatch]:
    """Return the batches of a comparison that have a right result, kind by kind."""
    batches: dict[str, PlottedBatch] = {}
    for record in data["results"]:
        page = "" if record["block_size"] == 16 else f"  p{record['block_size']}"
        label = f"{record['batch']:<21} {record['layout']:>9}{page:6}"
        batch = batches.setdefault(f"{label} {record['dtype']}", PlottedBatch(label, record["kind"], {}))
        if record["time_us"] and record["ok"]:
            batch.records[record["implementation"]] = record
    order = {kind: place for place, kind in enumerate(KINDS)}
    right = (batch for batch in batches.values() if batch.records)
    return sorted(right, key=lambda batch: order.get(batch.kind, 99))


def label_rows(axes: Any, batches: Sequence[PlottedBatch]) -> None:
    """Write the batches on the left and the kinds on the right, and draw a line between kinds."""
    axes.set_yticks(range(len(batches)), [batch.label for batch in batches], fontsize=7, family="monospace")
    axes.set_ylim(len(batches) - 0.5, -0.5)
    changes = [i for i in range(1, len(batches)) if batches[i].kind != batches[i - 1].kind]
    for start, stop in pairwise([0, *changes, len(batches)]):
        axes.axhline(start - 0.5, color="black", linewidth=0.6)
        place, units = (1.01, (start + stop - 1) / 2), ("axes fraction", "data")
        axes.annotate(batches[start].kind, place, xycoords=units, va="center", fontsize=8)


def draw_markers(axes: Any, batches: Sequence[PlottedBatch], names: Sequence[str], value: Value) -> None:
    """Draw a marker for each implementation in each row."""
    for name in present(batches, names):
        points = [(value(batch.records, name), place) for place, batch in enumerate(batches)]
        known = [(x, y) for x, y in points if x]
        colour, marker = STYLES[name]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        axes.scatter(xs, ys, s=22, color=colour, marker=marker, label=name, zorder=3)
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.grid(axis="y", alpha=0.15)
    label_rows(axes, batches)


def draw_legend(axes: Any) -> None:
    """Draw the legend above the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5, fontsize=8, frameon=False)


def present(batches: Sequence[PlottedBatch], names: Sequence[str]) -> list[str]:
    """Return the implementations that any batch has."""
    return [name for name in names if any(name in batch.records for batch in batches)]


def draw_ratios(plt: Any, batches: list[PlottedBatch]) -> Any:
    """Draw the rivals' times over the best of ours, or over ours without a sweep."""

    def ratio(records: JsonRecords, name: str) -> float | None:
        mine, theirs = records.get("best") or records.get("ours"), records.get(name)
        return theirs["time_us"] / mine["time_us"] if mine and theirs else None

    figure, axes = plt.subplots(figsize=(9, 1.4 + ROW_INCHES * len(batches)))
    draw_markers(axes, batches, RIVALS, ratio)
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    low, high = min(low, 0.7), max(high, 1.5)
    axes.set_xlim(low, high)
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.axvline(1.0, color="black", linewidth=1.2)
    mine = "best of ours" if present(batches, ["best"]) else "ours"
    axes.set_xlabel(f"rival's time / {mine} (right of 1: ours is faster)")
    draw_legend(axes)
    return figure


def draw_roofline(plt: Any, batches: list[PlottedBatch]) -> Any:
    """Draw each implementation's share of the roofline."""

    def share(records: JsonRecords, name: str) -> float | None:
        return 100 * records[name]["roofline_share"] if name in records else None

    figure, axes = plt.subplots(figsize=(9, 1.4 + ROW_INCHES * len(batches)))
    draw_markers(axes, batches, ("ours", "best", "fa3", "vllm"), share)
    axes.set_xlim(0, max(105.0, axes.get_xlim()[1]))
    axes.axvline(100.0, color="black", linewidth=1.2)
    axes.set_xlabel("share of the roofline, %")
    draw_legend(axes)
    return figure


def draw_rates(plt: Any, batches: list[PlottedBatch]) -> Any:
    """Draw bytes a second of decode and operations a second of prefill; None without such batches."""
    panels = (
        ("gbps", "GB/s", [batch for batch in batches if batch.kind == "decode"]),
        ("tflops", "TFLOP/s", [batch for batch in batches if batch.kind in COMPUTE_BOUND]),
    )
    shown = [panel for panel in panels if panel[2]]
    if not shown:
        return None
    heights = [1.6 + ROW_INCHES * len(members) for _, _, members in shown]
    figure, grid = plt.subplots(
        len(shown), 1, figsize=(9, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axes, (column, title, members) in zip(grid[:, 0], shown, strict=True):

        def rate(records: JsonRecords, name: str, column: str = column) -> float | None:
            return records[name][column] if name in records else None

        draw_markers(axes, members, tuple(STYLES), rate)
        axes.set_xlim(0, None)
        axes.set_xlabel(title)
    draw_legend(grid[0, 0])
    figure.subplots_adjust(hspace=0.9 * len(heights) / sum(heights))
    return figure


def draw_variants(plt: Any, batches: list[PlottedBatch]) -> Any:
    """Draw each variant's time over the best's, grey where it was skipped or failed; None without a sweep."""
    from matplotlib.colors import LogNorm

    names = present(batches, VARIANTS)
    if not names or not present(batches, ["best"]):
        return None

    def slowdown(records: JsonRecords, name: str) -> float:
        best, variant = records.get("best"), records.get(name)
        return variant["time_us"] / best["time_us"] if best and variant else float("nan")

    cells = [[slowdown(batch.records, name) for name in names] for batch in batches]
    figure, axes = plt.subplots(figsize=(8.5, 1.8 + ROW_INCHES * len(batches)))
    colours = plt.get_cmap("viridis_r").with_extremes(bad="#dddddd")
    image = axes.imshow(cells, aspect="auto", cmap=colours, norm=LogNorm(1.0, SLOWEST))
    for y, row_cells in enumerate(cells):
        for x, cell in enumerate(row_cells):
            text = "-" if cell != cell else f"{cell:.2f}" if cell < 100 else f"{cell:.0f}"
            colour = "white" if cell > 2 else "black"
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.xaxis.tick_top()
    label_rows(axes, batches)
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.1, fraction=0.03, aspect=30)
    bar.set_ticks([1, 1.5, 2, 3, SLOWEST], labels=["1", "1.5", "2", "3", f"{SLOWEST:g}"])
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=8)
    bar.set_label("variant's time / best", fontsize=8)
    return figure


PLOTS = {"ratios": draw_ratios, "roofline": draw_roofline, "rates": draw_rates, "variants": draw_variants}


def draw(source: Path) -> list[Path]:
    """Write compare_NAME.png of each plot that the data allow; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads(source.read_text())
    batches = read_batches(data)
    facts = data["environment"]
    written = []
    for name, draw_plot in PLOTS.items():
        figure = draw_plot(plt, batches) if batches else None
        if figure is None:
            continue
        figure.axes[0].set_title(f"{facts['device']}, {facts['date'][:10]}", fontsize=9, loc="right", pad=22)
        written.append(source.with_name(f"compare_{name}.png"))
        figure.savefig(written[-1], dpi=130, bbox_inches="tight")
        plt.close(figure)
    return written


if __name__ == "__main__":
    draw_command(draw, __doc__, "compare.json", "benchmarks.attention.compare")
