"""A git revision as a folder: the spec, what it compiles to and the tables, as they were committed.

Only git's plumbing is asked, so that no filter, hook or attribute of the repository has a say.
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
    """A commit of the repository whose top folder is `top`; `name` is what the user called it."""

    name: str
    top: Path
    commit: str


def find_revision(name: str, here: Path) -> Revision | None:
    """The commit that git calls `name` in the repository around `here`; None where there is none."""
    top = _git(here, "rev-parse", "--show-toplevel")
    named = _verified(here, name)
    commit = None if named is None else _verified(here, f"{named}^{{commit}}")  # `:/text` must stand alone
    if top is None or commit is None:
        return None
    return Revision(name, Path(os.fsdecode(top.removesuffix(b"\n"))), commit)


def why_no_repository(here: Path) -> str | None:
    """What git says where it finds no repository, or refuses to look into it; None where there is one."""
    try:
        done = _run(here, "rev-parse", "--show-toplevel")
    except (OSError, ValueError) as error:
        return f"git cannot be run: {reason(error)}"
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return None if done.returncode == 0 else said[0] if said else "git fails"


def lay_out(revision: Revision, spec: Path, folder: Path) -> Path:
    """Write the revision's spec, output folder and tables below an empty `folder`; returns the path of the
    spec there. spec: its path in the working tree. Raises InputError."""
    top = revision.top.resolve()
    if not spec.resolve().is_relative_to(top):
        raise InputError(spec, f"is outside the repository {top} of {shown(revision.name)}")
    place = spec.resolve().relative_to(top)
    laid = folder / place
    _copy(revision, [place], folder)
    if not laid.is_file():
        raise InputError(f"{revision.name}:{place}", "no such spec in this revision")
    found = read_spec(laid)
    root = folder.resolve()
    tables = (path for kernel in found.kernels.values() for path in kernel.tables.values())
    _copy(revision, [path.relative_to(root) for path in (found.output, *tables)], folder)
    return laid


def _copy(revision: Revision, paths: Iterable[Path], folder: Path) -> None:
    """Write the plain files at or below `paths`; links and submodules are left out."""
    for mode, blob, size, name in _entries(revision, paths):
        path = PurePosixPath(name)
        if mode not in _PLAIN_FILES:
            continue
        if path.is_absolute() or ".." in path.parts or size > MAX_BYTES:
            raise InputError(
                f"{revision.name}:{name}", f"is no file of at most {MAX_BYTES >> 20} MiB below it"
            )
        content = _git(revision.top, "cat-file", "blob", blob)
        if content is None:
            raise InputError(f"{revision.name}:{name}", "git cannot read it")
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        except OSError as error:
            raise InputError(f"{revision.name}:{name}", f"cannot be laid out: {reason(error)}") from None


def _entries(revision: Revision, paths: Iterable[Path]) -> Iterator[tuple[str, str, int, str]]:
    """Mode, object, size and path of each file in the revision."""
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
    found = _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", name)
    return None if found is None else found.decode().strip()


def _git(here: Path, *arguments: str) -> bytes | None:
    """What git prints; None if it fails or is not there."""
    try:
        done = _run(here, *arguments)
    except (OSError, ValueError):
        return None
    return done.stdout if done.returncode == 0 else None


def _run(here: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, check=False)
