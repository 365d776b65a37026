"""The sentences of a diff, which are the same in Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.results import ComparisonKind, ConfigChange, Diff, ModuleComparison
from treegen.review.diff.table_change import Drift, TableChange
from treegen.review.printing import counted

SHOWN = 12
"""The most changes of a module that are shown; the others are counted."""

SHOWN_IN_SUMMARY = 4
"""The most modules of which the summary states a figure."""

_MOST_REGRESSIONS = 6  # listed above the tables of a module

_LEGEND = (
    "Time is new over old, geometric mean over the scenarios in which both choices were timed, +- two "
    "standard errors of the table's noise. A table flatters the tree that was fitted to it."
)


def summary(diff: Diff) -> str:
    """A few sentences about all modules."""
    comparisons = diff.comparisons
    changed = sum(not comparison.launches_the_same for comparison in comparisons)
    unreadable = [module for module in comparisons if module.kind is ComparisonKind.UNREADABLE]
    slower = [module for module in comparisons if module.regresses and module not in unreadable]
    unpriced = [module for module in comparisons if module.unpriced]
    contradicted = [module for module in slower if contradiction(module)]
    parts = ["All modules launch the same"]
    if changed:
        parts = [f"{changed} of {counted(len(comparisons), 'module')} changed"]
    if unreadable:
        parts.append(f"{_names(unreadable)} cannot be read")
    worse = [module for module in slower if module not in contradicted]
    if contradicted:
        parts.append(f"The tables contradict each other about {_names(contradicted)}")
    if worse or not contradicted:
        nothing = "No other module regresses" if unreadable else "Nothing regresses"
        subject = f"{_names(worse)} regress{'es' if len(worse) == 1 else ''}" if worse else nothing
        parts.append(f"{subject} by more than noise and {_size(diff.threshold)}{_share(worse)}")
    priced = [module for module in comparisons if module.has_price][:SHOWN_IN_SUMMARY]
    parts += [f"Over all scenarios, {_names([module])}: {_overall_words(module)}" for module in priced]
    if unpriced:
        parts.append(f"No table prices {_names(unpriced)}")
    return ". ".join(parts) + "."


def _share(worse: Sequence[ModuleComparison]) -> str:
    """` in 3 of 40 changes`; empty if a module is slower over all scenarios."""
    if not worse or any(price.verdict is Verdict.SLOWER for module in worse for price in module.judged):
        return ""
    changes = [change for module in worse for change in module.changes]
    return f" in {sum(change.regresses for change in changes)} of {counted(len(changes), 'change')}"


def _overall_words(comparison: ModuleComparison) -> str:
    """`-19% +- 0.2% by the new table`, for each table that judges."""
    pairs = zip(comparison.judges, comparison.judged, strict=True)
    return " and ".join(f"{price_words(price)} {label}" for label, price in pairs)


def legend(diff: Diff) -> str:
    """Return how to read the times; empty if there are none."""
    return (
        _LEGEND if any(comparison.changes and comparison.overall for comparison in diff.comparisons) else ""
    )


def title(comparison: ModuleComparison) -> str:
    """Return what became of a module, and how many scenarios launch another config."""
    kind = str(comparison.kind)
    served = comparison.served is not None
    if served:
        when = "now" if comparison.kind is ComparisonKind.REMOVED else "before"
        kind += f", served by {comparison.served} {when}"
    start = f"{comparison.kernel} on {comparison.device} {kind}"
    if comparison.launches_the_same or not comparison.overall:
        return start
    price = comparison.overall[0]
    if not comparison.changes:
        return f"{start}: launches the same"
    if not price.changed:
        return f"{start}, but only where nothing was measured"
    how = f"in {price.changed:,} of {price.scenarios:,} measured scenarios"
    return f"{start}: other configs {how}" if served else f"{start} {how}"


def regressions(comparison: ModuleComparison) -> list[str]:
    """The prices that noise and threshold do not allow; the first few, and how many more."""
    lines = []
    for label, price in zip(comparison.priced_by, comparison.overall, strict=True):
        if price.verdict is Verdict.SLOWER and label in comparison.judges:
            lines.append(f"{price_words(price)} over all scenarios {label}")
    for change in comparison.changes:
        slower = [
            f"{price_words(price)} {label}"
            for label, price in zip(comparison.priced_by, change.prices, strict=True)
            if price.verdict is Verdict.SLOWER and label in comparison.judges
        ]
        if slower:
            where = counted(change.prices[0].scenarios, "scenario")
            lines.append(f"{' and '.join(slower)} in {where}: {change.what}")
    more = len(lines) - _MOST_REGRESSIONS
    return lines[:_MOST_REGRESSIONS] + ([f"and {more} more"] if more > 0 else [])


def size_words(comparison: ModuleComparison) -> str:
    """What changed of a tree's size and of its limits in the spec; empty if nothing did."""
    before, now = comparison.leaves or (0, 0)
    parts = [] if before == now else [f"Leaves, guards included: {before} before, {now} now."]
    limits = [f"{limit} {old:g} -> {new:g}" for limit, (old, new) in comparison.budget.items()]
    if limits:
        parts.append(f"The spec's budget changed: {', '.join(limits)}.")
    return " ".join(parts)


