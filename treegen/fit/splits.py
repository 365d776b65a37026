"""The splits that a tree may hold: `feature <= threshold`, with round thresholds on a logarithmic grid."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
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
    powers = range(last.bit_length(), -1, -1)
    # The largest power of two with a multiple in the range; all its multiples there are odd ones.
    power = next(power for power in powers if last >> power << power >= first)
    odd = -(-first >> power)
    return [odd << k for k in range(power, -1, -1) if odd << k >= first]


_FEW = 16  # values of a feature that may be split between all of them
_DENSE = 16  # below this, every integer is on the grid; from here on 2^k and 3 * 2^k; negative ones likewise


class CandidateSplit(NamedTuple):
    """A split that a tree may hold."""

    feature: int  # a column of the features
    threshold: int


def candidate_splits(
    features: npt.NDArray[np.int64],
    bounds: Sequence[CandidateSplit] = (),
    ruled: Mapping[int, Mapping[int, int]] | None = None,
) -> tuple[CandidateSplit, ...]:
    """The bounds, then all splits that divide the rows of features [rows, features], by column and threshold.

    No other split divides the rows like a split before it: if one column is another times a constant, only
    the first is split.

    ruled: by column, the thresholds that a source's rule sets behind a value; all values may be split there.
    """
    splits = list(bounds)
    divisions = {np.packbits(features[:, s.feature] <= s.threshold).tobytes() for s in bounds}
    for feature in range(features.shape[1]):
        column = features[:, feature]
        values = np.unique(column)
        gaps: dict[tuple[int, int], int] = {}
        rule = (ruled or {}).get(feature, {})
        few = values[:-1].tolist() if len(values) <= _FEW or rule else ()
        for threshold in (*_grid(int(values[0]), int(values[-1])), *few):
            place = int(np.searchsorted(values, threshold, side="right"))
            gaps.setdefault((int(values[place - 1]), int(values[place])), threshold)
        for below, above in sorted(gaps):
            division = np.packbits(column <= below).tobytes()
            if division not in divisions:
                divisions.add(division)
                rounded = 2 * above > 3 * below >= 0
                threshold = round_between(below, above) if rounded else gaps[below, above]
                threshold = rule.get(below, threshold)
                splits.append(CandidateSplit(feature, threshold))
    return tuple(splits)


def lookup_bounds(column: npt.NDArray[np.int64], others: npt.NDArray[np.int64], rule: str) -> dict[int, int]:
    """By value, the last size that its entry serves, where a source looks sizes up by a rule.

    "nearest": half the way to the file's next key; "at_most": the key itself. Where files have different
    keys, the bound of most of them counts.

    column: [rows] the sizes. others: [rows, features] equal for the rows of one file.
    """
    bounds_below: dict[int, list[int]] = {}
    every = np.unique(column).tolist()
    _, file = np.unique(others, axis=0, return_inverse=True)
    for number in range(int(file.max()) + 1):
        for key, above in pairwise(np.unique(column[file.ravel() == number]).tolist()):
            bound = (key + above) // 2 if rule == "nearest" else key
            below = every[bisect_right(every, bound) - 1]
            bounds_below.setdefault(below, []).append(bound)
    return {below: max(sorted(set(bounds)), key=bounds.count) for below, bounds in bounds_below.items()}


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
