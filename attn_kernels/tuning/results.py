"""What a tuning run finds, and what it was found with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Failure:
    """Why a config has no time: it failed to compile, to launch or to agree with the reference."""

    reason: str


Cell: TypeAlias = float | Failure
"""Microseconds a launch, or why there is none."""


@dataclass(frozen=True)
class Visit:
    """One row: one repeat (from 1) of one scenario. `cells` has the configs that were tried, by id."""

    scenario: str
    repeat: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class ConfigEntry:
    """A config of the table. All entries of a table have the same parameters."""

    id: str
    variant: str
    parameters: Mapping[str, int]


@dataclass(frozen=True)
class Header:
    """What must not change within a table. `device` has at least its `name`, as the driver reports it."""

    kernel: str
    device: Mapping[str, str | int]
    driver: str
    torch: str
    triton: str
    source_hash: str
    timing: str
    scenario_set: str
    scenarios_digest: str
    seed: int
    strategy: str
    features: tuple[str, ...]
    configs: tuple[ConfigEntry, ...]


@dataclass(frozen=True)
class Recorded:
    """A table read back: the features of each scenario, in the header's order, and every whole row.

    Visits come in the order of times.csv; those in which no config had a time have no row there and
    come last. `seconds`: how long the runs so far took, as their summary says.
    """

    header: Header
    date: str
    scenarios: Mapping[str, tuple[int, ...]]
    visits: tuple[Visit, ...]
    seconds: float = 0.0
