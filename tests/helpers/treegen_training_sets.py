"""Small inputs of the search for a tree of rows, without a table behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from treegen.fit.search import Training

LOSSES = st.integers(0, 9) | st.integers(0, 1) | st.sampled_from([0, 1 << 36])


@st.composite
def training_sets(draw: st.DrawFn, scenarios: int = 10, splits: int = 4, classes: int = 2) -> Training:
    """Splits may repeat or have an empty side, scenarios may be on the same sides, losses may tie."""
    count, configs = draw(st.integers(1, scenarios)), draw(st.integers(1, 4))
    sides = st.lists(st.booleans(), min_size=count, max_size=count)
    row = st.lists(LOSSES, min_size=configs, max_size=configs)
    classes = draw(st.integers(1, classes))
    return Training(
        is_low=np.array(draw(st.lists(sides, min_size=1, max_size=splits)), dtype=np.bool_),
        loss=np.array(draw(st.lists(row, min_size=count, max_size=count)), dtype=np.float64),
        group=np.array(draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))),
        classes=classes,
        min_rows=1,
        max_depth=draw(st.integers(0, 3)),
        max_leaves=draw(st.integers(1, 6)),
        leaf_price=draw(st.sampled_from([0, 0, 1, 3])),
    )


def reordered(case: Training, order: list[int]) -> Training:
    """The same training set with its scenarios in another order."""
    return replace(case, is_low=case.is_low[:, order], loss=case.loss[order], group=case.group[order])


def least_total(case: Training) -> float:
    """The total of the best tree within the limits, by trying them all."""

    def totals(rows: frozenset[int], depth: int) -> dict[int, float]:
        """The least total of a subtree for each number of leaves."""
        inside = sorted(rows)
        parts = [[row for row in inside if case.group[row] == k] for k in range(case.classes)]
        lost = sum(float(case.loss[part].sum(axis=0).min()) for part in parts if part)
        found = {1: lost + case.leaf_price}
        for low in _low_sides(case, rows) if depth else ():
            for (one, a), (other, b) in _pairs(totals(low, depth - 1), totals(rows - low, depth - 1)):
                if one + other <= case.max_leaves:
                    found[one + other] = min(found.get(one + other, np.inf), a + b)
        return found

    return min(totals(frozenset(range(len(case.loss))), case.max_depth).values())


def _low_sides(case: Training, rows: frozenset[int]) -> set[frozenset[int]]:
    sides = {frozenset(row for row in rows if split[row]) for split in case.is_low}
    return {low for low in sides if low and low != rows}


def _pairs(
    low: dict[int, float], high: dict[int, float]
) -> Iterator[tuple[tuple[int, float], tuple[int, float]]]:
    for one in low.items():
        for other in high.items():
            yield one, other
