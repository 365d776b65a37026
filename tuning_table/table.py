"""A tuning table in memory, in plain Python values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

FORMAT = 1
LARGEST = 1 << 62  # of a feature, either way, and of other integers
LARGEST_PARAMETER = (1 << 31) - 1  # of a config
RUN, SCENARIOS, TIMES, FAILURES = "run.yaml", "scenarios.csv", "times.csv", "failures.csv"
LOOKUPS = ("nearest", "at_most")  # rules by which a source's entry serves the sizes between its keys
MOST_WITHOUT = 0.1  # of the scenarios may be without a config that works; more, and the run was wrong


class Cells(StrEnum):
    """The kind of cells in times.csv."""

    MEASURED = "measured"  # times; an empty cell was not measured
    WINNERS = "winners"  # the time of each scenario's fastest config; nothing is known of the others


@dataclass(frozen=True)
class TableConfig:
    """A config of a table. All configs of a table have the same parameters."""

    id: str
    variant: str | None
    parameters: Mapping[str, int]


@dataclass(frozen=True)
class TableHeader:
    """The content of run.yaml."""

    kernel: str
    device_name: str  # as the driver reports it
    cells: Cells
    features: tuple[str, ...]
    configs: tuple[TableConfig, ...]
    provenance: Mapping[str, Any]  # all of run.yaml
    # What integers of a feature or parameter stand for, such as data types.
    words: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    constants: tuple[str, ...] = ()  # the features that are fixed for a running program, if the run knew

    @property
    def seconds(self) -> float:
        """Return how long the runs took so far, by their summary; 0.0 without one."""
        return float(self.provenance.get("summary", {}).get("seconds", 0.0))


@dataclass(frozen=True)
class Failure:
    """The reason why a config has no time: it failed to compile, to launch or to match the reference."""

    reason: str


# Begins the reason why a config does not fit the device. Then follows what it exceeds, in Triton's words:
# `: shared memory, 294912 of 232448`.
TOO_LARGE = "needs more shared memory or registers than the device has"
Cell: TypeAlias = float | Failure  # microseconds per launch, or why there is no time


@dataclass(frozen=True)
class Visit:
    """One run over a scenario."""

    scenario: str
    repeat: int  # from 1
    cells: Mapping[str, Cell]  # of the configs that were tried, by id


@dataclass(frozen=True)
class RecordedTable:
    """A table as visits, in the order of times.csv; last those that have no row, as every config failed."""

    header: TableHeader
    scenarios: Mapping[str, tuple[int, ...]]  # each scenario's features, in the header's order
    visits: tuple[Visit, ...]
