"""`treegen export`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from treegen.cli.parsers import FINE, Commands, add_spec, path_of
from treegen.core.errors import InputError

_FORMATS = ("vllm", "sglang", "aiter", "triton", "fla", "prune", "hub")


def add(commands: Commands) -> None:
    what = "write a module's choices as files of other projects"
    about = """One feature runs along a file, and each combination of the others gets a file. triton stands
        for the arguments of triton.Config by size; fla has the table's keys; prune is one Python file for
        @triton.autotune, and hub the same in the layout of the Hugging Face hub."""
    parser = commands.add_parser("export", help=what, description=about)
    parser.add_argument("format", choices=_FORMATS, metavar="FORMAT", help=f"one of {', '.join(_FORMATS)}")
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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.write.files import write_files

    if options.along is not None and options.format in ("fla", "prune", "hub"):
        raise InputError("--along", f"is of no use for {options.format}")
    ways = {"fla": _fla, "prune": _plain, "hub": _plain}
    texts, lines, last = ways.get(options.format, _tuned)(options)
    write_files(options.to, texts)
    for name, line in zip(texts, lines, strict=True):
        print(f"{options.to / name}: {line}")
    if last:
        print(last)
    return FINE


Written: TypeAlias = tuple[Mapping[str, str], list[str], str]
"""The files' texts by name, a line of output for each, and the last line."""


def _tuned(options: argparse.Namespace) -> Written:
    from treegen.export.module_files import tuned_files
    from treegen.review.printing import counted
    from treegen.write.modules import read_module_and_table

    tuned = read_module_and_table(options.spec, options.kernel, options.device)
    files = tuned_files(tuned, options.format, options.features, options.along)
    lines = []
    for file in files.values():
        same = f"launches what the module does at all {file.sizes:,} sizes"
        differs = f"launches something else at {file.differing:,} of {file.sizes:,}"
        lines.append(f"{counted(file.keys, 'key')}; {differs if file.differing else same}")
    texts = {name: file.text for name, file in files.items()}
    return texts, lines, next(iter(files.values())).provenance


def _fla(options: argparse.Namespace) -> Written:
    from treegen.export.fla_file import fla_file
    from treegen.write.modules import read_module_and_table

    if options.features:
        raise InputError(options.features[0], "is of no use for fla, whose keys are those of the table")
    name, text = fla_file(read_module_and_table(options.spec, options.kernel, options.device))
    return {name: text}, [f"{text.count('autotune_key')} keys"], ""


def _plain(options: argparse.Namespace) -> Written:
    from treegen.export.plain_file import hub_files, plain_file
    from treegen.read.spec import find_spec, read_spec

    spec = read_spec(find_spec(options.spec))
    (kernel,) = spec.selected(options.kernel)
    text = plain_file(spec, kernel, options.features, options.device)
    texts = hub_files(kernel, text) if options.format == "hub" else {f"{kernel.name}_configs.py": text}
    return texts, [f"{text.count(chr(10))} lines" for text in texts.values()], ""
