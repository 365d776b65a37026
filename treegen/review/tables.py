"""The tables that `treegen eval` and `report` read, and facts about tables: noise, common scenarios."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec, Spec
from treegen.core.table import Cells, Table
from treegen.read.problem import build_problem, read_table, spec_problem


@dataclass(frozen=True)
class SelectedTable:
    """A table, and other tables for the same kernel and device with the same `split_on`."""

    problem: Problem
    others: tuple[Problem, ...] = ()


def read_tables(
    spec: Spec, kernel: str | None, device: str | None, against: Sequence[Path] = ()
) -> list[SelectedTable]:
    """Read the tables of a kernel and a device (None selects all), and the others. Raises InputError."""
    selected = list(_selected(spec, kernel, device))
    folders = sorted({of.tables[key] for of, key in selected} | set(against))
    tables = {folder: read_table(folder) for folder in folders}
    used: set[Path] = set()
    found = []
    for of, key in selected:
        problem = spec_problem(of, spec.devices[key], tables[of.tables[key]])
        others = [f for f in against if len(selected) == 1 or _same_gpu(tables[f], problem.table)]
        used.update(others)
        found.append(SelectedTable(problem, tuple(_other_problem(problem, tables[f]) for f in others)))
    for folder in against:
        if folder not in used:
            table = tables[folder]
            what = f"measured {table.kernel} on {table.device_name}, as no evaluated table did"
            raise InputError(folder, f"{what}; to use it all the same, name one --kernel and --device")
    return found


def _selected(spec: Spec, kernel: str | None, device: str | None) -> Iterator[tuple[KernelSpec, str]]:
    """The selected kernels and devices, in the spec's order."""
    kernels = spec.selected(kernel)
    known = dict.fromkeys(key for of in kernels for key in of.tables)
    if device is not None and device not in known:
        of = f"kernel {kernel}" if kernel else "any kernel"
        what = f"names no table of {of} for the device {shown(device)}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(known)}")
    for of_kernel in kernels:
        yield from ((of_kernel, key) for key in of_kernel.tables if device in (None, key))


def _same_gpu(other: Table, table: Table) -> bool:
    return (other.kernel, other.device_name) == (table.kernel, table.device_name)


def _other_problem(problem: Problem, table: Table) -> Problem:
    """Another table as a problem with the same features to split on."""
    other = build_problem(problem.kernel, problem.device, table)
    for name in problem.split_on:
        if name not in other.names:
            what = f"does not hold {name}, on which trees of {problem.table.folder} may split"
            raise InputError(table.folder, what)
    return replace(other, split_on=problem.split_on)


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


Rows = npt.NDArray[np.int64]


def common_rows(problem: Problem, other: Problem) -> tuple[Rows, Rows]:
    """The rows in each problem of the scenarios with the same id and features in both, in the same order."""
    shared = [name for name in problem.names if name in other.names]
    if not shared:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    places = {scenario: row for row, scenario in enumerate(other.scenarios)}
    pairs = [(row, places[s]) for row, s in enumerate(problem.scenarios) if s in places]
    here, there = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    same = np.ones(len(pairs), dtype=bool)
    for name in shared:
        same &= problem.column(name)[here] == other.column(name)[there]
    return here[same], there[same]
