"""What a table tells about the choices of trees."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Tree
from treegen.fit.objective import losses
from treegen.fit.significance import CostDrop, Noise, copies, table_noise
from treegen.fit.tree_costs import choices, columns

CAP = 2 * UNTIMED_PENALTY
"""No cost counts as more than that of a choice four times slower than the best: no single cell decides."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChoiceCosts:
    """column: each config's in the problem. cost, loss: [scenarios, configs] costs, and what fitting makes of
    them, none counted as more than CAP. unit: [scenarios] equal where two scenarios have the same features.
    """

    problem: Problem
    column: Mapping[Config, int]
    cost: Ints
    loss: Ints
    unit: Ints
    noise: Noise

    @property
    def every(self) -> Ints:
        """All scenarios."""
        return np.arange(len(self.cost))

    def choices(self, tree: Tree, rows: Ints) -> Ints:
        """[rows] the columns of the configs that a tree chooses, all of which the table holds."""
        return choices(tree, self.problem, self.column, rows)

    def fails(self, tree: Tree, rows: Ints) -> bool:
        """Whether the tree launches anywhere what failed or breaks a constraint there."""
        return bool((self.problem.cost[rows, self.choices(tree, rows)] >= FORBIDDEN).any())

    def best_leaf(self, rows: Ints) -> Leaf:
        """The config that fails in fewest of the rows, then of least loss; of equals the first."""
        failing = (self.problem.cost[rows] >= FORBIDDEN).sum(axis=0)
        return Leaf(self.problem.configs[np.lexsort([self.loss[rows].sum(axis=0), failing])[0]])

    def fall(self, before: Tree, after: Tree, rows: Ints, *, charge: bool = False) -> CostDrop:
        """By how much the costs of rows fall. Where the choice before has no time, it is charged as in
        fitting, or the row is left out; a choice after that has none is charged."""
        old = self.choices(before, rows)
        known = (self.problem.cost[rows, old] != UNMEASURED) | charge
        rows, old = rows[known], old[known]
        new = self.choices(after, rows)
        return CostDrop(
            self.cost[rows, old] - self.cost[rows, new],
            self.loss[rows, old] - self.loss[rows, new],
            self.unit[rows],
        )

    def fall_to(self, before: Tree, after: Ints, *, charge: bool) -> CostDrop:
        """By how much costs fall to `after`, [repeats, scenarios]. Where a side has no time, it is charged,
        or the pair is left out."""
        old = self.choices(before, self.every)
        timed = (after != UNMEASURED) & (self.problem.cost[self.every, old] != UNMEASURED)
        repeat, rows = np.nonzero(timed | charge)
        cost, loss = _bounded(replace(self.problem, cost=after.T))
        return CostDrop(
            self.cost[rows, old[rows]] - cost[rows, repeat],
            self.loss[rows, old[rows]] - loss[rows, repeat],
            self.unit[rows],
        )


def choice_costs_of(problem: Problem) -> ChoiceCosts:
    """Price every choice of a problem once, for all tests."""
    unit, noise = copies(problem.features), table_noise(problem.table)
    return ChoiceCosts(problem, columns(problem), *_bounded(problem), unit, noise)


def _bounded(problem: Problem) -> tuple[Ints, Ints]:
    """Costs and losses of which none counts as more than CAP."""
    untimed = round(math.log(problem.kernel.objective.untimed) * UNIT)
    cost = np.minimum(np.where(problem.cost == UNMEASURED, untimed, problem.cost), CAP)
    return cost, losses(replace(problem, cost=cost))
