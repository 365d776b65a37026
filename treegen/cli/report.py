"""treegen report."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, add_spec


def add(commands: Commands) -> None:
    parser = commands.add_parser("report", help="write a page about what the committed modules launch")
    add_spec(parser)
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel (default: all of the spec)")
    parser.add_argument("--device", metavar="KEY", help="only this device (default: all with a table)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="the page (default: report.html)",
    )
    parser.add_argument(
        "--png", type=Path, metavar="DIR", help="also write an image a kernel and device there, for a README"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.review.report.command import ReportSettings
    from treegen.review.report.command import run as report

    report(ReportSettings(options.spec, options.kernel, options.device, options.out, options.png))
    return FINE
