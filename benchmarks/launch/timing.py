"""CPU time of calls that launch on a GPU, with a queue so short that the CPU never waits for it."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from attn_kernels.launch import direct
from attn_kernels.launch.direct import VARIABLE

BURST = 10  # calls before the GPU catches up
LEAD = 3  # untimed calls before those: the first calls after a wait find cold caches
Call = Callable[[], object]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def cpu_us(call: Call, device: torch.device, bursts: int, burst: int = BURST, lead: int = LEAD) -> float:
    """Return the median microseconds of a call over this many bursts of calls, each after untimed calls."""
    if device.type != "cuda":
        burst, lead = 1, 0
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


@contextmanager
def launching(way: str) -> Iterator[None]:
    """Launch this way, ``direct`` or ``public``, with no kernels known yet; then restore the variable."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = way
    direct.forget()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        direct.forget()
