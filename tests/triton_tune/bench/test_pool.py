"""Processes that measure: what breaks in one costs a cell, and none outlives the run."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from programs import runs, start, until
from triton.runtime.errors import OutOfResources
from tuning_workers import stub

from triton_tune.bench import pool
from triton_tune.bench.pool import CRASHED, HUNG, GpuBench
from triton_tune.bench.timing import first_time
from triton_tune.bench.worker import OUT_OF_MEMORY, failure_of
from triton_tune.core import device
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit
from tuning_table.table import TOO_LARGE, Failure

CPU = torch.device("cpu")
NAMES = ("c0", "c1", "c2", "c3")
WORKLOAD = SimpleNamespace(  # as much as a bench needs
    scenarios={name: SimpleNamespace(name=name) for name in "abc"},
    configs={name: name for name in NAMES},
    prepare=print,  # any function, as `stub` takes its place
    job_for=lambda scenario, config, device: config,
    launches=lambda scenario: (),
)
FINE = dict.fromkeys(NAMES, 7.0)
LATER = 1e9


@pytest.fixture
def bench(monkeypatch):
    """Makes benches of stubs; forked, so that any function can be one."""
    made = []
    monkeypatch.setattr(pool, "START_METHOD", "fork")

    def make(act, devices=(CPU,), **keywords):
        monkeypatch.setattr(pool, "serve", stub(act, **keywords))
        found = GpuBench(devices, 0)
        made.append(found)
        found.begin(WORKLOAD)
        return found

    yield make
    for each in made:
        each.close()


def idle(*_):
    pass


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def at(scenario, config, what, once=None):
    """Do `what` when this is asked for; with `once` only the first time, in whichever process."""

    def act(in_scenario, asked):
        if (in_scenario, asked) == (scenario, config) and not (once and once.exists()):
            if once:
                once.touch()
            what()

    return act


def visits(bench, *scenarios):
    found = list(bench.measure([PlannedVisit(name, 2, NAMES) for name in scenarios], bench.clock() + LATER))
    assert all(visit.repeat == 2 for visit in found) and len(found) == len(scenarios)
    return {visit.scenario: dict(visit.cells) for visit in found}


@pytest.mark.parametrize("config", NAMES)
def test_a_dying_process_costs_the_config_it_tried(bench, config):
    there = bench(at("b", config, die))
    first = there._workers[0].process
    assert visits(there, "a", "b", "c") == {"a": FINE, "b": FINE | {config: Failure(CRASHED)}, "c": FINE}
    assert not first.is_alive() and there._workers[0].process.is_alive()


def test_a_deadly_scenario_fails_in_every_config(bench, tmp_path):
    there = bench(at("a", None, die))
    assert visits(there, "a", "b") == {"a": dict.fromkeys(NAMES, Failure(CRASHED)), "b": FINE}
    there = bench(at("a", None, die, once=tmp_path / "died"))
    assert visits(there, "a", "b") == {"a": FINE, "b": FINE}
    there._workers[0].process.kill()  # while it is idle
    there._workers[0].process.join()
    assert visits(there, "c") == {"c": FINE}


def test_a_hang_is_ended(bench, monkeypatch):
    monkeypatch.setattr(pool, "SILENT_S", 1.0)
    there = bench(at("a", "c2", lambda: time.sleep(600)))
    hung = there._workers[0].process
    assert visits(there, "a", "b") == {"a": FINE | {"c2": Failure(HUNG)}, "b": FINE}
    assert not hung.is_alive()


def test_visits_are_shared_among_devices(bench, tmp_path):
    def both_at_once(scenario, config):
        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)

    there = bench(both_at_once, (CPU, CPU))
    assert visits(there, "a", "b", "c") == dict.fromkeys("abc", FINE)
    assert {int(path.name) for path in tmp_path.iterdir()} == {w.process.pid for w in there._workers}


def test_no_visit_begins_after_the_deadline(bench):
    there = bench(idle)
    assert list(there.measure([PlannedVisit("a", 1, NAMES)], there.clock())) == []
    found = there.measure([PlannedVisit("a", repeat, NAMES) for repeat in range(1, 9)], LATER)
    assert len({tuple(visit.cells) for visit in found}) > 2
    moments = iter([0.0, 99.0])
    there.clock = lambda: next(moments, 100.0)
    (visit,) = there.measure([PlannedVisit(name, 1, NAMES) for name in "abc"], 50.0)
    assert visit.cells == FINE  # it was waited for


def test_gpus_of_different_models_are_refused(monkeypatch):
    monkeypatch.setattr(device, "device_facts", lambda device: {"name": str(device)})
    assert device.facts_of([CPU, CPU]) == {"name": "cpu"}
    with pytest.raises(TuningError, match="--gpus"):
        device.facts_of([CPU, torch.device("meta"), CPU])


def test_what_did_not_compile_or_start(bench, monkeypatch):
    there = bench(idle)
    tasks = [PlannedVisit("a", 1, NAMES), PlannedVisit("b", 1, NAMES[:1])]
    assert there.compile(tasks, LATER, idle) == tuple(tasks)  # nothing compiles ahead here
    there._compiler.has = lambda job: job == "c1"
    assert there.compile(tasks, LATER, idle) == (PlannedVisit("a", 1, ("c1",)),)
    with pytest.raises(TuningError, match=r"^cpu: "):
        bench(idle, load=die)
    monkeypatch.setattr(pool, "START_S", 0.1)
    with pytest.raises(TuningError, match=r"^cpu: "):
        bench(idle, load=lambda: time.sleep(600))


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError("no\nmore"), "raised RuntimeError: no"),
    (OutOfResources(300000, 232448, "shared memory"), f"{TOO_LARGE}: shared memory, 300000 of 232448"),
    (torch.OutOfMemoryError("no"), OUT_OF_MEMORY),
])  # fmt: skip
def test_a_failure_tells_its_error(error, reason):
    assert failure_of(error, CPU) == Failure(reason)


PARENT = """
import os, time, torch
from types import SimpleNamespace
from triton_tune.bench.pool import GpuBench
from triton_tune.core.problem import PlannedVisit

