"""The commands that draw the JSON of an earlier run."""

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.environment import stop


def draw_command(draw: Callable[[Path], list[Path]], description: str | None, kind: str, maker: str) -> None:
    """Draw the `kind` file named on the command line, which `maker` wrote, and say what was written."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("source", type=Path, help=f"{kind} of a run")
    source = parser.parse_args().source
    try:
        written = draw(source)
    except (OSError, ValueError, KeyError, TypeError) as error:
        stop(f"{source}: no {kind} of `{maker}`: {type(error).__name__} {error}")
    print(*written, sep="\n")
