"""What the command lines of tuning share that needs neither torch nor Triton."""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from triton_tune.core.errors import TuningError
from tuning_table import TableError
from tuning_table.errors import one_line
from tuning_table.table import RUN

INTERRUPTED = 130


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


def table(text: str) -> str:
    """The folder of a table, or an empty text for that of this device. Raises ArgumentTypeError."""
    with contextlib.suppress(OSError):  # of names that are too long
        if not text or Path(text, RUN).exists():
            return text
    raise argparse.ArgumentTypeError(f"{text!r:.80} is no table's folder; without TABLE, give --recheck last")


def exit_code(command: str, work: Callable[[], int]) -> int:
    """What `work` returns; 2 after wrong input, with one line on stderr; 130 if it was interrupted."""
    try:
        return work()
    except (TuningError, TableError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton", "numpy", "yaml", "rich"):
            raise
        print(f"{command}: needs {error.name}: pip install 'attn-kernels[tune]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{command}: stopped before anything was measured", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader stopped early, as in `attn-tune --dry-run | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
