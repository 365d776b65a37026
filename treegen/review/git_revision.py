"""A git revision as a folder: the spec, the generated modules and the tables as they were committed.

Only git's plumbing commands run, so no filter, hook or attribute of the repository takes effect.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from treegen.core.errors import InputError, reason, shown
from treegen.core.files import MAX_BYTES
from treegen.read.spec_file import read_spec

_PLAIN_FILES = {"100644", "100755"}


@dataclass(frozen=True)
class Revision:
    name: str  # as the user wrote it
    top: Path  # the repository's top folder
    commit: str


def find_revision(name: str, here: Path) -> Revision:
    """The commit that git calls `name` in the repository around `here`. Raises InputError if none is."""
    top = _git(here, "rev-parse", "--show-toplevel")
    verified = _verified(here, name)
    commit = (
        None if verified is None else _verified(here, f"{verified}^{{commit}}")
    )  # `:/text` takes no suffix
    if top is None or commit is None:
        why = _repository_error(here)
        what = "is neither a file nor a folder, nor a git revision here"
        raise InputError(shown(name), f"{what} ({why})" if why else what)
    return Revision(name, Path(os.fsdecode(top.removesuffix(b"\n"))), commit)


def lay_out(revision: Revision, spec: Path, folder: Path) -> Path:
    """Write the revision's spec, output folder and tables below an empty `folder`.

    spec: its path in the working tree. Returns the path of the written spec. Raises InputError.
    """
    top = revision.top.resolve()
    if not spec.resolve().is_relative_to(top):
        raise InputError(spec, f"is outside the repository {top} of {shown(revision.name)}")
    place = spec.resolve().relative_to(top)
    written = folder / place
    _copy(revision, [place], folder)
    if not written.is_file():
        raise InputError(f"{revision.name}:{place}", "no such spec in this revision")
    content = read_spec(written)
    root = folder.resolve()
    tables = (path for kernel in content.kernels.values() for path in kernel.tables.values())
    _copy(revision, [path.relative_to(root) for path in (content.output, *tables)], folder)
    return written


def _copy(revision: Revision, paths: Iterable[Path], folder: Path) -> None:
    """Write the plain files at or below `paths`; leave out links and submodules."""
    for mode, blob, size, name in _entries(revision, paths):
        path = PurePosixPath(name)
        where = f"{revision.name}:{name}"
        if mode not in _PLAIN_FILES:
            continue
        if path.is_absolute() or ".." in path.parts or size > MAX_BYTES:
            raise InputError(where, f"must be a file of at most {MAX_BYTES >> 20} MiB below the top folder")
        content = _git(revision.top, "cat-file", "blob", blob)
        if content is None:
            raise InputError(where, "git cannot read it")
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        except OSError as error:
            raise InputError(where, f"cannot be written to a temporary folder: {reason(error)}") from None


def _entries(revision: Revision, paths: Iterable[Path]) -> Iterator[tuple[str, str, int, str]]:
    """The mode, object, size in bytes and path of each file in the revision."""
    listing = _git(
        revision.top,
        *("--literal-pathspecs", "ls-tree", "-r", "-l", "-z", "--full-tree", revision.commit, "--"),
        *sorted({path.as_posix() for path in paths}),
    )
    if listing is None:
        raise InputError(revision.name, "git cannot list this revision")
    for entry in listing.decode("utf-8", "surrogateescape").split("\0"):
        if entry:
            about, name = entry.split("\t", 1)
            mode, _, blob, size = about.split()
            yield mode, blob, int(size) if size.isdecimal() else 0, name


def _verified(here: Path, name: str) -> str | None:
    """The object that git calls `name`."""
    output = _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    return None if output is None else output.decode().strip()


def _git(here: Path, *arguments: str) -> bytes | None:
    """The output of a git command; None if it fails or cannot run."""
    try:
        done = _run(here, *arguments)
    except (OSError, ValueError):
        return None
    return done.stdout if done.returncode == 0 else None


def _repository_error(here: Path) -> str | None:
    """Git's message if it finds or opens no repository around `here`; None if there is one."""
    try:
        done = _run(here, "rev-parse", "--show-toplevel")
    except (OSError, ValueError) as error:
        return f"git cannot be run: {reason(error)}"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return None if done.returncode == 0 else lines[0] if lines else "git fails"


def _run(here: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, check=False)
