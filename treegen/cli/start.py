"""`treegen init`, which writes a spec or adds to one."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from treegen.cli.parsers import FINE, Commands
from treegen.core.errors import InputError, shown
from treegen.core.files import problem_with_output, try_path


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
    write_files(path.parent, {path.name: text})
    option = "" if path == Path("treegen.yaml") else f" --spec {shlex.quote(str(path))}"
    print(f"{path}: read it, then run `treegen build{option}`")
    if not (path.parent / ".gitattributes").exists():
        print("In git, `* text=auto eol=lf` in .gitattributes keeps line ends, which checks compare")
    return FINE
