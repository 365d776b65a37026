"""The command line. Exit codes: 0 fine, 1 a check found something, 2 wrong use or bad input."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from treegen import __version__
from treegen.errors import InputError, one_line, reason

FINE, FOUND, WRONG = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(WRONG, one_line(f"treegen: {message} (see '{self.prog} --help')") + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="treegen", description="Compile kernel tuning results into if-else Python modules.")
    parser.add_argument("--version", action="version", version=f"treegen {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    build = commands.add_parser("build", help="compile every table of the spec into generated/")
    build.add_argument(
        "--spec", type=Path, metavar="FILE", help="the spec (default: treegen.yaml in this folder)"
    )
    build.add_argument(
        "--output", type=Path, metavar="DIR", help="write there instead of the spec's output folder"
    )
    build.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when the output folder is stale"
    )
    build.add_argument(
        "--fresh", action="store_true", help="do not keep the trees that are in the output folder"
    )
    build.set_defaults(run=_build)

    _add_eval(commands)

    importing = commands.add_parser("import", help="turn another tool's tuning results into tables")
    importing.add_argument("format", choices=["dejavu"], help="dejavu: triton-dejavu caches")
    importing.add_argument(
        "source", type=Path, metavar="SOURCE", help="a cache file, or a folder to search for them"
    )
    importing.add_argument(
        "--to", type=Path, default=Path("tuning_data"), metavar="DIR", help="default: tuning_data"
    )
    importing.add_argument("--kernel", metavar="NAME", help="only the tables of this kernel")
    importing.add_argument(
        "--origin", metavar="TEXT", help="whose results these are and where they were published"
    )
    importing.add_argument("--licence", metavar="TEXT", help="the licence they were published under")
    importing.add_argument("--replace", action="store_true", help="replace tables that are already there")
    importing.set_defaults(run=_import)
    return parser


def _add_eval(commands: argparse._SubParsersAction[_Parser]) -> None:
    evaluating = commands.add_parser("eval", help="judge trees on scenarios they have not seen, beside peers")
    evaluating.add_argument(
        "--spec", type=Path, metavar="FILE", help="the spec (default: treegen.yaml in this folder)"
    )
    evaluating.add_argument("--kernel", metavar="NAME", help="only this kernel (default: all of the spec)")
    evaluating.add_argument("--device", metavar="KEY", help="only this device (default: all with a table)")
    evaluating.add_argument("--folds", type=int, default=5, metavar="K", help="folds (default: 5)")
    evaluating.add_argument("--repeats", type=int, default=2, metavar="N", help="shuffles (default: 2)")
    evaluating.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="another table that judges the tree of the whole table; may be repeated",
    )
    evaluating.add_argument("--no-curves", action="store_true", help="skip the learning curves")
    evaluating.add_argument("--out", type=Path, metavar="DIR", help="write eval.md and eval.json there")
    evaluating.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a processor)")
    evaluating.set_defaults(run=_eval)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except InputError as error:
        return _wrong(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("treegen"):
            raise
        return _wrong(f"needs {error.name}: pip install 'attn-kernels[treegen]'")
    except KeyboardInterrupt:
        print("treegen: interrupted; nothing half-written is left", file=sys.stderr)
        return 130
    except OSError as error:  # all files go through InputError: this is standard output
        sys.stdout = None  # or Python fails on it again at exit
        return _wrong(f"cannot print: {reason(error)}")


def _wrong(what: str) -> int:
    print(f"treegen: {what}", file=sys.stderr)
    return WRONG


def _build(options: argparse.Namespace) -> int:
    from treegen.build import build
    from treegen.output import differences, foreign_files, stale_files, write_files
    from treegen.show import not_kept, show_heuristics
    from treegen.specfile import find_spec, read_spec

    spec = read_spec(find_spec(options.spec))
    output = options.output or _short(spec.output)
    built = build(spec, None if options.fresh else output)
    if options.check:
        found = list(differences(output, built.files))
        for line in [*found, *(not_kept(built.heuristics) if found else [])]:
            print(line)
        print(f"{output}: {'stale; run `treegen build` and commit the result' if found else 'up to date'}")
        return FOUND if found else FINE
    for path in foreign_files(output, built.files):
        raise InputError(path, "was not written by treegen; move it away, or remove it to have it replaced")
    show_heuristics(built.heuristics)
    sys.stdout.flush()  # nothing is written when nothing can be said
    changed = write_files(output, built.files, remove=(stale := stale_files(output, built.files)))
    print(f"{output}: {len(built.files)} files, {len(changed)} changed, {len(stale)} removed")
    return FINE


def _short(path: Path) -> Path:
    """The path as a person in this folder would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _eval(options: argparse.Namespace) -> int:
    from treegen.evaluation.assess import Plan
    from treegen.evaluation.command import run
    from treegen.evaluation.request import Request

    plan = Plan(options.folds, options.repeats, not options.no_curves)
    against = tuple(dict.fromkeys(options.against))
    run(Request(options.spec, options.kernel, options.device, plan, against, options.out, options.jobs))
    return FINE


def _import(options: argparse.Namespace) -> int:
    from treegen.importers import write_tables
    from treegen.importers.dejavu import import_dejavu

    tables = [
        t for t in import_dejavu(options.source, _credit(options)) if options.kernel in (None, t.kernel)
    ]
    if not tables:
        raise InputError(options.source, f"holds no table of kernel {options.kernel}")
    for folder, table in write_tables(tables, options.to, replace=options.replace):
        print(f"{folder}: {table.scenarios} scenarios, {table.configs} configs, winners only")
    return FINE


def _credit(options: argparse.Namespace) -> dict[str, str]:
    given = {"published_by": options.origin, "licence": options.licence}
    return {key: text for key, text in given.items() if text is not None}
