"""The search strategies by name; `full` is here, `race` in race.py."""

from collections.abc import Callable

from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.rounds import REPEATS, Round, Strategy, visits

SWEPT_AGAIN = 1.15  # a sweep times configs up to this slowdown again


class Full:
    """Times every candidate in every scenario, and those near the best a second time."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem

    def next_round(self, times: Times, spent: float) -> Round | None:
        problem = self._problem
        for repeat in range(1, REPEATS + 1):
            configs_of: dict[str, list[str]] = {}
            for scenario, configs in problem.candidates.items():
                tried, slowdowns = times.measured(scenario), times.slowdowns(scenario)
                configs_of[scenario] = [
                    config
                    for config in configs
                    if len(tried.get(config, ())) < repeat
                    and (repeat == 1 or slowdowns.get(config, SWEPT_AGAIN + 1) <= SWEPT_AGAIN)
                ]
            tasks = visits(problem, times, configs_of, f"full/{repeat}")
            if tasks:
                return Round(f"sweep, repeat {repeat}", tasks)
        return None


def _race(problem: SearchProblem) -> Strategy:
    from triton_tune.search.race import Race  # needs NumPy, which the help of commands does without

    return Race(problem)


STRATEGIES: dict[str, Callable[[SearchProblem], Strategy]] = {"race": _race, "full": Full}
