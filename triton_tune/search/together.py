"""One search for many kernels, in rounds that favour those measured least for the time that they take."""

from collections.abc import Mapping
from dataclasses import replace

from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.check import CheckFirst
from triton_tune.search.rounds import Round
from triton_tune.search.strategies import STRATEGIES
from tuning_table.table import Visit

CELLS_PER_ROUND = 256  # or fewer, if the budget would end earlier at this run's pace
BETWEEN = ":"  # a kernel's name and a scenario's id, neither of which has one


class Together:
    """Follows a strategy for each kernel, in rounds that favour kernels measured least for their weight.

    times: by kernel. weights: shares of the launches' time. spent: the used share of the budget. gave_up: why
    kernels ended early, by kernel.
    """

    def __init__(
        self,
        problems: Mapping[str, SearchProblem],
        weights: Mapping[str, float],
        times: Mapping[str, Times],
        strategy: str,
        spent: float,
    ) -> None:
        self.times, self._weights = times, weights
        self._searches = {n: CheckFirst(STRATEGIES[strategy](p), p) for n, p in problems.items()}
        self._spent, self._cells = spent, self._measured()
        begun = (name for name in self._searches if times[name].num_visits)
        self._ended = {name for name in begun if self._searches[name].next_round(times[name], spent) is None}

    @property
    def gave_up(self) -> dict[str, str]:
        return {name: search.gave_up for name, search in self._searches.items() if search.gave_up}

    @property
    def finished(self) -> frozenset[str]:
        """The kernels that need no further visit, but for those that ended early."""
        return frozenset(self._ended.difference(self.gave_up))

    def add(self, visit: Visit) -> tuple[str, Visit]:
        """Note a visit of a round. Returns its kernel, and the visit in the kernel's own terms."""
        name, _, scenario = visit.scenario.partition(BETWEEN)
        own = replace(visit, scenario=scenario)
        self.times[name].add(own)
        return name, own

    def next_round(self, _: Times, spent: float) -> Round | None:
        tasks, cells, most = [], 0, self._affordable(spent)
        for name in sorted(self._searches, key=self._had):
            if name in self._ended:
                continue
            begun = self.times[name].num_visits > 0
            if begun and cells >= most:
                break
            planned = self._searches[name].next_round(self.times[name], spent)
            if planned is None:
                self._ended.add(name)
                continue
            for task in planned.tasks:
                if begun and cells >= most:
                    break
                tasks.append(replace(task, scenario=f"{name}{BETWEEN}{task.scenario}"))
                cells += len(task.configs)
        kernels = len({task.scenario.partition(BETWEEN)[0] for task in tasks})
        return Round(f"{kernels} kernels", tuple(tasks)) if tasks else None

    def _measured(self) -> int:
        return sum(times.num_measured() for times in self.times.values())

    def _affordable(self, spent: float) -> float:
        """How many cells can be measured in the rest of the budget, at this run's pace so far.

        A round is compiled as a whole, so what does not end in time would take the time of what does.
        """
        cells = self._measured() - self._cells
        if not cells:
            return CELLS_PER_ROUND
        return min(CELLS_PER_ROUND, cells * (1 - spent) / max(spent - self._spent, 1e-9))

    def _had(self, name: str) -> tuple[bool, float]:
        """How much was measured of a kernel for its weight; those that have nothing yet come first."""
        cells = self.times[name].num_measured()
        weight = max(self._weights[name], 1e-6)
        return cells > 0, cells / weight if cells else -weight
