"""Compile and time a scenario's configs on one device, after a check of each against the reference."""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch

from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SEPARATE, WITHOUT_KERNEL, needs_parts
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import MAX_DRAFT, Lengths
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Limits, check, expect
from attn_kernels.measure.roofline import work
from attn_kernels.measure.tensors import launches_of, materialise, plan_for, rotation, stand_in
from attn_kernels.measure.timing import WallClockTimed
from attn_kernels.testing.poisoned import poison_workspace
from attn_kernels.tuning.scenarios.scenario import Scenario, Shape, scenario_of, shape_of
from attn_kernels.warmup.dummy_launch import LONG_CONTEXT
from triton_tune.bench.timing import BYTES_PER_US, time_launches
from triton_tune.bench.worker import DISAGREES
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


def prepare(scenario: Scenario, repeat: int, device: torch.device) -> Callable[[Config, float], Cell]:
    """What checks and times a config in a scenario (``triton_tune.bench.worker.Prepare``)."""
    batch = scenario.batch
    seed = random.Random(f"{scenario.id}/{repeat}").getrandbits(31)
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
            return WallClockTimed(launches[:1]).sample(1)[0]
        return time_launches(launches, device, least_us=least_us, best_us=best_us)

    return measure


def sets_for(batch: Batch, device: torch.device) -> int:
    """The number of KV sets to rotate among, so that no launch finds its set in the L2 cache.

    One where computing takes far longer than reading.
    """
    if work(batch).flops / FLOPS_PER_US > COMPUTE_BOUND * batch.kv_bytes / BYTES_PER_US:
        return 1
    return min(MAX_SETS, rotation(batch, device, l2_multiple=L2_MULTIPLE))


LENGTHS = ((1, 2), (LONG_CONTEXT, LONG_CONTEXT))
LENGTHS_OF_PARTS = 2 * ((1, MAX_DRAFT + 1),)


@dataclass(frozen=True)
class CompileJob:
    """Compiles one config at one shape, by a launch on a small batch."""

    shape: Shape
    config: Config

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({_kernels(self.config, self.shape)})

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.shape.layout.head_size

    def run(self, device: torch.device) -> None:
        shape, lengths = self.shape, LENGTHS_OF_PARTS if needs_parts(self.config) else LENGTHS
        tensors = stand_in(scenario_of("small", *lengths, shape).batch, device)
        launches_of(plan_for(tensors, self.config), tensors)[0]()


@dataclass(frozen=True)
class ChosenJob:
    """A mixed batch that is launched with the choices of another kernel's tree, in series or as a whole."""

    batch: Batch
    way: Config  # of ``choose.mixed.WITHOUT_KERNEL``
    configs: tuple[Config, ...]  # that are chosen

    @property
    def needs(self) -> frozenset[Hashable]:
        shape = shape_of(self.batch)
        return frozenset((self.way, _kernels(config, shape)) for config in self.configs)

    @property
    def cost(self) -> int:
        return sum(CompileJob(shape_of(self.batch), config).cost for config in self.configs)

    def run(self, device: torch.device) -> None:
        tensors = stand_in(self.batch, device)
        launches_of(plan_for(tensors, self.way), tensors)[0]()


def job_for(scenario: Scenario, config: Config, device: torch.device) -> CompileJob | ChosenJob:
    batch = scenario.batch
    if config not in WITHOUT_KERNEL:
        return CompileJob(shape_of(batch), config)
    lengths = batch.parts if config == SEPARATE else (Lengths.of(batch.query_lens, batch.context_lens),)
    choices = choices_for(batch.model, device)
    return ChosenJob(batch, config, tuple(map(choices.config, lengths)))


def _kernels(config: Config, shape: Shape) -> Hashable:
    scores, sizes = shape.scores, (shape.gqa_group_size, shape.layout.head_size, shape.block_size)
    options = (scores.window is not None, scores.softcap != 0.0, scores.sinks)
    return config, sizes, shape.dtype, shape.cache_dtype or shape.dtype, options
