"""Kinds of values that several sections of the spec hold: names, folders, expressions."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from pathlib import Path

from treegen.core import expr
from treegen.core.errors import Mistakes, reason, shown
from treegen.core.names import problem_with_package_name
from treegen.read.yaml_file import Fields

LARGEST = 1 << 62
"""No integer of the spec is farther from 0."""

_DEEPEST = 32


def folder_below(fields: Fields, key: str, folder: Path) -> Path:
    """The folder below `folder` that the value of `key` names. Raises InputError."""
    text: str = fields.get_as(key, str)
    try:
        path: Path = (folder / text).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise fields.error(key, f"{shown(text)} cannot be a folder: {reason(error)}") from None
    if path == folder or not path.is_relative_to(folder):
        raise fields.error(key, f"{shown(text)} must be a folder below the one that holds the spec")
    if len(path.relative_to(folder).parts) > _DEEPEST:
        raise fields.error(key, f"{shown(text)} is more than {_DEEPEST} folders deep")
    return path


def check_names(
    fields: Fields,
    names: Iterable[str],
    taken: Container[str] = (),
    *,
    key: str | None = None,
    capitals: bool = False,
) -> None:
    """Refuse names that a generated package cannot have or that are taken.

    key: the key whose value holds the names; None if the names are keys of `fields` themselves.
    capitals: whether names may have some; files, folders and variants may not.
    """
    mistakes = Mistakes()
    for name in names:
        problem = problem_with_package_name(name, capitals=capitals)
        with mistakes.collect():
            if problem is not None:
                raise fields.error(key or name, f"{shown(name)} {problem}")
            if name in taken:
                raise fields.error(key or name, f"the name {shown(name)} is already taken")
    mistakes.refuse()


def known_names(fields: Fields, key: str, kind: str, known: Collection[str]) -> tuple[str, ...]:
    """The names that the optional list under `key` holds, all of them in `known`. Raises InputError."""
    names = fields.names(key, optional=True)
    fields.refuse_unknown(kind, names, known, key=key)
    return tuple(names)


def expression(fields: Fields, key: str, known: Collection[str]) -> expr.Expression:
    """The expression under `key`, over the names in `known`. Raises InputError."""
    try:
        return expr.parse(fields.get_as(key, str), known)
    except expr.ExpressionError as error:
        raise fields.error(key, str(error)) from None
