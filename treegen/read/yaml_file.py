"""The mappings of the spec, and kinds of values in them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from treegen.core import expr
from treegen.core.errors import Mistakes, reason, shown
from treegen.core.files import problem_with_package_name, read_text
from tuning_table.section import Section
from tuning_table.strict_yaml import parse

_MAX_BYTES = 1 << 20  # PyYAML takes up to 20 microseconds per byte


class Fields(Section):
    """One mapping of the spec, whose methods raise InputError."""

    unknown: ClassVar[Mistakes]  # the unknown words of the whole file, which do not stop its reading

    def only(self, known: Collection[str]) -> None:
        """Note every key that is not in `known` under `unknown`."""
        with self.unknown.collect():
            self.refuse_unknown("word", self, known)

    def refuse_unknown(
        self, kind: str, names: Iterable[str], known: Iterable[str], *, key: str | None = None
    ) -> None:
        """Refuse names that are not in `known`.

        kind: what the names stand for. key: where the names stand; None if they are themselves keys.
        """
        known = list(known)
        mistakes = Mistakes()
        for name in names:
            if name not in known:
                what = f"unknown {kind} {shown(name)}; known here: {', '.join(known)}"
                with mistakes.collect():
                    raise self.error(key, what, line=self.line_of(key or name))
        mistakes.refuse()


def load(path: Path, text: str | None = None) -> Fields:
    """The mapping that a YAML file of at most 1 MiB holds, or would hold with this text.

    Raises InputError if the file cannot be read, is not YAML, or uses more of YAML than plain data.
    """

    class OfThisFile(Fields):
        unknown = Mistakes()

    return OfThisFile(path, *parse(path, read_text(path, _MAX_BYTES) if text is None else text))


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
    capitals: whether names may have some; files and folders may not.
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


def expression(fields: Fields, key: str, known: Mapping[str, bool]) -> expr.Expression:
    """The expression under `key`, over the names in `known` (see `expr.parse`). Raises InputError."""
    try:
        return expr.parse(fields.get_as(key, str), known)
    except expr.ExpressionError as error:
        raise fields.error(key, str(error)) from None
