"""``compile_ahead``: its processes, failures and wrong use."""

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import ClassVar

import pytest
import torch

from attn_kernels import Config, Model
from attn_kernels.choose.choices import Choices
from attn_kernels.warmup import compile_ahead as ahead
from attn_kernels.warmup.compile_ahead import compile_ahead
from attn_kernels.warmup.dummy_launch import DummyLaunch
from triton_tune.processes import compile_ahead as processes

BF16 = torch.bfloat16
GPU = torch.device("meta")  # any but the CPU
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
    """Launches in this process, in order; none does anything."""
    jobs = []
    monkeypatch.setattr(DummyLaunch, "run", lambda job, device: jobs.append(job))
    return SimpleNamespace(jobs=jobs)


@dataclass(frozen=True)
class Kernel:
    """Stands for a ``NeededKernel``."""

    key: str
    cost: int = 1
    cached: ClassVar[set[str]] = set()

    @property
    def needs(self):
        return frozenset({self.key})

    @property
    def is_cached(self):
        return self.key in self.cached

    def run(self, device):
        self.cached.add(self.key)


@pytest.fixture
def pool(monkeypatch, tmp_path):
    """Kernels that were handed to processes. Each launch needs its config's kernel, and one that all share.

    One kernel kills its process.
    """
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
            if job.key == DEADLY:
                self.broken = True
                future.set_exception(BrokenProcessPool("a process died"))
            else:
                handed.append(job.key)
                job.run(None)
                future.set_result(0)
            return future

    def needed_of(launch, device):
        keys = str(launch.config), "shared"
        return {key: Kernel(key, launch.cost if key != "shared" else 0) for key in keys}

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(ahead, "_needed_of", needed_of)
    monkeypatch.setattr(ahead, "default_workers", lambda: 3)
    monkeypatch.setattr(Kernel, "cached", set())
    return handed


def compile_h100(device="cpu", **how):
    return compile_ahead(device, MODELS, device_key="nvidia_h100", **how)


def test_what_the_cache_holds_is_loaded_without_processes(ran, pool):
    Kernel.cached |= {str(config) for configs in POSSIBLE for config in configs} - {FAILING}
    done = compile_h100(GPU)  # two are missing, "shared" and this one
    assert pool == []
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches == ALL
    assert (done.compiled, done.processes, done.failures) == (0, 0, ())


def test_each_kernel_that_it_lacks_is_compiled_once_in_processes_and_then_loaded(ran, pool):
    Kernel.cached.add(FAILING)
    seen = []
    done = compile_h100(GPU, progress=lambda *counts: seen.append(counts))
    lacking = {str(config) for configs in POSSIBLE for config in configs} - {FAILING}
    assert sorted(pool) == sorted({*lacking, "shared"} - {DEADLY})
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches - 2  # without what kills its process
    assert (done.compiled, done.processes) == (len(pool) + 1, 3)
    for line, name in zip(sorted(done.failures), sorted(NAMES), strict=True):
        assert line.startswith(f"{DEADLY} heads {name} page 16 bfloat16: ")
    assert seen == [(count, done.compiled) for count in range(1, done.compiled + 1)]


def test_the_longest_kernels_are_compiled_first(ran, pool):
    compile_h100(GPU, workers=1)
    assert pool[-1] == "shared" and pool[0] != FAILING


def test_a_rank_waits_for_the_one_that_compiles_and_compiles_nothing_itself(ran, pool, monkeypatch):
    @contextmanager
    def lock():  # while it waits, the other rank compiles
        Kernel.cached |= {"shared", *(str(config) for configs in POSSIBLE for config in configs)}
        yield

    monkeypatch.setattr(ahead, "compile_lock", lock)
    done = compile_h100(GPU)
    assert pool == [] and (done.processes, len(ran.jobs)) == (0, ALL)


def test_a_failure_is_reported_and_stops_nothing_else(ran, monkeypatch, caplog):
    def run(job, device):
        ran.jobs.append(job)
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


SCRIPT = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from triton_tune.processes.compile_ahead import follow_parent, without_main

print("the script runs", flush=True)

def start():
    with without_main():
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"), initializer=follow_parent)
        result = pool.submit(abs, -3)
    print("result", result.result(), flush=True)
    pool.shutdown()

start()
process = multiprocessing.get_context("fork").Process(target=start, daemon=True)
process.start()
process.join()
"""


def test_processes_run_no_script_anew_and_forks_and_daemons_may_start_them(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, env=environment
    )
    assert (done.returncode, done.stdout.split("\n")) == (
        0,
        ["the script runs", "result 3", "result 3", ""],
    ), done.stderr


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
