"""Two tables of the same scenarios: of another GPU, or of another run, where the difference is noise."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.trees.judge import Choice, Measured, Summary, judge, summary

NEAR = 1.15  # times the best: configs among which a choice is made


@dataclass(frozen=True)
class Spread:
    """How cells differ: percentiles of |second / first - 1|, and the median of second / first."""

    cells: int
    median: float
    p90: float
    p99: float
    shift: float


@dataclass(frozen=True)
class Pair:
    """Of cells with a time in both tables.

    `differ`: scenarios in which another config is the best. `first_on_second`: what the first table's best
    loses by the second, over all scenarios; `when_differ`: over those in which it is another. `near`: cells
    within NEAR of the first table's best.
    """

    scenarios: int
    differ: int
    first_on_second: Summary
    second_on_first: Summary
    when_differ: Summary
    all: Spread | None
    near: Spread | None


def spread(pairs: Iterable[tuple[float, float]]) -> Spread | None:
    ratios = np.array([second / first for first, second in pairs])
    if not len(ratios):
        return None
    median, p90, p99 = map(float, np.percentile(np.abs(ratios - 1), (50, 90, 99)))
    return Spread(len(ratios), median, p90, p99, float(np.median(ratios)))


def compare(first: Sequence[Measured], second: Sequence[Measured]) -> Pair:
    """Raises ValueError where one id names two different scenarios."""
    others = {scenario.id: scenario for scenario in second}
    cells: list[tuple[float, float]] = []
    near: list[tuple[float, float]] = []
    lost: list[tuple[bool, float, float]] = []
    for one in first:
        other = others.get(one.id)
        if other is None:
            continue
        if other.features != one.features:
            raise ValueError(f"scenario {one.id} has other features in the two tables")
        both = {c: (time, other.times[c]) for c, time in one.times.items() if c in other.times}
        if not both:
            continue
        best_one = min(both, key=lambda config: both[config][0])
        best_other = min(both, key=lambda config: both[config][1])
        on_second = both[best_one][1] / both[best_other][1]
        on_first = both[best_other][0] / both[best_one][0]
        lost.append((best_one != best_other, on_first, on_second))
        cells += both.values()
        near += [pair for pair in both.values() if pair[0] <= NEAR * both[best_one][0]]
    return Pair(
        len(lost),
        sum(differ for differ, _, _ in lost),
        summary(on_second for _, _, on_second in lost),
        summary(on_first for _, on_first, _ in lost),
        summary(on_second for differ, _, on_second in lost if differ),
        spread(cells),
        spread(near),
    )


@dataclass(frozen=True)
class Crossing:
    """Two choices by one table: each against the best, and other over own where both were timed.

    `differ`: scenarios in which they choose otherwise.
    """

    own: Summary
    other: Summary
    other_over_own: Summary
    differ: int


def cross(scenarios: Sequence[Measured], own: Choice, other: Choice) -> Crossing:
    judged = judge(scenarios, {"own": own, "other": other})
    slowdowns = [(entry.slowdown("own"), entry.slowdown("other")) for entry in judged]
    ratios = [theirs / mine if mine and theirs else None for mine, theirs in slowdowns]
    differ = sum(entry.choices["own"][0] != entry.choices["other"][0] for entry in judged)
    return Crossing(
        summary(mine for mine, _ in slowdowns),
        summary(theirs for _, theirs in slowdowns),
        summary(ratios),
        differ,
    )
