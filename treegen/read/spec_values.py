"""Kinds of values that several sections of the spec hold: names, folders, counts."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from treegen.core.errors import reason, shown
from treegen.core.names import problem_with_own_name
from treegen.read.yaml_file import Fields

LARGEST = 1 << 62
"""No integer of the spec is farther from 0."""

_DEEPEST = 32


def folder_below(fields: Fields, key: str, folder: Path) -> Path:
    """A folder below `folder`, which the value of `key` names."""
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


def check_name(fields: Fields, key: str | None, name: object, taken: Container[str] = ()) -> str:
    """The name, if it can be one of a generated package and is not among those taken. Raises InputError."""
    problem = problem_with_own_name(name)
    if problem is not None:
        raise fields.error(key, f"{shown(name)} {problem}")
    if name in taken:
        raise fields.error(key, f"the name {shown(name)} is already taken")
    return str(name)


def count(fields: Fields, key: str, most: int) -> int:
    """The integer of `key`, from 1 to `most`."""
    value = fields.get_as(key, int)
    if not 1 <= value <= most:
        raise fields.error(key, f"must be between 1 and {most}, not {shown(value)}")
    return int(value)


def decimal(
    fields: Fields, key: str, default: float, least: float, most: float, *, above: bool = False
) -> float:
    """The number of `key`, from `least` (or `above` it) to `most`; `default` where the key is missing."""
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fields.error(key, f"must be a decimal such as 0.5, not {shown(value)}")
    if not least <= value <= most or (above and value == least):
        wanted = f"above {least:g} and at most {most:g}" if above else f"between {least:g} and {most:g}"
        raise fields.error(key, f"must be {wanted}, not {shown(value)}")
    return float(value)