def contradiction(comparison: ModuleComparison) -> str:
    """A warning if one judging table says faster and the other says slower; empty otherwise."""
    if not {Verdict.FASTER, Verdict.SLOWER} <= {price.verdict for price in comparison.judged}:
        return ""
    return "The tables contradict each other: one of them is wrong, or what runs the kernel has changed."


def where_words(change: ConfigChange) -> str:
    """The regions of a change; the first two of many."""
    shown = change.where[: max(1, min(2, len(change.where) - change.empty))]
    more = len(change.where) - len(shown)
    return "; or ".join(shown) + (f"; and {more} more" if more else "")


def hidden(comparison: ModuleComparison) -> str:
    """The number of changes beyond those that are shown; empty if there are none."""
    rest = comparison.changes[SHOWN:]
    if not rest:
        return ""
    counts = [change.prices[0].scenarios for change in rest if change.prices]
    scenarios = f" of {counted(sum(counts), 'scenario')}" if any(counts) else ""
    some = f"{counts.count(0)} of them " if any(counts) else ""
    unmeasured = f", {some}only where nothing was measured" if 0 in counts else ""
    return f"{counted(len(rest), 'more change')}{scenarios}{unmeasured}: see --format json."


def launches_words(change: ConfigChange) -> str:
    """The constants of both configs, as the module's text has them."""
    return f"{change.old} -> {change.new}"


def price_words(price: Price) -> str:
    """`+2.4% +- 0.3% (14 of 84 timed)`."""
    parts = [f"{price.failing} fail"] if price.failing else []
    if not price.scenarios:
        parts.append("none there")
    elif price.won is not None:
        parts.append(f"won {price.won[0]:,} -> {price.won[1]:,}")
    elif price.verdict is Verdict.SAME:
        parts.append("same")
    elif price.ratio is None or price.verdict is Verdict.UNTIMED:
        parts.append("not timed")
    else:
        error = "" if price.error is None else f" +- {_size(1 + 2 * price.error)}"
        parts.append(f"{_percent(price.ratio)}{error}")
        if price.timed < price.scenarios:
            parts.append(f"({price.timed:,} of {price.scenarios:,} timed)")
    return " ".join(parts)


def scenario_words(end: tuple[str, float] | None) -> str:
    """`+22% in SCENARIO`; empty for None."""
    return "" if end is None else f"{_percent(end[1])} in {end[0]}"


def table_title(change: TableChange) -> str:
    """Say why a table differs: it was measured anew if its run.yaml differs."""
    if change.run:
        return "The table was measured anew."
    return "The table differs, but run.yaml tells of the same run: it went on, or somebody edited the table."


def table_lines(change: TableChange) -> list[str]:
    """Return what changed between the tables."""
    lines = [
        f"Scenarios: {change.old_scenarios:,} before, {change.new_scenarios:,} now, {change.common:,} common."
    ]
    if change.drift is not None:
        line = f"Times of {_drift_words(change.drift)}"
        if change.spread is not None:
            line += f"; the repeats' noise alone makes {_size(change.spread)} a cell"
        lines.append(f"{line}.")
    if change.configs:
        moved = (f"{config}, {_drift_words(drift)}" for config, drift in change.configs.items())
        lines.append(f"Moved most: {'; '.join(moved)}.")
    if change.lost or change.gained:
        lines.append(
            f"{change.lost:,} cells that had a time are not measured now; {change.gained:,} are new."
        )
    if change.appeared or change.vanished:
        lines.append(
            f"{change.appeared:,} cells that had a time fail now; {change.vanished:,} that failed have one."
        )
    return lines


def _names(comparisons: Iterable[ModuleComparison]) -> str:
    return ", ".join(f"{comparison.kernel} on {comparison.device}" for comparison in comparisons)


def _drift_words(drift: Drift) -> str:
    return (
        f"{drift.cells:,} cells in both: {_percent(drift.ratio)} "
        f"(5% to 95%: {_percent(drift.low)} to {_percent(drift.high)})"
    )


def _percent(ratio: float) -> str:
    """A ratio as a change with two significant digits: +2.4%, -0.31%, +38%."""
    change = 100 * (ratio - 1)
    digits = 0 if abs(change) >= 9.95 else 1 if abs(change) >= 0.995 else 2
    return f"{change:+.{digits}f}%"


def _size(ratio: float) -> str:
    """A ratio above 1 as a change without its sign."""
    return _percent(ratio).lstrip("+")
