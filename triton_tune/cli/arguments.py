"""The arguments that `triton-tune` and `attn-tune` share."""

import argparse
import contextlib
from pathlib import Path

from triton_tune.core.errors import TuningError
from triton_tune.run.shards import shard_from
from tuning_table import TableError
from tuning_table.command_line import Command, CommandParser
from tuning_table.table import RUN


def seconds(text: str) -> float:
    """Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        if 1.0 <= float(text) <= 1e7:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of seconds from 1 to 10000000")


def count(text: str, least: int = 0, most: int = 1024) -> int:
    """Raises ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        if least <= int(text) <= most:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not an integer from {least} to {most}")


def table(text: str) -> str:
    """The folder of a table, or an empty text for that of this device. Raises ArgumentTypeError."""
    with contextlib.suppress(OSError):  # of names that are too long
        if not text or Path(text, RUN).exists():
            return text
    raise argparse.ArgumentTypeError(f"{text!r:.80} is no table's folder; without TABLE, give --recheck last")


def tuning_command(name: str) -> Command:
    """The command `triton-tune` or `attn-tune`."""
    return Command(name, "tune", "stopped before anything was measured", (TuningError, TableError))


def add_run_arguments(arguments: CommandParser, *, budget: float, gpus: str, strategy: str) -> None:
    """Add what `cli.command.run` reads; `--out` sets `root`, of all tables, or `folder`, of one.

    budget, gpus: defaults. strategy: the default in words.
    """
    arguments.add_version()
    arguments.set_defaults(root="tuning_data", folder=None, empty=False, untuned=False)
    arguments.add_argument(
        "--budget",
        type=seconds,
        default=budget,
        help="seconds to compile and time in, summed over all runs of the table; importing the package and "
        "starting processes come before, and what is under way in the end is finished "
        f"(default: {budget:.0f})",
    )
    arguments.add_argument(
        "--strategy",
        choices=["race", "full"],
        help="race: promising configs in more scenarios; full: every config in every scenario "
        f"(default: {strategy})",
    )
    arguments.add_argument(
        "--gpus",
        default=gpus,
        help="all, numbers separated by commas, or cpu for Triton's interpreter (default: %(default)s)",
    )
    arguments.add_argument(
        "--compile-workers",
        type=count,
        help="number of processes that compile kernels before they are timed; 0 for none (default: one fewer "
        "than there are processors, at most 30)",
    )
    alternatives = arguments.add_mutually_exclusive_group()
    alternatives.add_argument(
        "--shard",
        type=shard_from,
        metavar="I/N",
        help="measure part I of N, as one host of N; `treegen merge` joins the tables (their folders end in "
        "-shard-I-of-N)",
    )
    alternatives.add_argument(
        "--recheck",
        nargs="?",
        const="",
        type=table,
        metavar="TABLE",
        help="time about 30 cells again, in a minute, and tell whether choices of the generated module are "
        "stale, as after a new driver or Triton; exit code 1 if some are, or many unsure (default: this "
        "device's table)",
    )
    arguments.add_argument(
        "--dry-run",
        action="store_true",
        help="print what a run would measure and about how long it would take; needs no GPU, and makes no "
        "tensors",
    )
