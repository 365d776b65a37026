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
        description="Rows that several tables hold count once.",
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
    from treegen.review.words import counted
    from tuning_table.merge import merge, read_sources, separate

    if any(not path.name for path in (options.out, *options.tables)):
        raise InputError("merge", "a table needs a folder of its own")
    with table_errors_as_input_errors():
        sources = read_sources(options.tables)
        groups = {options.out: sources}
        if options.separate:
            groups = {options.out / name: group for name, group in separate(sources).items()}
        for folder, group in groups.items():
            done = merge(group, folder)
            twice = f", {done.repeated} were there already" if done.repeated else ""
            tables = counted(len(group), "table")
            print(f"{folder}: {counted(done.rows, 'row')} added from {tables}{twice}")
    return FINE
