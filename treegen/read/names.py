"""Checks of names and folders that a spec holds. Each raises InputError with the line."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

from treegen.core.errors import Mistakes, reason, shown
from treegen.core.files import problem_with_package_name
from tuning_table.section import Section

_DEEPEST = 32


def folder_below(section: Section, key: str, folder: Path) -> Path:
    """The folder below `folder` that the value of `key` names."""
    text: str = section[key]
    try:
        path: Path = (folder / text).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise section.error(key, f"{shown(text)} cannot be a folder: {reason(error)}") from None
    if path == folder or not path.is_relative_to(folder):
        raise section.error(key, f"{shown(text)} must be a folder below the one that holds the spec")
    if len(path.relative_to(folder).parts) > _DEEPEST:
        raise section.error(key, f"{shown(text)} is more than {_DEEPEST} folders deep")
    return path


def check_names(
    section: Section,
    names: Iterable[str],
    taken: Container[str] = (),
    *,
    key: str | None = None,
    capitals: bool = False,
) -> None:
    """Refuse names that a generated package cannot have or that are taken.

    key: the key whose value holds the names; None if the names are keys of the section themselves.
    capitals: whether names may have some; files and folders may not.
    """
    mistakes = Mistakes()
    for name in names:
        problem = problem_with_package_name(name, capitals=capitals)
        with mistakes.collect():
            if problem is not None:
                raise section.error(key or name, f"{shown(name)} {problem}")
            if name in taken:
                raise section.error(key or name, f"the name {shown(name)} is already taken")
    mistakes.refuse()
