"""Search on the times of a recorded table: compares strategies without a GPU, reproducibly."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from triton_tune.core.bench import Advance
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import ANY_FEATURES, Likeness, PlannedVisit, SearchProblem, Times
from triton_tune.run.progress import Silent
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table import read_run
from tuning_table.table import Cell, RecordedRun, Visit

# Seconds on average with an H100 and 15 processes; a comparison depends only on their proportions.
COMPILE_S, VISIT_S, CELL_S = 0.13, 0.06, 0.008


class ReplayBench:
    """Returns the recorded repeats of a cell one after the other, and then starts again with the first."""

    def __init__(self, recorded: RecordedRun, problem: SearchProblem) -> None:
        self._cells = Times(recorded.visits)
        self._problem = problem
        self._compiled: set[object] = set()
        self._given: Counter[tuple[str, str]] = Counter()
        self._now = 0.0

    def clock(self) -> float:
        return self._now

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        kept = []
        for task in tasks:
            shape = self._problem.shape(task.scenario)
            for config in task.configs:
                if (shape, config) not in self._compiled and self._now < until:
                    self._compiled.add((shape, config))
                    self._now += COMPILE_S
            configs = tuple(config for config in task.configs if (shape, config) in self._compiled)
            if configs:
                kept.append(PlannedVisit(task.scenario, task.repeat, configs))
        return tuple(kept)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for task in tasks:
            if self._now >= until:
                return
            self._now += VISIT_S + CELL_S * len(task.configs)
            yield Visit(task.scenario, task.repeat, self._row(task))

    def _row(self, task: PlannedVisit) -> dict[str, Cell]:
        cells = self._cells.measured(task.scenario)
        row = {}
        for config in task.configs:
            row[config] = cells[config][self._given[task.scenario, config] % len(cells[config])]
            self._given[task.scenario, config] += 1
        return row


def problem_of(recorded: RecordedRun, likeness: Likeness = ANY_FEATURES) -> SearchProblem:
    """The search problem whose candidates are the cells of the table."""
    times = Times(recorded.visits)
    order = [entry.id for entry in recorded.header.configs]
    features = {
        scenario: dict(zip(recorded.header.features, values, strict=True))
        for scenario, values in recorded.scenarios.items()
        if times.measured(scenario)
    }
    return SearchProblem(
        features=features,
        candidates={s: tuple(c for c in order if c in times.measured(s)) for s in features},
        variants={entry.id: entry.variant or "" for entry in recorded.header.configs},
        seed=recorded.header.provenance.get("seed", 0),
        likeness=likeness,
    )


@dataclass(frozen=True)
class Loss:
    """Slowdowns of the configs that a search found best, by the times of the whole table."""

    geomean: float
    p95: float
    most: float


def loss_of(times_found: Times, recorded: Times, scenarios: Sequence[str]) -> Loss:
    """The loss of the configs that are best by `times_found`, scored by the times of the whole table.

    The slowest config counts where `found` has none, or where the best config fails in a later repeat.
    Scenarios without a time do not count. Raises TuningError if no scenario has a time.
    """
    ratios = []
    for scenario in scenarios:
        slowdowns = recorded.slowdowns(scenario)
        times = times_found.medians(scenario)
        if slowdowns:
            best = min(times, key=times.__getitem__, default="")
            ratios.append(slowdowns.get(best, max(slowdowns.values())))
    if not ratios:
        raise TuningError("no config of the table has a time; replay a table that a run has measured")
    ranked = sorted(ratios)
    return Loss(geometric_mean(ranked), ranked[int(0.95 * (len(ranked) - 1))], ranked[-1])


def replay(folder: Path, strategy: str, budget: float, likeness: Likeness = ANY_FEATURES) -> list[str]:
    """Describe in lines what the strategy finds in `budget` seconds. Raises TuningError and TableError."""
    recorded = read_run(folder)
    problem = problem_of(recorded, likeness)
    if not problem.possible:
        raise TuningError(f"{folder}: holds no rows; replay a table that a run has measured")
    bench = ReplayBench(recorded, problem)
    times = Times()
    finished = tune(STRATEGIES[strategy](problem), bench, times, lambda visit: None, Silent(), budget=budget)
    loss = loss_of(times, Times(recorded.visits), problem.scenarios)
    measured = times.num_measured()
    return [
        f"{folder}: {len(problem.scenarios)} scenarios, {problem.possible} cells",
        f"strategy {strategy}: {measured} cells ({measured / problem.possible:.1%}) in {bench.clock():.0f} s "
        f"by the replay's clock; {'the search is finished' if finished else 'the budget is used up'}",
        f"slowdown of the best config found: {loss.geomean:.4f} (geometric mean), {loss.p95:.3f} (95%), "
        f"{loss.most:.3f} (worst)",
    ]
