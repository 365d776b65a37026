"""The tables that price a change: the new snapshot's, and the old snapshot's if it is another table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.problem import UNTIMED, Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.table import Cells, Table
from treegen.crossval.choices import score_decisions
from treegen.read.build_problem import build_problem, refuse_other_gpu
from treegen.review.diff.decisions import KnownDecisions, known_decisions
from treegen.review.diff.price import Price, Tolerance, price, spread
from treegen.review.diff.snapshots import Snapshot, naming_revision
from treegen.review.diff.table_change import TableChange, table_change
from treegen.review.modules import Module, ModuleKey
from treegen.update.basis import STACK, stack_word
from treegen.write.lock import digests

_UNKNOWN = Config("", ())  # is in no table
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PricedChoices:
    """The configs that two modules launch in one table's scenarios, and their costs."""

    problem: Problem
    old: KnownDecisions
    new: KnownDecisions
    old_cost: _Ints  # [scenarios]
    new_cost: _Ints  # [scenarios]
    same: npt.NDArray[np.bool_]  # [scenarios]: whether both launch one config
    tolerance: Tolerance
    judges: bool  # whether a regression by this table counts

    def rows_of(self, old: Config, new: Config) -> _Ints:
        """The scenarios that launched `old` and now launch `new`."""
        return np.flatnonzero([pair == (old, new) for pair in zip(self.old, self.new, strict=True)])

    def price(self, rows: _Ints) -> Price:
        scenarios = tuple(self.problem.scenarios[row] for row in rows)
        return price(scenarios, self.old_cost[rows], self.new_cost[rows], self.same[rows], self.tolerance)

    def overall(self) -> Price:
        return self.price(np.arange(len(self.same)))


@dataclass(frozen=True)
class PricingTable:
    """A table, seen through the spec of the module that it prices."""

    problem: Problem
    spread: float | None  # of `price.spread`
    label: str = "by the table"
    judges: bool = True  # whether a regression by this table counts; otherwise it only informs

    def price_choices(self, old: Module, new: Module, threshold: float) -> PricedChoices:
        """Look up what both modules launch. threshold: the accepted slowdown, above 1."""
        before, after = (known_decisions(module, self.problem) for module in (old, new))
        return PricedChoices(
            self.problem,
            before,
            after,
            _costs(before, self.problem),
            _costs(after, self.problem),
            np.array([one == other for one, other in zip(before, after, strict=True)]),
            Tolerance(self.problem.table.cells, self.spread, threshold),
            self.judges,
        )


@dataclass(frozen=True)
class PricingTables:
    tables: tuple[PricingTable, ...]
    change: TableChange | None = None
    note: str | None = None  # why another old table prices nothing, or only informs


def find_pricing_tables(
    old: Snapshot,
    new: Snapshot,
    kernel: KernelSpec,
    device: DeviceSpec,
    read: Callable[[Path], Table],
    *,
    expect_jump: bool = False,
) -> PricingTables:
    """The tables of the device in both snapshots, seen through `kernel`.

    The old table judges if both tables ran the same software. If driver, PyTorch, Triton or the kernel's
    source changed, its times are those of another program, and it only informs.

    read: `read_table`, perhaps cached. Raises InputError for a new table that cannot be read, and for times
    that all changed by 10x or more, unless `expect_jump`.
    """
    old_folder, new_folder = (_table_folder(snapshot, (kernel.name, device.key)) for snapshot in (old, new))

    def pricing_table(snapshot: Snapshot, folder: Path) -> PricingTable:
        table = read(folder)
        refuse_other_gpu(snapshot.spec.kernels[kernel.name], device, table)
        return PricingTable(build_problem(kernel, device, table), spread(table))

    with naming_revision(new.label, new.temporary):
        second = None if new_folder is None else pricing_table(new, new_folder)
    only_new = () if second is None else (second,)
    if old_folder is None:
        return PricingTables(only_new)
    try:
        with naming_revision(old.label, old.temporary):
            first = pricing_table(old, old_folder)
    except InputError as error:
        return PricingTables(only_new, note=f"the old table cannot price this change: {error}")
    first = replace(first, label="by the old table")
    if second is None:
        return PricingTables((first,))
    if digests(old_folder) == digests(second.problem.table.folder):
        return PricingTables(only_new)
    if first.problem.table.cells is Cells.WINNERS and second.problem.table.cells is Cells.MEASURED:
        return PricingTables(only_new, note="the old table holds only winners, so it prices nothing")
    change = table_change(first.problem, second.problem, (first.spread, second.spread))
    if change.drift is not None and change.drift.jumps and not expect_jump:
        with naming_revision(new.label, new.temporary):
            what = f"nearly all times are {change.drift.ratio:.3g}x those of the old table; tables hold"
            what = f"{what} microseconds. If that is meant, compare with --expect-jump"
            raise InputError(second.problem.table.folder, what)
    other = [key for key in STACK if key in change.run]
    note = f"{' and '.join(map(stack_word, other))} changed, so the old table only informs" if other else None
    first = replace(first, judges=not other)
    return PricingTables((replace(second, label="by the new table"), first), change, note)


def _table_folder(snapshot: Snapshot, key: ModuleKey) -> Path | None:
    kernel, device = key
    return snapshot.spec.kernels[kernel].tables.get(device) if kernel in snapshot.spec.kernels else None


def _costs(decisions: KnownDecisions, problem: Problem) -> _Ints:
    """[scenarios] costs. The fallback is exempt from constraints, but it may have failed."""
    configs = tuple(_UNKNOWN if config is None else config for config in decisions)
    cost = score_decisions(configs, problem).cost
    fallback = problem.kernel.fallback
    if fallback not in configs or fallback not in problem.configs:
        return cost
    failed = np.isinf(problem.times()[:, problem.configs.index(fallback)])
    exempt = np.array([config == fallback for config in configs]) & ~failed
    return np.where(exempt & (cost > UNTIMED), UNTIMED, cost)
