"""A search: the cells that may be measured, the times so far, who plans visits and who measures them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Protocol

from tuning_table.table import Cell, Failure, Visit

ShapeKey = tuple[int, ...]


@dataclass(frozen=True)
class Likeness:
    """How alike scenarios are, by their features; a feature that a scenario lacks counts as 0."""

    shape: tuple[str, ...] = ()  # the features that kernels are compiled for
    family: tuple[str, ...] = ()  # what determines which configs fit, of `shape` or derived
    weights: Mapping[str, float] | None = None  # the distance that a factor of two makes; None: 1 for each
    derive: Callable[[Mapping[str, int]], Mapping[str, int]] = dict  # adds other names


@dataclass(frozen=True)
class PlannedVisit:
    scenario: str
    repeat: int  # from 1
    configs: tuple[str, ...]  # ids


@dataclass(frozen=True)
class SearchProblem:
    """Scenarios and configs by id, and which configs may be measured in which scenario."""

    features: Mapping[str, Mapping[str, int]]  # of each scenario, by name
    candidates: Mapping[str, tuple[str, ...]]  # of each scenario: configs
    variants: Mapping[str, str]  # of each config
    seed: int = 0
    likeness: Likeness = Likeness()

    @property
    def scenarios(self) -> tuple[str, ...]:
        return tuple(self.features)

    @cached_property
    def configs(self) -> Mapping[str, int]:
        """In how many scenarios each config may be measured."""
        return Counter(config for row in self.candidates.values() for config in row)

    @cached_property
    def possible(self) -> int:
        return sum(map(len, self.candidates.values()))

    def shape(self, scenario: str) -> ShapeKey:
        """The features that kernels are compiled for."""
        return tuple(self.features[scenario].get(name, 0) for name in self.likeness.shape)

    def family(self, scenario: str) -> ShapeKey:
        features = self.likeness.derive(self.features[scenario])
        return tuple(features.get(name, 0) for name in self.likeness.family)


class Times:
    """The cells measured so far. Grows by whole visits."""

    def __init__(self, visits: Iterable[Visit] = ()) -> None:
        self._cells: dict[str, dict[str, list[Cell]]] = {}
        self._repeats: dict[str, set[int]] = {}
        self._slowdowns: dict[str, Mapping[str, float]] = {}
        for visit in visits:
            self.add(visit)

    def add(self, visit: Visit) -> None:
        self._slowdowns.pop(visit.scenario, None)
        self._repeats.setdefault(visit.scenario, set()).add(visit.repeat)
        row = self._cells.setdefault(visit.scenario, {})
        for config, cell in visit.cells.items():
            row.setdefault(config, []).append(cell)

    def next_repeat(self, scenario: str) -> int:
        return max(self._repeats.get(scenario, ()), default=0) + 1

    def measured(self, scenario: str) -> Mapping[str, list[Cell]]:
        """Each config's cells in this scenario, in the order of measurement."""
        return self._cells.get(scenario, {})

    def medians(self, scenario: str) -> dict[str, float]:
        """Median microseconds of each config that never failed here."""
        medians = {}
        for config, cells in self.measured(scenario).items():
            times = [cell for cell in cells if not isinstance(cell, Failure)]
            if len(times) == len(cells):
                medians[config] = median(times)
        return medians

    def slowdowns(self, scenario: str) -> Mapping[str, float]:
        """Median over the best median, of each config that never failed; the same object until it changes."""
        if scenario not in self._slowdowns:
            times = self.medians(scenario)
            best = min(times.values(), default=1.0)
            self._slowdowns[scenario] = {config: time / best for config, time in times.items()}
        return self._slowdowns[scenario]

    def differences(self) -> list[float]:
        """Relative differences between a cell's consecutive repeats: the noise of a table."""
        return [
            abs(later / earlier - 1)
            for row in self._cells.values()
            for cells in row.values()
            for earlier, later in pairwise(cell for cell in cells if not isinstance(cell, Failure))
        ]

    @property
    def num_visits(self) -> int:
        return sum(map(len, self._repeats.values()))

    def num_measured(self) -> int:
        """The number of cells with a time or a failure in at least one repeat."""
        return sum(map(len, self._cells.values()))

    def failures(self, scenarios: Iterable[str] | None = None) -> dict[str, int]:
        """How many cells failed, by reason. Reasons that agree up to a colon count under the first one."""
        first: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for scenario in self._cells if scenarios is None else scenarios:
            for cells in self.measured(scenario).values():
                reasons = (cell.reason for cell in cells if isinstance(cell, Failure))
                if (reason := next(reasons, None)) is not None:
                    counts[first.setdefault(reason.partition(":")[0], reason)] += 1
        return dict(counts)

    def of(self, scenarios: Iterable[str]) -> "Times":
        """The cells of some scenarios."""
        part, known = Times(), [scenario for scenario in scenarios if scenario in self._cells]
        part._cells = {scenario: self._cells[scenario] for scenario in known}
        part._repeats = {scenario: self._repeats[scenario] for scenario in known}
        return part


@dataclass(frozen=True)
class Round:
    """Visits that are compiled together and then measured in this order."""

    name: str
    tasks: tuple[PlannedVisit, ...]
    share: float = 1.0  # the share of the budget by which the round ends


class Strategy(Protocol):
    """Plans rounds from the table alone, so that a search goes on after a kill, or in another run."""

    def next_round(self, times: Times, spent: float) -> Round | None:
        """The next round; None if nothing is left to measure. spent: the used share of the budget."""


Advance = Callable[[int, int], None]  # is called with the jobs done and the jobs in all


class Bench(Protocol):
    """Measures visits. All times are seconds of `clock`."""

    def clock(self) -> float: ...

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        """Compile until the time `until`. Returns the visits without the configs that were not compiled."""

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        """The visits in the order in which they end; none begins after `until`."""
