"""The tables that price a change, and what changed between the old one and the new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, one_line
from treegen.core.heuristic import Choice
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config, DeviceSpec
from treegen.core.table import Cells, Table
from treegen.read.problem import build_problem, refuse_other_gpu
from treegen.review.diff.decisions import Choices
from treegen.review.diff.prices import Price, PricedChoices, price
from treegen.review.diff.snapshots import Snapshot, naming_revision
from treegen.review.modules import Module
from treegen.review.printing import percent
from treegen.review.tables import common_rows
from treegen.update.fit_inputs import STACK, stack_word
from treegen.write.lock import digests

_FEWEST_CELLS = 5  # that a config needs to be named
_LEAST_DRIFT = 0.05  # of a config's log times, to be named
_MOST_CONFIGS = 3
_RUN_KEYS = ("device", *STACK, "timing", "scenario_set", "strategy", "date")
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """New over old time in the cells that both tables timed, of one config or of all."""

    cells: int
    ratio: float  # geometric mean
    low: float  # 5th percentile
    high: float  # 95th percentile

    def __str__(self) -> str:
        ends = f"{percent(self.low)} to {percent(self.high)}"
        return f"{self.cells:,} cells in both: {percent(self.ratio)} (5% to 95%: {ends})"


@dataclass(frozen=True)
class TableChange:
    """The difference of two tables of a device."""

    scenarios: tuple[int, int]  # before and now
    common: int  # scenarios of the same id and features
    drift: Drift | None  # None if both tables timed no common cell, or one holds only winners
    # One standard deviation of a cell's ratio if only repeats differed, as a factor above 1; None without.
    spread: float | None
    configs: Mapping[str, Drift]  # the configs that drifted most, by name
    lost: int  # cells that only the old table measured, of common scenarios and configs; 0 with winners
    gained: int  # cells that only the new table measured
    appeared: int  # cells that failed only in the new table
    vanished: int  # cells that failed only in the old table
    run: Mapping[str, tuple[str, str]]  # values of run.yaml that differ, by key: before and after


@dataclass(frozen=True)
class Pricing:
    """What two modules launch in each table's scenarios; the new snapshot's table comes first."""

    choices: tuple[PricedChoices, ...]
    change: TableChange | None = None
    launched: Price | None = None  # the new module by the new table over the old one by the old table
    # The same for each config that was launched and now regresses, by its name.
    slower: Mapping[str, Price] = field(default_factory=dict)
    note: str | None = None  # why another old table prices nothing, or only informs


def price_modules(
    snapshots: tuple[Snapshot, Snapshot],
    modules: tuple[Module, Module],
    device: DeviceSpec,
    threshold: float,
    read: Callable[[Path], Table],
) -> Pricing:
    """Price an old and a new module by the tables that an old and a new snapshot have of a device.

    The old table judges if both tables ran the same software. If driver, PyTorch, Triton or the kernel's
    source changed, its times are those of another program, and it only informs.

    threshold: the accepted slowdown, above 1. read: `read_table`, perhaps cached. Raises InputError for a new
    table that cannot be read.
    """
    kernel = modules[1].kernel

    def choices(snapshot: Snapshot) -> PricedChoices | None:
        spec = snapshot.spec.kernels.get(kernel.name)
        if spec is None or device.key not in spec.tables:
            return None
        with naming_revision(snapshot.label, snapshot.temporary):
            table = read(spec.tables[device.key])
            refuse_other_gpu(spec, device, table)
            return PricedChoices.of(build_problem(kernel, device, table), *modules, threshold)

    now = choices(snapshots[1])
    only_new = Pricing(() if now is None else (now,))
    try:
        before = choices(snapshots[0])
    except InputError as error:
        return replace(only_new, note=f"the old table cannot price this change: {error}")
    if before is None:
        return only_new
    if now is None:
        return Pricing((replace(before, table="by the old table"),))
    if digests(before.problem.table.folder) == digests(now.problem.table.folder):
        return only_new
    if (before.problem.table.cells, now.problem.table.cells) == (Cells.WINNERS, Cells.MEASURED):
        return replace(only_new, note="the old table holds only winners, so it prices nothing")
    change = table_change(before, now)
    other = [stack_word(key) for key in STACK if key in change.run]
    note = f"{' and '.join(other)} changed, so the old table only informs" if other else None
    now, before = replace(now, table="by the new table"), replace(before, table="by the old table")
    launched, slower = _launched(before, now, change.spread)
    return Pricing((now, replace(before, judges=not other)), change, launched, slower, note)


def _launched(
    old: PricedChoices, new: PricedChoices, spread: float | None
) -> tuple[Price | None, dict[str, Price]]:
    """Price what is launched by the new table over what was by the old one, in the common scenarios.

    Also price, by name, each config that was launched and where launches are slower than allowed now. None
    without common times. spread: of a cell's ratio, as in TableChange.
    """
    rows = common_rows(old.problem, new.problem)
    before, after = _log_times(old.problem, old.old, rows[0]), _log_times(new.problem, new.new, rows[1])
    ids = np.array(old.problem.scenarios)[rows[0]]
    failed = (before >= FORBIDDEN) & (after >= FORBIDDEN)

    def priced(which: npt.NDArray[np.int64]) -> Price:
        found = price(
            tuple(ids[which].tolist()),
            before[which],
            after[which],
            failed[which],
            cells=Cells.MEASURED,
            spread=None if spread is None else math.log(spread),
            threshold=new.threshold,
        )
        return replace(found, table="by the new table over the old one")

    if Cells.WINNERS in (old.problem.table.cells, new.problem.table.cells):
        return None, {}
    whole = priced(np.arange(len(ids)))
    if not whole.timed + whole.failing:
        return None, {}
    if spread is None:  # without repeats, noise would single out some config
        return whole, {}
    groups: dict[Config, list[int]] = {}
    for place, row in enumerate(rows[0].tolist()):
        if (choice := old.old[row]) is not None:
            groups.setdefault(choice.config, []).append(place)
    found = {new.problem.kernel.constant_name(c): priced(np.array(places)) for c, places in groups.items()}
    slower = [(name, one) for name, one in found.items() if one.regresses]
    return whole, dict(sorted(slower, key=lambda item: -math.log(item[1].ratio or 2) * item[1].timed))


def _log_times(problem: Problem, choices: Choices, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[rows] log times of what is launched, in cost steps; UNTIMED and FORBIDDEN as in Problem."""
    times = problem.times()
    column = {config: place for place, config in enumerate(problem.configs)}

    def log_time(row: int, choice: Choice | None) -> int:
        place = None if choice is None else column.get(choice.config)
        time = math.nan if place is None else float(times[row, place])
        if math.isfinite(time):
            return round(math.log(time) * UNIT)
        return UNTIMED if math.isnan(time) else FORBIDDEN

    return np.array([log_time(row, choices[row]) for row in rows.tolist()], dtype=np.int64)


