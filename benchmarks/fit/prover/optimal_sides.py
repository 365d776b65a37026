"""The two sides of every question at a node of the search, and what is proven of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_sums import Digits, Whole

Ints = npt.NDArray[np.int64]


class Sides:
    """inside: [2 * questions, rows] the yes sides, then the no sides. budgets: how many leaves a yes side may
    have; the no side may have what remains, which is the same numbers in reverse. lower: [2 * questions,
    budgets] no tree for that side has a lower value. done: [questions, budgets] no more to find there.

    answers: [questions, rows]; floor: a bound for every side; worst: of [rows, 1] the cost of any config at
    most.
    """

    def __init__(self, answers: npt.NDArray[np.bool_], budgets: range, floor: int, worst: Digits) -> None:
        self.inside = np.concatenate([answers, ~answers])
        self.budgets = budgets
        self.lower = np.full((len(self.inside), len(budgets)), floor, dtype=np.int64)
        self.done = np.zeros((len(answers), len(budgets)), dtype=bool)
        self._outside = (~self.inside).astype(np.float64)
        self._worst = worst

    def totals(self) -> Ints:
        """[questions, budgets] no tree that asks this question first has a lower value."""
        yes, no = np.split(self.lower, 2)
        return np.asarray(yes + no[:, ::-1])

    def choose(self, wanted: Ints, rank: Whole) -> tuple[int, int] | None:
        """The question and the place of its budget to try next: the lowest bound, then the lowest rank.

        None if nothing is left that may have a value of at most `wanted` [questions].
        """
        totals = self.totals()
        open_ = ~self.done & (totals <= wanted[:, None])
        if not open_.any():
            return None
        questions, budgets = np.nonzero(open_ & (totals == totals[open_].min()))
        first = int(rank[questions].argmin())
        return int(questions[first]), int(budgets[first])

    def learn(self, side: int, lower: Ints) -> None:
        """Take in bounds [budgets] for one side, and what follows for the others.

        The best tree of another side, used for this one, costs more only by rows that are not there, at most
        by their dearest configs (MurTree's similarity bound: Demirović et al., JMLR 23, 2022).
        """
        rows = np.flatnonzero(self.inside[side])
        more = self._worst.rows(rows).sums(self._outside[:, rows]).astype(np.int64)
        np.maximum(self.lower, lower - more, out=self.lower)
