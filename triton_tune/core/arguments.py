"""The parser that tuning commands share, and numbers among their arguments."""

import argparse
import contextlib
from typing import NoReturn

from tuning_table.errors import one_line


class CommandParser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, one_line(f"{self.prog}: {message} (see '{self.prog} --help')") + "\n")


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
