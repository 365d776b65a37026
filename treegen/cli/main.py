"""The command line.

Exit codes: 0 fine, 1 a check found something, 2 wrong use or bad input, 130 interrupted (SIGINT),
141 standard output is a closed pipe (SIGPIPE). Commands that write files at their end write them all the
same, and exit with 0.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path

from treegen.cli import build, diff, evaluate, explain, export, report, start, tables
from treegen.cli.parsers import WRONG, CommandParser
from treegen.core.errors import InputError, reason
from tuning_table import __version__

INTERRUPTED, CLOSED_PIPE = 130, 141  # 128 plus the number of the signal, as in shells
_COMMANDS = (
    start.add_init,
    build.add_build,
    build.add_check,
    diff.add,
    explain.add,
    report.add,
    evaluate.add,
    export.add,
    tables.add_import,
    tables.add_merge,
)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command. Without `--`, options may stand anywhere between other arguments."""
    parser = CommandParser(
        prog="treegen", description="Compile kernel tuning results into if-else Python modules."
    )
    parser.add_argument("--version", action="version", version=f"treegen {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(commands)
    if arguments and arguments[0] in commands.choices and "--" not in arguments:  # which would be lost
        return commands.choices[arguments[0]].parse_intermixed_args(arguments[1:])
    parsed: argparse.Namespace = parser.parse_args(arguments)
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # as after `treegen build >&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # products are small: more threads only wait for each other
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except InputError as error:
        for line in str(error).split("\n"):
            _wrong(line)
        return WRONG
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("treegen"):
            raise
        return _wrong(f"needs {error.name}: pip install 'attn-kernels[treegen]'")
    except BrokenExecutor:
        return _wrong(
            "a process of this command was killed, as when memory runs out; --jobs 1 takes least memory"
        )
    except KeyboardInterrupt:
        print("treegen: interrupted; nothing half-written is left", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich exits with 1 then
            return CLOSED_PIPE
        raise
    except OSError as error:  # files raise InputError, so standard output has failed
        sys.stdout = None  # Python would flush it again at exit
        return CLOSED_PIPE if isinstance(error, BrokenPipeError) else _wrong(f"cannot print: {reason(error)}")


def _wrong(what: str) -> int:
    print(f"treegen: {what}", file=sys.stderr)
    return WRONG
