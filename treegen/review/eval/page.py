"""eval.md: a report as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treegen.core.table import Cells
from treegen.review.eval.results import Against, Assessment, Report
from treegen.review.eval.wording import (
    Grid,
    against_line,
    curves_grid,
    noise_line,
    source_line,
    stability_grid,
    summary_grid,
    ways_grid,
)

_MEASURED = (
    "A slowdown is the time of the chosen config over the best time measured there; 1 is the oracle.",
    "**geomean**: geometric mean over all choices. A choice that has no time is charged as twice the best.",
    "**timed**: geometric mean over the choices that have a time.",
    "**95%**: 95% of the choices are no slower than this, those without a time charged alike.",
    "**worst**: the slowest choice that has a time, and its scenario.",
    "**gap closed**: 1 - log(geomean) / log(geomean of the single best config); 100% is the oracle.",
    "**unmeasured**: choices that were not measured there.",
    "**failed**: choices that failed there or break a constraint; they have no time, either.",
)
_WINNERS = (
    "**won**: the share of choices that are the winner. Nobody kept the other times: no slowdown is known.",
)
_BOTH = ("**leaves**, **configs**: how many a way's rules have and launch, on average over the folds.",)
_WAYS = (
    "All ways learn from the same scenarios, ask the same features and are judged on the same folds. "
    "The peers' trees have as many leaves as treegen's in that fold at most, and its limit of depth; "
    "Helion's keeps its own defaults."
)


def page(report: Report) -> str:
    """The whole page as Markdown, tables in GitHub's dialect."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "# How good the trees are on scenarios they have not seen\n"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"Made from measured tables, without a GPU ({versions}), by\n"
    yield f"    {report.command}\n"
    if len(report.assessments) > 1:
        yield "Geometric mean of slowdowns, held out, or share of winners found:\n"
        yield from _table(summary_grid(report.assessments))
    yield "## How to read the tables\n"
    yield _WAYS + "\n"
    yield from (f"- {line}" for line in _legend(report.assessments))
    yield ""
    if "helion" not in report.versions:
        yield "Helion is not installed here, so its tree is left out.\n"
    for assessment in report.assessments:
        yield from _assessment(assessment, report)


def _legend(assessments: Sequence[Assessment]) -> tuple[str, ...]:
    kinds = {source.cells for a in assessments for source in (a.source, *(o.source for o in a.against))}
    return (
        *(_MEASURED if Cells.MEASURED in kinds else ()),
        *(_WINNERS if Cells.WINNERS in kinds else ()),
        *_BOTH,
    )


def _assessment(assessment: Assessment, report: Report) -> Iterator[str]:
    source = assessment.source
    yield f"## {assessment.title}\n"
    yield f"`{source.path}`: {source_line(source, report)}\n"
    yield from _table(ways_grid(assessment.rows, source.cells, worst_where=True))
    if assessment.noise is not None:
        yield noise_line(assessment.noise) + "\n"
    if assessment.curves:
        yield from _curves(assessment)
    yield from _stability(assessment)
    for other in assessment.against:
        yield from _against(other)


def _curves(assessment: Assessment) -> Iterator[str]:
    yield "### Learning curves\n"
    if assessment.source.cells is Cells.WINNERS:
        yield "Share of held-out winners found, by the number of scenarios that were learnt from.\n"
    else:
        yield (
            "Held-out geomean by the number of scenarios that were learnt from. "
            "The last column is an extrapolation of a power law through the points, not a measurement.\n"
        )
    yield from _table(curves_grid(assessment.curves))


def _stability(assessment: Assessment) -> Iterator[str]:
    yield "### Stability\n"
    yield (
        "The tree is built again from other data and set against the tree of the whole table: over it, as "
        "`treegen build` keeps of yesterday's tree what is as good, and fresh. "
        "**differ**: the share of scenarios in which the two launch different configs."
    )
    if assessment.source.cells is Cells.MEASURED:
        yield (
            "**cost**: the time of the tree that was not fitted to the judging table over that of the one "
            "that was, geometric mean. **apart**: the time of the slower choice over that of the faster."
        )
    yield ""
    yield from _table(stability_grid(assessment))


def _against(other: Against) -> Iterator[str]:
    yield f"### Judged by `{other.source.path}`\n"
    yield f"All ways learnt from the whole table. {against_line(other)}\n"
    yield from _table(ways_grid(other.rows, other.source.cells, worst_where=True))


def _table(grid: Grid) -> Iterator[str]:
    yield _row(grid.columns)
    yield _row(["---", *(["---:"] * (len(grid.columns) - 1))])
    yield from map(_row, grid.rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
