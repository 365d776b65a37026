"""The times so far as arrays [scenario, config], of which only rows that have changed are filled again."""

from collections.abc import Iterable, Mapping

import numpy as np

from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.portfolio import ABSENT


class Seen:
    """The times of the scenarios with candidates."""

    def __init__(self, problem: SearchProblem) -> None:
        self.scenarios = tuple(s for s in problem.scenarios if problem.candidates[s])
        self.configs = tuple(problem.configs)
        self._columns = {config: column for column, config in enumerate(self.configs)}
        shape = len(self.scenarios), len(self.configs)
        self.candidates = np.zeros(shape, dtype=bool)
        self.always = np.zeros(shape, dtype=bool)
        for row, scenario in enumerate(self.scenarios):
            self.candidates[row, self._known(problem.candidates[scenario])] = True
            self.always[row, self._known(problem.always.get(scenario, ()))] = True
        self.repeats = np.zeros(shape, dtype=np.int32)
        self.slowdowns = np.full(shape, ABSENT)  # ABSENT also for configs that failed
        self.has_time = np.zeros(len(self.scenarios), dtype=bool)
        self._filled: dict[int, Mapping[str, float]] = {}  # by row: the slowdowns that it holds

    def update(self, times: Times) -> None:
        """Take over what has changed since the last call."""
        for row, scenario in enumerate(self.scenarios):
            slowdowns = times.slowdowns(scenario)  # another object if the scenario has changed
            if self._filled.get(row) is slowdowns:
                continue
            self._filled[row] = slowdowns
            self.has_time[row] = bool(slowdowns)
            self.repeats[row], self.slowdowns[row] = 0, ABSENT
            measured = times.measured(scenario)
            columns = self._known(measured)
            tried = [self.configs[column] for column in columns]
            self.repeats[row, columns] = [len(measured[config]) for config in tried]
            self.slowdowns[row, columns] = [slowdowns.get(config, ABSENT) for config in tried]

    def _known(self, configs: Iterable[str]) -> list[int]:
        return [self._columns[config] for config in configs if config in self._columns]
