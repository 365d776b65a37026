"""The command line of scripts that draw plots from the JSON of an earlier run."""

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.environment import stop


def draw_command(draw: Callable[[Path], list[Path]], description: str | None, kind: str, maker: str) -> None:
    """Draw the file that the command line names and print which plots were written.

    `kind` is the file's usual name, and `maker` the module whose run writes it.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", type=Path, help=f"{kind} of a run")
    source = parser.parse_args().source
    try:
        written = draw(source)
    except (OSError, ValueError, KeyError, TypeError) as error:
        stop(f"{source}: not a {kind} that `{maker}` wrote: {type(error).__name__} {error}")
    print(*written, sep="\n")
