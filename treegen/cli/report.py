"""`treegen report`: a page about what the committed modules launch."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, add_selection, add_spec, path_of


def add(commands: Commands) -> None:
    parser = commands.add_parser("report", help="write a page about what the committed modules launch")
    add_spec(parser)
    add_selection(parser)
    parser.add_argument(
        "--out",
        type=path_of,
        default=Path("report.html"),
        metavar="FILE",
        help="the page to write (default: report.html)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.review.report import run as report

    report(options.spec, options.kernel, options.device, options.out)
    return FINE
