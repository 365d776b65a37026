"""`treegen export`."""

from __future__ import annotations

import argparse
from pathlib import Path

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
    from treegen.export.fla_file import fla_file
    from treegen.export.module_files import provenance_of, tuned_files
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
