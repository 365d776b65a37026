"""The text of an evaluation, the same on a terminal and on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from treegen.core.table import Cells
from treegen.review.eval.assess import Assessment, EvalReport, OtherTable
from treegen.review.eval.curves import TARGET, Extrapolation, LearningCurve, TargetStatus
from treegen.review.eval.stability import ChoiceDifference
from treegen.review.eval.ways import FOREST, OURS, SINGLE, WayScore
from treegen.review.tables import NoiseFloor, TableSource

LABELS = {
    OURS: "treegen",
    SINGLE: "single best config",
    "greedy": "greedy tree",
    "classifier": "scikit-learn classifier",
    "regressor": "scikit-learn regressor",
    "helion": "Helion",
    FOREST: "forest (no tree: a ceiling)",
}
NO_HELION = "Helion is not installed here, so its tree is left out."
_NOTHING = "-"
_MEASURED = (
    ("geomean", "geometric mean of the slowdowns; an untimed choice scores as 2x slower than the best"),
    ("timed", "geometric mean over the choices that have a time"),
    ("95%", "95% of the choices are no slower than this; an untimed choice scores as in geomean"),
    ("worst", "the slowest choice that has a time"),
    ("gap closed", "1 - log(geomean) / log(geomean of the single best config); 100% is the best config"),
    ("unmeasured", "choices that were not measured in their scenario"),
    ("failed", "choices that failed in their scenario or break a constraint there; they have no time"),
)
_WINNERS = (("won", "share of choices that are the winner; the table holds no other times, so no slowdown"),)
_SIZES = (("leaves, configs", "how many a way's rules have and launch, mean over the folds"),)
_DIFFER = (("differ", "share of scenarios in which the rebuilt tree launches another config"),)
_COST = (
    ("cost", "time of the tree not fitted to the scoring table over that of the one fitted to it"),
    ("apart", "time of the slower choice over that of the faster; both are geometric means"),
)


_WON_CURVES = "Share of held-out winners found, by the number of training scenarios."
_CURVES = (
    "Held-out geomean by the number of training scenarios. "
    "The last column extrapolates a power law through the points; it is not a measurement."
)
_STABILITY = (
    "The tree is built again from other data and compared with the tree of the whole table. `build` keeps "
    "the previous tree where that is as good, as `treegen build` does; `fresh` does not."
)


@dataclass(frozen=True)
class Heading:
    """A heading of an assessment."""

    level: int
    text: str


@dataclass(frozen=True)
class TextGrid:
    """A table of text. The first column is aligned left, the others right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | str | TextGrid
"""A heading, a paragraph or a table."""


def assessment_blocks(assessment: Assessment, report: EvalReport, *, name_worst: bool) -> Iterator[Block]:
    """Everything about one kernel on one device; name_worst: with scenarios' ids in the tables."""
    source = assessment.source
    yield Heading(2, assessment.title)
    yield f"`{source.path}`: {source_line(source, report)}"
    yield from _ways_blocks(assessment.rows, source.cells, name_worst)
    if assessment.noise is not None:
        yield noise_line(assessment.noise)
    if assessment.curves:
        yield Heading(3, "Learning curves")
        yield _WON_CURVES if source.cells is Cells.WINNERS else _CURVES
        yield curves_grid(assessment.curves)
    yield Heading(3, "Stability")
    yield _STABILITY
    yield stability_grid(assessment)
    for other in assessment.against:
        yield Heading(3, f"Scored by `{other.source.path}`")
        yield f"All ways were trained on the whole table. {other_line(other)}"
        yield from _ways_blocks(other.rows, other.source.cells, name_worst)


def _ways_blocks(scores: Sequence[WayScore], cells: Cells, name_worst: bool) -> Iterator[Block]:
    yield ways_grid(scores, cells, name_worst=name_worst)
    ours = next(score.quality for score in scores if score.way == OURS)
    if not name_worst and ours.worst is not None:
        yield f"treegen's worst: {ours.worst:.2f} in {ours.worst_scenario}."


def legend(report: EvalReport) -> tuple[tuple[str, str], ...]:
    """Each column's name and meaning."""
    sources = [a.source for a in report.assessments]
    sources += [other.source for a in report.assessments for other in a.against]
    cells = {source.cells for source in sources}
    return (
        *(_MEASURED if Cells.MEASURED in cells else ()),
        *(_WINNERS if Cells.WINNERS in cells else ()),
        *_SIZES,
        *_DIFFER,
        *(_COST if Cells.MEASURED in cells else ()),
    )


def ways_grid(scores: Sequence[WayScore], cells: Cells, *, name_worst: bool = False) -> TextGrid:
    """A row for each way of choosing; name_worst: with the id of the worst scenario."""
    if cells is Cells.WINNERS:
        shares = ((LABELS[score.way], won(score.quality.agreement), *_size(score)) for score in scores)
        return TextGrid(("chosen by", "won", "leaves", "configs"), tuple(shares))
    columns = ("geomean", "timed", "95%", "worst", "gap closed", "leaves", "configs", "unmeasured", "failed")
    return TextGrid(("chosen by", *columns), tuple(_way_row(score, name_worst) for score in scores))


def curves_grid(curves: Sequence[LearningCurve]) -> TextGrid:
    """A row for each curve, a column for each number of scenarios."""
    counts = tuple(f"{point.scenarios:.0f}" for point in curves[0].points)
    last = (f"scenarios for {TARGET}",) if any(curve.extrapolation for curve in curves) else ()
    return TextGrid(("trained on", *counts, *last), tuple(map(_curve_row, curves)))


