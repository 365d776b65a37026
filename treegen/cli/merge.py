"""`treegen merge`: one table of several, such as the shards of a tuning run."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands
from treegen.core.errors import InputError, table_errors_as_input_errors


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "merge",
        help="make one table of several that were measured on GPUs of one model",
        description="Rows that several tables hold count once. Rows of a slow GPU are marked in visits.csv; "
        "from 1.15x slower than the others they are left out, and the next tuning run measures them again.",
    )
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help="a table's folder")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("merged"),
        metavar="DIR",
        help="the merged table's folder (default: merged); if it holds the table already, rows it lacks "
        "are added",
    )
    parser.add_argument(
        "--separate",
        action="store_true",
        help="write tables that differ in GPU, driver, versions or kernel to folders of their own "
        "below DIR, instead of refusing them",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tuning_table.merge import merge, read_sources, separate

    if any(not path.name for path in (options.out, *options.tables)):
        raise InputError("merge", "a table needs a folder of its own")
    with table_errors_as_input_errors():
        sources = read_sources(options.tables)
        groups = {options.out: sources}
        if options.separate:
            groups = {options.out / name: group for name, group in separate(sources).items()}
        for folder, group in groups.items():
            print("\n".join(_lines(merge(group, folder), len(group))))
    return FINE


def _lines(done: object, tables: int) -> list[str]:
    from treegen.review.printing import counted
    from tuning_table.merge import Merged
    from tuning_table.visit_log import SLOW

    assert isinstance(done, Merged)
    twice = f", {done.repeated} were there already" if done.repeated else ""
    lines = [f"{done.folder}: {counted(done.rows, 'row')} added from {counted(tables, 'table')}{twice}"]
    for worker, slowdown in sorted(done.slowdowns.items()):
        if left_out := done.slow_rows[worker]:
            lines.append(
                f"  {worker} was {slowdown:.2f}x slower than the others: {counted(left_out, 'row')} "
                "left out; a tuning run with this --out measures them again"
            )
        elif slowdown >= SLOW:
            lines.append(f"  {worker} was {slowdown:.2f}x slower than the others: its rows are marked")
    return lines
