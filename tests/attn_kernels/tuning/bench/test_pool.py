"""Processes that measure: what breaks in one costs a cell, and none outlives the run."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from tuning_workers import Act, stub

from attn_kernels.core.config import Config
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.bench.gpu import measure
from attn_kernels.tuning.cli.main import _job_for
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of
from triton_tune.bench import pool
from triton_tune.bench.pool import CRASHED, HUNG, GpuBench, Subject
from triton_tune.bench.worker import Order
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit
from tuning_table.table import Failure, Visit

CPU = torch.device("cpu")
SCENARIOS = {name: scenario_of(name, (1,), (5,), Shape(HeadLayout(2, 1, 16))) for name in "abc"}
CONFIGS = {name: Config("naive", 1, 32, num_warps=1 << i) for i, name in enumerate(["c0", "c1", "c2", "c3"])}
NAMES = tuple(CONFIGS)
LATER = 1e9


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GpuBench]]:
    """Makes benches of stubs; forked, so that any function can be one."""
    made: list[GpuBench] = []
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    def make(act: Act, devices: Sequence[torch.device] = (CPU,), **keywords: object) -> GpuBench:
        monkeypatch.setattr(pool, "serve", stub(act, **keywords))
        found = GpuBench(devices, Subject(SCENARIOS, measure, _job_for), 0)
        made.append(found)
        found.configs = CONFIGS
        return found

    yield make
    for each in made:
        each.close()


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(scenario: str, moment: str, what: Callable[[], None], once: Path | None = None) -> Act:
    """Do `what` at this moment; with `once` only the first time, in whichever process."""

    def act(order: Order, now: str) -> None:
        if order.scenario.id == scenario and now == moment:
            if once is not None:
                try:
                    once.touch(exist_ok=False)
                except FileExistsError:
                    return
            what()

    return act


def visits(bench: GpuBench, *scenarios: str) -> dict[str, dict[str, object]]:
    found = list(bench.measure([PlannedVisit(name, 2, NAMES) for name in scenarios], bench.clock() + LATER))
    assert all(isinstance(visit, Visit) and visit.repeat == 2 for visit in found)
    assert len(found) == len(scenarios)
    return {visit.scenario: dict(visit.cells) for visit in found}


FINE = dict.fromkeys(NAMES, 7.0)


def test_a_process_that_dies_costs_the_config_that_it_tried(bench: Callable[..., GpuBench]) -> None:
    there = bench(at("b", "c1", die))
    first = there._workers[0].process
    assert visits(there, "a", "b", "c") == {"a": FINE, "b": FINE | {"c1": Failure(CRASHED)}, "c": FINE}
    assert there._workers[0].process is not first and not first.is_alive()
    assert there._workers[0].process.is_alive()
    assert visits(there, "b")["b"]["c1"] == Failure("ended its process")


@pytest.mark.parametrize("config", [NAMES[0], NAMES[-1]])
def test_the_first_and_the_last_config_may_be_the_one(bench: Callable[..., GpuBench], config: str) -> None:
    assert visits(bench(at("a", config, die)), "a", "b") == {
        "a": FINE | {config: Failure(CRASHED)},
        "b": FINE,
    }


def test_a_scenario_that_ends_processes_before_its_first_config_fails_in_all(
    bench: Callable[..., GpuBench],
) -> None:
    there = bench(at("a", "begin", die))
    assert visits(there, "a", "b") == {"a": dict.fromkeys(NAMES, Failure(CRASHED)), "b": FINE}


def test_a_process_that_dies_between_two_configs_costs_none(
    bench: Callable[..., GpuBench], tmp_path: Path
) -> None:
    there = bench(at("a", "after c1", die, once=tmp_path / "died"))
    assert visits(there, "a", "b") == {"a": FINE, "b": FINE}
    assert (tmp_path / "died").exists()
    assert visits(bench(at("a", "after c3", die)), "a", "b") == {"a": FINE, "b": FINE}


def test_a_visit_that_got_further_may_be_handed_out_once_more(
    bench: Callable[..., GpuBench], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    def act(order: Order, now: str) -> None:
        at("a", "after c1", die, once=first)(order, now)
        if first.exists():
            at("a", "begin", die, once=second)(order, now)

    assert visits(bench(act), "a") == {"a": FINE}
    assert second.exists()


def test_a_process_that_ended_while_it_was_idle_costs_nothing(bench: Callable[..., GpuBench]) -> None:
    there = bench(lambda order, now: None)
    for found in ({"a": FINE}, {"b": FINE}):
        process = there._workers[0].process
        process.kill()
        process.join()
        assert visits(there, *found) == found


def test_a_hang_is_ended(bench: Callable[..., GpuBench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SILENT_S", 1.5)
    monkeypatch.setattr(pool, "wait", lambda connections, timeout: waited(connections, timeout=0.1))
    there = bench(at("a", "c2", lambda: time.sleep(600)))
    hung = there._workers[0].process
    assert visits(there, "a", "b") == {"a": FINE | {"c2": Failure(HUNG)}, "b": FINE}
    assert not hung.is_alive()


waited = pool.wait


def test_a_device_that_keeps_breaking_ends_the_run(
    bench: Callable[..., GpuBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MOST_BROKEN", 3)
    there = bench(at("b", "c1", die))
    tasks = [PlannedVisit(name, 1, NAMES) for name in ("a", "b", "b", "b", "b", "b")]
    found: list[Visit] = []
    with pytest.raises(TuningError, match=r"^cpu: 4 processes broke; the rows so far are kept$"):
        for visit in there.measure(tasks, LATER):
            found.append(visit)
    assert [visit.scenario for visit in found] == ["a", "b", "b", "b"]


def test_visits_are_shared_among_devices(bench: Callable[..., GpuBench], tmp_path: Path) -> None:
    def both_at_once() -> None:
        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)

    there = bench(lambda order, now: both_at_once() if now == "begin" else None, (CPU, CPU))
    assert visits(there, "a", "b", "c") == dict.fromkeys("abc", FINE)
    assert {int(path.name) for path in tmp_path.iterdir()} == {w.process.pid for w in there._workers}


def test_no_visit_begins_after_the_deadline(bench: Callable[..., GpuBench]) -> None:
    there = bench(lambda order, now: None)
    assert list(there.measure([PlannedVisit("a", 1, NAMES)], there.clock())) == []
    moments = iter([0.0, 0.0, 99.0, *[100.0] * 1000])
    there.clock = lambda: next(moments)
    found = list(there.measure([PlannedVisit(name, 1, NAMES) for name in "abc"], 50.0))
    assert [visit.scenario for visit in found] == ["a"] and found[0].cells == FINE  # it was waited for


def test_gpus_of_different_models_are_refused(
    bench: Callable[..., GpuBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[pool._Worker] = []
    start = pool._Worker.start
    monkeypatch.setattr(pool._Worker, "start", lambda worker: (made.append(worker), start(worker)))
    with pytest.raises(TuningError, match=r"of different models \(cpu, meta\), .*--gpus"):
        bench(lambda order, now: None, [CPU, torch.device("meta"), CPU], facts=lambda name: {"name": name})
    assert len(made) == 3 and not any(worker.process.is_alive() for worker in made)


def test_a_process_that_does_not_start_is_reported(
    bench: Callable[..., GpuBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TuningError, match=r"^cpu: its process did not start"):
        bench(lambda order, now: None, facts=die)
    monkeypatch.setattr(pool, "START_S", 0.1)
    with pytest.raises(TuningError, match=r"^cpu: its process did not start"):
        bench(lambda order, now: None, facts=lambda device: {"name": str(time.sleep(600))})


def test_closing_ends_all_processes(bench: Callable[..., GpuBench]) -> None:
    there = bench(lambda order, now: None, (CPU, CPU))
    processes = [worker.process for worker in there._workers]
    there.close()
    there.close()
    assert not any(process.is_alive() for process in processes)


def test_configs_that_were_not_compiled_are_left_out(bench: Callable[..., GpuBench]) -> None:
    there = bench(lambda order, now: None)
    tasks = [PlannedVisit("a", 1, NAMES), PlannedVisit("b", 1, NAMES[:1])]
    assert there.compile(tasks, LATER, lambda done, total: None) == tuple(
        tasks
    )  # nothing compiles ahead here
    there._compiler.has = lambda job: job.config == CONFIGS["c1"]
    assert there.compile(tasks, LATER, lambda done, total: None) == (PlannedVisit("a", 1, ("c1",)),)