def table_change(old: PricedChoices, new: PricedChoices) -> TableChange:
    """Compare two tables that are seen through the same kernel."""
    problems = old.problem, new.problem
    tables = [problem.table for problem in problems]
    shared = sorted(set(old.problem.configs) & set(new.problem.configs))
    rows = common_rows(*problems)
    before, after = (
        problem.times()[common][:, [problem.configs.index(config) for config in shared]]
        for problem, common in zip(problems, rows, strict=True)
    )
    timed = np.isfinite(before) & np.isfinite(after)
    measured = Cells.WINNERS not in (tables[0].cells, tables[1].cells)
    steps = np.full(before.shape, np.nan)
    steps[timed] = np.log(after[timed] / before[timed])
    drifts = {new.problem.kernel.constant_name(c): _drift(steps[:, i]) for i, c in enumerate(shared)}
    moved = {name: drift for name, drift in drifts.items() if drift is not None and _is_named(drift)}
    most = sorted(moved, key=lambda name: -abs(math.log(moved[name].ratio)) * moved[name].cells)
    one, other = old.spread, new.spread
    runs = {key: tuple(_text(table.provenance.get(key)) for table in tables) for key in _RUN_KEYS}
    return TableChange(
        scenarios=(len(tables[0].scenarios), len(tables[1].scenarios)),
        common=len(rows[0]),
        drift=_drift(steps) if measured else None,
        spread=None if one is None or other is None else math.exp(math.hypot(one, other) / math.sqrt(2)),
        configs={name: moved[name] for name in most[:_MOST_CONFIGS]},
        lost=int((np.isfinite(before) & np.isnan(after)).sum()) * measured,
        gained=int((np.isnan(before) & np.isfinite(after)).sum()) * measured,
        appeared=int((np.isinf(after) & np.isfinite(before)).sum()),
        vanished=int((np.isinf(before) & np.isfinite(after)).sum()),
        run={key: (was, now) for key, (was, now) in runs.items() if was != now},
    )


def _drift(steps: _Floats) -> Drift | None:
    """steps: logarithms of new over old time; NaN where a time is missing."""
    measured = steps[~np.isnan(steps)]
    if not len(measured):
        return None
    mean = math.fsum(measured.tolist()) / len(measured)
    low, high = np.percentile(measured, [5, 95])
    return Drift(len(measured), math.exp(mean), math.exp(low), math.exp(high))


def _is_named(drift: Drift) -> bool:
    return drift.cells >= _FEWEST_CELLS and abs(math.log(drift.ratio)) > _LEAST_DRIFT


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", "")
    return "nothing" if value is None else one_line(str(value))[:100]
