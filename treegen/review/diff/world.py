"""What became of a device's table: how the times that a module launches moved, and what may be the cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.errors import one_line
from treegen.core.problem import UNIT, Problem
from treegen.core.table import Cells
from treegen.crossval.score import Floats, launched, times_of
from treegen.fit.costs import table_noise
from treegen.review.diff.prices import Price, Rules, price
from treegen.review.diff.specs import spec_changes
from treegen.review.modules import Module
from treegen.review.tables import common_rows

MOVED = 1.05
"""How far the times of a config must move, on average, to contradict an earlier table of the same software.

Between two runs of one GPU, 99% of the cells move by less (docs/stability.md)."""
_SURE = 4.5  # standard errors by which they must move: the most of many configs is looked at
_FEWEST = 5  # common cells of a config that is judged
_CAUSES = ("device", "driver", "torch", "triton", "source_hash", "timing")
_WORDS = {"torch": "PyTorch", "triton": "Triton", "source_hash": "the kernel's source"}
_RUN_KEYS = (*_CAUSES, "scenario_set", "strategy", "date")


@dataclass(frozen=True)
class World:
    """The difference of two tables of a device."""

    scenarios: tuple[int, int]  # before and now
    common: int  # scenarios of the same id and features
    launched: Price | None  # the new module by the new table over the old one by the old table
    alone: Price | None  # the old module by the new table over itself by the old table
    cause: tuple[str, ...]  # what differs of the software and the GPU, such as `driver: 550 -> 580`
    moved: Mapping[str, tuple[int, float]]  # launched configs that moved: by name, cells and ratio
    contradicts: bool  # whether configs moved although spec, software and GPU are the same
    lost: int  # cells that only the old table measured, of common scenarios and configs
    gained: int  # cells that only the new table measured
    failing: int  # cells that failed only in the new table
    run: Mapping[str, tuple[str, str]]  # values of run.yaml that differ, by key: before and after


def world_of(
    modules: tuple[Module, Module], problems: tuple[Problem, Problem], threshold: float
) -> World | None:
    """Compare the old and the new table; None if they are one.

    problems: each table as its own spec reads it.
    """
    tables = [problem.table for problem in problems]
    if np.array_equal(tables[0].times, tables[1].times, equal_nan=True) and (
        tables[0].provenance == tables[1].provenance
    ):
        return None
    rows = common_rows(*problems)
    own = modules[1].kernel.own
    columns = [[own(config) for config in problem.configs] for problem in problems]
    shared = [config for config in columns[0] if config in columns[1]]
    before, now = (
        problem.times()[common][:, [mine.index(config) for config in shared]]
        for problem, common, mine in zip(problems, rows, columns, strict=True)
    )
    measured = Cells.WINNERS not in (tables[0].cells, tables[1].cells)
    both = np.isfinite(before) & np.isfinite(now)
    noise = math.hypot(*(table_noise(table) for table in tables)) / math.sqrt(2) / UNIT
    used = {own(c) for module in modules for c in (*module.heuristic.configs, module.kernel.fallback)}
    moved = {}
    for place, config in enumerate(shared):
        cells = int(both[:, place].sum())
        if config in used and measured and cells >= _FEWEST:
            mean = float(np.log(now[both[:, place], place] / before[both[:, place], place]).mean())
            if abs(mean) > max(math.log(MOVED), _SURE * noise / math.sqrt(cells)):
                moved[modules[1].kernel.constant_name(config)] = cells, math.exp(mean)
    run = {key: tuple(_text(table.provenance.get(key)) for table in tables) for key in _RUN_KEYS}
    differs = {key: (was, one) for key, (was, one) in run.items() if was != one}
    cause = tuple(f"{_WORDS.get(k, f'the {k}')}: {a} -> {b}" for k, (a, b) in differs.items() if k in _CAUSES)
    same_spec = not [*spec_changes(*modules)] and modules[0].kernel.budget == modules[1].kernel.budget
    rules = Rules(threshold, noise, Cells.MEASURED)
    ids = np.array(problems[1].scenarios)[rows[1]]
    old = _times(modules[0], problems[0])[rows[0]]
    alone = price(ids, old, _times(modules[0], problems[1])[rows[1]], rules) if measured else None
    total = price(ids, old, _times(modules[1], problems[1])[rows[1]], rules) if measured else None
    return World(
        scenarios=(len(tables[0].scenarios), len(tables[1].scenarios)),
        common=len(rows[0]),
        launched=total,
        alone=alone,
        cause=cause,
        moved=dict(sorted(moved.items(), key=lambda one: -abs(math.log(one[1][1])) * one[1][0])),
        contradicts=bool(moved) and not cause and same_spec,
        lost=int((np.isfinite(before) & np.isnan(now)).sum()) * measured,
        gained=int((np.isnan(before) & np.isfinite(now)).sum()) * measured,
        failing=int((np.isinf(now) & ~np.isinf(before)).sum()),
        run=differs,
    )


def _times(module: Module, problem: Problem) -> Floats:
    """[scenarios] the times of what a module launches in a table."""
    return times_of(launched(problem, module.kernel, module.device.limits, module.heuristic), problem)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("name", "")
    return "nothing" if value is None else one_line(str(value))[:100]
