"""A station: what measures visits at a worker's end, on one GPU."""

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import triton

from triton_tune.bench.pool import GpuBench, Subject
from triton_tune.core.device import driver_version
from triton_tune.core.problem import PlannedVisit
from triton_tune.fleet.calibration import EVERY_S, TIMES, Calibration
from tuning_table.table import Visit

FOREVER = 1e12  # seconds; a visit that is under way is finished


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself."""

    name: str  # the host's and the GPU's
    device: Mapping[str, str | int]  # `device` of run.yaml
    versions: Mapping[str, str]  # keys of run.yaml: driver, torch, triton, source_hash


@dataclass(frozen=True)
class Work:
    """What all workers of a GPU model get before their first visit."""

    configs: Mapping[str, Hashable]  # by id
    calibration: Calibration


@dataclass(frozen=True)
class Outcome:
    """The end of an order."""

    visit: Visit | None  # None: only the calibration was asked for
    seconds: float
    calibration_us: float | None = None  # None: not timed this time, or it failed


def facts_here(gpus: GpuBench, source_hash: str = "") -> WorkerFacts:
    """What the GPUs of this process's host say of themselves."""
    versions = {
        "driver": driver_version(),
        "torch": str(torch.__version__),
        "triton": triton.__version__,
        "source_hash": source_hash,
    }
    return WorkerFacts(gpus.first_worker, gpus.facts, versions)


class Station(Protocol):
    """Measures on one GPU."""

    @property
    def facts(self) -> WorkerFacts: ...
    def prepare(self, work: Work) -> Outcome: ...
    def visit(self, task: PlannedVisit | None) -> Outcome: ...


class GpuStation:
    """Measures on a GPU that is this process's own. A launch that ends its process costs one cell.

    source_hash: computes the hash of the kernel's source here.
    """

    def __init__(
        self,
        subject: Subject,
        source_hash: Callable[[], str],
        device: torch.device,
        compile_workers: int | None = None,
    ) -> None:
        self._bench = GpuBench([device], subject, compile_workers)
        self.facts = facts_here(self._bench, source_hash())
        self._calibration: Calibration | None = None
        self._calibrated = 0.0

    def prepare(self, work: Work) -> Outcome:
        """Take the configs, and time the calibration."""
        self._bench.configs = work.configs
        self._calibration = work.calibration
        return self.visit(None)

    def visit(self, task: PlannedVisit | None) -> Outcome:
        """Compile and measure a visit, and then the calibration if it is due; None: only the calibration."""
        start = time.monotonic()
        visit = None if task is None else self._measure(task)
        if task is not None and time.monotonic() - self._calibrated < EVERY_S:
            return Outcome(visit, time.monotonic() - start)
        seconds = time.monotonic() - start
        return Outcome(visit, seconds, self._calibrate())

    def _measure(self, task: PlannedVisit) -> Visit:
        until = self._bench.clock() + FOREVER
        self._bench.compile([task], until, lambda done, total: None)
        (visit,) = self._bench.measure([task], until)
        return visit

    def _calibrate(self) -> float | None:
        assert self._calibration is not None
        visits = [self._measure(self._calibration.task) for _ in range(TIMES)]
        self._calibrated = time.monotonic()
        return self._calibration.microseconds(visits)
