"""The splits that a tree may hold: `feature <= threshold`, with round thresholds on a logarithmic grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def round_between(below: int, above: int) -> int:
    """A threshold t with below <= t < above, near the geometric mean, with the smallest odd factor there.

    Lengths and batch sizes vary on a logarithmic scale, so the middle half of the gap is taken on that scale.
    Within it 2^k is preferred to 3 * 2^k, and that to 5 * 2^k.

    >>> round_between(1, 2), round_between(64, 128), round_between(100, 300), round_between(0, 1)
    (1, 96, 192, 0)
    """
    if below < 1:
        return below
    low, high = math.log(below), math.log(above)
    first = max(below, math.ceil(math.exp(low + (high - low) / 4)))
    last = min(above - 1, math.floor(math.exp(low + (high - low) * 3 / 4)))
    if first > last:
        return below
    middle = (low + high) / 2
    return min(_roundest(first, last), key=lambda t: (abs(math.log(t) - middle), t))


def _roundest(first: int, last: int) -> list[int]:
    """The integers in [first, last] (first >= 1) with the smallest odd factor."""
    power = 1 << last.bit_length()
    while last // power * power < first:
        power //= 2
    # `power` is the largest power of two with a multiple in the range; all its multiples there are odd ones.
    odd = -(-first // power)
    multiples = [odd * power]
    while multiples[-1] % 2 == 0 and multiples[-1] // 2 >= first:
        multiples.append(multiples[-1] // 2)
    return multiples


_FEW = 16  # values of a feature that may be split between all of them
_DENSE = 16  # below this, every integer is on the grid; from here on 2^k and 3 * 2^k; negative ones likewise


class CandidateSplit(NamedTuple):
    """A split that a tree may hold."""

    feature: int  # a column of the features
    threshold: int


def candidate_splits(
    features: npt.NDArray[np.int64], bounds: Sequence[CandidateSplit] = ()
) -> tuple[CandidateSplit, ...]:
    """The bounds, then all splits that divide the rows of features [rows, features], by column and threshold.

    No other split divides the rows like a split before it: if one column is another times a constant, only
    the first is split.
    """
    splits = list(bounds)
    divisions = {np.packbits(features[:, s.feature] <= s.threshold).tobytes() for s in bounds}
    for feature in range(features.shape[1]):
        column = features[:, feature]
        values = np.unique(column)
        gaps: dict[tuple[int, int], int] = {}
        few = values[:-1].tolist() if len(values) <= _FEW else ()
        for threshold in (*_grid(int(values[0]), int(values[-1])), *few):
            place = int(np.searchsorted(values, threshold, side="right"))
            gaps.setdefault((int(values[place - 1]), int(values[place])), threshold)
        for below, above in sorted(gaps):
            division = np.packbits(column <= below).tobytes()
            if division not in divisions:
                divisions.add(division)
                rounded = 2 * above > 3 * below >= 0
                threshold = round_between(below, above) if rounded else gaps[below, above]
                splits.append(CandidateSplit(feature, threshold))
    return tuple(splits)


def low_sides(splits: Sequence[CandidateSplit], features: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """[splits, rows] whether a row of features [rows, features] goes to a split's low side."""
    sides = [features[:, split.feature] <= split.threshold for split in splits]
    return np.array(sides, dtype=np.bool_).reshape(len(splits), len(features))


def _grid(least: int, greatest: int) -> Sequence[int]:
    """The grid's thresholds t with least <= t < greatest."""
    largest = max(abs(least), abs(greatest))
    powers = (m << k for k in range(largest.bit_length() + 1) for m in (2, 3))
    sizes = {*range(_DENSE), *powers}
    return sorted(t for size in sizes for t in {size, -size} if least <= t < greatest)
