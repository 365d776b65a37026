"""How a comparison reads: sentences and grids of text, the same in Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.results import Change, Comparison, Diff, Kind
from treegen.review.diff.tables import Drift, TableChange

SHOWN = 12
"""Changes of a module that are told; the others are counted."""

_LISTED = 6

LEGEND = (
    "Time is new over old, geometric mean over the scenarios in which both choices were timed, +- two "
    "standard errors of the table's noise. A table flatters the tree that was fitted to it."
)
_QUIET = (Kind.SAME, Kind.TEXT)


@dataclass(frozen=True)
class Cell:
    """verdict: what a figure says, which may give it a colour; None for other text. code: whether the text
    is a name."""

    text: str
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Grid:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def verdict(diff: Diff) -> str:
    """The whole in one sentence."""
    moved = [c for c in diff.comparisons if c.kind not in _QUIET]
    parts = [
        f"{len(moved)} of {counted(len(diff.comparisons), 'module')} changed"
        if moved
        else "All modules launch the same"
    ]
    if unreadable := _listed(c for c in diff.comparisons if c.kind is Kind.UNREADABLE):
        parts.append(f"{unreadable} cannot be read")
    bad = [c for c in diff.comparisons if c.regresses and c.kind is not Kind.UNREADABLE]
    what = f"{_listed(bad)} regress{'es' if len(bad) == 1 else ''}" if bad else "nothing regresses"
    parts.append(f"{what} by more than noise and {percent(diff.threshold).lstrip('+')}")
    if unpriced := _listed(c for c in diff.comparisons if c.unpriced):
        parts.append(f"no table prices {unpriced}")
    return "; ".join(parts) + "."


def _listed(comparisons: Iterable[Comparison]) -> str:
    return ", ".join(f"{c.kernel} on {c.device}" for c in comparisons)


def regressions(comparison: Comparison) -> list[str]:
    """What is slower than noise and threshold allow, the first few."""
    found = []
    for judge, price in zip(comparison.judges, comparison.overall, strict=True):
        if price.verdict is Verdict.SLOWER:
            found.append(f"{price_cell(price).text} over all scenarios {judge}")
    for change in comparison.changes:
        for judge, price in zip(comparison.judges, change.prices, strict=True):
            if price.verdict is Verdict.SLOWER:
                there = counted(price.scenarios, "scenario")
                found.append(f"{price_cell(price).text} in {there} {judge}: {change.what}")
    more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    return found[:_LISTED] + more


def title(comparison: Comparison) -> str:
    return f"{comparison.kernel} on {comparison.device} {_fate(comparison)}"


def _fate(comparison: Comparison) -> str:
    when = "now" if comparison.kind is Kind.REMOVED else "before"
    served = f", served by {comparison.served} {when}" if comparison.served else ""
    if comparison.kind not in (Kind.CHANGED, Kind.ADDED, Kind.REMOVED) or not comparison.overall:
        return f"{comparison.kind}{served}"
    price = comparison.overall[0]
    if not comparison.changes:
        return f"{comparison.kind}{served}: launches the same"
    if not price.changed:
        return f"{comparison.kind}{served}, but only where nothing was measured"
    how = f"in {price.changed:,} of {price.scenarios:,} measured scenarios"
    return f"{comparison.kind}{served}: other configs {how}" if served else f"{comparison.kind} {how}"


def overall_grid(comparison: Comparison) -> Grid:
    """A row for each judge, over all its scenarios."""
    rows = [
        (Cell(judge), price_cell(price), Cell(end_words(price.worst)), Cell(end_words(price.best)))
        for judge, price in zip(comparison.judges, comparison.overall, strict=True)
    ]
    return Grid(("all scenarios", "time", "worst", "best"), tuple(rows))


def changes_grid(comparison: Comparison) -> Grid:
    """A row for each of the first changes."""
    rows = tuple(
        (
            Cell(change.what),
            Cell(where(change)),
            Cell(change.measured),
            Cell(f"{change.prices[0].scenarios:,}" if change.prices else ""),
            *(price_cell(price) for price in change.prices),
        )
        for change in comparison.changes[:SHOWN]
    )
    return Grid(("launches", "where", "measured there", "scenarios", *comparison.judges), rows)


def where(change: Change) -> str:
    """The regions, of many the first two."""
    told = change.where[: max(1, min(2, len(change.where) - change.empty))]
    more = len(change.where) - len(told)
    return "; or ".join(told) + (f"; and {more} more" if more else "")


def hidden(comparison: Comparison) -> str:
    """What is said of the changes that have no row."""
    rest = comparison.changes[SHOWN:]
    if not rest:
        return ""
    held = counted(sum(change.prices[0].scenarios for change in rest if change.prices), "scenario")
    return f"{counted(len(rest), 'more change')} of {held}: see the JSON output."


def price_cell(price: Price) -> Cell:
    """`+2.4% +- 0.3% (14 of 84 timed)`."""
    parts = []
    if price.failing:
        parts.append(f"{price.failing} fail")
    if not price.scenarios:
        parts.append("none there")
    elif price.won is not None:
        parts.append(f"won {price.won[0]:,} -> {price.won[1]:,}")
    elif price.verdict is Verdict.SAME:
        parts.append("same")
    elif price.ratio is None or price.error is None or price.verdict is Verdict.UNTIMED_PENALTY:
        parts.append("not timed")
    else:
        parts.append(f"{percent(price.ratio)} +- {percent(1 + 2 * price.error).lstrip('+')}")
        if price.timed < price.scenarios:
            parts.append(f"({price.timed:,} of {price.scenarios:,} timed)")
    return Cell(" ".join(parts), price.verdict)


def table_lines(change: TableChange) -> list[str]:
    """What moved between the tables themselves."""
    lines = [
        f"Scenarios: {change.old_scenarios:,} before, {change.new_scenarios:,} now, {change.common:,} common."
    ]
    if change.drift is not None:
        noise = percent(change.spread).lstrip("+")
        lines.append(f"Times of {_drift(change.drift)}; the repeats' noise alone makes {noise} a cell.")
    for config, drift in change.configs.items():
        lines.append(f"{config} moved most: {_drift(drift)}.")
    if change.appeared or change.vanished:
        lines.append(
            f"{change.appeared:,} cells fail that had a time, {change.vanished:,} have one that failed."
        )
    return lines


def contradiction(comparison: Comparison) -> str:
    """What to think of it where one table says faster and the other slower."""
    found = {price.verdict for price in comparison.overall}
    if not {Verdict.FASTER, Verdict.SLOWER} <= found:
        return ""
    return "The tables contradict each other: one of them is wrong, or what runs the kernel has changed."


def percent(ratio: float) -> str:
    """A ratio as a change with two digits that matter: +2.4%, -0.31%, +38%."""
    change = 100 * (ratio - 1)
    digits = 0 if abs(change) >= 9.95 else 1 if abs(change) >= 0.995 else 2
    return f"{change:+.{digits}f}%"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _drift(drift: Drift) -> str:
    return (
        f"{drift.cells:,} cells in both: {percent(drift.ratio)} "
        f"(5% to 95%: {percent(drift.low)} to {percent(drift.high)})"
    )


def end_words(end: tuple[str, float] | None) -> str:
    """`+22% in SCENARIO`."""
    return "" if end is None else f"{percent(end[1])} in {end[0]}"
