"""`treegen suggest`: search derived features that make trees better."""

from __future__ import annotations

import argparse

from treegen.cli.parsers import FINE, Commands, add_selection, add_spec


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "suggest", help="search derived features (products, quotients, tiles) that make trees better"
    )
    add_spec(parser)
    add_selection(parser)
    parser.add_argument(
        "--most", type=int, default=8, metavar="N", help="the most features a kernel gets (default: 8)"
    )
    parser.add_argument("--raw", action="store_true", help="ignore the derived features of the spec")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.suggest.command import run as search

    search(options.spec, options.kernel, options.device, options.most, raw=options.raw)
    return FINE
