"""Rounds of visits, and the interface of strategies, which plan them.

A strategy holds no state. After a kill, in another run or in a replay, it goes on from the table alone.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times

REPEATS = 2


@dataclass(frozen=True)
class Round:
    """Visits that are compiled together and then measured in this order."""

    name: str
    tasks: tuple[PlannedVisit, ...]
    share: float = 1.0  # the share of the budget by which the round ends


class Strategy(Protocol):
    """Chooses the next visits."""

    def next_round(self, times: Times, spent: float) -> Round | None:
        """The next round; None if nothing is left to measure. spent: the used share of the budget."""


def visits(
    problem: SearchProblem, times: Times, configs_of: Mapping[str, Iterable[str]], shuffle: str
) -> tuple[PlannedVisit, ...]:
    """A visit for each scenario with configs to measure, in an order that the seed `shuffle` gives."""
    tasks = [
        PlannedVisit(scenario, times.next_repeat(scenario), tuple(configs))
        for scenario, configs in configs_of.items()
        if configs
    ]
    random.Random(f"{problem.seed}/{shuffle}").shuffle(tasks)
    return tuple(tasks)
