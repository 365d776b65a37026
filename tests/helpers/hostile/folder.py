"""A folder as a mapping from relative paths to entries, so that it can be damaged, written and compared."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

CASE = "@CASE@"
"""In a link's target or a file: the folder that the mapping is written to."""


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Special:
    """A named pipe or an empty folder."""

    kind: str


PIPE, EMPTY = Special("pipe"), Special("folder")
Entry = bytes | Link | Special
Folder = dict[str, Entry]
"""Entries by relative path. Folders are there if something is in them, or as EMPTY."""


def write(root: Path, folder: Folder) -> None:
    """Make `root` hold the folder. Entries below one that is no folder are left out."""
    root.mkdir(parents=True, exist_ok=True)
    for name, entry in folder.items():
        path = root / name
        if any(str(parent) in folder for parent in Path(name).parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, bytes):
            path.write_bytes(entry.replace(CASE.encode(), os.fsencode(root)))
        elif isinstance(entry, Link):
            path.symlink_to(entry.target.replace(CASE, str(root)))
        elif entry is PIPE:
            os.mkfifo(path)
        else:
            path.mkdir()


def read(root: Path) -> Folder:
    """Everything below `root`, links as links, every folder as EMPTY."""
    found: Folder = {}
    for path in sorted(root.rglob("*")):
        name, mode = path.relative_to(root).as_posix(), path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[name] = Link(str(path.readlink()))
        elif stat.S_ISREG(mode):
            found[name] = path.read_bytes()
        else:
            found[name] = EMPTY if stat.S_ISDIR(mode) else PIPE
    return found
