"""Search strategies: the interface, and the names; `race.py` has them.

A strategy plans rounds of visits from the table alone. So it goes on after a kill, or in another run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times

CHECKED_CONFIGS = 2  # that the first check times in a scenario


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


def race(problem: SearchProblem) -> Strategy:
    """Times promising configs in more and more scenarios."""
    from triton_tune.search.race import Race  # needs NumPy, which the help of commands does without

    return Race(problem)


def full(problem: SearchProblem) -> Strategy:
    """Times every candidate in every scenario, and those near the best a second time."""
    from triton_tune.search.race import FULL, Race

    return Race(problem, FULL)


STRATEGIES: dict[str, Callable[[SearchProblem], Strategy]] = {"race": race, "full": full}
