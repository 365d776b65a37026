"""`treegen choices`: a module's choices along one feature, as JSON that other programs read."""

from __future__ import annotations

import argparse
import json
import sys

from treegen.cli.parsers import FINE, Commands, add_spec
from treegen.core.errors import InputError


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "choices",
        help="print what a module launches along one feature, as JSON",
        description="The JSON maps each value of the feature to launch parameters, as the tuned files of "
        "vLLM and SGLang do.",
    )
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel of the spec")
    parser.add_argument("along", metavar="FEATURE=VALUES", help="a feature and its values, as in M=1,2,4")
    parser.add_argument("features", nargs="*", metavar="FEATURE=VALUE", help="every other feature")
    parser.add_argument("--device", metavar="KEY", help="the module (default: the kernel's first)")
    add_spec(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.read.spec_file import find_spec, read_spec
    from treegen.review.modules import choices

    name, equals, values = options.along.partition("=")
    if not name or not equals or not values:
        raise InputError(options.along or "''", "must be a feature and its values, such as M=1,2,4")
    spec = read_spec(find_spec(options.spec))
    found = choices(spec, options.kernel, options.device, options.features, name, values.split(","))
    sys.stdout.write(json.dumps(found, indent=4) + "\n")
    return FINE
