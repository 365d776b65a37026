"""Kernels compile in processes while their caller goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_kernels import FakeKernel

from triton_tune.processes.cache_filler import CacheFiller, compile_lock

CALLER = """
import sys, time
import torch
from fake_kernels import FakeKernel
from triton_tune.processes.cache_filler import CacheFiller
filler = CacheFiller(torch.device("meta"))
filler.add([FakeKernel(str(number), sys.argv[1], deed="stay") for number in range(2)], 2)
sys.stdin.read()
"""

HOLDER = """
import os, sys, time
from triton_tune.processes.cache_filler import compile_lock
with compile_lock():
    if os.fork() == 0:  # the child keeps the file open, as a process may that another thread starts
        os.close(1)
        time.sleep(2)
        os._exit(0)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels tell that they compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "compiled"


@pytest.fixture
def filler() -> Any:
    return CacheFiller(torch.device("meta"))


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_caller_goes_on_and_kernels_compile_longest_first_and_harm_no_other(
    filler: CacheFiller, file: Path
) -> None:
    deeds = {"a": "", "b": "fail", "c": "die", "d": ""}
    kernels = [FakeKernel(key, str(file), cost, deed) for cost, (key, deed) in enumerate(deeds.items())]
    filler.add(kernels[1:], workers=1)
    assert lines(file) == []
    filler.add(kernels[:1], workers=1)  # another kind of layer
    assert not filler.finish()
    keys, pids, devices = zip(*lines(file), strict=True)
    assert keys == ("d", "c", "b", "a")
    assert len({*pids, str(os.getpid())}) == 5 and set(devices) == {"cpu"}
    assert filler.ended == {"a": 0, "b": 0, "c": -signal.SIGABRT, "d": 0}  # who launches b is told why
    assert not filler.finish()  # nothing compiles


def test_while_another_process_compiles_it_waits_and_leaves_it_to_that_one(
    filler: CacheFiller, file: Path
) -> None:
    with compile_lock():
        filler.add([FakeKernel("a", str(file))], 1)
        time.sleep(1)
        assert filler._process is not None and filler._process.poll() is None
    assert filler.finish()
    assert (lines(file), filler.ended) == ([], {})
    filler.add([FakeKernel("a", str(file))], 1)
    assert not filler.finish()
    assert filler.ended == {"a": 0}


def test_a_caller_whose_process_was_killed_goes_on(filler: CacheFiller, file: Path) -> None:
    filler.add([FakeKernel("a", str(file), deed="stay")], 1)
    until(lambda: bool(lines(file)))
    assert filler._process is not None
    os.killpg(filler._process.pid, signal.SIGKILL)
    assert not filler.finish()
    assert filler.ended == {}


@pytest.mark.parametrize("killed", [False, True])
def test_processes_end_with_their_caller(killed: bool, file: Path) -> None:
    """It waits for none of them, whether it ends by itself or is killed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CALLER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as caller:
        until(lambda: len(lines(file)) == 2)
        if killed:
            caller.kill()
    assert caller.returncode == (-signal.SIGKILL if killed else 0)
    until(lambda: not any(runs(pid) for _, pid, _ in lines(file)))


def runs(pid: str) -> bool:
    """Whether a process runs; one that has ended may still be listed."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_waits_until_the_holder_frees_the_lock_or_is_killed(killed: bool, file: Path) -> None:
    def start() -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command, pipe = [sys.executable, "-c", HOLDER], subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    with start() as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with start() as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(0.5)
            if killed:
                holder.kill()
            elif holder.stdin is not None:
                holder.stdin.close()
            assert waiting.stdout is not None and waiting.stdout.readline() == "held\n"


def test_without_a_folder_to_write_nothing_is_locked(file: Path) -> None:
    (file.parent / "cache").write_text("a file")
    with compile_lock(), compile_lock():
        pass
