"""`treegen build`: compile every table of the spec."""

from __future__ import annotations

import argparse
import os

from treegen.cli.parsers import FINE, FOUND, Commands, add_spec, at_least_1, path_of
from treegen.core.errors import InputError, one_line
from treegen.core.files import short
from treegen.core.names import problem_with_output
from treegen.core.output import ignore_closed_pipe


def add(commands: Commands) -> None:
    parser = commands.add_parser("build", help="compile every table of the spec into Python modules")
    add_spec(parser)
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="DIR",
        help="the folder to write (default: the spec's output folder)",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the output folder is stale"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="fit every tree anew, without the previous trees in the output folder",
    )
    parser.add_argument(
        "--expect-jump",
        action="store_true",
        help="accept times that all changed by 10x or more since the last build",
    )
    parser.add_argument(
        "--jobs",
        type=at_least_1,
        metavar="N",
        help="processes that fit (default: one per processor; small tables get one)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from treegen.build import build
    from treegen.read.spec_file import find_spec, read_spec
    from treegen.review.build_summary import not_kept, show_heuristics
    from treegen.review.printing import progress
    from treegen.write.files import differences, foreign_files, stale_files, write_files
    from treegen.write.publish_order import interim_files, publish_order

    spec = read_spec(find_spec(options.spec))
    output = short(spec.output) if options.output is None else options.output
    if (problem := problem_with_output(output)) is not None:
        raise InputError(f"--output {str(output)!r}", problem)
    with progress() as report:
        built = build(
            spec,
            output,
            fresh=options.fresh,
            expect_jump=options.expect_jump,
            jobs=options.jobs or os.cpu_count() or 1,
            report=report,
        )
    if options.check:
        changes = list(differences(output, built.files))
        for line in [*changes, *(not_kept(built.heuristics) if changes else [])]:
            print(one_line(line))
        verdict = "stale; run `treegen build` and commit the result" if changes else "up to date"
        print(one_line(f"{output}: {verdict}"))
        return FOUND if changes else FINE
    for path in foreign_files(output, built.files):
        raise InputError(path, "was not written by treegen; move it away, or remove it to have it replaced")
    with ignore_closed_pipe():  # any other failure of standard output ends the command before it writes
        show_heuristics(built.heuristics)
    stale = stale_files(output, built.files)
    interim = interim_files(output, built.files)
    changed = write_files(output, publish_order(built.files), remove=stale, interim=interim)
    counts = f"{len(built.files)} files, {len(changed)} changed, {len(stale)} removed"
    with ignore_closed_pipe():
        print(one_line(f"{output}: {counts}"))
    return FINE
