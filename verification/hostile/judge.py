"""Run a command of treegen over a damaged folder and say whether it ended as it must."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from treegen.cli.main import main
from treegen.core.errors import InputError
from treegen.core.spec import Spec
from treegen.emit.environment import MARK
from treegen.read.spec_file import read_spec
from verification.hostile import folder as folders
from verification.hostile import markup
from verification.hostile.commands import OUTPUT_FOLDER, Command
from verification.hostile.folder import EMPTY, Entry, Folder
from verification.hostile.modules import check_modules
from verification.hostile.project import BYSTANDERS
from verification.hostile.watch import Deeds, watched
from verification.hostile.wrong import Wrong

_TEMPORARY = Path(tempfile.gettempdir()).resolve()
_DURATION = re.compile(r"[a-z]+: [0-9]+\.[0-9] s\n")
_CACHES = {"__pycache__", "matplotlib"}
"""Folders that Python and libraries write when they are first imported."""
_TABLE_FILES = ("run.yaml", "scenarios.csv", "times.csv")


@dataclass(frozen=True)
class _Ran:
    """What a command printed and returned, and what it did."""

    status: object
    out: str
    err: str
    deeds: Deeds


def judge(root: Path, folder: Folder, command: Command, random: Random) -> int:
    """The exit status of a command in the project of the folder, written out at `root`.

    Raises Wrong for a traceback, for anything printed but plain lines, for a refusal that is not one line or
    that changed a byte, for anything written but what the command may write, and for generated modules that
    hold more than they may or that fail to choose.
    """
    root = root.resolve()
    folders.write(root, folder)
    before = folders.read(root)
    ran = _run(root / "project", command)
    after = folders.read(root)
    status = _printed(ran, command)
    spec = _spec(root)
    target = _target(root, command, spec)
    _check_deeds(ran.deeds, root, target)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if changed and (status != 0 or target is None):
        raise Wrong(f"exit {status}, but changed {_listed(changed)}")
    for name in changed:
        assert target is not None
        _check_change(root, name, before.get(name), after.get(name), target)
    if command.writes == OUTPUT_FOLDER and status == 0 and spec is not None:
        check_modules(spec, random)
    return status


def _run(project: Path, command: Command) -> _Ran:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.chdir(project), watched() as deeds, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SyntaxWarning)
        warnings.filterwarnings("always", "invalid", DeprecationWarning)  # SyntaxWarning from Python 3.12 on
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status: object = main(list(command.words))
            except SystemExit as error:
                status = error.code
            except BaseException:
                raise Wrong(f"a traceback: {' '.join(traceback.format_exc().split())[-600:]}") from None
    warned = "".join(f"warning: {warning.message}\n" for warning in told)  # as Python prints them, or would
    return _Ran(status, _text(out), _text(err) + warned, deeds)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _printed(ran: _Ran, command: Command) -> int:
    """The status, if everything that was printed is as it must be."""
    if ran.deeds.forbidden:
        raise Wrong(f"started something: {_listed(ran.deeds.forbidden)}")
    if ran.status not in (0, 1, 2) or not isinstance(ran.status, int):
        raise Wrong(f"exit {ran.status!r}")
    if not all(line.isprintable() for line in ran.out.split("\n")):
        raise Wrong(f"prints what a terminal may obey: {ran.out!a}"[:300])
    if "markdown" in command.words and markup.in_markdown(ran.out):
        raise Wrong(f"Markdown with markup from outside: {ran.out!a}"[:300])
    err = _DURATION.sub("", ran.err) if command.words[0] == "check" else ran.err
    if ran.status != 2 and err:
        raise Wrong(f"exit {ran.status} with the error {err!a}"[:300])
    if ran.status == 2:
        line, end, rest = err.partition("\n")
        if not line.startswith("treegen: ") or not line.isprintable() or not end or rest:
            raise Wrong(f"exit 2 with other than one line: {err!a}"[:300])
    return ran.status


def _spec(root: Path) -> Spec | None:
    try:
        return read_spec(root / "project/treegen.yaml")
    except InputError:
        return None


def _target(root: Path, command: Command, spec: Spec | None) -> Path | None:
    """The folder or file that the command may write."""
    if command.writes == OUTPUT_FOLDER:
        return None if spec is None else spec.output
    return None if command.writes is None else root / "project" / command.writes


def _check_deeds(deeds: Deeds, root: Path, target: Path | None) -> None:
    """Refuse paths outside of the target, what is staged beside it, and folders for temporary files."""
    for path in deeds.written:
        if not path.is_relative_to(root):
            allowed = path.is_relative_to(_TEMPORARY) or bool(_CACHES.intersection(path.parts))
        else:
            places = () if target is None else (target, target.parent / f".treegen-{path.name[9:]}")
            allowed = any(path.is_relative_to(place) or place.is_relative_to(path) for place in places)
        if not allowed:
            raise Wrong(f"writes to {path}")


def _check_change(root: Path, name: str, before: Entry | None, after: Entry | None, target: Path) -> None:
    """Refuse a change to anything but generated files in the target."""
    path = (root / name).parent.resolve() / Path(name).name
    if after is EMPTY and before is None and (path.is_relative_to(target) or target.is_relative_to(path)):
        return  # a folder that was made
    if name in BYSTANDERS or not path.is_relative_to(target):
        raise Wrong(f"changes {name}")
    if before is EMPTY or (isinstance(before, bytes) and not _own(name, before)):
        raise Wrong(f"replaces {name}, which is not its own")
    if after is not None and not (isinstance(after, bytes) and _own(name, after)):
        raise Wrong(f"leaves {name}, which is no file that it writes")


def _own(name: str, content: bytes) -> bool:
    """Whether a file is one that treegen writes; all but modules and pages tell it by their names."""
    file = name.rsplit("/", 1)[-1]
    if file.endswith(".html"):
        return not markup.in_html(content.decode())
    if file in _TABLE_FILES or file == "treegen.lock" or file.startswith(".treegen-"):
        return True
    return MARK.encode() in content.split(b"\n", 1)[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))[:300]
