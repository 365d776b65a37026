"""Draw a comparison: `python -m benchmarks.attention.plots FOLDER/compare.json` writes PNGs beside the file.

One figure a question: who is faster (ratios), how near the hardware's limit (roofline), at what rate (rates),
and what each variant costs against the best of ours (variants; only of a sweep).
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
OPERATIONS = ("prefill", "chunk")  # kinds that the matrix units bound; memory bounds decode
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

Record = dict[str, Any]
Value = Callable[[dict[str, Record], str], float | None]


@dataclass(frozen=True)
class Row:
    """One batch: its label, its kind, and the records of those that ran and were right."""

    label: str
    kind: str
    records: dict[str, Record]


def rows_of(data: dict[str, Any]) -> list[Row]:
    """The batches of a comparison, kind by kind."""
    found: dict[str, Row] = {}
    for record in data["results"]:
        page = "" if record["block_size"] == 16 else f"  p{record['block_size']}"
        label = f"{record['batch']:<21} {record['layout']:>9}{page:6}"
        row = found.setdefault(f"{label} {record['dtype']}", Row(label, record["kind"], {}))
        if record["time_us"] and record["ok"]:
            row.records[record["implementation"]] = record
    order = {kind: place for place, kind in enumerate(KINDS)}
    return sorted((row for row in found.values() if row.records), key=lambda row: order.get(row.kind, 99))


def boundaries(rows: Sequence[Row]) -> list[int]:
    """Where a kind begins, but for the first."""
    return [i for i in range(1, len(rows)) if rows[i].kind != rows[i - 1].kind]


def name_rows(axes: Any, rows: Sequence[Row]) -> None:
    """Labels on the left, the kinds on the right with a line between."""
    axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=7, family="monospace")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    ends = [0, *boundaries(rows), len(rows)]
    for start, stop in pairwise(ends):
        axes.axhline(start - 0.5, color="black", linewidth=0.6)
        axes.annotate(
            rows[start].kind,
            (1.01, (start + stop - 1) / 2),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8,
        )


def dots(axes: Any, rows: Sequence[Row], names: Sequence[str], value: Value) -> None:
    """A mark for each implementation in each row."""
    for name in names:
        points = [(value(row.records, name), place) for place, row in enumerate(rows)]
        known = [(x, y) for x, y in points if x]
        colour, marker = STYLES[name]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        axes.scatter(xs, ys, s=22, color=colour, marker=marker, label=name, zorder=3)
    axes.grid(axis="x", which="both", alpha=0.25)
    axes.grid(axis="y", alpha=0.15)
    name_rows(axes, rows)


def legend(axes: Any) -> None:
    """Above the axes, where it hides nothing."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5, fontsize=8, frameon=False)


