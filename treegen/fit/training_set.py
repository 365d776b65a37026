"""The data that the search for a tree reads, and its limits."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from treegen.fit.index_tree import IndexTree, NodePath, count_leaves

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
