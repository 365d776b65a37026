"""``compile_ahead``: its processes, failures and wrong use."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
import torch

from attn_kernels import Config, Model
from attn_kernels.choose.choices import Choices
from attn_kernels.warmup import compile_ahead as ahead
from attn_kernels.warmup.compile_ahead import compile_ahead
from attn_kernels.warmup.dummy_launch import DummyLaunch
from triton_tune.processes import compile_ahead as processes

BF16 = torch.bfloat16
MODELS = [Model(32, 8, 128, 16, BF16), Model(28, 4, 128, 16, BF16)]
NAMES = ("32/8/128", "28/4/128")
CHOICES = [Choices(model, torch.device("cpu"), "nvidia_h100") for model in MODELS]
POSSIBLE = [choices.possible() + choices.fused() for choices in CHOICES]
COUNTS = [len(configs) for configs in POSSIBLE]
ALL = sum(COUNTS)
SHARED = sorted(set(POSSIBLE[0]) & set(POSSIBLE[1]), key=lambda config: config.block_m * config.tile_size)
FAILING, DEADLY = str(SHARED[0]), str(SHARED[-1])  # the largest is never compiled here


@pytest.fixture
def ran(monkeypatch):
    """Launches in this process, in order; none does anything. Those of slow tiles take a second."""
    found = SimpleNamespace(jobs=[], slow_tiles=set())
    clock = SimpleNamespace(now=0.0)

    def run(job, device):
        found.jobs.append(job)
        clock.now += 1.0 if job.config.tile_size in found.slow_tiles else 0.001

    monkeypatch.setattr(DummyLaunch, "run", run)
    monkeypatch.setattr(ahead.time, "monotonic", lambda: clock.now)
    return found


@pytest.fixture
def pool(monkeypatch):
    """Launches that were handed to processes; one job kills its process."""
    handed = []

    class Pool(ThreadPoolExecutor):
        _processes: Mapping[int, object] = MappingProxyType({})
        broken = False

        def __init__(self, workers, *_, initializer):
            super().__init__(workers)

        def submit(self, compiling, job, *rest):
            if self.broken:
                raise BrokenProcessPool("a process died")
            future: Future[int] = Future()
            if str(job.config) == DEADLY:
                self.broken = True
                future.set_exception(BrokenProcessPool("a process died"))
            else:
                handed.append(job)
                future.set_result(0)
            return future

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(processes.CompileAhead, "_idle", False)
    monkeypatch.setattr(ahead, "_workers", lambda device, wished: 3 if wished is None else wished)
    return handed


def compile_h100(**how):
    return compile_ahead("cpu", MODELS, device_key="nvidia_h100", **how)


def test_what_the_cache_holds_is_loaded_without_processes(ran, pool):
    seen = []
    done = compile_h100(progress=lambda *counts: seen.append(counts))
    assert pool == []
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches == ALL
    assert (done.processes, done.failures) == (0, ())
    assert seen == [(count, ALL) for count in range(1, ALL + 1)]


def test_what_it_lacks_is_compiled_in_processes_and_then_loaded(ran, pool):
    ran.slow_tiles |= {32, 64, 128}
    seen = []
    done = compile_h100(configs=[Config("qblock", 16, 16)], progress=lambda *counts: seen.append(counts))
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches - 2  # without what kills its process
    here = sum(job.config.tile_size == 16 for job in ran.jobs) + 2  # the quick ones, then two slow ones
    assert [job.config.tile_size for job in ran.jobs[: here - 2]] == [16] * (here - 2)
    assert set(pool) == set(ran.jobs[here:])
    assert done.processes == 3
    for line, name in zip(sorted(done.failures), sorted(NAMES), strict=True):
        assert line.startswith(f"{DEADLY} heads {name} page 16 bfloat16: ")
    assert seen[-1] == (ALL + 2, ALL + 2)
    assert seen == sorted(set(seen))


def test_a_failure_is_reported_and_stops_nothing_else(ran, monkeypatch, caplog):
    made = DummyLaunch.run

    def run(job, device):
        made(job, device)
        if str(job.config) == FAILING and "window" in job.features:
            raise RuntimeError("no such instruction\nat all")

    monkeypatch.setattr(DummyLaunch, "run", run)
    done = compile_h100(features=[(), ("window",)])
    assert len(ran.jobs) == done.launches == 2 * ALL
    reason = "window: RuntimeError: no such instruction"
    assert sorted(done.failures) == sorted(
        f"{FAILING} heads {name} page 16 bfloat16 {reason}" for name in NAMES
    )
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [f"compile_ahead: {line}" for line in done.failures]
    summary, *failed = str(done).splitlines()
    assert summary.startswith(f"{2 * ALL - 2} of {2 * ALL} launches ready")
    assert failed == [f"failed: {line}" for line in done.failures]


def test_models_that_share_kernels_compile_them_once(ran):
    alike = [
        Model(8 * heads, 2 * heads, 128, 16, BF16, cache, window)
        for heads, cache, window in product((4, 2, 8), (None, BF16), (None, 128))
    ]
    done = compile_ahead("cpu", alike, device_key="nvidia_h100")
    assert len(ran.jobs) == done.launches == COUNTS[0]


def test_the_one_launch_of_mixed_batches_is_compiled(ran):
    compile_ahead("cpu", MODELS[:1], device_key="nvidia_h200")
    assert "pod" in {job.config.variant for job in ran.jobs}


def test_only_a_forced_config_is_compiled(ran, new_process, monkeypatch):
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M16_T16_W4_S2")
    compile_ahead("cpu", MODELS[:1], for_capture=True)
    assert {str(job.config) for job in ran.jobs} == {"qblock_M16_T16_W4_S2"}


@pytest.mark.parametrize(
    "free, wished, workers",
    [(80 << 30, None, 15), ((3 << 30) + 5, None, 3), (1 << 20, None, 0), (1 << 20, 4, 4)],
)
def test_processes_are_as_many_as_there_is_room_for(free, wished, workers, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 << 30))
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda process: range(16))
    assert ahead._workers(torch.device("cuda", 0), wished) == workers


SCRIPT = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from triton_tune.processes.compile_ahead import follow_parent, without_main

print("the script runs", flush=True)

def start():
    with without_main():
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=follow_parent)
        result = pool.submit(abs, -3)
    print("result", result.result(), flush=True)
    pool.shutdown()

process = multiprocessing.get_context("fork").Process(target=start, daemon=True)
process.start()
process.join()
"""


def test_processes_run_no_script_anew_and_daemons_may_start_them(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, env=environment
    )
    assert (done.returncode, done.stdout.split("\n")) == (0, ["the script runs", "result 3", ""]), done.stderr


def test_a_handler_of_interrupts_that_is_not_pythons_stays(monkeypatch):
    """A program that embeds Python may have one in C, which Python cannot put back."""
    monkeypatch.setattr(processes.signal, "getsignal", lambda number: None)
    monkeypatch.setattr(processes.signal, "signal", lambda *changed: pytest.fail("it was replaced"))
    with processes.without_interrupts():
        pass


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("models", None, TypeError),
        ("models", [(32, 8)], TypeError),
        ("features", ["window"], TypeError),
        ("features", [("windows",)], ValueError),
        ("device_key", "h100", ValueError),
        ("workers", -1, ValueError),
        ("workers", 4.0, TypeError),
        ("configs", [Config("qblock", 17, 16)], ValueError),
    ],
)
def test_wrong_use_is_an_error_before_anything_is_launched(name, value, error, ran):
    arguments = {"models": MODELS, "device_key": "nvidia_h100", name: value}
    with pytest.raises(error, match=name.removesuffix("s")):
        compile_ahead("cpu", **arguments)
    assert ran.jobs == []