def present(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    return [name for name in names if any(name in row.records for row in rows)]


def fastest(records: dict[str, Record]) -> Record | None:
    """`best` of a sweep, else what the heuristic chose."""
    return records.get("best") or records.get("ours")


def draw_ratios(plt: Any, rows: list[Row]) -> Any:
    def ratio(records: dict[str, Record], name: str) -> float | None:
        mine, theirs = fastest(records), records.get(name)
        return theirs["time_us"] / mine["time_us"] if mine and theirs else None

    swept = any("best" in row.records for row in rows)
    figure, axes = plt.subplots(figsize=(9, 1.4 + ROW_INCHES * len(rows)))
    dots(axes, rows, present(rows, RIVALS), ratio)
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    low, high = min(low, 0.7), max(high, 1.5)
    axes.set_xlim(low, high)
    ticks = [tick for tick in RATIO_TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.axvline(1.0, color="black", linewidth=1.2)
    axes.set_xlabel(f"rival's time / {'best of ours' if swept else 'ours'} (right of 1: ours is faster)")
    legend(axes)
    return figure


def draw_roofline(plt: Any, rows: list[Row]) -> Any:
    def share(records: dict[str, Record], name: str) -> float | None:
        return 100 * records[name]["roofline_share"] if name in records else None

    figure, axes = plt.subplots(figsize=(9, 1.4 + ROW_INCHES * len(rows)))
    dots(axes, rows, present(rows, ("ours", "best", "fa3", "vllm")), share)
    axes.set_xlim(0, max(105.0, axes.get_xlim()[1]))
    axes.axvline(100.0, color="black", linewidth=1.2)
    axes.set_xlabel("share of the roofline, %")
    legend(axes)
    return figure


def draw_rates(plt: Any, rows: list[Row]) -> Any:
    """Operations a second where those bound the kind, bytes a second in decode."""
    panels = (
        ("gbps", "GB/s", [row for row in rows if row.kind == "decode"]),
        ("tflops", "TFLOP/s", [row for row in rows if row.kind in OPERATIONS]),
    )
    shown = [panel for panel in panels if panel[2]]
    if not shown:
        return None
    heights = [1.6 + ROW_INCHES * len(own) for _, _, own in shown]
    figure, grid = plt.subplots(
        len(shown), 1, figsize=(9, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axes, (column, title, own) in zip(grid[:, 0], shown, strict=True):

        def rate(records: dict[str, Record], name: str, column: str = column) -> float | None:
            return records[name][column] if name in records else None

        dots(axes, own, present(own, tuple(STYLES)), rate)
        axes.set_xlim(0, None)
        axes.set_xlabel(title)
    legend(grid[0, 0])
    figure.subplots_adjust(hspace=0.9 * len(heights) / sum(heights))
    return figure


def draw_variants(plt: Any, rows: list[Row]) -> Any:
    """Each variant's time over the best's; grey where it was skipped or failed."""
    from matplotlib.colors import LogNorm

    names = present(rows, VARIANTS)
    if not names or not any("best" in row.records for row in rows):
        return None

    def slowdown(row: Row, name: str) -> float:
        best, own = row.records.get("best"), row.records.get(name)
        return own["time_us"] / best["time_us"] if best and own else float("nan")

    cells = [[slowdown(row, name) for name in names] for row in rows]
    figure, axes = plt.subplots(figsize=(8.5, 1.8 + ROW_INCHES * len(rows)))
    colours = plt.get_cmap("viridis_r").with_extremes(bad="#dddddd")
    image = axes.imshow(cells, aspect="auto", cmap=colours, norm=LogNorm(1.0, SLOWEST))
    for y, row_cells in enumerate(cells):
        for x, cell in enumerate(row_cells):
            text = "-" if cell != cell else f"{cell:.2f}" if cell < 100 else f"{cell:.0f}"
            colour = "white" if cell > 2 else "black"
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.xaxis.tick_top()
    name_rows(axes, rows)
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.1, fraction=0.03, aspect=30)
    bar.set_ticks([1, 1.5, 2, 3, SLOWEST], labels=["1", "1.5", "2", "3", f"{SLOWEST:g}"])
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=8)
    bar.set_label("variant's time / best", fontsize=8)
    return figure


DRAWINGS = {"ratios": draw_ratios, "roofline": draw_roofline, "rates": draw_rates, "variants": draw_variants}


def draw(source: Path) -> list[Path]:
    """Write compare_NAME.png of each drawing that the data allow; raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads(source.read_text())
    rows = rows_of(data)
    facts = data["environment"]
    written = []
    for name, drawing in DRAWINGS.items():
        figure = drawing(plt, rows) if rows else None
        if figure is None:
            continue
        figure.axes[0].set_title(f"{facts['device']}, {facts['date'][:10]}", fontsize=9, loc="right", pad=22)
        written.append(source.with_name(f"compare_{name}.png"))
        figure.savefig(written[-1], dpi=130, bbox_inches="tight")
        plt.close(figure)
    return written


if __name__ == "__main__":
    draw_command(draw, __doc__, "compare.json", "benchmarks.attention.compare")
