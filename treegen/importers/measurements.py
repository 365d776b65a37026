"""What every format becomes before it becomes a table: one measurement a config and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from treegen.core.errors import InputError
from treegen.core.table import Cells

Value: TypeAlias = "int | float | str | None"
"""A feature's or parameter's value as the source has it. A table gets an integer for it."""

UNITS_TO_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
NO_TIME = 1.0
"""Stands for the time of a winner of which the source has none; no tree depends on it."""


@dataclass(frozen=True)
class Measurement:
    """The time of one config in one shape."""

    shape: Mapping[str, Value]  # by feature
    config: Mapping[str, Value]  # by parameter
    microseconds: float  # inf: the config failed
    variant: str | None = None


@dataclass(frozen=True)
class Measurements:
    """All measurements of one kernel on one device."""

    tool: str  # as messages call it
    source: Path
    kernel: str
    device: str  # as the driver reports it, where the source knows that
    cells: Cells
    rows: tuple[Measurement, ...]
    timing: str | Mapping[str, Any]
    notes: str  # what the source does not know: the comment of run.yaml
    origin: Mapping[str, Any] = field(default_factory=dict)  # further facts of the source
    device_key: str | None = None  # of the table's folder; None follows from the device


@dataclass(frozen=True)
class ImportOptions:
    """What the user says about a source that does not say it itself."""

    kernel: str | None = None
    device: str | None = None
    features: tuple[str, ...] = ()  # names
    parameters: tuple[str, ...] = ()  # names
    time: str | None = None  # the column of times
    unit: str | None = None

    def needed_kernel(self, source: Path, tool: str) -> str:
        if self.kernel is None:
            raise InputError(source, f"{tool} does not name the kernel; name it with --kernel NAME")
        return self.kernel

    def needed_device(self, source: Path, tool: str) -> str:
        if self.device is None:
            example = "--device 'NVIDIA H100 80GB HBM3'"
            raise InputError(
                source, f"{tool} does not name the GPU; name it as its driver does, with {example}"
            )
        return self.device
