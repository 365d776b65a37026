"""One search for many kernels, in rounds that favour those measured least for the time that they take."""

from collections.abc import Mapping

from triton_tune.core.problem import PlannedVisit, Round, SearchProblem, Times
from triton_tune.search.race import STRATEGIES, Race

CELLS_PER_ROUND = 256  # or fewer, if the budget would end earlier at this run's pace


class Together:
    """Follows a strategy for each kernel. That of a single kernel is followed as it is.

    problems: by kernel; no two kernels have scenarios with one name. times: of earlier runs.
    weights: shares of the launches' time. spent: the used share of the budget. ended: the kernels that need
    no further visit, or have none that works (`gave_up`: why).
    """

    def __init__(
        self,
        problems: Mapping[str, SearchProblem],
        weights: Mapping[str, float],
        strategy: str,
        times: Times,
        spent: float,
    ) -> None:
        self._problems, self._weights = problems, weights
        self._searches = {name: Race(problem, STRATEGIES[strategy]) for name, problem in problems.items()}
        self._spent, self._cells = spent, times.num_measured()
        begun = (name for name, search in self._searches.items() if self._measured(name, times))
        self.ended = {name for name in begun if self._searches[name].next_round(times, spent) is None}

    @property
    def gave_up(self) -> dict[str, str]:
        return {name: search.gave_up for name, search in self._searches.items() if search.gave_up}

    @property
    def finished(self) -> frozenset[str]:
        """The kernels that need no further visit."""
        return frozenset(self.ended.difference(self.gave_up))

    def next_round(self, times: Times, spent: float) -> Round | None:
        tasks: list[PlannedVisit] = []
        cells, kernels, most = 0, 0, self._affordable(times, spent)
        for name in sorted(self._searches, key=lambda name: self._had(name, times)):
            begun = self._measured(name, times) > 0
            if name in self.ended or (begun and cells >= most):
                continue
            planned = self._searches[name].next_round(times, spent)
            if planned is None:
                self.ended.add(name)
            elif len(self._searches) == 1:
                return planned
            else:
                kernels += 1
                for task in planned.tasks:
                    if not begun or cells < most:
                        tasks.append(task)
                        cells += len(task.configs)
        return Round(f"{kernels} kernels", tuple(tasks)) if tasks else None

    def _measured(self, name: str, times: Times) -> int:
        return sum(len(times.measured(scenario)) for scenario in self._problems[name].scenarios)

    def _affordable(self, times: Times, spent: float) -> float:
        """How many cells the rest of the budget suffices for, as a round is compiled as a whole."""
        cells = times.num_measured() - self._cells
        if not cells:
            return CELLS_PER_ROUND
        return min(CELLS_PER_ROUND, cells * (1 - spent) / max(spent - self._spent, 1e-9))

    def _had(self, name: str, times: Times) -> tuple[bool, float]:
        """How much was measured of a kernel for its weight; those that have nothing yet come first."""
        cells, weight = self._measured(name, times), max(self._weights[name], 1e-6)
        return cells > 0, cells / weight if cells else -weight
