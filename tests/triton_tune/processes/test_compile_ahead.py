"""Processes that compile ahead, of which one may die."""

from collections.abc import Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import pytest
import torch

from triton_tune.processes import compile_ahead as compiling
from triton_tune.processes.compile_ahead import CompileAhead

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sum:
    """A job that is done at once."""

    needs: frozenset[Hashable] = frozenset({"a sum"})
    cost: int = 1

    def run(self, device: torch.device) -> None:
        pass


class Threads(ThreadPoolExecutor):
    """A pool without processes."""

    _processes: Mapping[int, object] = MappingProxyType({})

    def __init__(self, workers: int, *_: object, initializer: object) -> None:
        super().__init__(workers)


class Died(Threads):
    """A pool of which a process has died while nobody waited."""

    def submit(self, *_: object) -> NoReturn:
        raise BrokenProcessPool("a process died")


@dataclass(frozen=True)
class Deadly(Sum):
    """A job that kills its process."""


class Mortal(Threads):
    """A pool that breaks when it gets a deadly job."""

    broken = False

    def submit(self, compiling: Any, job: Sum, *rest: object) -> Future[int]:  # type: ignore[override]
        if self.broken:
            raise BrokenProcessPool("a process died")
        if isinstance(job, Deadly):
            self.broken = True
            future: Future[int] = Future()
            future.set_exception(BrokenProcessPool("a process died"))
            return future
        return super().submit(compiling, job, *rest)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_deadly_job_costs_only_itself(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileAhead, "_idle", False)
    monkeypatch.setattr(compiling, "ProcessPoolExecutor", Mortal)
    ran: list[Hashable] = []
    monkeypatch.setattr(Sum, "run", lambda self, device: ran.append(self.needs))
    jobs = [Sum(frozenset({i}), cost=-i) for i in range(8)]
    jobs[3] = Deadly(frozenset({3}), cost=-3)
    with CompileAhead(CPU, workers) as processes:
        done = processes.compile(jobs)
        assert (done.jobs, done.broken, done.failed) == (8, [jobs[3]], 0)
        assert set(ran) == {job.needs for job in jobs} - {jobs[3].needs}
        assert all(map(processes.has, jobs))  # its cell is to say that it failed
        assert processes.compile(jobs).jobs == 0


def test_what_was_not_compiled_in_time_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileAhead, "_idle", False)
    monkeypatch.setattr(compiling, "ProcessPoolExecutor", Threads)
    clock = iter(range(1000))
    monkeypatch.setattr(compiling.time, "monotonic", lambda: next(clock))
    jobs = [Sum(frozenset({i})) for i in range(50)]
    with CompileAhead(CPU, 2) as processes:
        done = processes.compile(jobs, deadline=20)
        known = sum(map(processes.has, jobs))
        assert 0 < known == done.jobs < 50
        assert processes.compile(jobs).jobs == 50 - known


def test_compiling_goes_on_after_a_process_died_between_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileAhead, "_idle", False)
    monkeypatch.setattr(compiling, "ProcessPoolExecutor", Threads)
    with CompileAhead(CPU, 1) as processes:
        monkeypatch.setattr(processes, "_pool", Died(1, initializer=None))
        assert not processes.has(Sum())
        assert processes.compile([Sum()]).jobs == 1
        assert processes.has(Sum())


@pytest.mark.parametrize(("processors", "sharing", "workers"), [
    (1, 1, 1), (2, 1, 1), (16, 1, 15), (224, 1, 30), (32, 2, 15), (224, 8, 27), (4, 8, 1),
])  # fmt: skip
def test_processes_by_the_processors_that_may_be_used(
    processors: int, sharing: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.os, "sched_getaffinity", lambda process: range(processors), raising=False)
    assert compiling.default_workers(sharing) == workers
