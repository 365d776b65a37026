"""Make the ends of a tree optimal: its subtrees of at most two questions in a row.

Where two features matter only together, as on a checkerboard, no single split saves anything and growth
stops; the best pairs of questions are found by trying all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from treegen.fit.growth import Way, replaced
from treegen.fit.objective import FAILED
from treegen.fit.optimal import optimal
from treegen.fit.optimal_shape import Shape, count_leaves, height
from treegen.fit.sample import Rows, Sample

_HEIGHT = 2
_EVIDENT = 3.0  # standard deviations of the sum of what rows save


def polish(sample: Sample, shape: Shape) -> Shape:
    """The tree with better subtrees at its ends, within the sample's limits, where there are such.

    First those of two questions in a row are replaced, then those of one, then leaves. A best subtree of
    which a leaf would hold fewer than `sample.least` rows is not taken.
    """
    for most in range(_HEIGHT, -1, -1):
        for way, part, rows in list(_ends(sample, shape, most, sample.every, ())):
            spare = sample.max_leaves - count_leaves(shape)
            best = _best(sample, rows, min(_HEIGHT, sample.max_depth - len(way)), count_leaves(part) + spare)
            if _evident(sample, part, best, rows) and _fewest(sample, best, rows) >= sample.least:
                shape = replaced(shape, way, best)
    return shape


def _ends(sample: Sample, shape: Shape, most: int, rows: Rows, way: Way) -> Iterator[tuple[Way, Shape, Rows]]:
    """The largest subtrees of at most so many questions in a row, the way to each, and its rows."""
    if not isinstance(shape, tuple) or height(shape) <= most:
        yield way, shape, rows
        return
    yes, no = sample.divide(shape[0], rows)
    yield from _ends(sample, shape[1], most, yes, (*way, 1))
    yield from _ends(sample, shape[2], most, no, (*way, 2))


def _best(sample: Sample, rows: Rows, max_depth: int, max_leaves: int) -> Shape:
    asked = np.flatnonzero(~sample.too_small(rows))
    found = optimal(
        sample.yes[np.ix_(asked, rows)],
        sample.loss[rows].astype(np.int64),
        max_depth=max_depth,
        max_leaves=max_leaves,
        leaf_price=sample.leaf_price,
    )
    return _renumbered(found.shape, asked)


def _renumbered(shape: Shape, asked: Rows) -> Shape:
    """The tree with the questions' numbers in the sample for those among the asked."""
    if not isinstance(shape, tuple):
        return shape
    return int(asked[shape[0]]), _renumbered(shape[1], asked), _renumbered(shape[2], asked)


def _evident(sample: Sample, part: Shape, other: Shape, rows: Rows) -> bool:
    """Whether the other subtree saves more than its leaves cost, and more than chance explains: it is the
    best of thousands that were tried. What fails no more needs no proof."""
    before = sample.spent(part, rows)
    saved = before - sample.spent(other, rows)
    price = sample.leaf_price * (count_leaves(other) - count_leaves(part))
    squares = math.fsum((saved**2).tolist())  # the same in any order
    unproven = saved.sum() < _EVIDENT * math.sqrt(squares) and before.max() < FAILED
    return bool(saved.sum() > max(price, 0)) and not unproven


def _fewest(sample: Sample, shape: Shape, rows: Rows) -> int:
    """Rows in the leaf that holds fewest."""
    if not isinstance(shape, tuple):
        return len(rows)
    yes, no = sample.divide(shape[0], rows)
    return min(_fewest(sample, shape[1], yes), _fewest(sample, shape[2], no))
