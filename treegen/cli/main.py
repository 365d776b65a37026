"""The command line. `tuning_table.command_line.Command` has the exit codes.

Commands that write files at their end write them even if standard output is a closed pipe, and exit with 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from treegen.cli import build, exchange, review
from tuning_table.command_line import Command, CommandParser

_COMMAND = Command("treegen", "treegen", "interrupted; nothing half-written is left")
_COMMANDS = (
    *(build.add_init, build.add_build, build.add_check),
    *(review.add_diff, review.add_explain, review.add_report, review.add_eval),
    *(exchange.add_export, exchange.add_import, exchange.add_merge),
)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command. Without `--`, options may stand anywhere between other arguments."""
    what = "Compile kernel tuning results into if-else Python modules."
    parser = CommandParser(prog="treegen", description=what)
    parser.add_version()
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(commands)
    if arguments and arguments[0] in commands.choices and "--" not in arguments:  # which would be lost
        return commands.choices[arguments[0]].parse_intermixed_args(arguments[1:])
    parsed: argparse.Namespace = parser.parse_args(arguments)
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # products are small: more threads only wait for each other
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    return _COMMAND.run(lambda: int(options.run(options)))
