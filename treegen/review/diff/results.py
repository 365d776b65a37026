"""What a comparison found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.tables import TableChange


class Kind(StrEnum):
    """What became of a device's module."""

    SAME = "launches the same"
    TEXT = "changed in text only: it launches the same for all integers"
    CHANGED = "launches differently"
    ADDED = "is new"
    REMOVED = "is gone"
    UNREADABLE = "cannot be read"
    UNTIMED_PENALTY = "cannot be compared"


@dataclass(frozen=True)
class Change:
    """Shapes that launched `old` and now launch `new`, both by their constants' names.

    what: the change in words. where: the regions in words, those with measured scenarios first. empty: how
    many of them hold no measured scenario. measured: where in the space of raw features those scenarios lie
    that do, in words. prices: one a judge, of these scenarios.
    """

    old: str
    new: str
    what: str
    where: tuple[str, ...]
    empty: int
    measured: str
    prices: tuple[Price, ...]

    @property
    def regresses(self) -> bool:
        return any(price.verdict is Verdict.SLOWER for price in self.prices)


@dataclass(frozen=True)
class Comparison:
    """One kernel and device. note: why there is less to say, if so. served: the device whose module serves
    this GPU on the side where it has none of its own. judges: which tables priced the changes. overall: one
    a judge, of all its scenarios. leaves: before and after, guards included."""

    kernel: str
    device: str
    kind: Kind
    note: str | None = None
    served: str | None = None
    judges: tuple[str, ...] = ()
    overall: tuple[Price, ...] = ()
    changes: tuple[Change, ...] = ()
    leaves: tuple[int, int] | None = None
    table: TableChange | None = None

    @property
    def regresses(self) -> bool:
        """Whether something is slower than noise and threshold allow, or cannot be read."""
        slower = any(price.verdict is Verdict.SLOWER for price in self.overall)
        return self.kind is Kind.UNREADABLE or slower or any(change.regresses for change in self.changes)

    @property
    def unpriced(self) -> bool:
        """Whether shapes may launch otherwise and no table tells what that costs."""
        return self.kind not in (Kind.SAME, Kind.TEXT, Kind.UNREADABLE) and not self.judges


@dataclass(frozen=True)
class Diff:
    """files: what else moved in the output folder, by path, in words. threshold: the tolerated slowdown,
    above 1."""

    old: str
    new: str
    threshold: float
    comparisons: tuple[Comparison, ...]
    files: Mapping[str, str]

    @property
    def regresses(self) -> bool:
        return any(comparison.regresses for comparison in self.comparisons)
