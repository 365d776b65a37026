"""A bench of Ray workers, with Ray played in this process: the rows of one run, whoever dies or comes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tuning_builders import Surface, rounds_of, surface

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.fleet import on_ray
from triton_tune.fleet.on_ray import ENDED_WORKERS, RayBench, Workers
from triton_tune.fleet.worker import WorkerFacts
from triton_tune.run.progress import Silent
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table.table import Visit

VERSIONS = {"torch": "2", "triton": "3", "source_hash": "abc"}
DEVICE: dict[str, str | int] = {"name": "NVIDIA H100", "memory_bytes": 80}


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "COUNT_EVERY_S", 0.0)
    monkeypatch.setattr(on_ray, "POLL_S", 0.0)


@dataclass
class Cluster:
    """The part of the module ray that a bench uses. What is ordered is done when its result is taken.

    facts: of the worker with a number. on_visit: is called with the worker's number, and the number and task
    of the visit; raises what ends the worker.
    """

    gpus: int = 2
    models: tuple[str, ...] = ("H100",)
    facts: Callable[[int], WorkerFacts] = lambda number: facts_of(number)
    on_visit: Callable[[int, int, PlannedVisit], None] = lambda worker, visit, task: None
    started: int = 0
    visits: list[tuple[int, PlannedVisit]] = field(default_factory=list)

    def nodes(self) -> list[dict[str, Any]]:
        models = {f"accelerator_type:{model}": 1.0 for model in self.models}
        return [{"Alive": True, "Resources": {"GPU": self.gpus, **models}}]

    def remote(self, kind: Any) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self._start))

    def _start(self, there: Surface) -> Any:
        number = self.started
        self.started += 1

        def visit(task: PlannedVisit, configs: Mapping[str, object]) -> Visit:
            assert set(configs) == set(task.configs)
            self.visits.append((number, task))
            self.on_visit(number, len(self.visits), task)
            return there.visit(task)

        return SimpleNamespace(
            facts=SimpleNamespace(remote=lambda: partial(self.facts, number)),
            visit=SimpleNamespace(remote=lambda *order: partial(visit, *order)),
        )

    def wait(
        self, references: list[Any], num_returns: int = 1, timeout: float = 0.0
    ) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        return reference()

    def kill(self, actor: Any) -> None:
        pass


def facts_of(number: int, device: Mapping[str, str | int] = DEVICE, **changes: str) -> WorkerFacts:
    return WorkerFacts(f"host{number // 2}/{number}", device, {"driver": "550", **VERSIONS, **changes})


def died(worker: int = 0, visit: int = 0, task: object = None) -> None:
    raise RuntimeError("the worker died")


@dataclass
class Run:
    """A search on a cluster, and what it recorded."""

    cluster: Cluster
    there: Surface
    strategy: str = "full"
    rows: dict[tuple[str, int], Visit] = field(default_factory=dict)
    log: dict[tuple[str, int], str] = field(default_factory=dict)

    def go(self, budget: float = 1e6) -> bool:
        search = STRATEGIES[self.strategy](self.there.problem)
        return tune(search, self.bench(), Times(self.rows.values()), self._record, Silent(), budget=budget)

    def bench(self) -> RayBench:
        workers = Workers(self.cluster, object, (self.there,), VERSIONS)
        workers.first()
        problem = self.there.problem
        return RayBench(workers, problem, dict.fromkeys(problem.configs), self.log.update)

    def _record(self, visit: Visit) -> None:
        assert (visit.scenario, visit.repeat) in self.log.keys() - self.rows.keys()
        self.rows[visit.scenario, visit.repeat] = visit


def alone(there: Surface, strategy: str = "full") -> dict[tuple[str, int], Visit]:
    """The rows of a search without a fleet."""
    visits: list[Visit] = []
    for _ in rounds_of(STRATEGIES[strategy](there.problem), there, visits):
        pass
    return {(visit.scenario, visit.repeat): visit for visit in visits}


@pytest.mark.parametrize("strategy", ["race", "full"])
@pytest.mark.parametrize("gpus", [1, 16])
def test_the_rows_are_those_of_one_run(strategy: str, gpus: int) -> None:
    there = surface(scenarios=60, noise=0.01, failing=frozenset({("s3", "c1"), ("*", "c2")}))
    run = Run(Cluster(gpus), there, strategy)
    assert run.go() and run.rows == alone(there, strategy)
    assert set(run.log.values()) == {facts_of(number).name for number in range(gpus)}


def test_a_worker_that_dies_loses_only_its_visit_and_another_takes_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sometimes(worker: int, visit: int, task: PlannedVisit) -> None:
        if visit % 7 == 0:
            died()

    there = surface(scenarios=60)
    run = Run(Cluster(3, on_visit=sometimes), there)
    assert run.go() and run.rows == alone(there)
    deaths = len(run.cluster.visits) // 7
    assert len(run.cluster.visits) == len(run.rows) + deaths and run.cluster.started == 3 + deaths
    assert capsys.readouterr().out.count("the worker died") == deaths


def test_a_visit_that_ends_three_workers_has_failed() -> None:
    def deadly(worker: int, visit: int, task: PlannedVisit) -> None:
        if (task.scenario, task.repeat) == ("s4", 1):
            died()

    there = surface()
    run = Run(Cluster(on_visit=deadly), there)
    assert run.go() and run.rows.keys() == alone(there).keys() - {("s4", 2)}  # what failed is not repeated
    assert set(run.rows["s4", 1].cells.values()) == {ENDED_WORKERS}
    assert run.cluster.started == 2 + 3


def test_a_worker_that_died_three_times_is_not_used_any_more() -> None:
    def fragile(worker: int, visit: int, task: PlannedVisit) -> None:
        if worker != 0:
            died()

    there = surface(scenarios=60)
    same_name = Cluster(facts=lambda number: facts_of(min(number, 1)), on_visit=fragile)
    run = Run(same_name, there)
    assert run.go()
    assert Counter(worker for worker, _ in same_name.visits if worker) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize(
    "other",
    [
        facts_of(1, torch="1.0"),
        facts_of(1, triton="1.0"),
        facts_of(1, source_hash="other"),
        facts_of(1, driver="560"),
        facts_of(1, {**DEVICE, "name": "NVIDIA H200"}),
    ],
)
def test_workers_of_another_gpu_or_stack_are_refused(
    other: WorkerFacts, capsys: pytest.CaptureFixture[str]
) -> None:
    there = surface()
    run = Run(Cluster(facts=lambda number: other if number == 1 else facts_of(number)), there)
    assert run.go() and run.rows == alone(there)
    assert {worker for worker, _ in run.cluster.visits} == {0}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("host0/1 ")]
    changed = {*other.versions.values(), *other.device.values()}
    assert any(str(value) in line for value in changed - {*facts_of(0).versions.values(), *DEVICE.values()})


def _broken(number: int) -> WorkerFacts:
    raise RuntimeError("no driver")


@pytest.mark.parametrize(
    ("cluster", "model", "what"),
    [
        (Cluster(gpus=0), None, "no GPU"),
        (Cluster(), "A100", "no A100 GPU"),
        (Cluster(models=("A100", "H100")), None, "--ray-accelerator: A100, H100"),
        (Cluster(facts=lambda number: facts_of(number, torch="1")), None, "no worker can be used"),
        (Cluster(facts=_broken), None, "no driver"),
    ],
)
def test_a_cluster_without_a_usable_worker_is_refused(cluster: Cluster, model: str | None, what: str) -> None:
    with pytest.raises(TuningError, match=what):
        Workers(cluster, object, (surface(),), VERSIONS, accelerator=model).first()


def test_a_worker_gets_a_shape_that_its_host_has_compiled() -> None:
    there = surface()
    problem = there.problem
    shapes = {problem.shape(scenario): scenario for scenario in problem.scenarios}
    tasks = [PlannedVisit(s, repeat, ("c0",)) for s in shapes.values() for repeat in (1, 2, 3)]
    run = Run(Cluster(3), there)
    assert len(list(run.bench().measure(tasks, float("inf")))) == 9
    first = {worker: task.scenario for worker, task in reversed(run.cluster.visits)}
    assert first[0] == first[1] != first[2]  # 0 and 1 are of one host


def test_no_visit_begins_after_the_budget_and_another_run_goes_on() -> None:
    there = surface(scenarios=60)
    now: Iterator[float] = iter(range(10**9))
    first = Run(Cluster(), there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayBench, "clock", lambda bench: next(now))
        assert not first.go(budget=60.0)
    assert 0 < len(first.rows) < len(alone(there))
    second = Run(Cluster(), there, rows=first.rows, log=first.log)
    assert second.go() and second.rows == alone(there)


def test_a_run_whose_last_worker_dies_ends_at_its_budget() -> None:
    run = Run(Cluster(1, facts=lambda number: facts_of(0), on_visit=died), surface())
    with pytest.raises(TuningError, match="no worker was left"):
        run.go(budget=0.2)
    assert run.rows.keys() == {next(iter(run.log))}  # the visit that ended three workers
