"""Compile and time a scenario's configs on one device, after a check of each against the reference."""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch

from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SEPARATE, WITHOUT_KERNEL
from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.roofline import work
from attn_kernels.measure.tensors import launches_of, materialise, plan_for, rotation
from attn_kernels.measure.timing import Timed
from attn_kernels.testing.poisoned import poison_workspace
from attn_kernels.warmup.dummy_launch import DummyLaunch
from triton_tune.bench.timing import BYTES_PER_US, time_launches
from triton_tune.bench.worker import DISAGREES
from triton_tune.processes.compile_ahead import Job
from tuning_table.table import Cell, Failure

TIMING = (
    "CUDA graph replay, consecutive launches on different KV sets, 3 times the L2 cache in all (48 sets at "
    "most; one where reading the KV cache is under a tenth of the time); median of 2 to 5 replays after one "
    "that is not counted, or one long replay, below 50 ms the faster of two, of what is over 1.5 times "
    "slower than the best so far"
)
L2_MULTIPLE = 3
MAX_SETS = 48
COMPUTE_BOUND = 10  # computing takes this many times longer than reading the KV cache
FLOPS_PER_US = 5e8  # a large GPU's rate, to estimate how many launches make a graph long enough
REFERENCE = Limits(cache_elements=1 << 26, scores=1 << 27, windows_per_seq=4)


def prepare(batch: Batch, repeat: int, device: torch.device) -> Callable[[Config, float], Cell]:
    """What checks and times a config in a batch (``triton_tune.bench.worker.Prepare``)."""
    seed = random.Random(f"{batch.name}/{repeat}").getrandbits(31)
    tensors = materialise(batch, device, num_sets=sets_for(batch, device), seed=seed)
    expected = expect(tensors, REFERENCE)
    floor = work(batch)
    least_us = max(floor.flops / FLOPS_PER_US, floor.bytes / BYTES_PER_US)

    def measure(config: Config, best_us: float) -> Cell:
        plan = plan_for(tensors, config)
        launches = launches_of(plan, tensors)
        tensors.sets[0].out.fill_(torch.nan)
        poison_workspace(plan)
        launches[0]()
        if not check(tensors.sets[0].out, expected).ok:
            return Failure(DISAGREES)
        if device.type != "cuda":
            return Timed(launches[:1]).sample(1)[0]
        return time_launches(launches, device, least_us=least_us, best_us=best_us)

    return measure


def sets_for(batch: Batch, device: torch.device) -> int:
    """The number of KV sets to rotate among, so that no launch finds its set in the L2 cache.

    One where computing takes far longer than reading.
    """
    if work(batch).flops / FLOPS_PER_US > COMPUTE_BOUND * batch.kv_bytes / BYTES_PER_US:
        return 1
    return min(MAX_SETS, rotation(batch, device, l2_multiple=L2_MULTIPLE))


@dataclass(frozen=True)
class DummyLaunches:
    """What is chosen for the parts of a mixed batch; a ``Job``."""

    launches: tuple[DummyLaunch, ...]

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset().union(*(launch.needs for launch in self.launches))

    @property
    def cost(self) -> int:
        return sum(launch.cost for launch in self.launches)

    def run(self, device: torch.device) -> None:
        for launch in self.launches:
            launch.run(device)


def job_for(batch: Batch, config: Config, device: torch.device) -> Job:
    """What compiles a config's kernels for a batch; those of the choices for a way without a kernel."""
    if config not in WITHOUT_KERNEL:
        return dummy_of(batch, config)
    choices = choices_for(batch.model, device)
    chosen = map(choices.config, batch.parts if config == SEPARATE else (batch.lengths,))
    return DummyLaunches(tuple(dummy_of(batch, config) for config in chosen))


def dummy_of(batch: Batch, config: Config) -> DummyLaunch:
    """A launch of all kernels that a config may need for batches like this one."""
    scores = batch.scores
    words = {
        "window": scores.window is not None,
        "noncausal": not scores.causal,
        "softcap": scores.softcap != 0.0,
        "sinks": scores.sinks,
    }
    return DummyLaunch(config, batch.model, frozenset(word for word, present in words.items() if present))
