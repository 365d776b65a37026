"""Run a treegen command over a damaged project and check what it printed, wrote and did."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from types import ModuleType

from hostile import folder as folders
from hostile import total
from hostile.folder import EMPTY, Folder
from hostile.project import BYSTANDERS, OUTPUT, project

from treegen.cli.main import main
from treegen.core.errors import InputError
from treegen.core.spec import Spec
from treegen.emit.environment import MARK
from treegen.read.spec_file import read_spec
from treegen.review.modules import NO_DEVICE

OUTPUT_FOLDER = "the output folder"
_TABLE_FILES = ("run.yaml", "scenarios.csv", "times.csv")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_MARKUP = re.compile(r"<script|<img|<b>|\]\(javascript:|\]\(file:", re.IGNORECASE)
_STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.", "socket.", "pty.")
_started: list[str] = []


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]  # of the command line
    writes: str | None = None  # a path below the project, or OUTPUT_FOLDER; None: nothing


BUILD = Command(("build",), OUTPUT_FOLDER)
IMPORT = Command(("import", "dejavu", "caches", "--to", "imported"), "imported")
_POINTS = ("rows=16", "columns=32", "heads=2"), ("rows=0", "columns=-1", "heads=1_000_000_000_000_000_000")
READERS = (
    Command(("report", "--device", "first", "--out", "page.html"), "page.html"),
    *(Command(("explain", "scale", *point, *json)) for point in _POINTS for json in ((), ("--json",))),
    *(Command(("diff", "../older", "--format", form)) for form in ("terminal", "markdown", "json")),
    Command(("check", "--jobs", "1", "--skip", "code", "--skip", "compile")),
)


def command_for(random: Random, kind: str) -> Command:
    """A command that reads what this kind of damage changed: mostly a build."""
    if "cache" in kind:
        return IMPORT
    others = (Command(("build", "--check")), Command(("build", "--fresh"), OUTPUT_FOLDER), *READERS)
    return BUILD if random.random() < 0.7 else random.choice(others)


@cache
def built_project() -> Folder:
    """The project after a build of an older table, so that another build changes its modules."""
    with tempfile.TemporaryDirectory() as name:
        run(Path(name), older := project(best_up_to=2048), BUILD)
        built = {path: entry for path, entry in folders.read(Path(name)).items() if isinstance(entry, bytes)}
    output = {path: entry for path, entry in built.items() if path.startswith(f"{OUTPUT}/")}
    before = {f"older/{path.removeprefix('project/')}": entry for path, entry in (older | output).items()}
    return project() | output | {path: entry for path, entry in before.items() if "caches" not in path}


def run(root: Path, folder: Folder, command: Command, random: Random | None = None) -> int:
    """Write the folder to `root`, run the command in its project and return the exit status.

    Fails unless it ends with 0, 1 or 2; prints plain lines; refuses in one line with nothing changed;
    writes only its own files to its own place; starts no program but git; and leaves modules that hold
    nothing but choices and choose valid configs.
    """
    root = root.resolve()
    folders.write(root, folder)
    before = folders.read(root)
    status, out = _status_and_output(root / "project", command)
    after = folders.read(root)
    assert not ("markdown" in command.words and _MARKUP.search(_CODE_SPAN.sub("", out))), out
    spec = None
    with contextlib.suppress(InputError):
        spec = read_spec(root / "project/treegen.yaml")
    target = root / "project" / command.writes if command.writes else None
    if command.writes == OUTPUT_FOLDER:
        target = spec and spec.output
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert status == 0 or not changed, f"exit {status}, but changed {sorted(changed)}"
    for name in changed:
        path = (root / name).parent.resolve() / Path(name).name
        assert target is not None, name
        if after.get(name) is EMPTY and (path.is_relative_to(target) or target.is_relative_to(path)):
            continue  # a folder that was made
        assert name not in BYSTANDERS and path.is_relative_to(target), f"changes {name}"
        old, new = before.get(name), after.get(name)
        assert old is not EMPTY and not (isinstance(old, bytes) and not _is_ours(name, old)), name
        assert new is None or _is_ours(name, new), name
    if command.writes == OUTPUT_FOLDER and status == 0 and spec is not None:
        check_modules(spec, random or Random(0))
    return status


def _status_and_output(project: Path, command: Command) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(project), warnings.catch_warnings(record=True) as warned, no_programs():
        warnings.simplefilter("always", SyntaxWarning)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(list(command.words))
            except SystemExit as error:
                status = error.code  # type: ignore[assignment]
    text, errors = out.getvalue(), err.getvalue()
    if command.words[0] == "check":
        errors = re.sub(r"[a-z]+: [0-9]+\.[0-9] s\n", "", errors)
    assert status in (0, 1, 2) and not warned, (status, warned)
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    if status == 2:
        *lines, rest = errors.split("\n")
        assert lines and not rest, ascii(errors)
        # A spec has a line for each mistake; all else has one line.
        assert len(lines) == 1 or all(".yaml:" in line for line in lines), ascii(errors)
        assert all(line.startswith("treegen: ") and line.isprintable() for line in lines), ascii(errors)
    else:
        assert not errors, ascii(errors)
    return status, text


@contextlib.contextmanager
def no_programs() -> Iterator[None]:
    """Fail if the block starts a program other than git, or a connection (audit events, PEP 578)."""
    if not _started:
        sys.addaudithook(_note)  # Python has no way to remove it
        _started.append("installed")
    count = len(_started)
    yield
    assert not (found := _started[count:]), found


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(_STARTS) and not (event == "subprocess.Popen" and arguments[0] == "git"):
        _started.append(event)


def _is_ours(name: str, entry: folders.Entry) -> bool:
    """Whether a file is one that treegen writes."""
    file = name.rsplit("/", 1)[-1]
    if not isinstance(entry, bytes):
        return False
    if file.endswith(".html"):
        return not markup_in_html(entry.decode())
    if file in _TABLE_FILES or file == "treegen.lock" or file.startswith(".treegen-"):
        return True
    return MARK.encode() in entry.split(b"\n", 1)[0]


def markup_in_html(text: str) -> bool:
    """Whether a payload became an element, an attribute or an address."""
    parser = _Elements()
    parser.feed(text)
    parser.close()
    return parser.found


class _Elements(HTMLParser):
    found = False
    in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_script = tag == "script"
        for name, value in attrs:
            address = name in ("href", "src") and not (value or "").startswith(("#", "data:image/"))
            self.found |= address or name.startswith("on")

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def handle_data(self, data: str) -> None:
        self.found |= self.in_script and "alert(1)" in data


# What a build wrote

_NODES = (
    *(ast.Module, ast.Expr, ast.Constant, ast.ImportFrom, ast.Import, ast.alias, ast.Assign, ast.AnnAssign),
    *(ast.FunctionDef, ast.ClassDef, ast.arguments, ast.arg, ast.Return, ast.If, ast.For, ast.Compare),
    *(ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Load, ast.Store, ast.BinOp, ast.UnaryOp, ast.IfExp),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.BoolOp, ast.Dict, ast.Tuple, ast.List),
    *(ast.Subscript, ast.AugAssign),
)
_CALLS = {"Config", "max", "min", "bit_length", "items", "startswith", "get"}
_TRITON_CALLS = {"cast", "maximum", "minimum", "where", "to", "constexpr"}
_MODULES = {"typing", "collections.abc", "config", None, "triton", "triton.language"}


def check_source(name: str, text: str) -> None:
    """Fail if a generated module holds anything but constants, questions, integer arithmetic and lookups."""
    assert text.isascii() and text.replace("\n", "").isprintable(), name
    tree = ast.parse(text)
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    calls = _CALLS | functions | (_TRITON_CALLS if "in_kernel" in name else set())
    for node in ast.walk(tree):
        assert isinstance(node, _NODES), f"{name}: {ast.dump(node)[:200]}"
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
            assert called in calls, f"{name}: calls {ast.unparse(node)[:200]}"
        elif isinstance(node, ast.ImportFrom):
            assert node.module in _MODULES, f"{name}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= _MODULES, f"{name}: {ast.unparse(node)}"


def check_modules(spec: Spec, random: Random) -> None:
    """Fail unless the output folder holds plain modules that choose valid configs for any integers."""
    for kernel in spec.kernels:
        for path in (spec.output / kernel).rglob("*.py"):
            if path.is_file() and not path.is_symlink() and MARK in path.read_text(errors="replace"):
                check_source(path.relative_to(spec.output).as_posix(), path.read_text())
    with sandboxed(spec.output) as package:
        for name, kernel in spec.kernels.items():
            for key, module in getattr(package, name).MODULES.items():
                device = spec.devices.get(key, NO_DEVICE)
                for point in total.points(module, random, 40):
                    wrong = total.wrong_choice(module, kernel, device, point)
                    assert not wrong, f"{name}/{key}: {wrong}"[:400]


@contextlib.contextmanager
def sandboxed(folder: Path) -> Iterator[ModuleType]:
    """The package in a folder, imported under another name. Fails if the import loads or starts anything."""
    name = "generated_sandbox"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[os.fspath(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    modules, writes = set(sys.modules), sys.dont_write_bytecode
    sys.modules[name], sys.dont_write_bytecode = package, True
    try:
        with no_programs():
            spec.loader.exec_module(package)
        strange = {module for module in set(sys.modules) - modules if module.split(".")[0] != name}
        assert strange <= {"typing", "collections", "collections.abc"}, strange
        yield package
    finally:
        sys.dont_write_bytecode = writes
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            del sys.modules[module]
