"""What the search reads: candidate splits with round thresholds, losses, limits, and numbered trees."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

IndexTree = int | tuple[int, "IndexTree", "IndexTree"]
"""A leaf (a column of `TrainingSet.loss`), or (row of `TrainingSet.is_low`, low side, high side)."""

NodePath = tuple[int, ...]
"""The way from the root to a node: 1 for a low side, 2 for a high side, so that each step indexes a tree."""


def count_leaves(tree: IndexTree) -> int:
    return count_leaves(tree[1]) + count_leaves(tree[2]) if isinstance(tree, tuple) else 1


def height(tree: IndexTree) -> int:
    """The number of splits on the longest way to a leaf."""
    return 1 + max(height(tree[1]), height(tree[2])) if isinstance(tree, tuple) else 0


def replaced(tree: IndexTree, path: NodePath, subtree: IndexTree) -> IndexTree:
    """The tree with another subtree at the end of a path."""
    if not path:
        return subtree
    assert isinstance(tree, tuple)
    split, low, high = tree
    if path[0] == 1:
        return split, replaced(low, path[1:], subtree), high
    return split, low, replaced(high, path[1:], subtree)


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


@dataclass(frozen=True)
class CandidateSplit:
    """A split that a tree may hold; no row's value lies strictly between `below` and `above`."""

    feature: int  # a column of the features
    threshold: int  # below <= threshold < above
    below: int
    above: int


def candidate_splits(features: npt.NDArray[np.int64]) -> tuple[CandidateSplit, ...]:
    """All splits that divide the rows of features [rows, features], by column, then by threshold.

    No two splits divide the rows alike: if one column is another times a constant, only the first is split.
    """
    splits: list[CandidateSplit] = []
    divisions: set[bytes] = set()
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
                threshold = _threshold(below, above, gaps[below, above])
                splits.append(CandidateSplit(feature, threshold, below, above))
    return tuple(splits)


def low_sides(splits: Sequence[CandidateSplit], features: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """[splits, rows] whether a row of features [rows, features] goes to a split's low side."""
    sides = [features[:, split.feature] <= split.threshold for split in splits]
    return np.array(sides, dtype=np.bool_).reshape(len(splits), len(features))


def _threshold(below: int, above: int, on_grid: int) -> int:
    return round_between(below, above) if 2 * above > 3 * below >= 0 else on_grid


def _grid(least: int, greatest: int) -> Sequence[int]:
    """The grid's thresholds t with least <= t < greatest."""
    largest = max(abs(least), abs(greatest))
    powers = (m << k for k in range(largest.bit_length() + 1) for m in (2, 3))
    sizes = {*range(_DENSE), *powers}
    return sorted(t for size in sizes for t in {size, -size} if least <= t < greatest)


Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Losses of numbered configs in rows that numbered splits divide.

    Both arrays hold whole numbers. Their sums below 2^53 are exact in float64, so matrix products give the
    same result on every machine.
    """

    is_low: npt.NDArray[np.float64]  # [splits, rows] 1 where the row goes to the split's low side, else 0
    loss: npt.NDArray[np.float64]  # [rows, configs]
    min_rows: int  # the fewest rows that a leaf may hold
    max_depth: int
    max_leaves: int
    leaf_price: int  # what a leaf costs, in steps of `loss`

    @cached_property
    def by_row(self) -> npt.NDArray[np.float64]:
        """[rows, splits] `is_low`, laid out so that a row's values lie together."""
        return np.ascontiguousarray(self.is_low.T)

    @cached_property
    def runs(self) -> tuple[tuple[slice, npt.NDArray[np.int64]], ...]:
        """Runs of splits whose low sides grow, as those of one feature do.

        Each with its splits, and for each row [rows] the number of its splits on whose high side the row is.
        """
        grows = (self.is_low[1:] >= self.is_low[:-1]).all(axis=1)
        ends = [*(np.flatnonzero(~grows) + 1).tolist(), len(self.is_low)]
        pieces = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        return tuple((piece, (1 - self.is_low[piece]).sum(axis=0).astype(np.int64)) for piece in pieces)

    def low_sums(self, values: npt.NDArray[np.float64], rows: Rows) -> npt.NDArray[np.float64]:
        """[splits] the sum of values [rows] over the rows on each split's low side."""
        sums = np.empty(len(self.is_low))
        for piece, place in self.runs:
            count = piece.stop - piece.start
            sums[piece] = np.bincount(place[rows], values, count + 1)[:count].cumsum()
        return sums

    @cached_property
    def low_mask(self) -> npt.NDArray[np.bool_]:
        """[splits, rows] `is_low` as booleans."""
        return self.is_low > 0

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """Results of searches below a node, by what is searched, the node's rows (`key`) and its tree."""
        return {}

    @staticmethod
    def key(rows: Rows) -> bytes:
        """The key of some rows in `memo`."""
        return hashlib.blake2b(rows.tobytes(), digest_size=16).digest()

    @property
    def all_rows(self) -> Rows:
        return np.arange(len(self.loss))

    def best_config(self, rows: Rows) -> int:
        """The config of least loss in these rows; of equal ones the first, which the shortlist prefers."""
        return int(self.loss[rows].sum(axis=0).argmin())

    def divide(self, split: int, rows: Rows) -> tuple[Rows, Rows]:
        """The rows on the low side, and those on the high side."""
        low = self.low_mask[split, rows]
        return rows[low], rows[~low]

    def too_small(self, low: npt.NDArray[np.float64], rows: int) -> npt.NDArray[np.bool_]:
        """[splits] whether a side would hold fewer than `min_rows`. low: [splits] the low side's rows."""
        return np.asarray(np.minimum(low, rows - low) < self.min_rows)

    def nodes(self, tree: IndexTree) -> Iterator[tuple[NodePath, IndexTree, Rows]]:
        """Every node with its path and its rows, parents first, low sides first."""
        pending: list[tuple[NodePath, IndexTree, Rows]] = [((), tree, self.all_rows)]
        while pending:
            path, node, rows = pending.pop()
            yield path, node, rows
            if isinstance(node, tuple):
                low, high = self.divide(node[0], rows)
                pending += [((*path, 2), node[2], high), ((*path, 1), node[1], low)]

    def row_losses(self, tree: IndexTree, rows: Rows) -> npt.NDArray[np.float64]:
        """[rows] the loss of each under a tree."""
        result = np.empty(len(self.loss))
        pending = [(tree, rows)]
        while pending:
            node, here = pending.pop()
            if isinstance(node, tuple):
                low, high = self.divide(node[0], here)
                pending += [(node[1], low), (node[2], high)]
            else:
                result[here] = self.loss[here, node]
        return result[rows]

    def total(self, tree: IndexTree) -> float:
        """The loss of all rows plus the price of all leaves."""
        return float(self.row_losses(tree, self.all_rows).sum()) + self.leaf_price * count_leaves(tree)
