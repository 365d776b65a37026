"""Check: every table reads, and the tables of the spec fit it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import short, try_path
from treegen.core.spec import Spec
from treegen.core.table import Table
from treegen.read.build_problem import spec_problem
from treegen.read.table_file import read_table
from treegen.review.check.report import CheckReport
from treegen.review.printing import counted
from tuning_table.table import RUN


@dataclass(frozen=True)
class CheckedTables:
    report: CheckReport
    usable: bool  # whether every table of the spec reads and fits it


def check_tables(spec: Spec) -> CheckedTables:
    """Read the tables of the spec and the tables beside them."""
    usable = True
    problems: list[str] = []
    tables: dict[Path, Table] = {}
    folders = {folder for kernel in spec.kernels.values() for folder in kernel.tables.values()}
    beside = {path for folder in folders for path in _tables_in(folder.parent)} - folders
    for folder in sorted(folders | beside):
        try:
            tables[folder] = read_table(short(folder))
        except InputError as error:
            problems.append(str(error))
            usable = usable and folder not in folders
    for kernel in spec.kernels.values():
        for device, folder in kernel.tables.items():
            try:
                if folder in tables:
                    spec_problem(kernel, spec.devices[device], tables[folder])
            except InputError as error:
                problems.append(f"for {kernel.name} on {device}: {error}")
                usable = False
    seen = f"{counted(len(folders), 'table')} of the spec, {len(beside)} beside them"
    scenarios = counted(sum(len(table.scenarios) for table in tables.values()), "scenario")
    return CheckedTables(CheckReport(f"{seen}, {scenarios}", tuple(problems)), usable)


def _tables_in(folder: Path) -> Iterator[Path]:
    if try_path(folder, Path.is_dir):
        yield from (run.parent for run in try_path(folder, lambda path: sorted(path.glob(f"*/{RUN}"))))
