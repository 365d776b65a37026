"""The costs of trees' choices by a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Tree
from treegen.fit.objective import losses
from treegen.fit.significance import CostDrop, TableNoise, copies, table_noise
from treegen.fit.tree_costs import choices, columns

CAP = 2 * UNTIMED_PENALTY
"""The greatest cost, that of a choice four times slower than the best, so that no single cell decides."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChoiceCosts:
    """A problem's costs, made ready for significance tests."""

    problem: Problem
    column: Mapping[Config, int]  # where the problem holds each config
    cost: Ints  # [scenarios, configs] costs, none above CAP
    loss: Ints  # [scenarios, configs] the losses of these costs
    group: Ints  # [scenarios] equal for scenarios with the same features
    noise: TableNoise

    @property
    def all_rows(self) -> Ints:
        return np.arange(len(self.cost))

    def choices(self, tree: Tree, rows: Ints) -> Ints:
        """[rows] the columns of the configs that a tree chooses. Raises KeyError if the table lacks one."""
        return choices(tree, self.problem, self.column, rows)

    def fails(self, tree: Tree, rows: Ints) -> bool:
        """Return whether the tree launches a failed or forbidden config in any of these scenarios."""
        return bool((self.problem.cost[rows, self.choices(tree, rows)] >= FORBIDDEN).any())

    def best_leaf(self, rows: Ints) -> Leaf:
        """The config that fails in the fewest of the rows; of these the one of least loss, then the first."""
        failing = (self.problem.cost[rows] >= FORBIDDEN).sum(axis=0)
        return Leaf(self.problem.configs[np.lexsort([self.loss[rows].sum(axis=0), failing])[0]])

    def drop(self, before: Tree, after: Tree, rows: Ints, *, penalise_untimed: bool = False) -> CostDrop:
        """Return how much costs drop in some scenarios from one tree to another.

        A scenario in which the choice before is untimed is left out, or penalised as in fitting. One in which
        only the choice after is untimed is always penalised.
        """
        old = self.choices(before, rows)
        known = (self.problem.cost[rows, old] != UNTIMED) | penalise_untimed
        rows, old = rows[known], old[known]
        new = self.choices(after, rows)
        return CostDrop(
            self.cost[rows, old] - self.cost[rows, new],
            self.loss[rows, old] - self.loss[rows, new],
            self.group[rows],
        )

    def drop_to(self, before: Tree, after: Ints, *, penalise_untimed: bool) -> CostDrop:
        """Return how much costs drop from a tree to costs [repeats, scenarios] as in `Problem.cost`.

        A pair with an untimed side is left out, or penalised as in fitting.
        """
        old = self.choices(before, self.all_rows)
        timed = (after != UNTIMED) & (self.problem.cost[self.all_rows, old] != UNTIMED)
        repeat, rows = np.nonzero(timed | penalise_untimed)
        cost, loss = _capped(replace(self.problem, cost=after.T))
        return CostDrop(
            self.cost[rows, old[rows]] - cost[rows, repeat],
            self.loss[rows, old[rows]] - loss[rows, repeat],
            self.group[rows],
        )


def choice_costs_of(problem: Problem) -> ChoiceCosts:
    """The costs of a problem's choices, computed once for all tests."""
    group, noise = copies(problem.features), table_noise(problem.table)
    return ChoiceCosts(problem, columns(problem), *_capped(problem), group, noise)


def _capped(problem: Problem) -> tuple[Ints, Ints]:
    """Costs of which none exceeds CAP, with untimed ones penalised as in fitting, and their losses."""
    untimed = round(math.log(problem.kernel.objective.untimed) * UNIT)
    cost = np.minimum(np.where(problem.cost == UNTIMED, untimed, problem.cost), CAP)
    return cost, losses(replace(problem, cost=cost))
