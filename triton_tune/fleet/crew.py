"""The interface of crews: the workers of one GPU model, wherever they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from triton_tune.core.problem import PlannedVisit
from triton_tune.fleet.station import Outcome


@dataclass(frozen=True)
class Joined:
    """A worker has come, and times its calibration first, which ends as an order without a visit."""

    worker: int  # a number of its own, also if it was there before
    name: str  # the host's and the GPU's


@dataclass(frozen=True)
class Ended:
    """A worker has ended an order."""

    worker: int
    task: PlannedVisit | None  # None: only the calibration was asked for
    outcome: Outcome


@dataclass(frozen=True)
class Lost:
    """A worker died, was preempted or cannot be reached; its orders are lost."""

    worker: int
    why: str  # one line


Event: TypeAlias = Joined | Ended | Lost


class Crew(Protocol):
    """Workers that measure visits. Times are seconds of `clock`."""

    def clock(self) -> float: ...

    def hand(self, worker: int, task: PlannedVisit | None) -> None:
        """Give a worker an order, which it begins after those that it has."""

    def wait(self, seconds: float) -> Sequence[Event]:
        """What has happened since the last call; waits for an event, but not longer than `seconds`."""
