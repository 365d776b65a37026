"""The tables that `treegen eval` and `report` read, and the scenarios that two tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec, Spec
from treegen.core.table import Table
from treegen.crossval.peers import asked
from treegen.read.problem import build_problem, read_table, spec_problem


def read_tables(
    spec: Spec, kernel: str | None, device: str | None, against: Sequence[Path] = ()
) -> list[tuple[Problem, list[Problem]]]:
    """The tables of a kernel and a device (None selects all), each with those others that may score its rows.

    Raises InputError.
    """
    tables = selected(spec, kernel, device)
    others = {folder: read_table(folder) for folder in against}
    used: set[Path] = set()
    found = []
    for of, key in tables:
        problem = spec_problem(of, spec.devices[key], read_table(of.tables[key]))
        gpu = problem.table.kernel, problem.table.device_name
        alike = [f for f, t in others.items() if len(tables) == 1 or (t.kernel, t.device_name) == gpu]
        used.update(alike)
        found.append((problem, [_other_problem(problem, others[folder]) for folder in alike]))
    for folder in others.keys() - used:
        what = f"measured {others[folder].kernel} on {others[folder].device_name}, as no evaluated table did"
        raise InputError(folder, f"{what}; to use it all the same, name one --kernel and --device")
    return found


def selected(spec: Spec, kernel: str | None, device: str | None) -> list[tuple[KernelSpec, str]]:
    """The kernels and devices with a table, of which one may be named, in the spec's order.

    Raises InputError if there is none.
    """
    kernels = spec.selected(kernel)
    known = dict.fromkeys(key for of in kernels for key in of.tables)
    of_kernel = f"kernel {kernel}" if kernel else "any kernel"
    if not known:
        raise InputError(spec.path, f"names no table of {of_kernel}")
    if device not in (None, *known):
        what = f"names no table of {of_kernel} for the device {shown(str(device))}"
        raise InputError(spec.path, f"{what}; there are: {', '.join(known)}")
    return [(of, key) for of in kernels for key in of.tables if device in (None, key)]


def _other_problem(problem: Problem, table: Table) -> Problem:
    """Another table as a problem with the same features to split on."""
    other = build_problem(problem.kernel, problem.device, table)
    for name in asked(problem):
        if name not in other.names:
            what = f"does not hold {name}, about which the rows of {problem.table.folder} may ask"
            raise InputError(table.folder, what)
    return replace(other, split_on=problem.split_on)


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
