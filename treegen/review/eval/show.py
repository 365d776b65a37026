"""What `treegen eval` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from treegen.core.table import Cells
from treegen.review.eval.compare import OURS, Row
from treegen.review.eval.results import Assessment, Report, Source
from treegen.review.eval.wording import (
    Grid,
    against_line,
    curves_grid,
    noise_line,
    source_line,
    stability_grid,
    ways_grid,
)

_WIDTH = 110
_MEASURED = (
    "geomean, timed: geometric mean of time over the best time; with choices that have no time charged as",
    "  twice the best, and without them. 95%: charged, too. worst: of the choices that have a time.",
    "gap closed: 100% is the best config everywhere, 0% the single best config.",
    "unmeasured, failed: choices without a time; failed ones may also break a constraint.",
)
_WINNERS = ("won: share of held-out scenarios whose winner was chosen; the table holds no other times.",)
_EXTRAPOLATED = (
    "trained on: by the number of scenarios; the last column extrapolates a power law, no measurement."
)
_DIFFER = (
    "differ: scenarios in which the tree built again launches another config than that of the whole table."
)
_COST = (
    "cost: the time of the tree that was not fitted to the judging table over that of the one that was.",
    "apart: the time of the slower choice over that of the faster.",
)


def show_report(report: Report, console: Console | None = None) -> None:
    """Print the tables of a report, and below what the figures mean."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for assessment in report.assessments:
        _assessment(console, assessment, report)
    console.print(*_notes(report), sep="\n")


def _assessment(console: Console, assessment: Assessment, report: Report) -> None:
    console.print(assessment.title, source_line(assessment.source, report), "", sep="\n")
    _ways(console, assessment.rows, assessment.source)
    if assessment.noise is not None:
        console.print(noise_line(assessment.noise))
    console.print()
    if assessment.curves:
        _print(console, curves_grid(assessment.curves))
        console.print()
    _print(console, stability_grid(assessment))
    console.print()
    for other in assessment.against:
        console.print(f"judged by {other.source.path}", against_line(other), "", sep="\n")
        _ways(console, other.rows, other.source)
        console.print()


def _ways(console: Console, rows: Sequence[Row], source: Source) -> None:
    _print(console, ways_grid(rows, source.cells))
    ours = next(row.quality for row in rows if row.way == OURS)
    if ours.worst is not None:
        console.print("", f"treegen's worst: {ours.worst:.2f} in {ours.worst_scenario}.", sep="\n")


def _print(console: Console, grid: Grid) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for place, column in enumerate(grid.columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
    for row in grid.rows:
        table.add_row(*row)
    console.print(table)


def _notes(report: Report) -> list[str]:
    notes: list[str] = []
    kinds = {assessment.source.cells for assessment in report.assessments}
    if Cells.MEASURED in kinds:
        notes += _MEASURED
    if Cells.WINNERS in kinds:
        notes += _WINNERS
    if any(curve.extrapolation for assessment in report.assessments for curve in assessment.curves):
        notes.append(_EXTRAPOLATED)
    notes.append(_DIFFER)
    if Cells.MEASURED in kinds:
        notes += _COST
    if "helion" not in report.versions:
        notes.append("Helion is not installed: its tree is left out.")
    return notes
