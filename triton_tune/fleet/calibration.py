"""The calibration: one cell that every GPU of a fleet times, so that a slow one is noticed."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, SearchProblem
from triton_tune.search.neighbours import Distances
from tuning_table.table import Visit

TIMES = 3  # a calibration is the median of so many visits
EVERY_S = 30.0  # a GPU is calibrated again after this many seconds of visits


@dataclass(frozen=True)
class Calibration:
    """The cell, which is the same for all GPUs of a model."""

    scenario: str
    config: str

    @property
    def task(self) -> PlannedVisit:
        return PlannedVisit(self.scenario, 1, (self.config,))

    def microseconds(self, visits: Sequence[Visit]) -> float | None:
        """The median of these visits to the cell; None if the config failed in one."""
        times = [visit.cells.get(self.config) for visit in visits]
        found = [time for time in times if isinstance(time, float)]
        return median(found) if times and len(found) == len(times) else None


def calibration_of(problem: SearchProblem) -> Calibration:
    """The scenario that is nearest to the mean, and its baseline or else its most promising config.

    Raises TuningError if nothing may be measured.
    """
    possible = [scenario for scenario in problem.scenarios if problem.candidates[scenario]]
    if not possible:
        raise TuningError("no config may be measured in any scenario")
    (scenario,) = Distances(problem).farthest_first(possible, 1)
    return Calibration(scenario, (*problem.always.get(scenario, ()), *problem.candidates[scenario])[0])
