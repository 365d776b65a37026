"""The terminal output of `treegen eval`."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from treegen.review.eval.assess import EvalReport
from treegen.review.eval.wording import NO_HELION, Heading, TextGrid, assessment_blocks, legend

_WIDTH = 110


def show_report(report: EvalReport, console: Console | None = None) -> None:
    """Print the assessments of a report, and the legend of their columns."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for assessment in report.assessments:
        for block in assessment_blocks(assessment, report, name_worst=False):
            if isinstance(block, TextGrid):
                console.print(_table(block))
            else:
                console.print(block.text if isinstance(block, Heading) else block)
            console.print()
    console.print(*(f"{name}: {meaning}." for name, meaning in legend(report)), sep="\n")
    if report.left_out:
        console.print(*report.left_out, sep="\n", soft_wrap=True)
    if "helion" not in report.versions:
        console.print(NO_HELION)


def _table(grid: TextGrid) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for place, column in enumerate(grid.columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
    for row in grid.rows:
        table.add_row(*row)
    return table
