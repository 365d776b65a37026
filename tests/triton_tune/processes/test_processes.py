"""Kernels compile in processes ahead of a run, of which one may die, or while their caller goes on."""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from contextlib import closing

import pytest
import torch
from fake_kernels import FakeKernel
from programs import runs, start, until

from triton_tune.processes import compile_ahead as compiling
from triton_tune.processes.cache_filler import CacheFiller, compile_lock
from triton_tune.processes.compile_ahead import PTXAS, CompileAhead
from tuning_table.interrupts import without_interrupts

META = torch.device("meta")  # of which a process needs no GPU
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
def file(tmp_path, monkeypatch):
    """Where kernels tell that they compile."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "compiled"


@pytest.fixture
def filler():
    return CacheFiller(META)


def lines(file):
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def test_the_caller_goes_on_and_the_longest_kernels_compile_first(filler, file):
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


def test_it_waits_for_another_process_and_survives_a_kill(filler, file):
    with compile_lock():
        filler.add([FakeKernel("a", str(file))], 1)
        time.sleep(1)
        assert filler._process is not None and filler._process.poll() is None
    assert filler.finish()
    assert (lines(file), filler.ended) == ([], {})
    filler.add([FakeKernel("a", str(file))], 1)
    assert not filler.finish()
    assert filler.ended == {"a": 0}
    filler.ended.clear()
    filler.add([FakeKernel("b", str(file), deed="stay")], 1)
    until(lambda: len(lines(file)) == 2)
    os.killpg(filler._process.pid, signal.SIGKILL)
    assert not filler.finish()
    assert filler.ended == {}


def test_kernels_that_come_after_the_process_ended_compile_in_another(filler, file):
    """As of a second kind of layer, which a model makes later."""
    filler.add([FakeKernel("a", str(file))], 1)
    filler._process.wait(60)
    filler.add([FakeKernel("b", str(file))], 1)
    assert not filler.finish()
    assert filler.ended == {"a": 0, "b": 0}


def test_the_caller_waits_for_no_lock_and_the_process_for_no_caller(filler, file):
    """Whatever a pipe holds: long kernels are sent while another process compiles, and many end unheard."""
    sent, many = threading.Event(), [FakeKernel("a" * 1000 + str(number), str(file)) for number in range(300)]

    def send():
        filler.add(many, 1)
        sent.set()

    with compile_lock():
        threading.Thread(target=send, daemon=True).start()
        assert sent.wait(60)
        time.sleep(1)
    assert filler.finish()
    filler.add(many[:120], 2)
    filler._process.wait(120)
    assert not filler.finish() and len(filler.ended) == 120


@pytest.mark.parametrize("killed", [False, True])
def test_processes_end_with_their_caller(killed, file):
    """It waits for none of them, whether it ends by itself or is killed."""
    with start("-c", CALLER, file, stdin=subprocess.PIPE) as caller:
        until(lambda: len(lines(file)) == 2)
        if killed:
            caller.kill()
    assert caller.returncode == (-signal.SIGKILL if killed else 0)
    until(lambda: not any(runs(pid) for _, pid, _ in lines(file)))


@pytest.mark.parametrize("killed", [False, True])
def test_a_process_waits_until_the_holder_frees_the_lock_or_is_killed(killed, file):
    with start("-c", HOLDER, stdin=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "held\n"
        with start("-c", HOLDER, stdin=subprocess.PIPE) as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(0.5)
            if killed:
                holder.kill()
            else:
                holder.stdin.close()
            assert waiting.stdout.readline() == "held\n"


def test_without_a_folder_to_write_nothing_is_locked(file):
    (file.parent / "cache").write_text("a file")
    with compile_lock(), compile_lock():
        pass


# Ahead of a run


def interrupt_itself(done):
    os.kill(os.getpid(), signal.SIGINT)
    done.touch()


def test_an_interrupt_while_processes_start_spares_them_and_comes_afterwards(tmp_path):
    """A program that embeds Python may have a handler in C, which Python cannot put back."""
    handler, done = signal.getsignal(signal.SIGINT), tmp_path / "done"
    process = multiprocessing.get_context("spawn").Process(target=interrupt_itself, args=(done,))
    with pytest.raises(KeyboardInterrupt), without_interrupts():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        process.start()
    process.join()
    assert done.exists() and process.exitcode == 0 and signal.getsignal(signal.SIGINT) is handler


def kernels(file, count, deadly=-1):
    return [FakeKernel(str(n), str(file), -n, "die" if n == deadly else "") for n in range(count)]


def test_one_deadly_job_costs_only_itself(tmp_path):
    jobs = kernels(file := tmp_path / "compiled", 8, deadly=3)
    with closing(CompileAhead(META, 3)) as processes:
        processes.load(bool)
        processes.await_loaded()
        done = processes.compile(jobs)
        assert (done.jobs, done.broken, done.failed) == (8, [jobs[3]], 0)
        assert {line.split()[0] for line in file.read_text().splitlines()} == set("01234567")
        assert all(map(processes.has, jobs))  # its cell is to say that it failed
        assert processes.compile(jobs).jobs == 0


def test_compiling_goes_on_after_a_process_died_between_two_rounds(tmp_path):
    first, second = kernels(tmp_path / "compiled", 2)
    with closing(CompileAhead(META, 1)) as processes:
        assert processes.compile([first]).jobs == 1
        for process in list(processes._pool._processes.values()):
            process.kill()
            process.join()
        done = processes.compile([second])
        assert (done.jobs, done.broken) == (1, []) and processes.has(second)


def test_what_was_not_compiled_in_time_is_not_known(tmp_path):
    jobs = [FakeKernel(str(n), str(tmp_path / "compiled"), deed="nap") for n in range(50)]
    with closing(CompileAhead(META, 2)) as processes:
        processes.compile([FakeKernel("first", str(tmp_path / "compiled"))])  # which starts processes
        done = processes.compile(jobs, deadline=time.monotonic() + 0.5)
        known = sum(map(processes.has, jobs))
        assert known == done.jobs < 50
        assert processes.compile(jobs).jobs == 50 - known


def test_a_job_that_does_not_end_is_given_up_after_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "OVERTIME_S", 0.5)
    first, other = kernels(tmp_path / "compiled", 2)
    endless = FakeKernel("endless", str(tmp_path / "compiled"), deed="stay")
    with closing(CompileAhead(META, 1)) as processes:
        processes.compile([first])  # which starts processes
        done = processes.compile([endless], deadline=time.monotonic() + 1)
        assert (done.jobs, done.broken, processes.has(endless)) == (0, [], False)
        assert processes.compile([other]).jobs == 1 and processes.has(other)


@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (16, 15), (224, 30)])
def test_processes_by_the_processors_that_may_be_used(processors, workers, monkeypatch):
    monkeypatch.setattr(compiling.os, "sched_getaffinity", lambda process: range(processors), raising=False)
    assert compiling.default_workers() == workers


@pytest.mark.parametrize("differs", [False, True])
def test_processes_see_variables_of_now(differs, tmp_path, monkeypatch):
    """A fork server has those of its start."""
    monkeypatch.setattr(compiling, "ptxas_differs", lambda device: differs)
    for value in ("first", "second"):
        monkeypatch.setenv("OF_NOW", value)
        monkeypatch.setenv(PTXAS, "another")
        with closing(CompileAhead(META, 1)) as processes:
            processes.compile([FakeKernel(value, str(tmp_path / value), deed="tell")])
        told = (tmp_path / value).read_text().splitlines()[1]
        assert told == f"{value} {None if differs else 'another'}"
