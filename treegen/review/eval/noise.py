"""What no way of choosing can tell: how far the repeats of a table disagree about the fastest config."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.table import Cells, Table


@dataclass(frozen=True)
class Noise:
    """scenarios: that have two repeats with two configs in common. slowdown: geometric mean of what the
    fastest config of one repeat takes in the others, over the best there. changed: how often it is not the
    fastest in the others."""

    scenarios: int
    slowdown: float
    changed: float


def noise_floor(table: Table) -> Noise | None:
    """Choose by each repeat, judge by the median of the others, among the configs that both timed.

    A scenario counts once however many repeats it has. None where no scenario has what it takes, and
    for a table of winners.
    """
    if table.cells is Cells.WINNERS:
        return None
    found = []
    for scenario in range(len(table.scenarios)):
        losses = _losses(table.times[table.row_scenario == scenario])
        if losses:
            found.append((sum(losses) / len(losses), sum(loss > 0 for loss in losses) / len(losses)))
    if not found:
        return None
    slowdown = math.exp(math.fsum(loss for loss, _ in found) / len(found))
    return Noise(len(found), slowdown, math.fsum(changed for _, changed in found) / len(found))


def _losses(times: npt.NDArray[np.float64]) -> list[float]:
    """Of each repeat that can be judged: log slowdown of its winner. times: [repeats, configs]."""
    times = np.where(np.isinf(times).any(axis=0), np.nan, times)
    losses = []
    for repeat in range(len(times)):
        others = np.delete(times, repeat, axis=0)
        both = ~np.isnan(times[repeat]) & ~np.isnan(others).all(axis=0)
        if both.sum() < 2:
            continue
        judged = np.nanmedian(others[:, both], axis=0)
        losses.append(math.log(judged[times[repeat, both].argmin()] / judged.min()))
    return losses
