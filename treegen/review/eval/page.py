"""eval.md: a report as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treegen.core.table import Cells
from treegen.review.eval.assess import EvalReport
from treegen.review.eval.wording import (
    NO_HELION,
    Block,
    Heading,
    TextGrid,
    assessment_blocks,
    legend,
    summary_grid,
)

TITLE = "# How good the trees are on scenarios they have not seen\n"
_WAYS = (
    "All ways are trained on the same scenarios, split on the same features and are scored on the same "
    "folds. The peers' trees have at most as many leaves as treegen's in that fold, and its maximum depth; "
    "Helion's keeps its own defaults."
)
_SLOWDOWN = "A slowdown is the time of the chosen config over the best time measured there; 1 is the best."


def page(report: EvalReport) -> str:
    """The whole page as Markdown, tables in GitHub's dialect."""
    blocks = (text for block in _blocks(report) for text in (_markdown(block), ""))
    return "\n".join((TITLE, *blocks)).rstrip() + "\n"


def _blocks(report: EvalReport) -> Iterator[Block]:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"Made from measured tables, without a GPU ({versions}), by"
    yield f"    {report.command}"
    if len(report.assessments) > 1:
        yield "Geometric mean of held-out slowdowns, or share of winners found:"
        yield summary_grid(report.assessments)
    yield from report.left_out
    yield Heading(2, "How to read the tables")
    yield _WAYS
    if any(assessment.source.cells is Cells.MEASURED for assessment in report.assessments):
        yield _SLOWDOWN
    yield "\n".join(f"- **{name}**: {meaning}." for name, meaning in legend(report))
    if "helion" not in report.versions:
        yield NO_HELION
    for assessment in report.assessments:
        yield from assessment_blocks(assessment, report, name_worst=True)


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, TextGrid):
        rule = ["---", *["---:"] * (len(block.columns) - 1)]
        return "\n".join(map(_row, (block.columns, rule, *block.rows)))
    return block


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
