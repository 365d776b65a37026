"""`treegen init`, `build` and `check`: write a spec, compile its tables, and check both and the result."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from treegen.cli.parsers import FINE, FOUND, Commands, add_jobs, add_spec, path_of
from treegen.core.errors import InputError, one_line, shown
from treegen.core.files import ignore_closed_pipe, problem_with_output, short, try_path

CHECKS = {
    "tables": "every table is valid, and the tables that the spec names agree with it",
    "modules": "every committed file is the text that treegen prints for the spec and the stored rows",
    "code": "spec and kernel code have the same features, variants and parameters",
    "fresh": "generated/ is what `treegen build` writes",
    "compile": "every config that a module launches compiles for its GPU within its limits",
}


def add_init(commands: Commands) -> None:
    what = "write a commented treegen.yaml from tables, or add tables to one"
    about = "A table may still be empty, as when triton-tune has only begun."
    parser = commands.add_parser("init", help=what, description=about)
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="the folder of a table")
    file = "the file to write, which must not exist; - for standard output (default: treegen.yaml)"
    parser.add_argument("--spec", type=Path, default=Path("treegen.yaml"), metavar="FILE", help=file)
    add = "add the tables to the spec, and devices and kernels that it lacks; all else stays as it is"
    parser.add_argument("--add", action="store_true", help=add)
    output = "the folder that builds write, and the package that is imported (default: heuristics)"
    parser.add_argument("--output", metavar="DIR", help=output)
    parser.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    from treegen.read.spec import find_spec
    from treegen.start.add import text_with_tables
    from treegen.start.spec_text import spec_text
    from treegen.write.files import write_files

    to_stdout = str(options.spec) == "-"
    path = Path("treegen.yaml") if to_stdout else options.spec
    if options.add:
        if to_stdout or options.output is not None:
            raise InputError("--add", "changes a spec, which has an output folder; leave out --output and -")
        text = text_with_tables(options.tables, find_spec(path))
    else:
        if not to_stdout and try_path(path, Path.exists):
            what = "exists already; choose another with --spec, - to print it, or --add to add to it"
            raise InputError(path, what)
        output = options.output or "heuristics"
        if (problem := problem_with_output(Path(output))) is not None:
            raise InputError("--output", f"{shown(output)} {problem}")
        built = path.parent / output
        # A build removes modules that its spec does not name.
        if path.name != "treegen.yaml" and (built / "treegen.lock").exists():
            raise InputError(built, "holds the modules of another spec; choose another folder with --output")
        text = spec_text(options.tables, path, output)
        if to_stdout:
            sys.stdout.write(text)
            return FINE
    target = path.resolve() if path.is_symlink() else path  # which stays a link
    write_files(target.parent, {target.name: text})
    option = "" if path == Path("treegen.yaml") else f" --spec {shlex.quote(str(path))}"
    print(f"{path}: read it, then run `treegen build{option}`")
    if not (path.parent / ".gitattributes").exists():
        print("In git, `* text=auto eol=lf` in .gitattributes keeps line ends, which checks compare")
    return FINE


def add_build(commands: Commands) -> None:
    parser = commands.add_parser("build", help="compile every table of the spec into Python modules")
    add_spec(parser)
    folder = "the folder to write (default: the spec's output folder)"
    parser.add_argument("--output", type=path_of, metavar="DIR", help=folder)
    for name, what in {
        "check": "write nothing; exit 1 if the output folder is stale",
        "fresh": "fit everything anew, without the previous rows in the output folder",
        "expect-jump": "accept times that all changed by 10x or more since the last build",
    }.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    add_jobs(parser, "that fit", "; small tables get one")
    parser.set_defaults(run=run_build)


def run_build(options: argparse.Namespace) -> int:
    from treegen.build import build
    from treegen.read.spec import find_spec, read_spec
    from treegen.review.build_summary import not_kept, show_heuristics
    from treegen.write.files import check_writable
    from treegen.write.output_folder import differences, foreign_files, publish

    spec = read_spec(find_spec(options.spec))
    output = short(spec.output) if options.output is None else options.output
    if (problem := problem_with_output(output)) is not None:
        raise InputError(f"--output {str(output)!r}", problem)
    check_writable(output, [])
    jobs = options.jobs or os.cpu_count() or 1
    built = build(spec, output, fresh=options.fresh, expect_jump=options.expect_jump, jobs=jobs)
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
    changed, removed = publish(output, built.files)
    with ignore_closed_pipe():
        print(one_line(f"{output}: {len(built.files)} files, {changed} changed, {removed} removed"))
    return FINE


def add_check(commands: Commands) -> None:
    what = "check tables, modules, constraints and kernel code, as CI does"
    about = "Checks: " + "; ".join(f"{name}: {what}" for name, what in CHECKS.items()) + "."
    parser = commands.add_parser("check", help=what, description=about)
    add_spec(parser)
    add_jobs(parser, "that compile and fit")
    skipped = "a check to leave out; may be repeated (default: none)"
    parser.add_argument("--skip", action="append", default=[], choices=CHECKS, metavar="NAME", help=skipped)
    strict = "exit 1 also if a check cannot run, such as without torch"
    parser.add_argument("--strict", action="store_true", help=strict)
    parser.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    from treegen.read.spec import find_spec, read_spec
    from treegen.review.check.checks import run_checks, verdict

    spec = read_spec(find_spec(options.spec))
    names = [name for name in CHECKS if name not in options.skip]
    reports = {}
    for name, report, seconds in run_checks(spec, names, options.jobs or os.cpu_count() or 1):
        reports[name] = report
        print(*report.lines(name), sep="\n", flush=True)
        print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    print(f"{short(spec.path)}: {verdict(reports, options.skip)}")
    failed = any(report.problems or (options.strict and report.not_run) for report in reports.values())
    return FOUND if failed else FINE
