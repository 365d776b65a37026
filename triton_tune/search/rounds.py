"""The interface of search strategies: they plan rounds of visits from the table alone.

So a search goes on after a kill, or in another run.
"""

from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import PlannedVisit, Times

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
