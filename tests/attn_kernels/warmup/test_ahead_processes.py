"""``compile_ahead``: its processes, failures and wrong use."""

import logging
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from kernel_cases import forget_choices
from programs import printed

from attn_kernels import Model
from attn_kernels.choose.choices import Choices
from attn_kernels.core import checks
from attn_kernels.warmup import compile_ahead as ahead
from attn_kernels.warmup.compile_ahead import compile_ahead
from attn_kernels.warmup.dummy_launch import DummyLaunch

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


@pytest.fixture(autouse=True)
def any_device(monkeypatch):
    monkeypatch.setattr(checks, "DEVICE_TYPES", ("cpu", GPU.type))


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
    cached: ClassVar[set[str]] = set()

    @property
    def is_cached(self):
        return self.key in self.cached


class Filler:
    """Stands for a ``CacheFiller``; one kernel ends its process."""

    def __init__(self):
        self.handed, self.ended, self.busy = [], {}, []
        self.others = set()  # what another rank, if any, will have compiled

    def add(self, kernels, workers=None):
        self.busy += kernels

    def finish(self):
        busy, self.busy = self.busy, []
        if self.others:
            Kernel.cached |= self.others
            self.others = set()
            return True
        for kernel in busy:
            self.handed.append(kernel.key)
            self.ended[kernel.key] = -9 if kernel.key == DEADLY else 0
            Kernel.cached |= {kernel.key} - {DEADLY}
        return False


@pytest.fixture
def filler(monkeypatch):
    """Each launch needs its config's kernel, and one that all share."""

    def needed(launches, device):
        return {
            launch: {str(launch.config): Kernel(str(launch.config)), "shared": Kernel("shared")}
            for launch in launches
        }

    made = Filler()
    monkeypatch.setattr(ahead, "_filler", lambda device: made)
    monkeypatch.setattr(ahead, "_needed", needed)
    monkeypatch.setattr(Kernel, "cached", set())
    return made


def compile_h100(device="cpu", **how):
    return compile_ahead(device, MODELS, device_key="nvidia_h100", **how)


EVERY = {"shared", *(str(config) for configs in POSSIBLE for config in configs)}


@pytest.mark.parametrize(
    ("cached", "by_another_rank", "how", "compiled"),
    [
        (EVERY, set(), {}, []),  # what the cache holds is loaded
        (set(), set(), {"workers": 0}, []),
        (set(), EVERY - {FAILING}, {}, [FAILING]),  # it waits for the rank that compiles
    ],
)
def test_processes_compile_only_what_is_missing(ran, filler, cached, by_another_rank, how, compiled):
    Kernel.cached |= cached
    filler.others = by_another_rank
    done = compile_h100(GPU, **how)
    assert filler.handed == compiled
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches == ALL
    assert (done.compiled, done.failures) == (len(compiled), ())


def test_each_kernel_that_it_lacks_is_compiled_once_in_processes_and_then_loaded(ran, filler):
    Kernel.cached.add(FAILING)
    done = compile_h100(GPU)
    assert sorted(filler.handed) == sorted(EVERY - {FAILING})
    assert len(ran.jobs) == len(set(ran.jobs)) == done.launches - 2  # without what ends its process
    assert done.compiled == len(filler.handed)
    for line, name in zip(sorted(done.failures), sorted(NAMES), strict=True):
        assert line.startswith(f"{DEADLY} heads {name} page 16 bfloat16: ")


def test_what_was_begun_is_waited_for_and_only_the_rest_compiled(ran, filler):
    """Such as what a model of other pages needs, which was wrongly foreseen."""
    launches = ahead.launches_of(torch.device("cpu"), MODELS[0], device_key="nvidia_h100")
    ahead.begin_compiling(launches, GPU)
    assert filler.handed == [] and ran.jobs == []  # it waits for nothing, and launches nothing
    begun = {kernel.key for kernel in filler.busy}
    done = compile_h100(GPU)
    assert begun == {"shared", *(str(config) for config in POSSIBLE[0])} == set(filler.handed[: len(begun)])
    assert sorted(filler.handed) == sorted(EVERY)
    assert len(done.failures) == 2  # the kernel that ended its process was not tried again, nor here
    ahead.begin_compiling([launch for launch in launches if str(launch.config) != DEADLY], GPU)
    assert filler.busy == []  # the cache holds all


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


def test_the_one_launch_of_mixed_batches_is_compiled_and_of_a_forced_config_nothing_else(
    ran, new_process, monkeypatch
):
    compile_ahead("cpu", MODELS[:1], device_key="nvidia_h200")
    assert "pod" in {job.config.variant for job in ran.jobs}
    ran.jobs.clear()
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "qblock_M16_T16_W4_S2")
    forget_choices()
    compile_ahead("cpu", MODELS[:1], for_capture=True)
    assert {str(job.config) for job in ran.jobs} == {"qblock_M16_T16_W4_S2"}


SCRIPT = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from triton_tune.processes.compile_ahead import follow_parent, without_main

print("the script runs", flush=True)
with without_main():
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"), initializer=follow_parent)
    result = pool.submit(abs, -3)
print("result", result.result(), flush=True)
pool.shutdown()
"""


def test_processes_run_no_script_anew(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert printed(path) == "the script runs\nresult 3\n"
