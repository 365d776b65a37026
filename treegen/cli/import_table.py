"""`treegen import`: tables from another tool's tuning results."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, path_of
from treegen.core.errors import InputError

_FORMATS = {
    "triton": "Triton's autotuner, *.autotune.json",
    "csv": "one row a measurement",
    "dejavu": "triton-dejavu's cache.json",
    "kernel-tuner": "Kernel Tuner's caches and T4 files",
    "helion": "Helion's measurements_*.csv",
    "vllm": "vLLM's tuned JSON",
    "sglang": "SGLang's tuned JSON",
    "aiter": "aiter's tuned CSV",
}
# The options that say what a source does not, and the formats that take them.
_OPTIONS = {
    "features": ("triton", "csv", "kernel-tuner"),
    "parameters": ("csv",),
    "time": ("csv",),
    "unit": ("csv",),
}


def add(commands: Commands) -> None:
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
        type=_names,
        default=(),
        metavar="A,B",
        help="csv: columns; triton: the names of `key`, then X_dtype for each argument X with a data type; "
        "kernel-tuner: the names of the problem's sizes "
        "(default: from the source)",
    )
    parser.add_argument(
        "--parameters", type=_names, default=(), metavar="A,B", help="csv: columns (default: all others)"
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.importers.formats import READERS
    from treegen.importers.measurements import ImportOptions
    from treegen.importers.tables import table_of
    from treegen.importers.write_tables import write_tables
    from tuning_table.names import kernel_name

    for name, formats in _OPTIONS.items():
        if getattr(options, name) and options.format not in formats:
            raise InputError(
                f"--{name}", f"is of no use for {options.format}; it is for {', '.join(formats)}"
            )
    given = ImportOptions(
        options.kernel, options.device, options.features, options.parameters, options.time, options.unit
    )
    found = READERS[options.format](options.source, given)
    wanted = [
        one
        for one in found
        if options.kernel is None or kernel_name(options.kernel) == kernel_name(one.kernel)
    ]
    tables = [table_of(one, _credit(options)) for one in wanted]
    if not tables:
        raise InputError(options.source, f"holds no table of kernel {options.kernel}")
    for folder, table in write_tables(tables, options.to, replace=options.replace):
        cells = "winners only" if table.cells == "winners" else "measured times"
        print(f"{folder}: {table.scenarios} scenarios, {table.configs} configs, {cells}")
        for line in _values(table.words):
            print(line)
    return FINE


def _values(words: Mapping[str, list[str]]) -> list[str]:
    """The section of the spec that a table with words needs, ready to paste."""
    if not words:
        return []
    return ["    values:  # for this kernel of treegen.yaml"] + [
        f"      {name}: [{', '.join(map(repr, found))}]" for name, found in words.items()
    ]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _credit(options: argparse.Namespace) -> dict[str, str]:
    given = {"published_by": options.origin, "licence": options.licence}
    return {key: text for key, text in given.items() if text is not None}