def stability_grid(assessment: Assessment) -> TextGrid:
    """A row for each tree that is compared with the one of the whole table."""
    samples = assessment.bootstrap
    rows = [
        _samples_row("build (keeps the previous tree)", samples.build),
        _samples_row("fresh", samples.fresh),
    ]
    for other in assessment.against:
        if other.refits is not None:
            name = PurePosixPath(other.source.path).name
            for way, refit in (("build", other.refits.build), ("fresh", other.refits.fresh)):
                rows.append(_difference_row(f"{name}, scored by this table: {way}", refit.here))
                rows.append(_difference_row(f"{name}, scored by that table: {way}", refit.there))
    columns = ("refitted to", "scenarios", "differ", "cost", "apart")
    if assessment.source.cells is Cells.WINNERS:
        return TextGrid(columns[:3], tuple(row[:3] for row in rows))
    return TextGrid(columns, tuple(rows))


def summary_grid(assessments: Sequence[Assessment]) -> TextGrid:
    """A row for each kernel and device, a column for each way."""
    ways = (LABELS[score.way] for score in assessments[0].rows)
    rows = ((a.title, str(a.source.scenarios), *map(_headline, a.rows)) for a in assessments)
    return TextGrid(("", "scenarios", *ways), tuple(rows))


def source_line(source: TableSource, report: EvalReport) -> str:
    """The size of a table, the folds and the number of choices."""
    kind = "winners only" if source.cells is Cells.WINNERS else "measured"
    shuffles = f"{report.repeats} {'shuffle' if report.repeats == 1 else 'shuffles'}"
    choices = source.scenarios * report.repeats
    return (
        f"{_size_words(source)}, {kind}; {report.folds} folds, {shuffles}: {choices} held-out choices a row."
    )


def other_line(other: OtherTable) -> str:
    """Return how large another table is, and whether its scenarios are held out."""
    shared = other.refits.fresh.here.scenarios if other.refits else 0
    known = f"{shared} of them trained on: those are not held out" if shared else "none of them trained on"
    return f"{_size_words(other.source)}, {known}."


def noise_line(noise: NoiseFloor) -> str:
    return (
        f"Noise floor {noise.slowdown:.4f}: one repeat's fastest config, scored by the other repeats "
        f"({noise.scenarios} scenarios); {noise.changed:.0%} change."
    )


def won(share: float) -> str:
    return f"{share:.1%}"


def _size_words(source: TableSource) -> str:
    why = f": {source.why_left_out}" if source.why_left_out else ""
    left_out = f" ({source.left_out} more left out{why})" if source.left_out else ""
    return f"{source.scenarios} scenarios{left_out} x {source.configs} configs"


def _size(score: WayScore) -> tuple[str, str]:
    return _NOTHING if score.leaves is None else f"{score.leaves:.0f}", f"{score.configs:.0f}"


def _way_row(score: WayScore, name_worst: bool) -> tuple[str, ...]:
    quality = score.quality
    where = f" `{quality.worst_scenario}`" if name_worst and quality.worst_scenario else ""
    return (
        LABELS[score.way],
        _ratio(quality.slowdown),
        _ratio(quality.timed_slowdown),
        _ratio(quality.percentile95, 2),
        _ratio(quality.worst, 2) + where,
        _NOTHING if score.gap_closed is None else f"{score.gap_closed:.0%}",
        *_size(score),
        str(quality.unmeasured),
        str(quality.failed),
    )


def _headline(score: WayScore) -> str:
    slowdown = score.quality.slowdown
    return f"{won(score.quality.agreement)} won" if slowdown is None else _ratio(slowdown)


def _curve_row(curve: LearningCurve) -> tuple[str, ...]:
    figures = [won(p.agreement) if p.slowdown is None else _ratio(p.slowdown) for p in curve.points]
    return (LABELS[curve.way], *figures, *([_needed(curve.extrapolation)] if curve.extrapolation else []))


def _needed(extrapolation: Extrapolation) -> str:
    if extrapolation.reach is not TargetStatus.MORE or extrapolation.scenarios is None:
        return str(extrapolation.reach)
    digits = 1 - int(math.log10(extrapolation.scenarios))
    return f"about {round(extrapolation.scenarios, digits):,}"


def _samples_row(way: str, samples: Sequence[ChoiceDifference]) -> tuple[str, ...]:
    changed = [sample.changed for sample in samples]
    return (
        f"{len(samples)} bootstrap samples: {way}",
        str(samples[0].scenarios),
        f"{sum(changed) / len(samples):.0%} ({min(changed):.0%} to {max(changed):.0%})",
        _ratio(_geomean(sample.slower for sample in samples)),
        _ratio(_geomean(sample.apart for sample in samples)),
    )


def _difference_row(name: str, difference: ChoiceDifference) -> tuple[str, ...]:
    return (
        name,
        str(difference.scenarios),
        f"{difference.changed:.0%}",
        _ratio(difference.slower),
        _ratio(difference.apart),
    )


def _geomean(ratios: Iterable[float | None]) -> float | None:
    known = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(math.fsum(known) / len(known)) if known else None


def _ratio(value: float | None, digits: int = 3) -> str:
    return _NOTHING if value is None else f"{value:.{digits}f}"
