"""The arguments of `attn-tune`."""

import argparse
import contextlib
from pathlib import Path

from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.search.search import STRATEGIES

KERNEL = "unified_attention"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="attn-tune",
        description="Time many configs in many scenarios on this machine's GPUs and write a measurement "
        "table that treegen compiles. The same command goes on where an earlier run stopped.",
    )
    found.add_argument(
        "--out", type=Path, help=f"the table's folder (default: tuning_data/{KERNEL}/<device>)"
    )
    found.add_argument(
        "--scenarios",
        default="serving",
        help=f"a named set ({', '.join(SETS)}) or a file of recorded batch shapes, JSON lines",
    )
    found.add_argument("--seed", type=_seed, default=0, help="of the named set and of the order of visits")
    found.add_argument("--budget", type=_seconds, default=600.0, help="seconds, all runs of a table added up")
    found.add_argument(
        "--strategy",
        choices=list(STRATEGIES),
        default="race",
        help="race: spend the time where it decides; full: every config in every scenario",
    )
    found.add_argument("--variants", help=f"only these, separated by commas ({', '.join(VARIANTS)})")
    found.add_argument("--gpus", default="all", help="all, or numbers separated by commas; cpu: interpreter")
    found.add_argument("--compile-workers", type=_count, help="processes that compile ahead (0: none)")
    found.add_argument("--dry-run", action="store_true", help="say what it would do, and how long it takes")
    found.add_argument("--list-scenarios", action="store_true", help="print the scenarios as JSON lines")
    found.add_argument(
        "--replay", type=Path, metavar="TABLE", help="run the search on a recorded table; needs no GPU"
    )
    return found


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1.0 <= float(text) <= 1e7:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of seconds from 1 to 10000000")


def _seed(text: str) -> int:
    with contextlib.suppress(ValueError):
        if abs(int(text)) < 1 << 62:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is no integer within 62 bits")


def _count(text: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= int(text) <= 1024:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r:.40} is no number from 0 to 1024")
