"""Changes between two tables of the same kernel: times, scenarios, configs, circumstances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.errors import one_line
from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.table import Cells, Table
from treegen.review.tables import common_rows
from treegen.write.lock import MOST_JUMP

_FEWEST_CELLS = 5  # that a config needs to be named
_LEAST_DRIFT = 0.05  # of a config's log times, to be named
_MOST_CONFIGS = 3
_RUN_KEYS = (
    "device",
    "driver",
    "torch",
    "triton",
    "source_hash",
    "timing",
    "scenario_set",
    "strategy",
    "date",
)
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """New over old time in the cells that both tables timed, of one config or of all."""

    cells: int
    ratio: float  # geometric mean
    low: float  # 5th percentile
    high: float  # 95th percentile

    @property
    def jumps(self) -> bool:
        """Return whether nearly all cells changed by `MOST_JUMP` or more, as in another unit."""
        return self.low >= MOST_JUMP or self.high <= 1 / MOST_JUMP


@dataclass(frozen=True)
class TableChange:
    """The difference of two tables. The JSON output has these names."""

    old_scenarios: int
    new_scenarios: int
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


def table_change(old: Problem, new: Problem, spreads: tuple[float | None, float | None]) -> TableChange:
    """Compare two tables that are seen through the same kernel. spreads: each table's `price.spread`."""
    old_rows, new_rows = common_rows(old, new)
    shared = sorted(set(old.configs) & set(new.configs))
    before, after = _times(old, old_rows, shared), _times(new, new_rows, shared)
    timed = np.isfinite(before) & np.isfinite(after)
    measured = Cells.WINNERS not in (old.table.cells, new.table.cells)
    steps = np.full(before.shape, np.nan)
    steps[timed] = np.log(after[timed] / before[timed])
    return TableChange(
        old_scenarios=len(old.table.scenarios),
        new_scenarios=len(new.table.scenarios),
        common=len(old_rows),
        drift=_drift(steps) if measured else None,
        spread=_joint_spread(*spreads),
        configs=_drifted_configs(new, shared, steps),
        lost=int((np.isfinite(before) & np.isnan(after)).sum()) * measured,
        gained=int((np.isnan(before) & np.isfinite(after)).sum()) * measured,
        appeared=int((np.isinf(after) & np.isfinite(before)).sum()),
        vanished=int((np.isinf(before) & np.isfinite(after)).sum()),
        run=_circumstances(old.table, new.table),
    )


def _joint_spread(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else math.exp(math.hypot(old, new) / math.sqrt(2))


def _times(problem: Problem, rows: npt.NDArray[np.int64], configs: Sequence[Config]) -> _Floats:
    return problem.times()[rows][:, [problem.configs.index(config) for config in configs]]


def _drift(steps: _Floats) -> Drift | None:
    """steps: logarithms of new over old time; NaN where a time is missing."""
    measured = steps[~np.isnan(steps)]
    if not len(measured):
        return None
    mean = math.fsum(measured.tolist()) / len(measured)
    low, high = np.percentile(measured, [5, 95])
    return Drift(len(measured), math.exp(mean), math.exp(low), math.exp(high))


def _drifted_configs(new: Problem, configs: Sequence[Config], steps: _Floats) -> dict[str, Drift]:
    drifts = []
    for column, config in enumerate(configs):
        drift = _drift(steps[:, column])
        if drift is not None and drift.cells >= _FEWEST_CELLS and abs(math.log(drift.ratio)) > _LEAST_DRIFT:
            drifts.append((config, drift))
    drifts.sort(key=lambda pair: -abs(math.log(pair[1].ratio)) * pair[1].cells)
    return {new.kernel.constant_name(config): drift for config, drift in drifts[:_MOST_CONFIGS]}


def _circumstances(old: Table, new: Table) -> dict[str, tuple[str, str]]:
    """The circumstances in which the run.yaml files differ."""
    circumstances: dict[str, tuple[str, str]] = {}
    for key in _RUN_KEYS:
        before, after = (_text(table.provenance.get(key)) for table in (old, new))
        if before != after:
            circumstances[key] = (before, after)
    return circumstances


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", "")
    return "nothing" if value is None else one_line(str(value))[:100]
