"""The tables that price a change: the new side's, and the old side's where it is another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import DeviceSpec, KernelSpec
from treegen.core.table import Cells, Table
from treegen.read.build_problem import build_problem
from treegen.review.diff.price import spread
from treegen.review.diff.snapshots import Snapshot
from treegen.review.diff.tables import TableChange, table_change
from treegen.write.lock import digests

NEW, OLD, BOTH = "by the new table", "by the old table", "by the table"


@dataclass(frozen=True)
class PricingTable:
    """A table, posed in the words of the module that it judges. spread: as `price.spread` gives."""

    label: str
    problem: Problem
    spread: float


@dataclass(frozen=True)
class PricingTables:
    """note: why the old table cannot judge, if there is another one that cannot."""

    judges: tuple[PricingTable, ...]
    table: TableChange | None = None
    note: str | None = None


def find_judges(
    old: Snapshot, new: Snapshot, kernel: KernelSpec, device: DeviceSpec, read: Callable[[Path], Table]
) -> PricingTables:
    """The tables of the device on both sides, in the words of `kernel`. read: `read_table`, which may
    remember what it has read. Raises InputError for a new table that cannot be read."""
    key = (kernel.name, device.key)
    before, after = _table(old, key), _table(new, key)
    with new.reading():
        first = None if after is None else _judge(NEW, read(after), kernel, device)
    if before is None:
        return PricingTables(tuple(_labelled(first)))
    try:
        with old.reading():
            second = _judge(OLD, read(before), kernel, device)
    except InputError as error:
        return PricingTables(tuple(_labelled(first)), note=f"the old table cannot judge: {error}")
    if first is None:
        return PricingTables((second,))
    if digests(before) == digests(first.problem.table.folder):
        return PricingTables(tuple(_labelled(first)))
    if second.problem.table.cells is Cells.WINNERS and first.problem.table.cells is Cells.MEASURED:
        return PricingTables(
            tuple(_labelled(first)), note="the old table knows only winners, so it does not judge"
        )
    change = table_change(second.problem, first.problem, (second.spread, first.spread))
    return PricingTables((first, second), change)


def _labelled(judge: PricingTable | None) -> Iterator[PricingTable]:
    """The only judge there is."""
    if judge is not None:
        yield PricingTable(BOTH, judge.problem, judge.spread)


def _table(side: Snapshot, key: tuple[str, str]) -> Path | None:
    kernel, device = key
    return side.spec.kernels[kernel].tables.get(device) if kernel in side.spec.kernels else None


def _judge(label: str, table: Table, kernel: KernelSpec, device: DeviceSpec) -> PricingTable:
    return PricingTable(label, build_problem(kernel, device, table), spread(table))
