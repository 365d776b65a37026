"""Compare two tables of the same scenarios, such as those of two GPUs."""

from dataclasses import dataclass

import numpy as np

from benchmarks.trees.score_choices import Slowdowns, TimedTable, summary
from treegen.crossval.choices import Decisions
from treegen.review.common_rows import common_rows

NEAR = 1.15  # times the best: configs that compete for the choice


@dataclass(frozen=True)
class TableComparison:
    """Two tables, by the cells that both timed."""

    scenarios: int
    differ: int  # scenarios in which another config is the best
    first_on_second: Slowdowns  # the first table's best config, by the second table
    second_on_first: Slowdowns
    near_cells: int  # cells within NEAR of the first table's best
    near_shift: float | None  # the median of the second table's time over the first's, of these


@dataclass(frozen=True)
class ModuleSlowdowns:
    """Two modules' choices, by one table."""

    own: Slowdowns
    other: Slowdowns
    other_over_own: Slowdowns  # ratio of the two, where both were timed
    differ: int  # scenarios in which they choose differently


def compare_tables(first: TimedTable, second: TimedTable) -> TableComparison:
    """Compare two tables. Raises ValueError where one id names two different scenarios."""
    one, other = first.problem, second.problem
    here, there = common_rows(one, other)
    same_id = set(one.scenarios) & set(other.scenarios)
    if changed := same_id - {one.scenarios[row] for row in here}:
        raise ValueError(f"scenario {min(changed)} has other features in the two tables")
    shared = [config for config in one.configs if config in other.configs]
    ones = first.times[here][:, [one.configs.index(config) for config in shared]]
    twos = second.times[there][:, [other.configs.index(config) for config in shared]]
    both = ~np.isnan(ones) & ~np.isnan(twos)
    some = both.any(axis=1)
    both = both[some]
    ones, twos = (np.where(both, times[some], np.inf) for times in (ones, twos))
    rows, best_one, best_two = np.arange(len(both)), ones.argmin(axis=1), twos.argmin(axis=1)
    on_second = twos[rows, best_one] / twos[rows, best_two]
    on_first = ones[rows, best_two] / ones[rows, best_one]
    differ = best_one != best_two
    near = both & (ones <= NEAR * ones[rows, best_one][:, None])
    return TableComparison(
        len(both),
        int(differ.sum()),
        summary(on_second),
        summary(on_first),
        int(near.sum()),
        float(np.median(twos[near] / ones[near])) if near.any() else None,
    )


def compare_modules(table: TimedTable, own: Decisions, other: Decisions) -> ModuleSlowdowns:
    """Score the choices of a device's own module and of another device's module by the device's table."""
    mine, theirs = table.times_of(own), table.times_of(other)
    differ = sum(a != b for a, b in zip(own, other, strict=True))
    return ModuleSlowdowns(
        summary(mine / table.best), summary(theirs / table.best), summary(theirs / mine), differ
    )
