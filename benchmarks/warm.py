"""Compile Triton kernels ahead in parallel processes that share Triton's cache on disk.

Kernels compile on their first launch, one after the other, for a second or more each; a run over many shapes
and configs would spend most of its time there.
"""

import multiprocessing
import os
import time
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Protocol

import torch

from benchmarks.configs import exceeds_device

MAX_WORKERS = 14


class Job(Protocol):
    """A launch whose kernels are to be compiled; workers get it pickled."""

    @property
    def needs(self) -> frozenset[Hashable]:
        """The kernels that it launches, each with all that it is compiled for."""

    @property
    def cost(self) -> int:
        """Larger for what compiles longer."""

    @property
    def group(self) -> Hashable:
        """Jobs of one group run in one process; None: alone."""

    def run(self, device: torch.device) -> None: ...


def minimal(jobs: Iterable[Job]) -> list[Job]:
    """Jobs that together compile all that `jobs` do, none of it twice, longest first."""
    seen: set[Hashable] = set()
    kept = []
    for job in sorted(jobs, key=lambda job: len(job.needs), reverse=True):
        if not job.needs <= seen:
            seen |= job.needs
            kept.append(job)
    return sorted(kept, key=lambda job: job.cost, reverse=True)


def grouped(jobs: Sequence[Job]) -> list[list[Job]]:
    groups: dict[Hashable, list[Job]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(index if job.group is None else (job.group,), []).append(job)
    return list(groups.values())


def _compile(jobs: list[Job], device: str) -> int:
    """Run jobs in a worker; a failure here shows again, with its message, where the result matters."""
    failures = 0
    place = torch.device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    for job in jobs:
        try:
            job.run(place)
            if place.type == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            failures += not exceeds_device(error)
    return failures


def compile_ahead(jobs: Iterable[Job], device: torch.device, workers: int | None = None) -> str:
    """Compile what `jobs` need; returns one line that says how it went. Does nothing without a GPU."""
    if device.type != "cuda" or workers == 0:
        return "compiled nothing ahead"
    start = time.monotonic()
    groups = grouped(minimal(jobs))
    workers = min(workers or MAX_WORKERS, max(1, (os.cpu_count() or 2) - 1), max(1, len(groups)))
    failures = broken = 0
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_compile, group, str(device)) for group in groups]
        for future in as_completed(futures):
            try:
                failures += future.result()
            except Exception:
                broken += 1
    total = sum(map(len, groups))
    seconds = time.monotonic() - start
    trouble = f", {failures} launches failed, {broken} groups broke off" if failures or broken else ""
    return f"compiled ahead: {total} launches in {workers} processes, {seconds:.0f} s{trouble}"
