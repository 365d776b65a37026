"""What is compiled ahead: launches, of which only those that compile something new are worth making."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

import torch


class Job(Protocol):
    """A launch whose kernels are to be compiled; processes get it pickled."""

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


AnyJob = TypeVar("AnyJob", bound=Job)


def minimal(jobs: Iterable[AnyJob], known: frozenset[Hashable] = frozenset()) -> list[AnyJob]:
    """Jobs that together compile all that `jobs` do, none of it twice nor of `known`, longest first."""
    seen = set(known)
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
