"""What a user asks to have evaluated, and the tables that takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.problem import Problem
from treegen.core.spec import KernelSpec, Spec
from treegen.core.table import Table
from treegen.fit.significance import copies
from treegen.read.build_problem import build_problem
from treegen.read.spec_file import find_spec, read_spec
from treegen.read.table_file import read_table
from treegen.review.eval.assess import Plan, Posed, Subject
from treegen.review.eval.results import Source
from treegen.write.lock import digests


@dataclass(frozen=True)
class Request:
    """What the user asked for. spec, kernel, device, out, jobs: None where nothing was said."""

    spec: Path | None
    kernel: str | None
    device: str | None
    plan: Plan
    against: tuple[Path, ...]
    out: Path | None
    jobs: int | None


def read_subjects(request: Request) -> list[Subject]:
    """Every table that is asked for, with those that judge it. Raises InputError."""
    spec = read_spec(find_spec(request.spec))
    wanted = list(_wanted(spec, request))
    folders = sorted({kernel.tables[device] for kernel, device in wanted} | set(request.against))
    tables = {folder: read_table(folder) for folder in folders}
    root = spec.path.resolve().parent
    used: set[Path] = set()
    subjects = []
    for kernel, device in wanted:
        problem = build_problem(kernel, spec.devices[device], tables[kernel.tables[device]])
        if (distinct := int(copies(problem.features).max()) + 1) < request.plan.folds:
            what = f"has {distinct} scenarios to choose in, fewer than {request.plan.folds} folds"
            raise InputError(problem.table.folder, what)
        judges = [f for f in request.against if len(wanted) == 1 or _alike(tables[f], problem.table)]
        used.update(judges)
        others = tuple(_posed(_other(problem, tables[folder]), root) for folder in judges)
        subjects.append(Subject(_posed(problem, root), others))
    for folder in request.against:
        if folder not in used:
            table = tables[folder]
            what = f"measured {table.kernel} on {table.device_name}, as no table that is evaluated did"
            raise InputError(folder, f"{what}; to judge one all the same, name its --kernel and --device")
    return subjects


def _wanted(spec: Spec, request: Request) -> Iterator[tuple[KernelSpec, str]]:
    """The kernels and devices that are asked for, in the spec's order."""
    if request.kernel is not None and request.kernel not in spec.kernels:
        raise InputError(
            spec.path, f"has no kernel {shown(request.kernel)}; it has {', '.join(spec.kernels)}"
        )
    kernels = [kernel for name, kernel in spec.kernels.items() if request.kernel in (None, name)]
    known = dict.fromkeys(device for kernel in kernels for device in kernel.tables)
    if request.device is not None and request.device not in known:
        of = f"kernel {request.kernel}" if request.kernel else "any kernel"
        what = f"names no table of {of} for the device {shown(request.device)}; there are: {', '.join(known)}"
        raise InputError(spec.path, what)
    for kernel in kernels:
        yield from ((kernel, device) for device in kernel.tables if request.device in (None, device))


def _alike(other: Table, table: Table) -> bool:
    return (other.kernel, other.device_name) == (table.kernel, table.device_name)


def _other(problem: Problem, table: Table) -> Problem:
    """Another table posed as the problem is, with the same features to split on."""
    other = build_problem(problem.kernel, problem.device, table)
    for name in problem.split_on:
        if name not in other.names:
            raise InputError(
                table.folder, f"does not hold {name}, which trees of {problem.table.folder} may ask"
            )
    return replace(other, split_on=problem.split_on)


def _posed(problem: Problem, root: Path) -> Posed:
    table = problem.table
    path = Path(os.path.relpath(table.folder, root)).as_posix()
    source = Source(
        path, digests(table.folder), table.cells, len(problem.cost), problem.left_out, len(problem.configs)
    )
    return Posed(problem, source)
