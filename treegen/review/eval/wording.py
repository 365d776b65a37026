"""How results read: grids of text and sentences, the same on a terminal and on a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from treegen.core.table import Cells
from treegen.review.eval.compare import FOREST, OURS, SINGLE, Row
from treegen.review.eval.curves import TARGET, Curve
from treegen.review.eval.noise import Noise
from treegen.review.eval.powerlaw import Extrapolation, Reach
from treegen.review.eval.results import Against, Assessment, Report, Source
from treegen.review.eval.stability import Difference

LABELS = {
    OURS: "treegen",
    SINGLE: "single best config",
    "greedy": "greedy tree",
    "classifier": "scikit-learn classifier",
    "regressor": "scikit-learn regressor",
    "helion": "Helion",
    FOREST: "forest (no tree: a ceiling)",
}
NOTHING = "-"
_KEEPS = "build (keeps yesterday's tree)"
_FIGURES = ("geomean", "timed", "95%", "worst", "gap closed", "leaves", "configs", "unmeasured", "failed")
_MEASURED = ("chosen by", *_FIGURES)


@dataclass(frozen=True)
class Grid:
    """A table of text; its first column reads from the left, the others hold figures."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def ways_grid(rows: Sequence[Row], cells: Cells, *, worst_where: bool = False) -> Grid:
    """A row for each way of choosing; worst_where: with the id of the worst scenario."""
    if cells is Cells.WINNERS:
        shares = ((LABELS[row.way], won(row.quality.agreement), *_size(row)) for row in rows)
        return Grid(("chosen by", "won", "leaves", "configs"), tuple(shares))
    return Grid(_MEASURED, tuple(_measured(row, worst_where) for row in rows))


def curves_grid(curves: Sequence[Curve]) -> Grid:
    """A row for each curve, a column for each number of scenarios."""
    counts = tuple(f"{point.scenarios:.0f}" for point in curves[0].points)
    told = any(curve.extrapolation for curve in curves)
    columns = ("trained on", *counts, *([f"scenarios for {TARGET}"] if told else []))
    return Grid(columns, tuple(_curve(curve) for curve in curves))


def stability_grid(assessment: Assessment) -> Grid:
    """A row for each tree that is set against the one of the whole table."""
    rows = [_samples(_KEEPS, assessment.bootstrap.build), _samples("fresh", assessment.bootstrap.fresh)]
    for other in assessment.against:
        if other.refits is not None:
            name = PurePosixPath(other.source.path).name
            for way, refit in (("build", other.refits.build), ("fresh", other.refits.fresh)):
                rows.append(_difference(f"{name}, judged by this table: {way}", refit.here))
                rows.append(_difference(f"{name}, judged by that table: {way}", refit.there))
    columns = ("refitted to", "scenarios", "differ", "cost", "apart")
    if assessment.source.cells is Cells.WINNERS:
        return Grid(columns[:3], tuple(row[:3] for row in rows))
    return Grid(columns, tuple(rows))


def summary_grid(assessments: Sequence[Assessment]) -> Grid:
    """A row for each kernel and device, a column for each way."""
    ways = [row.way for row in assessments[0].rows]
    rows = tuple(
        (assessment.title, str(assessment.source.scenarios), *map(_headline, assessment.rows))
        for assessment in assessments
    )
    return Grid(("", "scenarios", *(LABELS[way] for way in ways)), rows)


def source_line(source: Source, report: Report) -> str:
    """What was judged, and how often."""
    choices = source.scenarios * report.repeats
    kind = "winners only" if source.cells is Cells.WINNERS else "measured"
    return (
        f"{table_line(source)}, {kind}; {report.folds} folds, {report.repeats} "
        f"{'shuffle' if report.repeats == 1 else 'shuffles'}: {choices} held-out choices a row."
    )


def table_line(source: Source) -> str:
    left_out = f" ({source.left_out} more left out)" if source.left_out else ""
    return f"{source.scenarios} scenarios{left_out} x {source.configs} configs"


def against_line(other: Against) -> str:
    """What a tree is judged by, and whether that is held out."""
    shared = other.refits.fresh.here.scenarios if other.refits else 0
    known = f"{shared} of them learnt from: those are not held out" if shared else "none of them learnt from"
    return f"{table_line(other.source)}, {known}."


def noise_line(noise: Noise) -> str:
    return (
        f"Noise floor {noise.slowdown:.4f}: one repeat's fastest config, judged by the other repeats "
        f"({noise.scenarios} scenarios); {noise.changed:.0%} change."
    )


def won(share: float) -> str:
    return f"{share:.1%}"


def _size(row: Row) -> tuple[str, str]:
    return NOTHING if row.leaves is None else f"{row.leaves:.0f}", f"{row.configs:.0f}"


def _measured(row: Row, worst_where: bool) -> tuple[str, ...]:
    found = row.quality
    where = f" `{found.worst_scenario}`" if worst_where and found.worst_scenario else ""
    return (
        LABELS[row.way],
        _ratio(found.slowdown),
        _ratio(found.timed_slowdown),
        _ratio(found.percentile95, 2),
        _ratio(found.worst, 2) + where,
        NOTHING if row.gap_closed is None else f"{row.gap_closed:.0%}",
        *_size(row),
        str(found.unmeasured),
        str(found.failed),
    )


def _headline(row: Row) -> str:
    slowdown = row.quality.slowdown
    return f"{won(row.quality.agreement)} won" if slowdown is None else _ratio(slowdown)


def _curve(curve: Curve) -> tuple[str, ...]:
    figures = [won(p.agreement) if p.slowdown is None else _ratio(p.slowdown) for p in curve.points]
    return (LABELS[curve.way], *figures, *([_reached(curve.extrapolation)] if curve.extrapolation else []))


def _reached(extrapolation: Extrapolation) -> str:
    if extrapolation.reach is not Reach.MORE or extrapolation.scenarios is None:
        return str(extrapolation.reach)
    digits = 1 - int(math.log10(extrapolation.scenarios))
    return f"about {round(extrapolation.scenarios, digits):,}"


def _samples(way: str, samples: Sequence[Difference]) -> tuple[str, ...]:
    changed = [sample.changed for sample in samples]
    mean = sum(changed) / len(samples)
    return (
        f"{len(samples)} bootstrap samples: {way}",
        str(samples[0].scenarios),
        f"{mean:.0%} ({min(changed):.0%} to {max(changed):.0%})",
        _ratio(_together(sample.slower for sample in samples)),
        _ratio(_together(sample.apart for sample in samples)),
    )


def _difference(name: str, found: Difference) -> tuple[str, ...]:
    return name, str(found.scenarios), f"{found.changed:.0%}", _ratio(found.slower), _ratio(found.apart)


def _together(ratios: Iterator[float | None]) -> float | None:
    """The geometric mean; None where there is no time."""
    known = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(math.fsum(known) / len(known)) if known else None


def _ratio(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
