"""Small tables and prices made by hand, without files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED
from treegen.core.table import Cells, Table, TableConfig
from treegen.review.diff.prices import Price, price

Floats = npt.NDArray[np.float64]


def table(times: Floats, cells: Cells = Cells.MEASURED) -> Table:
    """A table of [repeats, scenarios, configs] microseconds, first all scenarios once, then all again."""
    repeats, scenarios, configs = times.shape
    return Table(
        folder=Path("tables/made"),
        kernel="scale",
        device_name="NVIDIA H100",
        cells=cells,
        feature_names=("rows",),
        configs=tuple(TableConfig(f"c{i}", "plain", {"block": i}) for i in range(configs)),
        scenarios=tuple(f"s{i}" for i in range(scenarios)),
        features=np.arange(scenarios, dtype=np.int64)[:, None],
        row_scenario=np.tile(np.arange(scenarios), repeats),
        row_repeat=np.repeat(np.arange(1, repeats + 1), scenarios),
        times=times.reshape(repeats * scenarios, configs),
    )


def costs(times: Floats) -> npt.NDArray[np.int64]:
    """Costs as in Problem for some times; NaN was not measured, inf failed.

    The best time is arbitrary, as only differences count.
    """
    with np.errstate(invalid="ignore"):
        steps = np.rint(np.log(np.where(np.isfinite(times), times, 1.0)) * UNIT).astype(np.int64)
    return np.where(np.isnan(times), UNTIMED, np.where(np.isinf(times), FORBIDDEN, steps))


def priced(
    old: Floats,
    new: Floats,
    *,
    spread: float | None = 0.01,
    threshold: float = 1.01,
    same: npt.NDArray[np.bool_] | None = None,
) -> Price:
    """The price of launching what takes `new` where `old` was; both [scenarios] microseconds."""
    unchanged = np.zeros(len(old), dtype=bool) if same is None else same
    scenarios = tuple(f"s{i}" for i in range(len(old)))
    return price(
        *(scenarios, costs(old), costs(new), unchanged),
        cells=Cells.MEASURED,
        spread=spread,
        threshold=threshold,
    )
