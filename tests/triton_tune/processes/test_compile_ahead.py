"""Processes that compile ahead, of which one may die, and their keys of Triton's cache."""

from collections.abc import Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from triton_tune.processes import compile_ahead as compiling
from triton_tune.processes.compile_ahead import PTXAS, CompileAhead, ptxas_differs, without_main

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sum:
    """A job that is done at once, or kills its process."""

    needs: frozenset[Hashable]
    cost: int = 1
    deadly: bool = False

    def run(self, device: torch.device) -> None:
        pass


class Pool(ThreadPoolExecutor):
    """A pool without processes, which breaks when it gets a deadly job."""

    _processes: Mapping[int, object] = MappingProxyType({})

    def __init__(self, workers: int, *_: object, initializer: object = None, broken: bool = False) -> None:
        super().__init__(workers)
        self.broken = broken

    def submit(self, run: Any, job: Sum, *rest: object) -> Future[int]:  # type: ignore[override]
        if self.broken:
            raise BrokenProcessPool("a process died")
        if job.deadly:
            self.broken = True
            future: Future[int] = Future()
            future.set_exception(BrokenProcessPool("a process died"))
            return future
        return super().submit(run, job, *rest)


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileAhead, "_idle", False)
    monkeypatch.setattr(compiling, "ProcessPoolExecutor", Pool)


@pytest.mark.usefixtures("without_processes")
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_deadly_job_costs_only_itself(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Hashable] = []
    monkeypatch.setattr(Sum, "run", lambda self, device: ran.append(self.needs))
    jobs = [Sum(frozenset({i}), cost=-i, deadly=i == 3) for i in range(8)]
    with closing(CompileAhead(CPU, workers)) as processes:
        done = processes.compile(jobs)
        assert (done.jobs, done.broken, done.failed) == (8, [jobs[3]], 0)
        assert set(ran) == {job.needs for job in jobs} - {jobs[3].needs}
        assert all(map(processes.has, jobs))  # its cell is to say that it failed
        assert processes.compile(jobs).jobs == 0


@pytest.mark.usefixtures("without_processes")
def test_what_was_not_compiled_in_time_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(compiling.time, "monotonic", lambda: next(clock))
    jobs = [Sum(frozenset({i})) for i in range(50)]
    with closing(CompileAhead(CPU, 2)) as processes:
        done = processes.compile(jobs, deadline=20)
        known = sum(map(processes.has, jobs))
        assert 0 < known == done.jobs < 50
        assert processes.compile(jobs).jobs == 50 - known


@pytest.mark.usefixtures("without_processes")
def test_compiling_goes_on_after_a_process_died_between_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Sum(frozenset({"a sum"}))
    with closing(CompileAhead(CPU, 1)) as processes:
        monkeypatch.setattr(processes, "_pool", Pool(1, broken=True))
        assert not processes.has(job)
        assert processes.compile([job]).jobs == 1 and processes.has(job)


@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (16, 15), (224, 30)])
def test_processes_by_the_processors_that_may_be_used(
    processors: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.os, "sched_getaffinity", lambda process: range(processors), raising=False)
    assert compiling.default_workers() == workers


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    make_backend(GPUTarget("cuda", 80, 32)).hash()  # from now on, this process's keys hold one version
    return torch.device("cuda", 0)


def test_only_a_ptxas_of_another_version_is_kept_from_new_processes(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake := tmp_path / "ptxas").write_text("#!/bin/sh\necho fake ptxas, release 12.3, V12.3.4\n")
    fake.chmod(0o755)
    own = Path(str(nvidia.__file__)).parent / "bin" / "ptxas"
    for path, differs in ((fake, True), (own, False), (tmp_path / "none", False)):
        monkeypatch.setenv(PTXAS, str(path))
        assert ptxas_differs(device) == differs


@pytest.mark.parametrize("differs", [False, True])
def test_processes_have_the_variables_of_now_and_the_right_ptxas(
    differs: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork server has those of its start."""
    monkeypatch.setattr(compiling, "ptxas_differs", lambda device: differs)
    for value in ("first", "second"):
        monkeypatch.setenv("OF_NOW", value)
        monkeypatch.setenv(PTXAS, "another")
        with closing(CompileAhead(device, 1)) as processes, without_main():
            variables = processes._start().submit(eval, "dict(__import__('os').environ)").result()
        assert (variables["OF_NOW"], PTXAS in variables) == (value, not differs)
