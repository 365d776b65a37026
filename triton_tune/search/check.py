"""The check before a search: one config in each scenario, so that a mistake ends a run in seconds."""

import random

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.search.strategies import Round, Strategy

MOST_CHECKED = 128  # scenarios; these are drawn where there are more
CHECK_SHARE = 0.25  # checking ends at this share of the budget
PROBED = 3  # scenarios in which every config is tried if the first one fails in more than a half of them


class CheckFirst:
    """Times the first candidate of each scenario once, and then follows a strategy.

    If that fails in more than half of the scenarios, every config is tried in some of these. If none works
    there, nothing further is planned. As any strategy, it goes by the table alone.

    gave_up: why it ended early.
    """

    def __init__(self, strategy: Strategy, problem: SearchProblem) -> None:
        self.gave_up = ""
        self._strategy, self._candidates = strategy, problem.candidates
        checked = [scenario for scenario, configs in problem.candidates.items() if configs]
        random.Random(f"{problem.seed}/check").shuffle(checked)
        self._checked = checked[:MOST_CHECKED]

    def next_round(self, times: Times, spent: float) -> Round | None:
        tried = [s for s in self._checked if times.measured(s)]
        if len(tried) < len(self._checked) and spent < CHECK_SHARE:
            due = (s for s in self._checked if not times.measured(s))
            tasks = tuple(PlannedVisit(s, times.next_repeat(s), self._candidates[s][:1]) for s in due)
            return Round("a first check", tasks, CHECK_SHARE)
        failing = [s for s in tried if not times.medians(s)]
        if 2 * len(failing) <= len(tried) or self._another_works(times, tried):
            return self._strategy.next_round(times, spent)
        probed = failing[:PROBED]
        left = {s: [c for c in self._candidates[s] if c not in times.measured(s)] for s in probed}
        tasks = tuple(PlannedVisit(s, times.next_repeat(s), tuple(left[s])) for s in probed if left[s])
        if tasks:
            return Round(f"every config in {len(tasks)} that failed", tasks)
        self.gave_up = f"{len(failing)} of {len(tried)} scenarios fail, and no config works in {probed[0]}"
        return None

    def _another_works(self, times: Times, tried: list[str]) -> bool:
        """Whether a config works somewhere where the first one does not."""
        found = ((self._candidates[s][0], times.medians(s)) for s in tried)
        return any(medians and first not in medians for first, medians in found)
