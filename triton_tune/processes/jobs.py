"""Jobs: launches to compile ahead, and which of them compile something new."""

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

import torch


class Job(Protocol):
    """A launch whose kernels are to be compiled. It is pickled for another process."""

    @property
    def needs(self) -> frozenset[Hashable]:
        """Keys of the kernels that it launches."""

    @property
    def cost(self) -> int:
        """A number that is larger for kernels that compile longer."""

    def run(self, device: torch.device) -> None: ...


AnyJob = TypeVar("AnyJob", bound=Job)


def minimal(jobs: Iterable[AnyJob], known: frozenset[Hashable] = frozenset()) -> list[AnyJob]:
    """Return jobs that compile all that ``jobs`` need but ``known``, nothing twice, longest first."""
    seen = set(known)
    kept = []
    for job in sorted(jobs, key=lambda job: len(job.needs), reverse=True):
        if not job.needs <= seen:
            seen |= job.needs
            kept.append(job)
    return sorted(kept, key=lambda job: job.cost, reverse=True)
