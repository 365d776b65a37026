"""Commands that read what a build wrote: `treegen diff`, `explain`, `report` and `eval`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from treegen.cli.parsers import FINE, FOUND, Commands, add_jobs, add_selection, add_spec, names_of, path_of
from treegen.core.errors import InputError


def add_diff(commands: Commands) -> None:
    what = "show which shapes launch differently, and what that costs"
    about = "OLD and NEW are git revisions, project folders or output folders."
    parser = commands.add_parser("diff", help=what, description=about)
    parser.add_argument("old", metavar="OLD", help="the version before, such as `main`")
    of_new = "the version after (default: the folder of the spec)"
    parser.add_argument("new", metavar="NEW", nargs="?", help=of_new)
    add_spec(parser)
    formats = ["terminal", "markdown", "json"]
    of_output = "of the output (default: Markdown, which a terminal shows rendered)"
    parser.add_argument("--format", choices=formats, default="terminal", help=of_output)
    most = "exit 1 if the scenarios of a change get more than this much slower (default: 1)"
    parser.add_argument("--threshold", type=float, default=1.0, metavar="PERCENT", help=most)
    expected = "accept that callers must change: names that are gone, other arguments, other modules for GPUs"
    parser.add_argument("--expect-signature", action="store_true", help=expected)
    parser.set_defaults(run=run_diff)


def run_diff(options: argparse.Namespace) -> int:
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
        content = {"format": 6, "regresses": diff.regresses, "breaks": diff.breaks, **asdict(diff)}
        sys.stdout.write(json_text(content))
    elif options.format == "terminal" and sys.stdout.isatty():
        Console().print(Markdown(markdown(diff)))
    else:
        sys.stdout.write(markdown(diff))
    return FOUND if diff.regresses or (diff.breaks and not options.expect_signature) else FINE


def add_explain(commands: Commands) -> None:
    what = "show which config a shape launches, why, what would change it, and what was measured near it"
    parser = commands.add_parser("explain", help=what)
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel of the spec")
    shape = "integer features of the shape, such as num_seqs=8 max_seq_len=4_096"
    parser.add_argument("features", nargs="+", metavar="FEATURE=VALUE", help=shape)
    add_spec(parser)
    of_device = "the device whose module and table to use (default: the kernel's first that has both)"
    parser.add_argument("--device", metavar="KEY", help=of_device)
    parser.add_argument("--json", action="store_true", help="print JSON")
    many = "how many other configs and nearest scenarios to show (default: 5)"
    parser.add_argument("--top", type=int, default=5, metavar="N", help=many)
    parser.set_defaults(run=run_explain)


def run_explain(options: argparse.Namespace) -> int:
    from treegen.review.explain import explain, parse_features, show
    from treegen.review.printing import json_text
    from treegen.write.modules import read_module_and_table

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


def add_report(commands: Commands) -> None:
    parser = commands.add_parser("report", help="write a page about what the committed modules launch")
    add_spec(parser)
    add_selection(parser)
    page, of_page = Path("report.html"), "the page to write (default: report.html)"
    parser.add_argument("--out", type=path_of, default=page, metavar="FILE", help=of_page)
    parser.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    from treegen.review.report import run

    run(options.spec, options.kernel, options.device, options.out)
    return FINE


def add_eval(commands: Commands) -> None:
    what = "compare the held-out slowdown of rows with that of other methods"
    parser = commands.add_parser("eval", help=what)
    add_spec(parser)
    add_selection(parser)
    folds = "folds of a cross-validation (default: 5)"
    parser.add_argument("--folds", type=int, default=5, metavar="K", help=folds)
    groups = "features whose equal values make a group to leave out (default: the spec's hold_out_by)"
    parser.add_argument("--hold-out-by", type=names_of, default=(), metavar="A,B", help=groups)
    other = "another table on which to score the rows of the whole table; may be repeated (default: none)"
    parser.add_argument("--against", type=path_of, action="append", default=[], metavar="FOLDER", help=other)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_jobs(parser, "that fit")
    parser.set_defaults(run=run_eval)


def run_eval(options: argparse.Namespace) -> int:
    from treegen.review.evaluate import VERSIONS, evaluate, show
    from treegen.review.printing import json_text

    selection = options.spec, options.kernel, options.device
    tables = evaluate(*selection, options.folds, options.hold_out_by, options.against, options.jobs)
    if options.json:
        content = {"format": 4, "versions": VERSIONS, "folds": options.folds, "tables": tables}
        print(json_text(content), end="")
    else:
        show(tables, options.folds)
    return FINE
