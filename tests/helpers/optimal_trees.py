"""The best tree of a small training set, by trying all trees: what searches are compared with."""

from __future__ import annotations

from functools import cache

from treegen.fit.training_set import TrainingSet


def optimum(case: TrainingSet) -> int:
    """The least total of any tree within the limits of depth and leaves; leaves may hold few rows."""
    sides = [{row for row, low in enumerate(is_low) if low} for is_low in case.is_low]

    @cache
    def leaf(rows: tuple[int, ...]) -> int:
        return int(case.loss[list(rows)].sum(axis=0).min()) + case.leaf_price

    @cache
    def best(rows: tuple[int, ...], depth: int, leaves: int) -> int:
        least = leaf(rows)
        if depth == 0 or leaves == 1:
            return least
        most_below = 2 ** (depth - 1)
        for side in sides:
            low = tuple(row for row in rows if row in side)
            high = tuple(row for row in rows if row not in side)
            if low and high:
                for count in range(max(1, leaves - most_below), min(leaves - 1, most_below) + 1):
                    found = best(low, depth - 1, count) + best(high, depth - 1, leaves - count)
                    least = min(least, found)
        return least

    return best(tuple(range(len(case.loss))), case.max_depth, min(case.max_leaves, 2**case.max_depth))
