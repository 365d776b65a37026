"""Commands that exchange data with other programs: `treegen import` and `merge`."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, names_of, path_of
from treegen.core.errors import InputError

_FORMATS = {
    "triton": "Triton's autotuner, *.autotune.json",
    "csv": "one row a measurement",
    "dejavu": "triton-dejavu's cache.json",
    "vllm": "vLLM's tuned JSON",
    "sglang": "SGLang's tuned JSON",
    "aiter": "aiter's tuned CSV",
}
# The options that say what a source does not, and the formats that take them.
_OPTIONS = {"features": ("triton", "csv"), "parameters": ("csv",), "time": ("csv",), "unit": ("csv",)}


def add_import(commands: Commands) -> None:
    parser = commands.add_parser(
        "import",
        help="turn another tool's tuning results into tables",
        description="Formats: " + "; ".join(f"{name}: {what}" for name, what in _FORMATS.items()) + ".",
    )
    parser.add_argument("format", choices=_FORMATS, metavar="FORMAT", help=f"one of {', '.join(_FORMATS)}")
    parser.add_argument(
        "source", type=path_of, metavar="SOURCE", help="a file, or a folder to search for files"
    )
    parser.add_argument(
        "--to",
        type=path_of,
        default=Path("tuning_data"),
        metavar="DIR",
        help="the folder of all tables (default: tuning_data)",
    )
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="the kernel's name if the source does not say it, else the only one to import (default: all)",
    )
    parser.add_argument(
        "--device", metavar="NAME", help="the GPU's name as its driver reports it (default: from the source)"
    )
    parser.add_argument(
        "--features",
        type=names_of,
        default=(),
        metavar="A,B",
        help="csv: columns; triton: the names of `key`, then X_dtype for each argument X with a data type",
    )
    parser.add_argument(
        "--parameters", type=names_of, default=(), metavar="A,B", help="csv: columns (default: all others)"
    )
    parser.add_argument(
        "--time", metavar="COLUMN", help="csv: the column of times (default: none, so needed)"
    )
    parser.add_argument(
        "--unit",
        choices=["s", "ms", "us", "ns"],
        help="csv: of the times (default: the end of the column's name)",
    )
    parser.add_argument(
        "--origin", metavar="TEXT", help="who published the results, and where (default: not noted)"
    )
    parser.add_argument("--licence", metavar="TEXT", help="the licence of the results (default: not noted)")
    parser.add_argument("--replace", action="store_true", help="replace tables that earlier imports wrote")
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    from treegen.importers.formats import READERS
    from treegen.importers.sources import ImportOptions
    from treegen.importers.tables import table_of, write_tables
    from tuning_table.names import kernel_name

    for name, formats in _OPTIONS.items():
        if getattr(options, name) and options.format not in formats:
            of_no_use = f"is of no use for {options.format}; it is for {', '.join(formats)}"
            raise InputError(f"--{name}", of_no_use)
    wanted = options.kernel
    given = ImportOptions(
        wanted, options.device, options.features, options.parameters, options.time, options.unit
    )
    notes = {"published_by": options.origin, "licence": options.licence}
    credit = {key: text for key, text in notes.items() if text is not None}
    tables = [
        table_of(found, credit)
        for found in READERS[options.format](options.source, given)
        if wanted is None or kernel_name(wanted) == kernel_name(found.kernel)
    ]
    if not tables:
        raise InputError(options.source, f"holds no table of kernel {wanted}")
    for folder, table in write_tables(tables, options.to, replace=options.replace):
        cells = "winners only" if table.cells == "winners" else "measured times"
        print(f"{folder}: {table.scenarios} scenarios, {table.configs} configs, {cells}")
        if table.words:
            print("    values:  # for this kernel of treegen.yaml")
        for name, words in table.words.items():
            print(f"      {name}: [{', '.join(map(repr, words))}]")
    return FINE


def add_merge(commands: Commands) -> None:
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
    parser.set_defaults(run=run_merge)


def run_merge(options: argparse.Namespace) -> int:
    from treegen.review.printing import counted
    from tuning_table.merge import merge

    if any(not path.name for path in (options.out, *options.tables)):
        raise InputError("merge", "a table needs a folder of its own")
    done = merge(options.tables, options.out)
    twice = f", {done.repeated} were there already" if done.repeated else ""
    added = f"{counted(done.rows, 'row')} added from {counted(len(options.tables), 'table')}"
    print(f"{options.out}: {added}{twice}")
    return FINE
