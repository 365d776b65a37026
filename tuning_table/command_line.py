"""What the commands treegen, triton-tune and attn-tune have in common: exit codes, and how errors are told.

It needs nothing that must be installed, so that help and wrong use work without.
"""

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tuning_table import __version__
from tuning_table.errors import TableError, one_line, reason

FINE, FOUND, WRONG = 0, 1, 2
INTERRUPTED, CLOSED_PIPE = 130, 141  # 128 plus the number of the signal, as in shells
_CANNOT_PRINT = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}  # files raise TableError
_EXTRAS = ["jinja2", "joblib", "matplotlib", "numpy", "rich", "scipy", "sklearn", "torch", "triton", "yaml"]


class CommandParser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line and exits with WRONG."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, one_line(f"{_name(self)}: {message} (see '{self.prog} --help')") + "\n")

    def add_version(self) -> None:
        self.add_argument("--version", action="version", version=f"{_name(self)} {__version__}")


def _name(parser: argparse.ArgumentParser) -> str:
    """The command of which this is the parser, or that of a subcommand."""
    return parser.prog.removeprefix("python -m ").split(" ")[0]


@dataclass(frozen=True)
class Command:
    """A command of the terminal.

    Its exit codes: FINE; FOUND if what it checked is not fine; WRONG for wrong use or bad input, with a line
    for each mistake on standard error; INTERRUPTED; CLOSED_PIPE if what reads its output stopped early.
    """

    name: str
    extra: str  # what installs its dependencies
    interrupted: str  # what Ctrl-C leaves
    wrong_input: tuple[type[Exception], ...] = (TableError,)

    def run(self, work: Callable[[], int]) -> int:
        """Do the work and return the exit code: its own, or that of what it raises."""
        for stream in ("stdout", "stderr"):
            if getattr(sys, stream) is None:  # as after `treegen build >&-`
                setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            status = work()
            sys.stdout.flush()
            return status
        except self.wrong_input as error:
            return self._tell(WRONG, *str(error).split("\n"))
        except ModuleNotFoundError as error:
            if error.name not in _EXTRAS:
                raise
            return self._tell(WRONG, f"needs {error.name}: pip install 'attn-kernels[{self.extra}]'")
        except BrokenExecutor:
            why = "as when memory runs out; --jobs 1 takes least memory"
            return self._tell(WRONG, f"a process of this command was killed, {why}")
        except KeyboardInterrupt:
            return self._tell(INTERRUPTED, self.interrupted)
        except (OSError, SystemExit) as error:  # rich turns a closed pipe into an exit
            if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
                sys.stdout = None  # Python would flush it again at exit
                return CLOSED_PIPE
            if isinstance(error, SystemExit) or error.errno not in _CANNOT_PRINT:
                raise
            sys.stdout = None
            return self._tell(WRONG, f"cannot print: {reason(error)}")

    def _tell(self, status: int, *lines: str) -> int:
        for line in lines:
            print(f"{self.name}: {line}", file=sys.stderr)
        return status
