"""`treegen eval`: held-out errors of the fit and of its peers."""

from __future__ import annotations

import argparse

from treegen.cli.parsers import FINE, Commands, add_selection, add_spec, path_of


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
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="cross-validations, each with other folds (default: 1)",
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
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per processor)")
    parser.set_defaults(run=run)


def names_of(text: str) -> tuple[str, ...]:
    """The names between commas; none at all is wrong use."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("name at least one feature")
    return names


def run(options: argparse.Namespace) -> int:
    from treegen.review.evaluate import EvalSettings
    from treegen.review.evaluate import run as evaluate

    settings = EvalSettings(
        options.spec,
        options.kernel,
        options.device,
        options.folds,
        options.repeats,
        options.hold_out_by,
        tuple(dict.fromkeys(options.against)),
        options.jobs,
    )
    evaluate(settings, as_json=options.json)
    return FINE
