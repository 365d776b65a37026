"""`treegen explain`: what one shape launches and why."""

from __future__ import annotations

import argparse

from treegen.cli.parsers import FINE, Commands, add_spec
from treegen.core.errors import InputError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="show which config a shape launches, why, what would change it, and what was measured near it",
    )
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel of the spec")
    parser.add_argument(
        "features",
        nargs="+",
        metavar="FEATURE=VALUE",
        help="integer features of the shape, such as num_seqs=8 max_seq_len=4_096",
    )
    add_spec(parser)
    parser.add_argument(
        "--device",
        metavar="KEY",
        help="the device whose module and table to use (default: the kernel's first that has both)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help="how many other configs and nearest scenarios to show (default: 5)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.review.explain import explain, show
    from treegen.review.modules import parse_features, read_module_and_table
    from treegen.review.printing import json_text

    if options.top < 1:
        raise InputError(f"--top {options.top}", "must be at least 1")
    tuned = read_module_and_table(options.spec, options.kernel, options.device)
    given = parse_features(options.features, tuned.problem.kernel.values)
    explanation = explain(tuned, given, options.top)
    if options.json:
        print(json_text({"format": 4, **explanation}), end="")
    else:
        show(explanation, tuned.problem.kernel)
    return FINE
