"""The arguments of `triton-tune`."""

import argparse
import os
from pathlib import Path

from triton_tune.core.arguments import CommandParser, count, seconds
from triton_tune.fleet.options import add_fleet_arguments
from triton_tune.search.search import STRATEGIES


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = CommandParser(
        prog="triton-tune",
        description="Time the configs of a @triton.autotune kernel for many shapes and write a tuning table "
        "for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument("file", type=Path, metavar="FILE", help="a Python file that defines a Tuning")
    arguments.add_argument("--kernel", help="the Tuning to use, if the file defines several")
    arguments.add_argument(
        "--out",
        type=Path,
        default=Path("tuning_data"),
        help="the folder of all tables (default: %(default)s); this one is <out>/<kernel>/<device>",
    )
    arguments.add_argument(
        "--budget",
        type=seconds,
        default=300.0,
        help="seconds, summed over all runs of the table (default: 300)",
    )
    arguments.add_argument(
        "--strategy",
        choices=list(STRATEGIES),
        default="race",
        help="race: promising configs in more scenarios; full: every config for every shape "
        "(default: %(default)s)",
    )
    arguments.add_argument(
        "--gpus",
        default="cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "all",
        help="all, numbers separated by commas, or cpu for Triton's interpreter (default: all; cpu where "
        "TRITON_INTERPRET is 1)",
    )
    arguments.add_argument(
        "--compile-workers",
        type=count,
        help="number of processes that compile kernels before they are timed; 0 for none (default: one fewer "
        "than there are processors, at most 30)",
    )
    add_fleet_arguments(arguments)
    arguments.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be measured, without timing anything; needs no GPU",
    )
    arguments.add_argument(
        "--empty",
        action="store_true",
        help="write the table without times, so that `treegen init` can read it, and stop",
    )
    return arguments
