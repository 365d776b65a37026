"""Search strategies: the interface, and the plain sweep; `race.py` has the race.

A strategy plans rounds of visits from the table alone. So it goes on after a kill, or in another run.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times

REPEATS = 2
SWEPT_AGAIN = 1.15  # a sweep times configs up to this slowdown again


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


class Full:
    """Times every candidate in every scenario, and those near the best a second time."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem

    def next_round(self, times: Times, spent: float) -> Round | None:
        for repeat in range(1, REPEATS + 1):
            configs_of: dict[str, list[str]] = {}
            for scenario, configs in self._problem.candidates.items():
                tried, slowdowns = times.measured(scenario), times.slowdowns(scenario)
                configs_of[scenario] = [
                    config
                    for config in configs
                    if len(tried.get(config, ())) < repeat
                    and (repeat == 1 or slowdowns.get(config, SWEPT_AGAIN + 1) <= SWEPT_AGAIN)
                ]
            tasks = visits(self._problem, times, configs_of, f"full/{repeat}")
            if tasks:
                return Round(f"sweep, repeat {repeat}", tasks)
        return None


def _race(problem: SearchProblem) -> Strategy:
    from triton_tune.search.race import Race  # needs NumPy, which the help of commands does without

    return Race(problem)


STRATEGIES: dict[str, Callable[[SearchProblem], Strategy]] = {"race": _race, "full": Full}
