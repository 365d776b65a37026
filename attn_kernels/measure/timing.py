"""Time kernels by replaying CUDA graphs of many launches, which no host delays."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triton_tune.bench.timing import Launch, capture, side_stream

REPLAY_US = 2000.0
MAX_LAUNCHES = 4096
LONG_US = 20_000.0  # longer replays are repeated less often


@dataclass(frozen=True)
class Timing:
    """The time of a launch over several replays, in microseconds."""

    median_us: float
    noise_us: float  # half the interquartile range

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Timing":
        low, middle, high = (
            statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        )
        return cls(middle, (high - low) / 2)


class Timed:
    """Launches that are ready to be timed; here by the host's clock, which says nothing about speed."""

    replay_us = 0.0  # about the microseconds of one of `sample`'s replays

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._launches = launches

    def sample(self, repeats: int) -> list[float]:
        """Replay `repeats` times. Returns the microseconds per launch of each replay."""
        samples = []
        for _ in range(repeats):
            start = time.perf_counter()
            for launch in self._launches:
                launch()
            samples.append(1e6 * (time.perf_counter() - start) / len(self._launches))
        return samples


class GraphTimed(Timed):
    """Launches captured in order, repeatedly, into one CUDA graph whose replay lasts at least 2 ms.

    Every kernel must have been launched before, as nothing can be compiled during capture.
    """

    def __init__(self, launches: Sequence[Launch], device: torch.device) -> None:
        super().__init__(launches)
        self._device = device
        side = side_stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for launch in (*launches[:2], launches[-1]):
                launch()
        torch.cuda.current_stream(device).wait_stream(side)
        torch.cuda.synchronize(device)
        self._capture(rounds=1)
        once_us = min(self.sample(2)) * len(launches)
        rounds = min(math.ceil(REPLAY_US / once_us), max(1, MAX_LAUNCHES // len(launches)))
        if rounds > 1:
            self._capture(rounds)
        self.replay_us = once_us * rounds

    def _capture(self, rounds: int) -> None:
        self._graph = capture(self._launches, rounds, self._device)
        self._count = rounds * len(self._launches)

    def sample(self, repeats: int) -> list[float]:
        return [us / self._count for us in replay_us(self._graph, repeats, self._device)]


def replay_us(graph: torch.cuda.CUDAGraph, repeats: int, device: torch.device) -> list[float]:
    """The microseconds of each of several replays, after one that is not timed."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    graph.replay()  # the host gets ahead of the device during this replay
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize(device)
    return [1e3 * start.elapsed_time(end) for start, end in events]


def prepare(launches: Sequence[Launch], device: torch.device) -> Timed:
    """Warm up and capture `launches`, one per KV set, so that consecutive launches touch different memory."""
    return GraphTimed(launches, device) if device.type == "cuda" else Timed(launches)


def time_together(candidates: dict[str, Timed], repeats: int) -> dict[str, Timing]:
    """Time every candidate twice, in order and in reverse, so that device drift affects all of them equally.

    Slow candidates get fewer repeats.
    """
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    half = max(1, repeats // 2)
    for names in (list(candidates), list(reversed(candidates))):
        for name in names:
            timed = candidates[name]
            affordable = max(2, int(half * LONG_US / max(LONG_US, timed.replay_us)))
            samples[name] += timed.sample(min(half, affordable))
    return {name: Timing.of(values) for name, values in samples.items()}
