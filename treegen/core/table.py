"""A tuning table as arrays. `treegen.read.problem` reads the folder that holds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tuning_table.table import Cells as Cells
from tuning_table.table import TableConfig as TableConfig


@dataclass(frozen=True)
class Table:
    """Scenarios x configs, times in microseconds, from one tuning run on one device.

    features: [scenarios, features] int64.
    times: [rows, configs] float64, one row per repeat of a scenario; NaN was not measured, inf must never
    be chosen.
    """

    folder: Path
    kernel: str
    device_name: str
    cells: Cells
    feature_names: tuple[str, ...]
    configs: tuple[TableConfig, ...]
    scenarios: tuple[str, ...]
    features: npt.NDArray[np.int64]
    row_scenario: npt.NDArray[np.int64]
    row_repeat: npt.NDArray[np.int64]
    times: npt.NDArray[np.float64]
    listed: int = 0  # scenarios of scenarios.csv, also those without a row
    provenance: Mapping[str, Any] = field(default_factory=dict)
    # What integers of a feature or parameter stand for in this table.
    words: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    @property
    def all_failed(self) -> int:
        """How many listed scenarios the run visited, by its summary, without a row: every config failed."""
        visited = min(self.listed, int(self.provenance.get("summary", {}).get("scenarios", 0)))
        return max(0, visited - len(self.scenarios))

    def repeats(self) -> list[npt.NDArray[np.int64]]:
        """The rows of each scenario, in the order of their repeats."""
        order = np.lexsort([self.row_repeat, self.row_scenario])
        return np.split(order, np.flatnonzero(np.diff(self.row_scenario[order])) + 1)


Column: TypeAlias = Mapping[Any, int | str]  # a feature's integers and words, by scenario


def needless(columns: Mapping[str, Column]) -> dict[str, str]:
    """Why a tree needs no features that are always the same or tell what an earlier one does, by their names.

    Two tell the same if they are equal, or if each word of one goes with one of the other's, as an element
    type does with a flag.
    """
    reasons: dict[str, str] = {}
    for name, column in columns.items():
        twin = next(n for n in columns if n not in reasons and _tell_the_same(columns[n], column))
        if len(values := set(column.values())) == 1:
            reasons[name] = f"{name} is always {values.pop()}"
        elif twin != name:  # an earlier one
            reasons[name] = f"{name} {'equals' if columns[twin] == column else 'follows from'} {twin}"
    return reasons


def _tell_the_same(one: Column, other: Column) -> bool:
    if one == other:
        return True
    if one.keys() != other.keys() or not all(isinstance(v, str) for c in (one, other) for v in c.values()):
        return False
    pairs = {(one[s], other[s]) for s in one}
    return len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs) > 0


def median_times(table: Table) -> npt.NDArray[np.float64]:
    """[scenarios, configs] median over the repeats, in microseconds.

    NaN where no repeat measured the config; inf where any repeat failed.
    """
    result = np.full((len(table.scenarios), len(table.configs)), np.nan)
    for rows in table.repeats():
        result[table.row_scenario[rows[0]]] = _nan_median(table.times[rows])
    return result


def _nan_median(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    ordered = np.sort(rows, axis=0)  # NaN sorts last, inf just before
    count = np.sum(~np.isnan(rows), axis=0)
    columns = np.arange(rows.shape[1])
    low = ordered[np.maximum(count - 1, 0) // 2, columns]
    high = ordered[np.maximum(count, 1) // 2, columns]
    middle = np.where(count == 0, np.nan, low / 2 + high / 2)
    return np.where(np.isinf(rows).any(axis=0), np.inf, middle)
