"""What `treegen eval` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from treegen.review.eval.assess import Assessment, EvalReport
from treegen.review.eval.tables import TableSource
from treegen.review.eval.ways import OURS, WayScore
from treegen.review.eval.wording import (
    NO_HELION,
    TextGrid,
    curves_grid,
    legend,
    noise_line,
    other_line,
    source_line,
    stability_grid,
    ways_grid,
)

_WIDTH = 110


def show_report(report: EvalReport, console: Console | None = None) -> None:
    """Print the grids of a report, and below what their columns mean."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for assessment in report.assessments:
        _assessment(console, assessment, report)
    console.print(*(f"{name}: {meaning}." for name, meaning in legend(report)), sep="\n")
    if any(curve.extrapolation for assessment in report.assessments for curve in assessment.curves):
        console.print("trained on: the last column extrapolates a power law; it is not a measurement.")
    if "helion" not in report.versions:
        console.print(NO_HELION)


def _assessment(console: Console, assessment: Assessment, report: EvalReport) -> None:
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
        console.print(f"scored by {other.source.path}", other_line(other), "", sep="\n")
        _ways(console, other.rows, other.source)
        console.print()


def _ways(console: Console, scores: Sequence[WayScore], source: TableSource) -> None:
    _print(console, ways_grid(scores, source.cells))
    ours = next(score.quality for score in scores if score.way == OURS)
    if ours.worst is not None:
        console.print("", f"treegen's worst: {ours.worst:.2f} in {ours.worst_scenario}.", sep="\n")


def _print(console: Console, grid: TextGrid) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for place, column in enumerate(grid.columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
    for row in grid.rows:
        table.add_row(*row)
    console.print(table)
