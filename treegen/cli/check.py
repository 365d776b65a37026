"""`treegen check`: everything that CI verifies."""

from __future__ import annotations

import argparse
import os
import sys

from treegen.cli.parsers import FINE, FOUND, Commands, add_spec, at_least_1
from treegen.core.files import short

CHECKS = {
    "tables": "every table is valid, and the tables that the spec names agree with it",
    "modules": "every committed module is the text that treegen prints",
    "constraints": "every constraint is proved to hold wherever a leaf launches",
    "code": "spec and kernel code have the same features, variants and parameters",
    "fresh": "generated/ is what `treegen build` writes",
    "compile": "the config of every leaf compiles for its GPU within its limits",
}


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="check tables, modules, constraints and kernel code, as CI does",
        description="Checks: " + "; ".join(f"{name}: {what}" for name, what in CHECKS.items()) + ".",
    )
    add_spec(parser)
    parser.add_argument(
        "--jobs",
        type=at_least_1,
        metavar="N",
        help="processes that compile and fit (default: one per processor)",
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        choices=CHECKS,
        metavar="NAME",
        help="a check to leave out; may be repeated (default: none)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit 1 also if a check cannot run, such as without torch"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.read.spec_file import find_spec, read_spec
    from treegen.review.check.report import lines, verdict
    from treegen.review.check.run import run_checks

    spec = read_spec(find_spec(options.spec))
    names = [name for name in CHECKS if name not in options.skip]
    reports = {}
    for name, report, seconds in run_checks(spec, names, options.jobs or os.cpu_count() or 1):
        reports[name] = report
        print(*lines(name, report), sep="\n", flush=True)
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    print(f"{short(spec.path)}: {verdict(reports, options.skip)}")
    failed = any(report.problems or (options.strict and report.not_run) for report in reports.values())
    return FOUND if failed else FINE
