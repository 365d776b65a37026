"""Files that a command may replace: only those that it wrote itself."""

from __future__ import annotations

from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import try_path
from treegen.write.files import content_of


def check_replaceable(path: Path, command: str, mark: bytes) -> None:
    """Raise InputError where `path` exists and does not hold the mark that all files of `command` hold.

    An empty file may be replaced.
    """
    if not try_path(path, Path.exists):
        return
    content = content_of(path)
    if content is None:
        raise InputError(path, "is not an ordinary file, so nothing is written there")
    if content and mark not in content:
        raise InputError(path, f"was not written by `{command}`; remove it, or write elsewhere")
