"""The times so far as arrays, of which a row is filled again only if it has changed."""

from collections.abc import Mapping

import numpy as np

from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.portfolio import ABSENT


class Seen:
    """Arrays [scenario, config] of the scenarios with candidates."""

    def __init__(self, problem: SearchProblem) -> None:
        self.scenarios = tuple(s for s in problem.scenarios if problem.candidates[s])
        self.configs = tuple(problem.configs)
        self._columns = {config: column for column, config in enumerate(self.configs)}
        shape = len(self.scenarios), len(self.configs)
        self.candidates = np.zeros(shape, dtype=bool)
        self.always = np.zeros(shape, dtype=bool)
        for row, scenario in enumerate(self.scenarios):
            self.candidates[row, self._of(problem.candidates[scenario])] = True
            self.always[row, self._of(problem.always.get(scenario, ()))] = True
        self.repeats = np.zeros(shape, dtype=np.int32)
        self.slowdowns = np.full(shape, ABSENT)  # also of configs that failed
        self.has_time = np.zeros(len(self.scenarios), dtype=bool)
        self._filled: dict[int, Mapping[str, float]] = {}

    def update(self, times: Times) -> None:
        """Fill the rows that differ from the last call's."""
        for row, scenario in enumerate(self.scenarios):
            slowdowns = times.slowdowns(scenario)
            if self._filled.get(row) is slowdowns:
                continue
            self._filled[row] = slowdowns
            tried = times.measured(scenario)
            self.repeats[row] = 0
            self.repeats[row, self._of(tried)] = [len(tried[c]) for c in tried if c in self._columns]
            self.slowdowns[row] = ABSENT
            self.slowdowns[row, self._of(slowdowns)] = [s for c, s in slowdowns.items() if c in self._columns]
            self.has_time[row] = bool(slowdowns)

    def _of(self, configs: Mapping[str, object] | tuple[str, ...]) -> list[int]:
        return [self._columns[config] for config in configs if config in self._columns]
