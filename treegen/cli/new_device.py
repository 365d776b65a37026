"""`treegen new-device`: a device's section of the spec, to paste."""

from __future__ import annotations

import argparse

from treegen.cli.parsers import FINE, Commands
from treegen.core.errors import InputError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "new-device",
        help="print the section of treegen.yaml for a GPU",
        description="The GPU is that of this machine, as torch sees it, or the one that is described.",
    )
    parser.add_argument("--name", metavar="TEXT", help="its name, as drivers report it (default: ask torch)")
    parser.add_argument("--arch", metavar="ARCH", help="such as sm_90 or gfx942 (default: ask torch)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.start.device_section import Gpu, device_section, gpu_here

    if (options.name is None) != (options.arch is None):
        raise InputError("new-device", "--name and --arch go together")
    gpu = gpu_here() if options.name is None else Gpu(options.name, options.arch, None)
    print("\n".join(device_section(gpu)))
    return FINE
