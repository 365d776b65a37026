"""What a piece of code does to the machine, by Python's audit events (PEP 578)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_CHANGES = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.chown"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
}
"""Events of calls that change files, and how many of their arguments are paths."""

_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.", "socket.", "pty.")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass
class Deeds:
    """written: paths that were opened for writing, made, renamed or removed, links in their folders followed.
    forbidden: events that start programs, other than git, or connections."""

    written: set[Path] = field(default_factory=set)
    forbidden: list[str] = field(default_factory=list)


_watching: list[Deeds] = []
_installed: list[bool] = []


@contextlib.contextmanager
def watched() -> Iterator[Deeds]:
    """What is done inside the block."""
    if not _installed:
        sys.addaudithook(_note)  # there is no way to take it away again
        _installed.append(True)
    _watching.append(deeds := Deeds())
    try:
        yield deeds
    finally:
        _watching.remove(deeds)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    deeds = _watching[-1]
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITING:
            _add(deeds, path)
    elif event in _CHANGES:
        *_, folder = arguments  # a descriptor that the path is relative to, or -1
        for path in arguments[: _CHANGES[event]]:
            _add(deeds, path, folder)
    elif event.startswith(_FORBIDDEN) and not (event == "subprocess.Popen" and arguments[0] == "git"):
        deeds.forbidden.append(f"{event} {arguments[:1]}")


def _add(deeds: Deeds, path: object, folder: object = -1) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return  # a descriptor of what was opened before
    place = Path(os.fsdecode(path))
    if isinstance(folder, int) and folder >= 0 and Path(f"/proc/self/fd/{folder}").exists():
        place = Path(f"/proc/self/fd/{folder}").resolve() / place
    deeds.written.add(place.parent.resolve() / place.name)
