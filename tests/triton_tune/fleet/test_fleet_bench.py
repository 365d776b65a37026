"""A fleet's bench on simulated workers: the same rows as one run, whoever comes, dies, is cut off or slow."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from tuning_builders import Surface, rounds_of, surface

from benchmarks.fleet.simulated import SimulatedCrew, SimulatedWorker
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.fleet.bench import GAVE_UP, FleetBench, FleetStopped, Records
from triton_tune.fleet.orders import Worker
from triton_tune.run.progress import Silent
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table.table import Failure, Visit
from tuning_table.visit_log import MeasuredBy

FOREVER = 1e6


@dataclass
class Run:
    """A search on simulated workers, with its rows as a table would hold them."""

    there: Surface
    workers: Sequence[SimulatedWorker]
    strategy: str = "race"
    rows: dict[tuple[str, int], Visit] = field(default_factory=dict)
    log: dict[tuple[str, int], MeasuredBy] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    withdrawn: int = 0

    def __post_init__(self) -> None:
        # Enough repeats of each cell, so that a replay gives what the surface gives.
        problem = self.there.problem
        visits = [
            self.there.visit(PlannedVisit(s, repeat, problem.candidates[s]))
            for s in problem.scenarios
            for repeat in range(1, 6)
        ]
        self.crew = SimulatedCrew(problem, Times(visits), self.workers)
        self.times = Times()
        self.bench = FleetBench(
            self.crew, problem, Records(self._log, lambda: None, self._withdraw, self.said.append)
        )

    def go(self, budget: float = FOREVER) -> bool:
        while True:
            finished = tune(
                STRATEGIES[self.strategy](self.there.problem),
                self.bench,
                self.times,
                self._record,
                Silent(),
                budget=budget,
                spent=self.crew.clock(),
            )
            if not (self.bench.confirm() and finished):
                return finished

    def _record(self, visit: Visit) -> None:
        assert (visit.scenario, visit.repeat) not in self.rows
        assert (visit.scenario, visit.repeat) in self.log
        self.rows[visit.scenario, visit.repeat] = visit

    def _log(self, lines: Sequence[MeasuredBy]) -> None:
        self.log.update({line.key: line for line in lines})

    def _withdraw(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            del self.rows[visit.scenario, visit.repeat]
            self.times.withdraw(visit)
            self.withdrawn += 1


def alone(there: Surface, strategy: str) -> dict[tuple[str, int], Visit]:
    """The rows of a search without a fleet."""
    visits: list[Visit] = []
    for _ in rounds_of(STRATEGIES[strategy](there.problem), there, visits):
        pass
    return {(visit.scenario, visit.repeat): visit for visit in visits}


def fleet(count: int, seed: int = 0, dying: float = 0.0, late: float = 0.0) -> list[SimulatedWorker]:
    rng = random.Random(seed)
    return [
        SimulatedWorker(
            f"host{number // 4}/{number % 4}",
            speed=rng.lognormvariate(0.0, 0.4),
            joins=rng.uniform(0.0, 5.0) if number and rng.random() < late else 0.0,
            dies=rng.uniform(0.0, 5.0) if number and rng.random() < dying else float("inf"),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("strategy", ["race", "full"])
@pytest.mark.parametrize("count", [1, 3, 16, 64])
def test_the_rows_are_those_of_one_run(strategy: str, count: int) -> None:
    there = surface(scenarios=60, noise=0.01, failing=frozenset({("s3", "c1"), ("*", "c2")}))
    run = Run(there, fleet(count, count, dying=0.2, late=0.3), strategy)
    assert run.go()
    assert run.rows == alone(there, strategy)
    assert run.log.keys() == run.rows.keys()


def test_a_worker_that_dies_loses_only_its_visits() -> None:
    there = surface(scenarios=60)
    workers = [SimulatedWorker("a/0"), SimulatedWorker("b/0", dies=1.0)]
    run = Run(there, workers, "full")
    assert run.go() and run.rows == alone(there, "full")
    assert run.said == ["b/0: was preempted; its visits go to other workers"]
    assert "b/0" in {line.worker for line in run.log.values()}


def test_workers_that_join_late_take_part() -> None:
    there = surface(scenarios=60)
    run = Run(there, [SimulatedWorker("a/0"), SimulatedWorker("b/0", joins=2.0)], "full")
    assert run.go() and run.rows == alone(there, "full")
    assert {line.worker for line in run.log.values()} == {"a/0", "b/0"}


def test_rows_that_arrive_after_a_partition_count_once() -> None:
    there = surface(scenarios=60)
    run = Run(there, [SimulatedWorker("a/0"), SimulatedWorker("b/0", cut_off=(1.0, 9.0))], "full")
    assert run.go() and run.rows == alone(there, "full")
    assert len(run.said) == 1


def test_a_free_worker_copies_the_visit_of_one_that_hangs() -> None:
    there = surface(scenarios=60)
    run = Run(there, [SimulatedWorker("a/0"), SimulatedWorker("b/0", speed=1e-4)], "full")
    assert run.go() and run.rows == alone(there, "full")
    assert run.crew.clock() < 100.0  # the slow worker's one visit would take 1,500 s


def test_rows_of_a_gpu_that_becomes_slow_are_measured_again() -> None:
    there = surface(scenarios=400)
    workers = [SimulatedWorker("a/0"), SimulatedWorker("b/0"), SimulatedWorker("c/0", slow=(1.0, 60.0, 1.4))]
    run = Run(there, workers, "full")
    assert run.go() and run.rows == alone(there, "full")
    assert run.withdrawn > 10
    assert run.said[0].startswith("c/0: 1.40x slower than the others; it rests, and its last ")
    by_c = [line for line in run.log.values() if line.worker == "c/0"]
    assert all(line.slowdown == 1.0 for line in by_c)


def test_one_slow_calibration_is_repeated_before_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    there = surface(scenarios=400)
    workers = [SimulatedWorker("a/0"), SimulatedWorker("b/0"), SimulatedWorker("c/0", slow=(30.0, 30.7, 1.4))]
    run = Run(there, workers, "full")
    calibrations: list[float | None] = []
    take = run.bench._calibrated

    def note(worker: Worker, microseconds: float | None) -> Any:
        calibrations.append(microseconds)
        return take(worker, microseconds)

    monkeypatch.setattr(run.bench, "_calibrated", note)
    assert run.go() and run.rows == alone(there, "full")
    assert calibrations.count(140.0) == 1 and run.said == [] and run.withdrawn == 0
    assert {line.slowdown for line in run.log.values()} == {1.0}


def test_rows_of_a_gpu_that_is_a_little_slow_are_marked() -> None:
    there = surface(scenarios=400)
    workers = [SimulatedWorker("a/0"), SimulatedWorker("b/0"), SimulatedWorker("c/0", slow=(0.0, 1e9, 1.08))]
    run = Run(there, workers, "full")
    assert run.go() and run.rows == alone(there, "full")
    assert run.said == [] and run.withdrawn == 0
    marks = {(line.worker, round(line.slowdown or 0, 2)) for line in run.log.values()}
    assert marks == {("a/0", 1.0), ("b/0", 1.0), ("c/0", 1.08)}


@pytest.mark.parametrize("seed", range(20))
def test_all_faults_together(seed: int) -> None:
    """Workers die, come late, are cut off, hang and become slow, while rounds are short."""
    rng = random.Random(seed)
    there = surface(scenarios=rng.choice([12, 100]), configs=40)
    workers = [SimulatedWorker("a/0"), SimulatedWorker("b/0", speed=rng.choice([0.1, 1.0]))]
    for number in range(rng.randrange(2, 9)):
        at = rng.uniform(0.0, 8.0)
        fault = rng.choice(["dies", "joins", "cut_off", "slow", "speed"])
        value = {"cut_off": (at, at + 12.0), "slow": (at, at + 40.0, 1.5), "speed": 0.01}.get(fault, at)
        workers.append(SimulatedWorker(f"c/{number}", **{fault: value}))  # type: ignore[arg-type]
    run = Run(there, workers, rng.choice(["race", "full"]))
    assert run.go()
    assert run.log.keys() >= run.rows.keys()
    expected = alone(there, run.strategy)
    if not run.withdrawn:
        assert run.rows == expected
    elif run.strategy == "full":  # a row that was withdrawn may have come back as a later repeat
        found, single = Times(run.rows.values()), Times(expected.values())
        for scenario in there.problem.scenarios:
            assert found.measured(scenario) == single.measured(scenario)


def test_a_budget_ends_a_run_and_another_goes_on_from_the_rows() -> None:
    there = surface(scenarios=60)
    first = Run(there, fleet(3), "full")
    assert not first.go(budget=2.0)
    assert 0 < len(first.rows) < len(alone(there, "full"))
    second = Run(there, fleet(2, seed=1), "full", rows=first.rows, log=first.log)
    second.times = Times(first.rows.values())
    assert second.go() and second.rows == alone(there, "full")


def test_a_visit_that_ends_three_workers_is_given_up() -> None:
    there = surface(scenarios=1)
    workers = [SimulatedWorker(f"a/{n}", speed=1e-3, joins=float(n), dies=n + 2.0) for n in range(3)]
    run = Run(there, [*workers, SimulatedWorker("a/3", joins=40.0)], "full")
    assert run.go()
    assert set(run.rows["s0", 1].cells.values()) == {Failure(GAVE_UP)}


def test_a_fleet_without_workers_ends_with_the_budget() -> None:
    run = Run(surface(), [SimulatedWorker("a/0", dies=0.2)], "full")
    with pytest.raises(TuningError, match="no worker was left to measure"):
        run.go(budget=60.0)
    assert run.rows == {}


def test_a_run_can_be_stopped() -> None:
    there = surface()
    stop = threading.Event()
    crew = SimulatedCrew(there.problem, Times(), [SimulatedWorker("a/0")])
    records = Records(lambda lines: None, lambda: None, lambda visits: None, lambda text: None)
    bench = FleetBench(crew, there.problem, records, stop)
    stop.set()
    with pytest.raises(FleetStopped):
        list(bench.measure([PlannedVisit("s0", 1, ("c0",))], FOREVER))
