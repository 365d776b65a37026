"""The check before a search: two configs in a few scenarios, so that a mistake ends a run in seconds."""

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.search.neighbours import Distances
from triton_tune.search.rounds import CHECKED_CONFIGS, Round, Strategy

CHECKED = 2  # scenarios
CHECK_SHARE = 0.25  # checking ends at this share of the budget


class CheckFirst:
    """Times a few configs in the scenarios that a strategy sweeps first, and then follows the strategy.

    These configs are from the middle of the list, as those at the ends of a space are seldom good. Once every
    config has failed in more than half of the scenarios, nothing further is planned. As any strategy, it goes
    by the table alone.

    gave_up: why it ended early.
    """

    def __init__(self, strategy: Strategy, problem: SearchProblem) -> None:
        self.gave_up = ""
        self._strategy, self._candidates = strategy, problem.candidates
        possible = [scenario for scenario, configs in problem.candidates.items() if configs]
        self._checked = Distances(problem).representatives(possible, CHECKED)

    def next_round(self, times: Times, spent: float) -> Round | None:
        due = [scenario for scenario in self._checked if not times.measured(scenario)]
        if due and spent < CHECK_SHARE:
            return Round(
                "a first check", tuple(PlannedVisit(s, 1, self._middle(s)) for s in due), CHECK_SHARE
            )
        failing = [
            scenario
            for scenario in self._checked
            if times.measured(scenario).keys() >= {*self._candidates[scenario]}
            and not times.medians(scenario)
        ]
        if 2 * len(failing) <= len(self._checked):
            return self._strategy.next_round(times, spent)
        self.gave_up = (
            f"no config works in {len(failing)} of {len(self._checked)} scenarios, as in {failing[0]}"
        )
        return None

    def _middle(self, scenario: str) -> tuple[str, ...]:
        configs = self._candidates[scenario]
        begin = max(0, (len(configs) - CHECKED_CONFIGS) // 2)
        return configs[begin : begin + CHECKED_CONFIGS]
