"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from tuning_table.command_line import FINE as FINE
from tuning_table.command_line import FOUND as FOUND
from tuning_table.command_line import CommandParser


def path_of(text: str) -> Path:
    """A path on the command line; an empty text, which would be this folder, is wrong use."""
    if not text:
        raise argparse.ArgumentTypeError("an empty text is no path")
    return Path(text)


def names_of(text: str) -> tuple[str, ...]:
    """The names between commas; none at all is wrong use."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("give at least one name")
    return names


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
"""The object to which a command adds its parser."""


def add_spec(parser: CommandParser) -> None:
    """Add the option `--spec`."""
    spec = "the spec (default: treegen.yaml in this folder)"
    parser.add_argument("--spec", type=path_of, metavar="FILE", help=spec)


def add_selection(parser: CommandParser) -> None:
    """Add the options that select tables of the spec."""
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel (default: all of the spec)")
    parser.add_argument("--device", metavar="KEY", help="only this device (default: all with a table)")


def add_jobs(parser: CommandParser, whose: str, more: str = "") -> None:
    """Add the option `--jobs`."""
    processes = f"processes {whose} (default: one per processor{more})"
    parser.add_argument("--jobs", type=_at_least_1, metavar="N", help=processes)


def _at_least_1(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:9]) < 1 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes")
    return int(text)
