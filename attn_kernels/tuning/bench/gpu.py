"""Time a scenario's configs on one device, after a check of each against the reference."""

import math
import random
from collections.abc import Callable, Iterator, Sequence

import torch

from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import Expected, Limits, check, expect
from attn_kernels.measure.roofline import work
from attn_kernels.measure.tensors import BatchTensors, launches_of, materialise, plan_for, rotation
from attn_kernels.measure.timing import Launch, WallClockTimed
from attn_kernels.testing.poisoned import poison_workspace
from attn_kernels.tuning.scenarios.scenario import Scenario
from triton_tune.bench.failures import DISAGREES, failure_of
from triton_tune.bench.timing import time_launches
from tuning_table.table import Cell, Failure

TIMING = (
    "CUDA graph replay, consecutive launches on different KV sets, 3 times the L2 cache in all (48 sets at "
    "most; one where reading the KV cache is under a tenth of the time); median of 2 to 5 replays after one "
    "that is not counted, or one long replay of what is over 1.5 times slower than the best so far"
)
L2_MULTIPLE = 3
MAX_SETS = 48
COMPUTE_BOUND = 10  # computing takes this many times longer than reading the KV cache
# A large GPU's rates, to estimate how many launches make a graph long enough.
BYTES_PER_US, FLOPS_PER_US = 3e6, 5e8
REFERENCE = Limits(cache_elements=1 << 26, scores=1 << 27, windows_per_seq=4)


def measure(
    scenario: Scenario,
    configs: Sequence[Config],
    repeat: int,
    device: torch.device,
    trying: Callable[[Config], None] = lambda config: None,
) -> Iterator[tuple[Config, Cell]]:
    """Yield each config with its time in microseconds a launch, or with the reason why it has none.

    The order of the configs is shuffled and depends on the repeat.
    trying: is called with each config before its launch.
    Raises errors that leave the device unusable.
    """
    seed = random.Random(f"{scenario.id}/{repeat}")
    order = list(configs)
    seed.shuffle(order)
    try:
        num_sets = sets_for(scenario.batch, device)
        tensors = materialise(scenario.batch, device, num_sets=num_sets, seed=seed.getrandbits(31))
        expected = expect(tensors, REFERENCE)
    except Exception as error:
        yield from ((config, failure_of(error, device, with_text=False)) for config in order)
        return
    best = math.inf
    for config in order:
        trying(config)
        cell = _measure_one(tensors, expected, config, best)
        if not isinstance(cell, Failure):
            best = min(best, cell)
        yield config, cell


def sets_for(batch: Batch, device: torch.device) -> int:
    """The number of KV sets to rotate among, so that no launch finds its set in the L2 cache.

    One where computing takes far longer than reading.
    """
    floor = work(batch)
    if floor.flops / FLOPS_PER_US > COMPUTE_BOUND * batch.kv_bytes / BYTES_PER_US:
        return 1
    return min(MAX_SETS, rotation(batch, device, l2_multiple=L2_MULTIPLE))


def _measure_one(tensors: BatchTensors, expected: Expected, config: Config, best_us: float) -> Cell:
    try:
        plan = plan_for(tensors, config)
        launches = launches_of(plan, tensors)
        tensors.sets[0].out.fill_(torch.nan)
        poison_workspace(plan)
        launches[0]()
        if not check(tensors.sets[0].out, expected).ok:
            return Failure(DISAGREES)
        return _time(launches, tensors, best_us)
    except Exception as error:
        return failure_of(error, tensors.device, with_text=False)


def _time(launches: Sequence[Launch], tensors: BatchTensors, best_us: float) -> float:
    """The time of a launch in microseconds."""
    if tensors.device.type != "cuda":
        return WallClockTimed(launches[:1]).sample(1)[0]
    floor = work(tensors.batch)
    least_us = max(floor.flops / FLOPS_PER_US, floor.bytes / BYTES_PER_US)
    return time_launches(launches, tensors.device, least_us=least_us, best_us=best_us)
