"""`treegen diff`: compare what two versions launch."""

from __future__ import annotations

import argparse
import sys

from treegen.cli.parsers import FINE, FOUND, Commands, add_spec
from treegen.core.errors import InputError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "diff",
        help="show which shapes launch differently, and what that costs",
        description="OLD and NEW are git revisions, project folders or output folders.",
    )
    parser.add_argument("old", metavar="OLD", help="the version before, such as `main`")
    parser.add_argument(
        "new", metavar="NEW", nargs="?", help="the version after (default: the folder of the spec)"
    )
    add_spec(parser)
    parser.add_argument(
        "--format",
        choices=["terminal", "markdown", "json"],
        default="terminal",
        help="of the output (default: Markdown, which a terminal shows rendered)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=1.0,
        metavar="PERCENT",
        help="exit 1 if the scenarios of a change get more than this much slower (default: 1)",
    )
    parser.add_argument(
        "--expect-signature",
        action="store_true",
        help="accept that callers must change: names that are gone, other arguments, other modules for GPUs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from contextlib import ExitStack
    from dataclasses import asdict

    from rich.console import Console
    from rich.markdown import Markdown

    from treegen.review.diff.changes import compare
    from treegen.review.diff.markdown import markdown
    from treegen.review.diff.snapshots import read_snapshot
    from treegen.review.printing import json_text

    if not 0 <= options.threshold <= 1000:
        raise InputError(f"--threshold {options.threshold}", "must be a percentage from 0 to 1000")
    with ExitStack() as stack:
        old = read_snapshot(options.old, options.spec, stack, older=True)
        new = read_snapshot(options.new, options.spec, stack)
        diff = compare(old, new, 1 + options.threshold / 100)
    if options.format == "json":
        sys.stdout.write(
            json_text({"format": 5, "regresses": diff.regresses, "breaks": diff.breaks, **asdict(diff)})
        )
    elif options.format == "terminal" and sys.stdout.isatty():
        Console().print(Markdown(markdown(diff)))
    else:
        sys.stdout.write(markdown(diff))
    return FOUND if diff.regresses or (diff.breaks and not options.expect_signature) else FINE
