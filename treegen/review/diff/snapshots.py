"""The two snapshots that a diff compares: each is a git revision, a project folder or an output folder.

A revision is copied into a temporary folder by git's plumbing commands only, so no filter, hook or attribute
of the repository takes effect.
"""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from treegen.core.errors import InputError, InputErrors, one_line, reason, shown
from treegen.core.files import IN_KERNEL, MAX_BYTES, read_text, try_path
from treegen.core.spec import Spec
from treegen.read.spec import DEFAULT_PATH, find_spec, read_spec
from treegen.write.modules import Module, ModuleKey, read_committed

_PLAIN_FILES = {"100644", "100755"}


@dataclass(frozen=True)
class Snapshot:
    """The spec, modules and tables of one side of a diff."""

    label: str  # what the user called it
    spec: Spec
    texts: Mapping[str, str]  # every generated file, by its path below the output folder
    modules: Mapping[ModuleKey, Module | str]  # of the spec's kernels and devices, or why one cannot be read
    temporary: Path | None = None  # the folder that holds a git revision


def read_snapshot(name: str | None, spec: Path | None, stack: ExitStack, *, older: bool = False) -> Snapshot:
    """Read a folder if `name` is one, else a git revision; None is the project here. Raises InputError.

    A folder with a spec of that file name is a project. Another folder is an output folder, which is read by
    the spec here, `spec` or treegen.yaml. The temporary folder of a revision exists until `stack` closes.
    older: accept modules that another version of treegen printed.
    """
    if name == "":
        raise InputError("''", "names no revision or folder")
    path = find_spec(spec).parent if name is None else Path(name)
    name = name or str(path)
    if try_path(path, Path.is_dir):
        inside = path / (spec or DEFAULT_PATH).name
        if try_path(inside, Path.is_file):
            described = read_spec(inside)
            return _read_folder("this folder" if name == "." else name, described, described.output, older)
        return _read_folder(name, read_spec(find_spec(spec)), path, older)
    if try_path(path, Path.exists):
        raise InputError(path, "is a file; compare folders or revisions")
    place = find_spec(spec) if spec is None or try_path(spec, Path.exists) else spec
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="treegen-"))).resolve()
    with naming(name, folder):
        described = lay_out(name, place, folder)
        found = _read_folder(name, described, described.output, older)
    modules = {key: _named(m, name, folder) if isinstance(m, str) else m for key, m in found.modules.items()}
    return replace(found, modules=modules, temporary=folder)


@contextmanager
def naming(name: str, temporary: Path | None) -> Iterator[None]:
    """Let errors name the revision instead of its temporary folder."""
    try:
        yield
    except InputError as error:
        if temporary is None:
            raise
        raise InputErrors(_named(str(error), name, temporary)) from None


def _named(message: str, name: str, temporary: Path) -> str:
    return message.replace(one_line(f"{temporary}/"), one_line(f"{name}:"))


def _read_folder(name: str, spec: Spec, output: Path, older: bool) -> Snapshot:
    if not try_path(output, Path.is_dir):
        what = "is no folder" if try_path(output, Path.exists) else "no such output folder"
        raise InputError(output, f"{what}; `treegen build` writes one")
    folders = (output, *(output / name / inside for name in spec.kernels for inside in ("", IN_KERNEL)))
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    texts = {path.relative_to(output).as_posix(): read_text(path) for path in paths if path.is_file()}
    found = read_committed(spec, output, older=older)
    modules = {key: one for key, one in found.items() if f"{'/'.join(key)}.py" in texts}
    if not modules:
        raise InputError(output, f"holds no generated module of {', '.join(spec.kernels)}")
    return Snapshot(name, spec, texts, modules)


def find_revision(name: str, here: Path) -> tuple[Path, str]:
    """The top folder of the repository around `here`, and the commit that git calls `name`."""
    verify = ("rev-parse", "--verify", "--end-of-options")
    try:
        top = _git(here, "rev-parse", "--show-toplevel")
        found = _git(here, *verify, name).decode().strip()
        commit = _git(here, *verify, f"{found}^{{commit}}").decode().strip()  # `:/text` takes no suffix
    except InputError as error:
        raise InputError(shown(name), f"is neither a folder nor a git revision here: {error}") from None
    return Path(os.fsdecode(top.removesuffix(b"\n"))), commit


def lay_out(name: str, spec: Path, folder: Path) -> Spec:
    """Write a revision's spec, by its path in the working tree, output folder and tables below `folder`."""
    top, commit = find_revision(name, spec.resolve().parent)
    place = spec.resolve().relative_to(top.resolve())
    written = folder / place
    _copy(name, top, commit, [place], folder)
    if not written.is_file():
        raise InputError(f"{name}:{place}", "no such spec in this revision")
    content = read_spec(written)
    tables = (path for kernel in content.kernels.values() for path in kernel.tables.values())
    paths = [path.relative_to(folder.resolve()) for path in (content.output, *tables)]
    _copy(name, top, commit, paths, folder)
    return content


def _copy(revision: str, top: Path, commit: str, paths: Iterable[Path], folder: Path) -> None:
    """Write the plain files at or below `paths`; leave out links and submodules."""
    places = sorted({path.as_posix() for path in paths})
    options = ("-r", "-l", "-z", "--full-tree", commit, "--", *places)
    listing = _git(top, "--literal-pathspecs", "ls-tree", *options).decode("utf-8", "surrogateescape")
    entries = [entry.split("\t", 1) for entry in filter(None, listing.split("\0"))]
    files = [(name, *about.split()[2:]) for about, name in entries if about.split()[0] in _PLAIN_FILES]
    for name, _, size in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or int(size) > MAX_BYTES:
            what = f"must be a file of at most {MAX_BYTES >> 20} MiB below the top folder"
            raise InputError(f"{revision}:{name}", what)
    blobs = "".join(f"{blob}\n" for _, blob, _ in files)
    printed = io.BytesIO(_git(top, "cat-file", "--batch", given=blobs.encode()))
    for name, _, size in files:
        printed.readline()  # blob, its type and size
        content = printed.read(int(size) + 1)[:-1]
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        except OSError as error:
            what = f"cannot be written to a temporary folder: {reason(error)}"
            raise InputError(f"{revision}:{name}", what) from None


def _git(here: Path, *arguments: str, given: bytes = b"") -> bytes:
    """What a git command prints. Raises InputError with the first line of its error."""
    try:
        command = ["git", "-C", str(here), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, check=False)
    except OSError as error:
        raise InputError("git", f"cannot be run: {reason(error)}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        raise InputError("git", lines[0] if lines else f"{arguments[0]} fails")
    return done.stdout
