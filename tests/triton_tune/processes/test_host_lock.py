"""Of the processes that share Triton's cache, one compiles at a time; none waits for one that died."""

import subprocess
import sys
from pathlib import Path

import pytest

from triton_tune.processes.cache_filler import compile_lock

ROOT = Path(__file__).parents[3]
HOLDER = """
import os, subprocess, sys, time
from triton_tune.processes.cache_filler import compile_lock
with compile_lock():
    child = os.fork()  # it keeps the file open, as a process may that another thread starts
    if child == 0:
        os.close(1)
        time.sleep(2)
        os._exit(0)
    print("held", flush=True)
    sys.stdin.read()
print("freed", flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def start() -> "subprocess.Popen[str]":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, **pipes)  # type: ignore[call-overload, no-any-return]


def test_a_process_waits_until_the_holder_frees_the_lock(cache: Path) -> None:
    holder = start()
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    waiting = start()
    assert waiting.stdout is not None and waiting.stdin is not None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.5)
    holder.stdin.close()
    assert waiting.stdout.readline() == "held\n"
    waiting.stdin.close()
    assert (holder.wait(), waiting.wait()) == (0, 0)


def test_the_lock_of_a_process_that_was_killed_is_free(cache: Path) -> None:
    holder = start()
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    with compile_lock():
        pass


def test_without_a_folder_to_write_nothing_is_locked(cache: Path) -> None:
    cache.write_text("a file")
    with compile_lock(), compile_lock():
        pass
