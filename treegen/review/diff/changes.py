"""Each change of a config: where it applies, in words, and its prices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec
from treegen.core.tree import Region, Tree
from treegen.review.diff.price import Verdict
from treegen.review.diff.pricing_tables import PricedChoices
from treegen.review.diff.results import ConfigChange
from treegen.review.printing import change_words, region_words
from treegen.review.regions import TreeDifference, holds, hull, tree_differences, without_bounds_of

_MOST_FEATURES = 3  # that say where measured scenarios lie
_LEAST_EXCLUDED = 0.1  # of the table's scenarios: a range that excludes fewer is not worth a word


def config_changes(
    old: Tree, new: Tree, kernel: KernelSpec, choices: Sequence[PricedChoices]
) -> tuple[ConfigChange, ...]:
    """All changes between two trees over the same features. Bounds that the guards share are left out.

    Regressions come first, then the changes that cost or save the most total time, then those with the most
    scenarios. `choices` holds the configs that both trees launch in the scenarios of each pricing table.
    """
    box = hull((old, new), kernel.fallback)
    return tuple(
        sorted(
            (_change(difference, box, kernel, choices) for difference in tree_differences(old, new)),
            key=_rank,
        )
    )


def _rank(change: ConfigChange) -> tuple[bool, float, int]:
    times = [abs(np.log(price.ratio)) * price.timed for price in change.prices if price.ratio is not None]
    scenarios = [price.scenarios for price in change.prices]
    return not change.regresses, -max(times, default=0.0), -max(scenarios, default=0)


def _change(
    difference: TreeDifference, box: Region, kernel: KernelSpec, choices: Sequence[PricedChoices]
) -> ConfigChange:
    old, new = difference.old, difference.new
    rows = [priced.rows_of(old, new) for priced in choices]
    regions = list(difference.regions)
    prices = tuple(priced.price(held) for priced, held in zip(choices, rows, strict=True))
    slower = [price.verdict is Verdict.SLOWER for price in prices]
    counts = [_scenarios_in(region, choices[0].problem, rows[0]) if choices else 0 for region in regions]
    order = sorted(range(len(counts)), key=lambda place: -counts[place])
    return ConfigChange(
        old=kernel.constant_name(old),
        new=kernel.constant_name(new),
        what=change_words(old, new, kernel),
        where=tuple(region_words(without_bounds_of(box, regions[place]), kernel) for place in order),
        empty=counts.count(0),
        measured=_measured_words(choices[0].problem, rows[0]) if choices else "",
        prices=prices,
        regresses=any(bad and priced.judges for bad, priced in zip(slower, choices, strict=True)),
    )


def _scenarios_in(region: Region, problem: Problem, rows: npt.NDArray[np.int64]) -> int:
    """Return how many of the rows lie in a region, by the features that the table has."""
    known = {name: bounds for name, bounds in region.items() if name in problem.names}
    features = problem.features[rows].tolist()
    return sum(holds(known, dict(zip(problem.names, row, strict=True))) for row in features)


def _measured_words(problem: Problem, rows: npt.NDArray[np.int64]) -> str:
    """The ranges of those raw features that exclude most other scenarios.

    A bound that equals the table's least or greatest value is left out.
    """
    ranges: list[tuple[int, str, tuple[int | None, int | None]]] = []
    for name in problem.kernel.features if len(rows) else ():
        if name in problem.names:
            column = problem.column(name)
            least, greatest = column[rows].min(), column[rows].max()
            excluded = int(((column < least) | (column > greatest)).sum())
            bounds = (
                None if least == column.min() else int(least),
                None if greatest == column.max() else int(greatest),
            )
            if excluded >= _LEAST_EXCLUDED * len(problem.cost):
                ranges.append((-excluded, name, bounds))
    region = {name: bounds for _, name, bounds in sorted(ranges)[:_MOST_FEATURES]}
    return region_words(region, problem.kernel) if region else ""
