"""CPU time of calls that launch on a GPU, with a queue so short that the CPU never waits for it."""

import statistics
import time
from collections.abc import Callable

import torch

BURST = 10  # calls before the GPU catches up
LEAD = 3  # untimed calls before those: the first calls after a wait find cold caches


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cpu_us(call: Callable[[], object], device: torch.device, bursts: int) -> float:
    """Return the median microseconds of a call over this many bursts of calls, each after untimed calls."""
    burst, lead = (BURST, LEAD) if device.type == "cuda" else (1, 0)
    samples = []
    for _ in range(bursts):
        synchronise(device)
        for _ in range(lead):
            call()
        start = time.perf_counter_ns()
        for _ in range(burst):
            call()
        samples.append((time.perf_counter_ns() - start) / burst / 1e3)
    synchronise(device)
    return statistics.median(samples)
