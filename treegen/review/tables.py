"""The tables that `treegen eval` and `report` read, and facts about tables: noise, common scenarios."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec, Spec
from treegen.core.table import Cells, Table
from treegen.crossval.evaluate import FOLDS, REPEATS
from treegen.fit.significance import copies
from treegen.passes.bounds import refuse_unprovable
from treegen.read.build_problem import build_problem, spec_problem
from treegen.read.spec_file import find_spec, read_spec
from treegen.read.table_file import read_table
from treegen.review.printing import counted, left_out_words
from treegen.write.lock import digests


@dataclass(frozen=True)
class EvalSettings:
    """The options of `treegen eval`."""

    spec: Path | None = None  # None: treegen.yaml in this folder
    kernel: str | None = None  # None: all
    device: str | None = None  # None: all
    folds: int = FOLDS  # at least 2, and no more than a table has different scenarios
    repeats: int = REPEATS  # shuffles
    curves: bool = False  # whether to compute learning curves
    against: tuple[Path, ...] = ()  # folders of further tables
    out: Path | None = None  # None: write nothing
    jobs: int | None = None  # None: one process per processor


@dataclass(frozen=True)
class TableSource:
    """The table that was evaluated."""

    path: str  # relative to the spec's folder
    sha256: Mapping[str, str]  # of each file
    cells: Cells
    scenarios: int  # those with a config that may be launched
    left_out: int  # the others
    configs: int
    why_left_out: str = ""  # in words; empty if there are none


@dataclass(frozen=True)
class EvalTable:
    """A table to evaluate, and other tables for the same kernel and device with the same `split_on`."""

    problem: Problem
    source: TableSource
    others: tuple[EvalTable, ...] = ()


def read_tables(settings: EvalSettings) -> list[EvalTable]:
    """Read every table that the settings select. Raises InputError."""
    spec = read_spec(find_spec(settings.spec))
    selected = list(_selected(spec, settings))
    folders = sorted({kernel.tables[device] for kernel, device in selected} | set(settings.against))
    tables = {folder: read_table(folder) for folder in folders}
    root = spec.path.resolve().parent
    used: set[Path] = set()
    eval_tables = []
    for kernel, device in selected:
        problem = spec_problem(kernel, spec.devices[device], tables[kernel.tables[device]])
        refuse_unprovable(problem, spec.path)
        others = [f for f in settings.against if len(selected) == 1 or _same_gpu(tables[f], problem.table)]
        used.update(others)
        read = (_other_problem(problem, tables[folder]) for folder in others)
        evaluated = tuple(EvalTable(other, _source(other, root)) for other in read)
        eval_tables.append(EvalTable(problem, _source(problem, root), evaluated))
    for folder in settings.against:
        if folder not in used:
            table = tables[folder]
            what = f"measured {table.kernel} on {table.device_name}, as no evaluated table did"
            raise InputError(folder, f"{what}; to use it all the same, name one --kernel and --device")
    return eval_tables


def without_small(
    tables: Sequence[EvalTable], settings: EvalSettings
) -> tuple[list[EvalTable], tuple[str, ...]]:
    """The tables with a scenario for each fold, and a line on each other table.

    Raises InputError for one of the kernel that the user named, and if no table is left.
    """
    large: list[EvalTable] = []
    small: list[str] = []
    for table in tables:
        problem = table.problem
        if (distinct := int(copies(problem.features).max()) + 1) >= settings.folds:
            large.append(table)
            continue
        what = f"has {counted(distinct, 'different scenario')}, fewer than {settings.folds} folds"
        if settings.kernel is not None or len(small) + 1 == len(tables):
            raise InputError(problem.table.folder, what)
        small.append(f"{problem.kernel.name} on {problem.device.key} is left out: it {what}.")
    return large, tuple(small)


def _selected(spec: Spec, settings: EvalSettings) -> Iterator[tuple[KernelSpec, str]]:
    """The selected kernels and devices, in the spec's order."""
    kernels = spec.selected(settings.kernel)
    known = dict.fromkeys(device for kernel in kernels for device in kernel.tables)
    if settings.device is not None and settings.device not in known:
        of = f"kernel {settings.kernel}" if settings.kernel else "any kernel"
        what = f"names no table of {of} for the device {shown(settings.device)}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(known)}")
    for kernel in kernels:
        yield from ((kernel, device) for device in kernel.tables if settings.device in (None, device))


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


def _source(problem: Problem, root: Path) -> TableSource:
    table = problem.table
    path = Path(os.path.relpath(table.folder, root)).as_posix()
    configs = len(problem.configs)
    return TableSource(
        path,
        digests(table.folder),
        table.cells,
        len(problem.cost),
        problem.left_out,
        configs,
        left_out_words(problem),
    )


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
