"""`treegen import`: tables from another tool's tuning results."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands
from treegen.core.errors import InputError


def add(commands: Commands) -> None:
    parser = commands.add_parser("import", help="turn another tool's tuning results into tables")
    parser.add_argument("format", choices=["dejavu"], help="the tool: dejavu for triton-dejavu caches")
    parser.add_argument(
        "source", type=Path, metavar="SOURCE", help="a cache file, or a folder to search for cache files"
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=Path("tuning_data"),
        metavar="DIR",
        help="the folder of all tables (default: tuning_data)",
    )
    parser.add_argument("--kernel", metavar="NAME", help="only the tables of this kernel (default: all)")
    parser.add_argument(
        "--origin", metavar="TEXT", help="who published the results, and where (default: not noted)"
    )
    parser.add_argument("--licence", metavar="TEXT", help="the licence of the results (default: not noted)")
    parser.add_argument("--replace", action="store_true", help="replace tables that earlier imports wrote")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.importers import write_tables
    from treegen.importers.dejavu import import_dejavu

    tables = [
        t for t in import_dejavu(options.source, _credit(options)) if options.kernel in (None, t.kernel)
    ]
    if not tables:
        raise InputError(options.source, f"holds no table of kernel {options.kernel}")
    for folder, table in write_tables(tables, options.to, replace=options.replace):
        print(f"{folder}: {table.scenarios} scenarios, {table.configs} configs, winners only")
    return FINE


def _credit(options: argparse.Namespace) -> dict[str, str]:
    given = {"published_by": options.origin, "licence": options.licence}
    return {key: text for key, text in given.items() if text is not None}
