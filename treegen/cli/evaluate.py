"""`treegen eval`: held-out errors of the fit and of its peers."""

from __future__ import annotations

import argparse

from treegen.cli.parsers import FINE, Commands, add_jobs, add_selection, add_spec, names_of, path_of


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "eval", help="compare the held-out slowdown of rows with that of other methods"
    )
    add_spec(parser)
    add_selection(parser)
    parser.add_argument(
        "--folds", type=int, default=5, metavar="K", help="folds of a cross-validation (default: 5)"
    )
    parser.add_argument(
        "--hold-out-by",
        type=names_of,
        default=(),
        metavar="A,B",
        help="features whose equal values make a group to leave out (default: the spec's hold_out_by)",
    )
    parser.add_argument(
        "--against",
        type=path_of,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another table on which to score the rows of the whole table; may be repeated (default: none)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_jobs(parser, "that fit")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.review.evaluate import evaluate, show

    tables = evaluate(
        options.spec,
        options.kernel,
        options.device,
        folds=options.folds,
        hold_out_by=options.hold_out_by,
        against=tuple(dict.fromkeys(options.against)),
        jobs=options.jobs,
    )
    show(tables, options.folds, as_json=options.json)
    return FINE
