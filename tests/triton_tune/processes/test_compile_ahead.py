"""Processes that compile ahead, of which one may die, and their keys of Triton's cache."""

import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from fake_kernels import FakeKernel
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from triton_tune.processes import compile_ahead as compiling
from triton_tune.processes.compile_ahead import PTXAS, CompileAhead, ptxas_differs

META = torch.device("meta")  # of which a process needs no GPU


def kernels(file: Path, count: int, deadly: int = -1) -> list[FakeKernel]:
    return [FakeKernel(str(n), str(file), -n, "die" if n == deadly else "") for n in range(count)]


def test_one_deadly_job_costs_only_itself(tmp_path: Path) -> None:
    jobs = kernels(file := tmp_path / "compiled", 8, deadly=3)
    with closing(CompileAhead(META, 3)) as processes:
        processes.load(bool)
        processes.await_loaded()
        done = processes.compile(jobs)
        assert (done.jobs, done.broken, done.failed) == (8, [jobs[3]], 0)
        assert {line.split()[0] for line in file.read_text().splitlines()} == set("01234567")
        assert all(map(processes.has, jobs))  # its cell is to say that it failed
        assert processes.compile(jobs).jobs == 0


def test_what_was_not_compiled_in_time_is_not_known(tmp_path: Path) -> None:
    jobs = [FakeKernel(str(n), str(tmp_path / "compiled"), deed="nap") for n in range(50)]
    with closing(CompileAhead(META, 2)) as processes:
        processes.compile([FakeKernel("first", str(tmp_path / "compiled"))])  # which starts processes
        done = processes.compile(jobs, deadline=time.monotonic() + 0.5)
        known = sum(map(processes.has, jobs))
        assert 0 < known == done.jobs < 50
        assert processes.compile(jobs).jobs == 50 - known


def test_compiling_goes_on_after_a_process_died_between_two_rounds(tmp_path: Path) -> None:
    first, second = kernels(tmp_path / "compiled", 2)
    with closing(CompileAhead(META, 1)) as processes:
        assert processes.compile([first]).jobs == 1
        assert processes._pool is not None
        for process in list(processes._pool._processes.values()):
            process.kill()
            process.join()
        done = processes.compile([second])
        assert (done.jobs, done.broken) == (1, []) and processes.has(second)


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
    differs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork server has those of its start."""
    monkeypatch.setattr(compiling, "ptxas_differs", lambda device: differs)
    for value in ("first", "second"):
        monkeypatch.setenv("OF_NOW", value)
        monkeypatch.setenv(PTXAS, "another")
        with closing(CompileAhead(META, 1)) as processes:
            processes.compile([FakeKernel(value, str(tmp_path / value), deed="tell")])
        told = (tmp_path / value).read_text().splitlines()[1]
        assert told == f"{value} {None if differs else 'another'}"
