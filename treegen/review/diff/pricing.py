"""Two modules' choices in the scenarios of a table, ready to be priced by rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNMEASURED, Problem
from treegen.core.spec import Config
from treegen.crossval.choices import judge as look_up
from treegen.review.compiled_trees import Module
from treegen.review.diff.decisions import Chosen, decisions
from treegen.review.diff.price import Price, Scale, price
from treegen.review.diff.pricing_tables import PricingTable

_UNTOLD = Config("", ())  # is in no table
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pricing:
    """old, new: [scenarios] what each side launches; None where the table cannot tell. before, after:
    [scenarios] int64, their costs; same: [scenarios] whether they are one config."""

    problem: Problem
    old: Chosen
    new: Chosen
    before: _Ints
    after: _Ints
    same: npt.NDArray[np.bool_]
    scale: Scale

    def rows_of(self, old: Config, new: Config) -> _Ints:
        """The scenarios that launched `old` and now launch `new`."""
        return np.flatnonzero(
            [one == old and other == new for one, other in zip(self.old, self.new, strict=True)]
        )

    def price(self, rows: _Ints) -> Price:
        scenarios = tuple(self.problem.scenarios[row] for row in rows)
        return price(scenarios, self.before[rows], self.after[rows], self.same[rows], self.scale)

    def overall(self) -> Price:
        return self.price(np.arange(len(self.before)))


def choices_priced(judge: PricingTable, old: Module, new: Module, threshold: float) -> Pricing:
    """Both modules' choices in the scenarios of a judge."""
    problem = judge.problem
    before, after = decisions(old, problem), decisions(new, problem)
    return Pricing(
        problem,
        before,
        after,
        _costs(before, problem),
        _costs(after, problem),
        np.array([one == other for one, other in zip(before, after, strict=True)]),
        Scale(problem.table.cells, judge.spread, threshold),
    )


def _costs(chosen: Chosen, problem: Problem) -> _Ints:
    """[scenarios] costs. The fallback never breaks a constraint, it is exempt; but it may have failed."""
    configs = tuple(_UNTOLD if config is None else config for config in chosen)
    cost = look_up(configs, problem).cost
    fallback = problem.kernel.fallback
    if fallback not in configs or fallback not in problem.configs:
        return cost
    failed = np.isinf(problem.times()[:, problem.configs.index(fallback)])
    exempt = np.array([config == fallback for config in configs]) & ~failed
    return np.where(exempt & (cost > UNMEASURED), UNMEASURED, cost)
