"""Time launches by replaying a CUDA graph of many of them, as a tuning run needs it: briefly."""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median

import torch

Launch = Callable[[], None]

MAX_LAUNCHES = 64  # in a graph; to capture a launch takes the host as long as a short kernel runs
REPLAY_US = 300.0  # a replay lasts at least this long, as estimated from the roofline
SAMPLES = (2, 5)  # replays that are timed: fewest and most
ENOUGH_US = 1500.0  # samples that last this long together suffice
GIVE_UP = 1.5  # a config this many times slower than the best gets one replay, if that is long
LONG_US = 1000.0  # a long replay; the first replay of a graph takes some microseconds more than the others
STALL_US = 50_000.0  # a GPU may stall for 10 to 40 ms, so what takes less is no proof of a slow config
FEWEST_US = 4.0  # the shortest launch
BYTES_PER_US = 3e6  # a large GPU's rate of reading memory


def capture(launches: Sequence[Launch], rounds: int, device: torch.device) -> torch.cuda.CUDAGraph:
    """Capture `launches` as a graph, `rounds` times in a row, without torch.cuda.graph's slow clean-up."""
    graph = torch.cuda.CUDAGraph()
    side = side_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with _garbage_kept(), torch.cuda.stream(side):
        graph.capture_begin()
        try:
            for _ in range(rounds):
                for launch in launches:
                    launch()
        finally:
            graph.capture_end()
    torch.cuda.current_stream(device).wait_stream(side)
    return graph


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect no garbage: another graph, destroyed with it, would invalidate the capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def elapsed_us(call: Callable[[], object]) -> float:
    """The microseconds between two events around a call; for short kernels mostly the host's time."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return 1e3 * float(start.elapsed_time(end))


def first_time(measure: Callable[[], float], count: int, best_us: float) -> tuple[float, bool]:
    """The time of a launch, and whether it is so far above the best that measuring further is not worthwhile.

    measure: times `count` launches and returns the microseconds of one.
    """

    def slow() -> bool:
        return taken > GIVE_UP * best_us and taken * count > LONG_US

    taken = measure()
    if slow() and taken * count < STALL_US:
        taken = min(taken, measure())
    return taken, slow()


def time_launches(
    launches: Sequence[Launch], device: torch.device, *, least_us: float = 0.0, best_us: float = math.inf
) -> float:
    """The time of a launch in microseconds, on a GPU.

    Args:
        launches: captured in this order; each was launched before.
        least_us: no launch takes less, by a roofline.
        best_us: of other configs; one far slower gets a single replay.
    """
    least_us = max(FEWEST_US, least_us)
    rounds = math.ceil(REPLAY_US / (len(launches) * least_us))
    rounds = max(1, min(rounds, MAX_LAUNCHES // len(launches)))
    graph = capture(launches, rounds, device)
    count = rounds * len(launches)

    def replay() -> float:
        return elapsed_us(graph.replay) / count

    first, slow = first_time(replay, count, best_us)
    if slow:
        return first
    fewest, most = SAMPLES
    samples: list[float] = []
    while len(samples) < fewest or (len(samples) < most and sum(samples) * count < ENOUGH_US):
        samples.append(replay())
    return median(samples)
