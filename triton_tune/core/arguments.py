"""Kinds of arguments of the tuning commands. Each function raises ArgumentTypeError for wrong text."""

import argparse
import contextlib
from pathlib import Path

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
