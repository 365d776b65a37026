"""What moved from one table to another of the same kernel: times, scenarios, configs, circumstances."""

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
from treegen.review.eval.stability import common_rows

_FEWEST = 5  # cells: fewer tell nothing about a config
_MOVED = 0.05  # a config is named whose times moved by more than this
_NAMED = 3
_CIRCUMSTANCES = (
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


@dataclass(frozen=True)
class Drift:
    """Of one config, or of all: new over old time in the cells that both tables timed. low, high: the 5th
    and the 95th percentile."""

    cells: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class TableChange:
    """old_scenarios, new_scenarios: how many each table has; common: of the same id and features. drift: None
    where the two timed no common cell. spread: what a cell's ratio varies by, as a factor above 1 (one
    standard deviation), if only the repeats' noise moved it. configs: those that moved most, by name.
    appeared, vanished: cells that failed only in the new, only in the old table. run: what run.yaml says
    otherwise, by key: before and after."""

    old_scenarios: int
    new_scenarios: int
    common: int
    drift: Drift | None
    spread: float
    configs: Mapping[str, Drift]
    appeared: int
    vanished: int
    run: Mapping[str, tuple[str, str]]


def table_change(old: Problem, new: Problem, spreads: tuple[float, float]) -> TableChange:
    """old, new: the two tables posed with one kernel. spreads: as `price.spread` gives of each."""
    here, there = common_rows(old, new)
    shared = sorted(set(old.configs) & set(new.configs))
    before, after = (_cells(*side, shared) for side in ((old, here), (new, there)))
    timed = np.isfinite(before) & np.isfinite(after)
    steps = np.full(before.shape, np.nan)
    steps[timed] = np.log(after[timed] / before[timed])
    return TableChange(
        old_scenarios=len(old.table.scenarios),
        new_scenarios=len(new.table.scenarios),
        common=len(here),
        drift=None if Cells.WINNERS in (old.table.cells, new.table.cells) else _drift(steps),
        spread=math.exp(math.hypot(*spreads) / math.sqrt(2)),
        configs=_moved(new, shared, steps),
        appeared=int((np.isinf(after) & np.isfinite(before)).sum()),
        vanished=int((np.isinf(before) & np.isfinite(after)).sum()),
        run=_run(old.table, new.table),
    )


def _cells(
    problem: Problem, rows: npt.NDArray[np.int64], configs: Sequence[Config]
) -> npt.NDArray[np.float64]:
    columns = [problem.configs.index(config) for config in configs]
    return problem.times()[rows][:, columns]


def _drift(steps: npt.NDArray[np.float64]) -> Drift | None:
    found = steps[~np.isnan(steps)]
    if not len(found):
        return None
    mean = math.fsum(found.tolist()) / len(found)
    low, high = np.percentile(found, [5, 95])
    return Drift(len(found), math.exp(mean), math.exp(low), math.exp(high))


def _moved(new: Problem, configs: Sequence[Config], steps: npt.NDArray[np.float64]) -> dict[str, Drift]:
    drifts = [(config, _drift(steps[:, column])) for column, config in enumerate(configs)]
    far = [(c, d) for c, d in drifts if d and d.cells >= _FEWEST and abs(math.log(d.ratio)) > _MOVED]
    far.sort(key=lambda pair: -abs(math.log(pair[1].ratio)) * pair[1].cells)
    return {new.kernel.constant_name(config): drift for config, drift in far[:_NAMED]}


def _run(old: Table, new: Table) -> dict[str, tuple[str, str]]:
    """What run.yaml says otherwise of the circumstances, in its own words."""
    told: dict[str, tuple[str, str]] = {}
    for key in _CIRCUMSTANCES:
        before, after = (_text(table.provenance.get(key)) for table in (old, new))
        if before != after:
            told[key] = (before, after)
    return told


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", "")
    return "nothing" if value is None else one_line(str(value))[:100]
