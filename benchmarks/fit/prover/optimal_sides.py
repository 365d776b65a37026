"""The two sides of every question at a node of the search, with the bounds proven for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_sums import Digits, Whole

Ints = npt.NDArray[np.int64]


class Sides:
    """Both sides of every question, with a bound for each budget of leaves.

    Args:
        answers: [questions, rows]
        budgets: the numbers of leaves that a yes side may have; the no side gets the same in reverse
        floor: a bound for every side
        worst: [rows, 1] the greatest cost of any config
    """

    def __init__(self, answers: npt.NDArray[np.bool_], budgets: range, floor: int, worst: Digits) -> None:
        self.inside = np.concatenate([answers, ~answers])  # [2 * questions, rows] yes sides, then no sides
        self.budgets = budgets
        # [2 * questions, budgets] no tree for that side has a lower value
        self.lower = np.full((len(self.inside), len(budgets)), floor, dtype=np.int64)
        # [questions, budgets] whether both sides are solved
        self.done = np.zeros((len(answers), len(budgets)), dtype=bool)
        self._outside = (~self.inside).astype(np.float64)
        self._worst = worst

    def totals(self) -> Ints:
        """[questions, budgets] a lower bound on every tree with this question at its root."""
        yes, no = np.split(self.lower, 2)
        return np.asarray(yes + no[:, ::-1])

    def choose(self, targets: Ints, rank: Whole) -> tuple[int, int] | None:
        """The question and the place of its budget to try next: the lowest bound, then the lowest rank.

        None if no remaining tree can have a value of at most `targets` [questions].
        """
        totals = self.totals()
        open_ = ~self.done & (totals <= targets[:, None])
        if not open_.any():
            return None
        questions, budgets = np.nonzero(open_ & (totals == totals[open_].min()))
        first = int(rank[questions].argmin())
        return int(questions[first]), int(budgets[first])

    def learn(self, side: int, lower: Ints) -> None:
        """Raise the bounds [budgets] of one side, and those of the others that follow from them.

        The best tree of another side also fits this one. It costs more only by the rows that the other side
        lacks, each at most its worst config (MurTree's similarity bound: Demirović et al., JMLR 23, 2022).
        """
        rows = np.flatnonzero(self.inside[side])
        more = self._worst.rows(rows).sums(self._outside[:, rows]).astype(np.int64)
        np.maximum(self.lower, lower - more, out=self.lower)
