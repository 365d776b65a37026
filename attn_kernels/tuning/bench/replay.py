"""A recorded table as if it were a device: search strategies are compared offline, the same way each time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from attn_kernels.tuning.bench.bench import Advance
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.problem import Problem, Task, Times
from tuning_table.table import Cell, RecordedRun, Visit

# Seconds that an H100 and 15 processes took on average; only the proportions matter to a comparison.
COMPILE_S, VISIT_S, CELL_S = 0.13, 0.06, 0.008


class ReplayBench:
    """Gives back a config's cells in a scenario one after the other, then begins again with the first."""

    def __init__(self, recorded: RecordedRun, problem: Problem) -> None:
        self._cells = Times(recorded.visits)
        self._problem = problem
        self._compiled: set[object] = set()
        self._given: Counter[tuple[str, str]] = Counter()
        self._now = 0.0

    def clock(self) -> float:
        return self._now

    def compile(self, tasks: Sequence[Task], until: float, advance: Advance) -> tuple[Task, ...]:
        kept = []
        for task in tasks:
            shape = self._problem.shape(task.scenario)
            for config in task.configs:
                if (shape, config) not in self._compiled and self._now < until:
                    self._compiled.add((shape, config))
                    self._now += COMPILE_S
            configs = tuple(config for config in task.configs if (shape, config) in self._compiled)
            if configs:
                kept.append(Task(task.scenario, task.repeat, configs))
        return tuple(kept)

    def measure(self, tasks: Sequence[Task], until: float) -> Iterator[Visit]:
        for task in tasks:
            if self._now >= until:
                return
            self._now += VISIT_S + CELL_S * len(task.configs)
            yield Visit(task.scenario, task.repeat, self._row(task))

    def _row(self, task: Task) -> dict[str, Cell]:
        cells = self._cells.measured(task.scenario)
        row = {}
        for config in task.configs:
            row[config] = cells[config][self._given[task.scenario, config] % len(cells[config])]
            self._given[task.scenario, config] += 1
        return row


def problem_of(recorded: RecordedRun) -> Problem:
    """The problem whose candidates are the cells that the table has."""
    times = Times(recorded.visits)
    order = [entry.id for entry in recorded.header.configs]
    features = {
        scenario: dict(zip(recorded.header.features, values, strict=True))
        for scenario, values in recorded.scenarios.items()
        if times.measured(scenario)
    }
    return Problem(
        features=features,
        candidates={s: tuple(c for c in order if c in times.measured(s)) for s in features},
        always={},
        variants={entry.id: entry.variant or "" for entry in recorded.header.configs},
        seed=recorded.header.provenance.get("seed", 0),
    )


@dataclass(frozen=True)
class Loss:
    """What a search missed: the table's time of its best config over the table's best time, per scenario."""

    geomean: float
    p95: float
    most: float


def loss_of(found: Times, recorded: Times, scenarios: Sequence[str]) -> Loss:
    """How much the configs that `found` holds as best lose by the whole table. A scenario in which nothing
    was found, or a config that fails later in the table, counts as its slowest config; one in which the
    table has no time does not count. Raises TuningError if no scenario has a time."""
    ratios = []
    for scenario in scenarios:
        slowdowns = recorded.slowdowns(scenario)
        times = found.medians(scenario)
        if slowdowns:
            best = min(times, key=times.__getitem__, default="")
            ratios.append(slowdowns.get(best, max(slowdowns.values())))
    if not ratios:
        raise TuningError("no config of the table has a time: replay one that a run has measured")
    ranked = sorted(ratios)
    return Loss(geometric_mean(ranked), ranked[int(0.95 * (len(ranked) - 1))], ranked[-1])
