"""Commands that help to write a spec: `treegen init` and `new-device`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from treegen.cli.parsers import FINE, Commands
from treegen.core.errors import InputError, reason


def add_init(commands: Commands) -> None:
    parser = commands.add_parser(
        "init",
        help="write a commented treegen.yaml from tables",
        description="A table may still be empty, as when triton-tune has only begun.",
    )
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="the folder of a table")
    parser.add_argument(
        "--spec",
        type=Path,
        default=Path("treegen.yaml"),
        metavar="FILE",
        help="the file to write, which must not exist; - for standard output (default: treegen.yaml)",
    )
    parser.add_argument(
        "--output",
        default="heuristics",
        metavar="DIR",
        help="the folder that builds write, and the package that is imported (default: heuristics)",
    )
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    from treegen.start import spec_text

    if not options.output.replace("/", "_").isidentifier():
        raise InputError("--output", "must be a folder that Python can import, such as heuristics")
    to_stdout = str(options.spec) == "-"
    path = Path("treegen.yaml") if to_stdout else options.spec
    built = path.parent / options.output
    # A build removes modules that its spec does not name.
    if path.name != "treegen.yaml" and (built / "treegen.lock").exists():
        raise InputError(built, "holds the modules of another spec; choose another folder with --output")
    text = spec_text(options.tables, path, options.output)
    if to_stdout:
        sys.stdout.write(text)
        return FINE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(path, "exists already; choose another with --spec, or - to print it") from None
    except OSError as error:
        raise InputError(path, f"cannot be written: {reason(error)}") from None
    print(f"{path}: read it, then run `treegen build`")
    return FINE


def add_new_device(commands: Commands) -> None:
    parser = commands.add_parser(
        "new-device",
        help="print the section of treegen.yaml for a GPU",
        description="The GPU is that of this machine, as torch sees it, or the one that is described.",
    )
    parser.add_argument("--name", metavar="TEXT", help="its name, as drivers report it (default: ask torch)")
    parser.add_argument("--arch", metavar="ARCH", help="such as sm_90 or gfx942 (default: ask torch)")
    parser.set_defaults(run=run_new_device)


def run_new_device(options: argparse.Namespace) -> int:
    from treegen.start import Gpu, device_section, gpu_here

    if (options.name is None) != (options.arch is None):
        raise InputError("new-device", "--name and --arch go together")
    gpu = gpu_here() if options.name is None else Gpu(options.name, options.arch, None)
    print("\n".join(device_section(gpu)))
    return FINE
