"""eval.md: a report as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treegen.core.table import Cells
from treegen.review.eval.assess import Assessment, EvalReport
from treegen.review.eval.wording import (
    NO_HELION,
    TextGrid,
    curves_grid,
    legend,
    noise_line,
    other_line,
    source_line,
    stability_grid,
    summary_grid,
    ways_grid,
)

TITLE = "# How good the trees are on scenarios they have not seen\n"
_WAYS = (
    "All ways learn from the same scenarios, split on the same features and are scored on the same folds. "
    "The peers' trees have at most as many leaves as treegen's in that fold, and its maximum depth; "
    "Helion's keeps its own defaults.\n"
)
_SLOWDOWN = "A slowdown is the time of the chosen config over the best time measured there; 1 is the best.\n"
_WON_CURVES = "Share of held-out winners found, by the number of training scenarios.\n"
_CURVES = (
    "Held-out geomean by the number of training scenarios. "
    "The last column extrapolates a power law through the points; it is not a measurement.\n"
)
_STABILITY = (
    "The tree is built again from other data and compared with the tree of the whole table. `build` keeps "
    "the previous tree where that is as good, as `treegen build` does; `fresh` does not.\n"
)


def page(report: EvalReport) -> str:
    """The whole page as Markdown, tables in GitHub's dialect."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: EvalReport) -> Iterator[str]:
    yield TITLE
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"Made from measured tables, without a GPU ({versions}), by\n"
    yield f"    {report.command}\n"
    if len(report.assessments) > 1:
        yield "Geometric mean of held-out slowdowns, or share of winners found:\n"
        yield from _table(summary_grid(report.assessments))
    yield "## How to read the tables\n"
    yield _WAYS
    if any(a.source.cells is Cells.MEASURED for a in report.assessments):
        yield _SLOWDOWN
    yield from (f"- **{name}**: {meaning}." for name, meaning in legend(report))
    yield ""
    if "helion" not in report.versions:
        yield f"{NO_HELION}\n"
    for assessment in report.assessments:
        yield from _assessment(assessment, report)


def _assessment(assessment: Assessment, report: EvalReport) -> Iterator[str]:
    source = assessment.source
    yield f"## {assessment.title}\n"
    yield f"`{source.path}`: {source_line(source, report)}\n"
    yield from _table(ways_grid(assessment.rows, source.cells, name_worst=True))
    if assessment.noise is not None:
        yield noise_line(assessment.noise) + "\n"
    if assessment.curves:
        yield "### Learning curves\n"
        yield _WON_CURVES if source.cells is Cells.WINNERS else _CURVES
        yield from _table(curves_grid(assessment.curves))
    yield "### Stability\n"
    yield _STABILITY
    yield from _table(stability_grid(assessment))
    for other in assessment.against:
        yield f"### Scored by `{other.source.path}`\n"
        yield f"All ways were trained on the whole table. {other_line(other)}\n"
        yield from _table(ways_grid(other.rows, other.source.cells, name_worst=True))


def _table(grid: TextGrid) -> Iterator[str]:
    yield _row(grid.columns)
    yield _row(["---", *(["---:"] * (len(grid.columns) - 1))])
    yield from map(_row, grid.rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
