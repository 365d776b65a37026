"""The noise floor: how far the repeats of a table disagree about the fastest config."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.table import Cells, Table


@dataclass(frozen=True)
class NoiseFloor:
    """The loss of choosing by one repeat, in the others. No way of choosing can do better."""

    scenarios: int  # with two repeats that have two configs in common
    slowdown: float  # geometric mean: time of one repeat's fastest config in the others over the best there
    changed: float  # share in which that config is not the fastest in the others


def noise_floor(table: Table) -> NoiseFloor | None:
    """Choose by each repeat and score by the median of the others, among the configs that both timed.

    Each scenario counts once, however many repeats it has. None for a table of winners, and where no
    scenario has enough repeats and configs.
    """
    if table.cells is Cells.WINNERS:
        return None
    figures = []
    for scenario in range(len(table.scenarios)):
        losses = _losses(table.times[table.row_scenario == scenario])
        if losses:
            figures.append((sum(losses) / len(losses), sum(loss > 0 for loss in losses) / len(losses)))
    if not figures:
        return None
    slowdown = math.exp(math.fsum(loss for loss, _ in figures) / len(figures))
    return NoiseFloor(len(figures), slowdown, math.fsum(changed for _, changed in figures) / len(figures))


def _losses(times: npt.NDArray[np.float64]) -> list[float]:
    """The log slowdown of each comparable repeat's winner in the other repeats. times: [repeats, configs]."""
    times = np.where(np.isinf(times).any(axis=0), np.nan, times)
    losses = []
    for repeat in range(len(times)):
        others = np.delete(times, repeat, axis=0)
        both = ~np.isnan(times[repeat]) & ~np.isnan(others).all(axis=0)
        if both.sum() < 2:
            continue
        medians = np.nanmedian(others[:, both], axis=0)
        losses.append(math.log(medians[times[repeat, both].argmin()] / medians.min()))
    return losses
