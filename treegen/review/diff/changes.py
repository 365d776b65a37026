"""Each change of a config, in words and prices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec
from treegen.core.tree import Region, Tree
from treegen.review.diff.pricing import Pricing
from treegen.review.diff.results import Change
from treegen.review.regions import Moved, holds, hull, moved, within
from treegen.review.words import change_words, region_words

_TOLD = 3  # raw features that say where measured scenarios lie
_TELLING = 0.1  # of the table's scenarios: a range that excludes fewer says nothing


def changes(old: Tree, new: Tree, kernel: KernelSpec, pricings: Sequence[Pricing]) -> tuple[Change, ...]:
    """What launches otherwise: first what regresses, then by how much it costs or saves in all, then by how
    many scenarios it holds. Bounds that guards ask for everywhere are not repeated in each region."""
    everywhere = hull((old, new), kernel.fallback)
    priced = [_change(one, everywhere, kernel, pricings) for one in moved(old, new)]
    return tuple(sorted(priced, key=_rank))


def _rank(change: Change) -> tuple[bool, float, int]:
    moved = [abs(np.log(p.ratio)) * p.timed for p in change.prices if p.ratio is not None]
    return (
        not change.regresses,
        -max(moved, default=0.0),
        -max((p.scenarios for p in change.prices), default=0),
    )


def _change(one: Moved, everywhere: Region, kernel: KernelSpec, pricings: Sequence[Pricing]) -> Change:
    rows = [pricing.rows_of(one.old, one.new) for pricing in pricings]
    values = _values(pricings[0].problem, rows[0]) if pricings else []
    counts = [sum(_lies_in(region, row) for row in values) for region in one.regions]
    order = sorted(range(len(counts)), key=lambda place: -counts[place])
    return Change(
        old=kernel.constant_name(one.old),
        new=kernel.constant_name(one.new),
        what=change_words(one.old, one.new, kernel),
        where=tuple(region_words(within(one.regions[place], everywhere), kernel) for place in order),
        empty=counts.count(0),
        measured=_measured(pricings[0].problem, rows[0]) if pricings else "",
        prices=tuple(pricing.price(row) for pricing, row in zip(pricings, rows, strict=True)),
    )


def _values(problem: Problem, rows: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    return [dict(zip(problem.names, row, strict=True)) for row in problem.features[rows].tolist()]


def _lies_in(region: Region, values: dict[str, int]) -> bool:
    """Whether the region holds a shape, as far as the table's features tell."""
    return holds({name: ends for name, ends in region.items() if name in values}, values)


def _measured(problem: Problem, rows: npt.NDArray[np.int64]) -> str:
    """Where in the space of raw features the scenarios lie, by the features that tell most; an end that is
    the table's own is left out."""
    found: list[tuple[int, str, tuple[int | None, int | None]]] = []
    for name in problem.kernel.features if len(rows) else ():
        if name in problem.names:
            column = problem.column(name)
            least, greatest = column[rows].min(), column[rows].max()
            outside = int(((column < least) | (column > greatest)).sum())
            ends = (
                None if least == column.min() else int(least),
                None if greatest == column.max() else int(greatest),
            )
            found.append((-outside, name, ends))
    telling = [one for one in sorted(found) if -one[0] >= _TELLING * len(problem.cost)]
    return region_words({name: ends for _, name, ends in telling[:_TOLD]}, problem.kernel) if telling else ""
