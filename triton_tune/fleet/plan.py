"""What a fleet measures, and the interface of where its workers come from."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import SearchProblem
from triton_tune.fleet.crew import Crew
from triton_tune.fleet.station import Work, WorkerFacts
from tuning_table import TableWriter


@dataclass(frozen=True)
class Prepared:
    """What is measured on one GPU model."""

    problem: SearchProblem
    configs: Mapping[str, Hashable]  # by id
    create: Callable[[], TableWriter]  # creates the table or goes on in it
    begin: Callable[[TableWriter], None] = lambda table: None  # is called before the first visit


@dataclass(frozen=True)
class FleetPlan:
    """What a fleet measures.

    prepare: from a worker's device and versions. versions: those of this process, that workers must have.
    """

    prepare: Callable[[WorkerFacts], Prepared]
    versions: Mapping[str, str]
    strategy: str
    budget: float  # seconds, of all runs of a table


@dataclass(frozen=True)
class Arrival:
    """A worker that is ready."""

    facts: WorkerFacts
    handle: object  # of the source


class JoinableCrew(Crew, Protocol):
    """A crew to which arrivals are added from another thread."""

    def join(self, arrival: Arrival) -> None: ...


class Source(Protocol):
    """Where workers come from. Used by one thread."""

    def arrivals(self) -> Sequence[Arrival]:
        """The workers that became ready since the last call."""

    def crew(self, work: Work) -> JoinableCrew:
        """A crew without workers."""

    def waiting_for(self) -> str | None:
        """What is to be waited for, in words; None if no worker will come."""
