"""`treegen export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, add_spec, path_of

_FORMATS = ("vllm", "sglang", "aiter", "triton")


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a module's choices as tuned files of other projects",
        description="One feature runs along a file, and each combination of the others gets a file. triton "
        "stands for the arguments of triton.Config by size.",
    )
    parser.add_argument("format", choices=_FORMATS, metavar="FORMAT", help=f"one of {', '.join(_FORMATS)}")
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel of the spec")
    parser.add_argument(
        "features",
        nargs="*",
        metavar="NAME=VALUES",
        help="values of a feature, as in N=4096,5120; or dtype=... and block_shape=... of a "
        "file's name (default: the table's combinations, and the format's usual sizes)",
    )
    parser.add_argument("--along", metavar="FEATURE", help="the feature that runs along a file (default: M)")
    parser.add_argument("--device", metavar="KEY", help="the module (default: the kernel's first)")
    parser.add_argument(
        "--to",
        type=path_of,
        default=Path("exported"),
        metavar="DIR",
        help="the folder to write (default: exported)",
    )
    add_spec(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.export.module_files import tuned_files
    from treegen.review.modules import read_module_and_table
    from treegen.review.printing import counted
    from treegen.write.files import write_files

    tuned = read_module_and_table(options.spec, options.kernel, options.device)
    files = tuned_files(tuned, options.format, options.features, options.along)
    write_files(options.to, {name: file.text for name, file in files.items()})
    for name, file in files.items():
        same = f"launches what the module does at all {file.sizes:,} sizes"
        differs = f"launches something else at {file.differing:,} of {file.sizes:,}"
        print(f"{options.to / name}: {counted(file.keys, 'key')}; {differs if file.differing else same}")
    print(next(iter(files.values())).provenance)
    return FINE
