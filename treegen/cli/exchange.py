"""Commands that exchange data with other programs: `treegen import`, `merge` and `export`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from treegen.cli.parsers import FINE, Commands, add_spec, names_of, path_of
from treegen.core.errors import InputError

_FORMATS = {
    "triton": "Triton's autotuner, *.autotune.json",
    "csv": "one row per measurement",
    "dejavu": "triton-dejavu's cache.json",
    "vllm": "vLLM's tuned JSON",
    "sglang": "SGLang's tuned JSON",
    "aiter": "aiter's tuned CSV, and JSON of GEMM",
    "fla": "flash-linear-attention's <kernel>.json",
    "kernel-tuner": "Kernel Tuner's cache",
    "gemlite": "gemlite's JSON",
}
_EXPORTED = ("vllm", "sglang", "aiter", "triton", "fla", "prune", "hub")
_NAMES = {"type": names_of, "default": (), "metavar": "A,B"}
_NAME = {"metavar": "NAME"}
# The options that say what a source does not, or select: the formats that take them, and their help.
_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "features": (("csv", "aiter", "triton", "fla"), _NAMES, "columns; triton, fla: the key, then X_dtype"),
    "parameters": (("csv", "aiter"), _NAMES, "columns (default: csv: all others, aiter: known ones)"),
    "leave-out": (("aiter",), _NAMES, "columns without a meaning here"),
    "time": (("csv",), {"metavar": "COLUMN"}, "the column of times (required)"),
    "unit": (("csv",), {"choices": ["s", "ms", "us", "ns"]}, "default: the end of the column's name"),
    "gpu": (("vllm", "sglang", "aiter", "dejavu", "kernel-tuner"), _NAME, "only this GPU (default: all)"),
    "triton": (("sglang", "dejavu"), _NAME, "only this version of Triton (default: all)"),
    "dtype": (("vllm", "sglang", "aiter"), _NAME, "only this data type (default: all)"),
}


def add_import(commands: Commands) -> None:
    what = "turn another tool's tuning results into tables"
    about = "Formats: " + "; ".join(f"{name}: {what}" for name, what in _FORMATS.items()) + "."
    parser = commands.add_parser("import", help=what, description=about)
    parser.add_argument("format", choices=_FORMATS, metavar="FORMAT", help=f"one of {', '.join(_FORMATS)}")
    parser.add_argument("source", type=path_of, metavar="SOURCE", help="a file, or a folder with files")
    to, of_all = Path("tuning_data"), "the folder of all tables (default: tuning_data)"
    parser.add_argument("--to", type=path_of, default=to, metavar="DIR", help=of_all)
    for name, what in {
        "kernel": "the kernel's name if the source lacks it, else the only one to import (default: all)",
        "device": "the GPU's name as its driver reports it (default: from the source)",
        "origin": "who published the results, and where (default: not noted)",
        "licence": "the licence of the results (default: not noted)",
    }.items():
        parser.add_argument(f"--{name}", metavar="TEXT", help=what)
    for name, (formats, keywords, what) in _OPTIONS.items():
        parser.add_argument(f"--{name}", help=f"{', '.join(formats)}: {what}", **keywords)
    parser.add_argument("--replace", action="store_true", help="replace tables that earlier imports wrote")
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> int:
    from treegen.importers.formats import read
    from treegen.importers.sources import ImportOptions
    from treegen.importers.tables import selected, table_of, write_tables
    from tuning_table.names import listed

    for name, (formats, *_) in _OPTIONS.items():
        if getattr(options, name.replace("-", "_")) and options.format not in formats:
            of_no_use = f"is of no use for {options.format}; it is for {', '.join(formats)}"
            raise InputError(f"--{name}", of_no_use)
    given = ImportOptions(**{name: getattr(options, name) for name in ImportOptions.__annotations__})
    notes = {"published_by": options.origin, "licence": options.licence}
    credit = {key: text for key, text in notes.items() if text is not None}
    measurements = selected(read(options.format, options.source, given), given)
    if not measurements:
        raise InputError(options.source, f"holds no table of kernel {options.kernel}")
    tables = [table_of(table, options.format, credit) for table in measurements]
    for folder, written in write_tables(tables, options.to, replace=options.replace):
        table = written.table
        cells = "winners only" if table.cells == "winners" else "measured times"
        print(f"{folder}: {len(table.scenarios)} scenarios, {len(table.configs)} configs, {cells}")
        for what in written.left_out:
            print(f"    left out: {what}")
        varying = {name: words for name, words in table.words.items() if len(words) > 1}
        if varying:
            print("    values:  # for this kernel of treegen.yaml")
        for name, words in varying.items():
            print(f"      {name}: {json.dumps(listed(words))}")
    return FINE


def add_merge(commands: Commands) -> None:
    what = "make one table of several that were measured on GPUs of one model"
    about = "Rows that several tables hold count once."
    parser = commands.add_parser("merge", help=what, description=about)
    parser.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help="a table's folder")
    to = "the merged table's folder (default: merged); if it holds the table already, rows it lacks are added"
    parser.add_argument("--out", type=Path, default=Path("merged"), metavar="DIR", help=to)
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


def add_export(commands: Commands) -> None:
    what = "write a module's choices as files of other projects"
    about = """One feature runs along a file, and each combination of the others gets a file. triton stands
        for the arguments of triton.Config by size; fla has the table's keys; prune is one Python file for
        @triton.autotune, and hub the same in the layout of the Hugging Face hub."""
    parser = commands.add_parser("export", help=what, description=about)
    parser.add_argument("format", choices=_EXPORTED, metavar="FORMAT", help=f"one of {', '.join(_EXPORTED)}")
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel of the spec")
    values = """values of a feature, as in N=4096,5120; or dtype=... and block_shape=... of a file's name
        (default: the table's combinations, and the format's usual sizes); prune, hub: the kernel's
        argument that a feature is, as in n=n_elements or dtype=x_ptr.dtype"""
    parser.add_argument("features", nargs="*", metavar="NAME=VALUES", help=values)
    parser.add_argument("--along", metavar="FEATURE", help="the feature that runs along a file (default: M)")
    parser.add_argument("--device", metavar="KEY", help="the module (default: the kernel's first)")
    to = "the folder to write (default: exported)"
    parser.add_argument("--to", type=path_of, default=Path("exported"), metavar="DIR", help=to)
    add_spec(parser)
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    from treegen.export.module_files import fla_file, provenance_of, tuned_files
    from treegen.export.plain_file import plain_file
    from treegen.read.spec import find_spec, read_spec
    from treegen.write.files import write_files
    from treegen.write.modules import read_module_and_table

    form, words, last = options.format, options.features, ""
    if options.along is not None and form in ("fla", "prune", "hub"):
        raise InputError("--along", f"is of no use for {form}")
    if form in ("prune", "hub"):
        spec = read_spec(find_spec(options.spec))
        (kernel,) = spec.selected(options.kernel)
        files = plain_file(spec, kernel, words, options.device, of_hub=form == "hub")
    elif form == "fla" and words:
        raise InputError(words[0], "is of no use for fla, whose keys are those of the table")
    else:
        tuned = read_module_and_table(options.spec, options.kernel, options.device)
        if form == "fla":
            files = fla_file(tuned)
        else:
            files, last = tuned_files(tuned, form, words, options.along), provenance_of(tuned.problem)
    write_files(options.to, {name: file.text for name, file in files.items()})
    for name, file in files.items():
        print(f"{options.to / name}: {file.summary}")
    if last:
        print(last)
    return FINE
