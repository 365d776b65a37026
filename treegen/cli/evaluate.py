"""treegen eval."""

from __future__ import annotations

import argparse
from pathlib import Path

from treegen.cli.parsers import FINE, Commands, add_spec


def add(commands: Commands) -> None:
    parser = commands.add_parser("eval", help="score trees on scenarios they have not seen, beside peers")
    add_spec(parser)
    parser.add_argument("--kernel", metavar="NAME", help="only this kernel (default: all of the spec)")
    parser.add_argument("--device", metavar="KEY", help="only this device (default: all with a table)")
    parser.add_argument("--folds", type=int, default=5, metavar="K", help="folds (default: 5)")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="shuffles (default: 2)")
    parser.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another table that scores the tree of the whole table; may be repeated",
    )
    parser.add_argument("--no-curves", action="store_true", help="skip the learning curves")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write eval.md and eval.json there")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a processor)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.review.eval.command import run as evaluate
    from treegen.review.eval.tables import EvalSettings

    evaluate(
        EvalSettings(
            options.spec,
            options.kernel,
            options.device,
            options.folds,
            options.repeats,
            not options.no_curves,
            tuple(dict.fromkeys(options.against)),
            options.out,
            options.jobs,
        )
    )
    return FINE