loaded = []

def load():
    loaded.append("as the process starts")
    raise ImportError("which a visit will raise again")

def prepare(scenario, repeat, device):
    if scenario == "bad":
        raise ValueError("no such scenario")
    def measure(config, best_us):
        if config == "raises":
            raise KeyError(config)
        return float(os.getpid()) if loaded else 0.0
    return measure

if __name__ == "__main__":
    bench = GpuBench([torch.device("cpu")], 0, load)
    scenarios, configs = {"a": "a", "bad": "bad"}, {"c": "c", "r": "raises"}
    bench.begin(SimpleNamespace(scenarios=scenarios, configs=configs, prepare=prepare, job_for=None))
    for visit in bench.measure([PlannedVisit("bad", 1, ("c", "r")), PlannedVisit("a", 1, ("r", "c"))], 1e18):
        print(visit.cells["r"].reason, flush=True)
    print(int(visit.cells["c"]), flush=True)
    time.sleep(1000)
"""


def test_a_real_process_measures_and_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    with start("parent.py", cwd=tmp_path) as parent:
        lines = [parent.stdout.readline().strip() for _ in range(3)]
        parent.kill()
    assert lines[:2] == ["raised ValueError: no such scenario", "raised KeyError: 'raises'"]
    until(lambda: not runs(lines[2]))


BEST_US = 8.0
LAUNCHES = 64


@pytest.mark.parametrize(("times", "expected"), [
    ([9.0], (9.0, False)),
    ([13.0], (13.0, False)),  # far slower, but quick to measure again
    ([164.0, 8.5], (8.5, False)),  # the GPU stalled for 10 ms
    ([164.0, 150.0], (150.0, True)),
    ([900.0], (900.0, True)),  # 58 ms are no stall
])  # fmt: skip
def test_a_stall_does_not_pass_for_a_slow_config(times, expected):
    left = iter(times)
    assert first_time(lambda: next(left), LAUNCHES, BEST_US) == expected
    assert next(left, None) is None
