"""The result of a diff, as data and as JSON. The JSON output has the names of these dataclasses' fields."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.table_change import TableChange

FORMAT = 1


class ComparisonKind(StrEnum):
    """The kind of change of a device's module."""

    SAME = "launches the same"
    TEXT = "changed in text only: it launches the same for all integers"
    CHANGED = "launches differently"
    ADDED = "is new"
    REMOVED = "is gone"
    UNREADABLE = "cannot be read"
    INCOMPARABLE = "cannot be compared"


@dataclass(frozen=True)
class ConfigChange:
    """The shapes that launched the config `old` and now launch `new`, both by their constants' names."""

    old: str
    new: str
    what: str  # the difference of the configs in words
    where: tuple[str, ...]  # the regions in words, first those with most measured scenarios
    empty: int  # regions without a measured scenario
    measured: str  # the raw features of the measured scenarios in these regions, in words
    prices: tuple[Price, ...]  # of these scenarios, one for each pricing table
    regresses: bool  # whether a table that judges finds it slower than allowed


@dataclass(frozen=True)
class ModuleComparison:
    """The comparison of one kernel's and device's module in two snapshots."""

    kernel: str
    device: str
    kind: ComparisonKind
    note: str | None = None  # why something could not be compared
    served: str | None = None  # the device whose module serves this GPU in the snapshot without its module
    priced_by: tuple[str, ...] = ()  # the labels of the pricing tables
    judges: tuple[str, ...] = ()  # of these, the tables whose verdict counts; the others only inform
    overall: tuple[Price, ...] = ()  # of all scenarios, one for each pricing table
    changes: tuple[ConfigChange, ...] = ()
    leaves: tuple[int, int] | None = None  # before and after, guards included
    budget: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # limits of the spec that differ
    table: TableChange | None = None

    @property
    def judged(self) -> tuple[Price, ...]:
        """The prices of all scenarios by the tables that judge."""
        pairs = zip(self.priced_by, self.overall, strict=True)
        return tuple(price for label, price in pairs if label in self.judges)

    @property
    def regresses(self) -> bool:
        """Return whether something is slower than allowed, or the new module cannot be read."""
        slower = any(price.verdict is Verdict.SLOWER for price in self.judged)
        unreadable = self.kind is ComparisonKind.UNREADABLE
        return unreadable or slower or any(change.regresses for change in self.changes)

    @property
    def launches_the_same(self) -> bool:
        return self.kind in (ComparisonKind.SAME, ComparisonKind.TEXT)

    @property
    def unpriced(self) -> bool:
        """Return whether shapes may launch other configs and no table prices that."""
        return (
            not self.launches_the_same and self.kind is not ComparisonKind.UNREADABLE and not self.priced_by
        )

    @property
    def has_price(self) -> bool:
        """Return whether a table prices scenarios that launch another config."""
        return bool(self.overall) and self.overall[0].changed > 0 and self.overall[0].ratio is not None

    @property
    def has_news(self) -> bool:
        """Return whether a reader should see more than that the module is the same."""
        return self.kind is not ComparisonKind.SAME or self.table is not None or self.note is not None


@dataclass(frozen=True)
class Diff:
    """Everything that differs between two snapshots."""

    old: str  # what the user called the old snapshot
    new: str
    threshold: float  # accepted slowdown, above 1
    comparisons: tuple[ModuleComparison, ...]
    files: Mapping[str, str]  # how each other file of the output folder changed, by path

    @property
    def regresses(self) -> bool:
        return any(comparison.regresses for comparison in self.comparisons)


def json_text(diff: Diff) -> str:
    """A diff as JSON, with `regresses` for the whole and for each comparison."""
    content = {"format": FORMAT, "regresses": diff.regresses, **_plain(asdict(diff))}
    for entry, comparison in zip(content["comparisons"], diff.comparisons, strict=True):
        entry["regresses"] = comparison.regresses
    return json.dumps(content, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Floats with six digits; null for a float that is no finite number."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
