"""What the search for a tree reads, and what it may not exceed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treegen.fit.index_tree import IndexTree

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """answers: [questions, rows] float64, 1 for yes. loss: [rows, configs] float64, whole numbers.

    Sums of whole numbers below 2^53 are exact in float64, so matrix products give the same on every machine.
    least: rows that a leaf holds at least. leaf_price: what a leaf costs, in steps of `loss`.
    """

    answers: npt.NDArray[np.float64]
    loss: npt.NDArray[np.float64]
    least: int
    max_depth: int
    max_leaves: int
    leaf_price: int

    @cached_property
    def by_row(self) -> npt.NDArray[np.float64]:
        """[rows, questions] the answers, so that those of some rows lie together."""
        return np.ascontiguousarray(self.answers.T)

    @property
    def every(self) -> Rows:
        return np.arange(len(self.loss))

    @cached_property
    def yes(self) -> npt.NDArray[np.bool_]:
        return self.answers > 0

    def best_config(self, rows: Rows) -> int:
        """Of equal configs the first, which the shortlist prefers."""
        return int(self.loss[rows].sum(axis=0).argmin())

    def divide(self, question: int, rows: Rows) -> tuple[Rows, Rows]:
        """The rows that say yes, and those that say no."""
        says = self.yes[question, rows]
        return rows[says], rows[~says]

    def too_small(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """[questions] whether a side would hold fewer than `least` of these rows."""
        count = self.by_row[rows].sum(axis=0)
        return np.asarray(np.minimum(count, len(rows) - count) < self.least)

    def spent(self, shape: IndexTree, rows: Rows) -> npt.NDArray[np.float64]:
        """[rows] the loss of each under a tree."""
        result = np.empty(len(self.loss))
        pending = [(shape, rows)]
        while pending:
            node, here = pending.pop()
            if isinstance(node, tuple):
                yes, no = self.divide(node[0], here)
                pending += [(node[1], yes), (node[2], no)]
            else:
                result[here] = self.loss[here, node]
        return result[rows]
