"""The arguments of `attn-tune`."""

import argparse
import contextlib
from pathlib import Path

from triton_tune.core.arguments import CommandParser, count, seconds
from triton_tune.fleet.options import add_fleet_arguments
from triton_tune.search.search import STRATEGIES

try:
    from attn_kernels.tuning.kernels import KERNELS
except ModuleNotFoundError as error:
    if error.name not in ("torch", "triton"):
        raise
    KERNELS = {}  # there is help without them, but no run

_DEFAULT_KERNEL = "unified_attention"


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    arguments = CommandParser(
        prog="attn-tune",
        description="Time many configs in many scenarios on this machine's GPUs and write a tuning "
        "table for treegen to compile. After an interruption the same command goes on where it stopped.",
    )
    arguments.add_argument(
        "--kernel",
        choices=list(KERNELS) or None,
        default=_DEFAULT_KERNEL,
        help=f"the kernel of treegen.yaml whose table this is (default: {_DEFAULT_KERNEL})",
    )
    arguments.add_argument(
        "--out", type=Path, help="the table's folder (default: tuning_data/<kernel>/<device>)"
    )
    sets = "; ".join(f"{name}: {', '.join(kernel.sets)}" for name, kernel in KERNELS.items())
    arguments.add_argument(
        "--scenarios",
        help="a named set or a file of recorded batch shapes, JSON lines (default: the kernel's first set; "
        f"{sets or 'with torch, this lists the sets'})",
    )
    arguments.add_argument(
        "--max-scenarios",
        type=_positive,
        default=1080,
        help="draw at most so many batches of a recorded file, weighted by their counts (default: 1080)",
    )
    arguments.add_argument(
        "--outside",
        type=Path,
        metavar="TABLE",
        help="print which recorded batches lie outside of a table, how often each was planned, and exit",
    )
    arguments.add_argument(
        "--seed", type=_seed, default=0, help="seed of the named set and of the order of visits (default: 0)"
    )
    arguments.add_argument(
        "--budget",
        type=seconds,
        default=600.0,
        help="seconds, summed over all runs of the table (default: 600)",
    )
    arguments.add_argument(
        "--strategy",
        choices=list(STRATEGIES),
        help="race: promising configs in more scenarios; full: every config in every scenario (default: "
        "race; full for mixed_attention)",
    )
    variants = "; ".join(f"{name}: {', '.join(kernel.variants)}" for name, kernel in KERNELS.items())
    arguments.add_argument(
        "--variants",
        help="measure only these variants, separated by commas (default: all; "
        f"{variants or 'with torch, this lists them'})",
    )
    arguments.add_argument(
        "--gpus",
        default="all",
        help="all, numbers separated by commas, or cpu for Triton's interpreter (default: all)",
    )
    arguments.add_argument(
        "--compile-workers",
        type=count,
        help="number of processes that compile kernels before they are timed; 0 for none (default: one less "
        "than there are processors, at most 30)",
    )
    add_fleet_arguments(arguments)
    arguments.add_argument(
        "--dry-run",
        action="store_true",
        help="print what a run would measure and how long it would take; needs no GPU",
    )
    arguments.add_argument(
        "--list-scenarios", action="store_true", help="print the scenarios as JSON lines and exit"
    )
    arguments.add_argument(
        "--replay",
        type=Path,
        metavar="TABLE",
        help="run the search on the times of a recorded table; needs no GPU",
    )
    return arguments


def _seed(text: str) -> int:
    with contextlib.suppress(ValueError):
        if abs(int(text)) < 1 << 62:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not an integer within 62 bits")


def _positive(text: str) -> int:
    if (number := count(text, most=1 << 20)) > 0:
        return number
    raise argparse.ArgumentTypeError("0 is too few")
