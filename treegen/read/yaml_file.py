"""The mappings of a YAML file, whose values know their lines for error messages, and kinds of values."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from pathlib import Path
from typing import Any, TypeVar

from treegen.core import expr
from treegen.core.errors import InputError, Mistakes, reason, shown, table_errors_as_input_errors
from treegen.core.files import problem_with_package_name, read_text
from tuning_table.strict_yaml import Lines, Place, parse

_MAX_BYTES = 1 << 20  # PyYAML takes up to 20 microseconds per byte
T = TypeVar("T", int, float)


class Fields(dict[str, Any]):
    """One mapping of a YAML file. Its values are scalars, lists (`Items`) or further `Fields`.

    The methods that return a value raise InputError, with the line, if the value is missing or wrong.
    """

    def __init__(self, path: Path, where: str, line: int, unknown: Mistakes) -> None:
        super().__init__()
        self.path, self.where, self.line = path, where, line
        self.unknown = unknown  # the unknown words of the whole file, which do not stop its reading
        self.lines: dict[str, int] = {}  # the line of each key

    def line_of(self, key: str) -> int:
        """The line of `key`, or of the whole mapping if it lacks the key."""
        return self.lines.get(key, self.line)

    def error(self, key: str | None, what: str, *, line: int | None = None) -> InputError:
        """An error about `key` of this mapping, or about the whole mapping if `key` is None."""
        place = ".".join(part for part in (self.where, key) if part)
        line = line or (self.line if key is None else self.line_of(key))
        return InputError(self.path, f"{place}: {what}" if place else what, line=line)

    def only(self, known: Iterable[str]) -> None:
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

    def get_as(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """The value of `key`, which must be of `kind`; `default`, if given, where the key is missing."""
        if key not in self:
            if default is ...:
                raise self.error(None, f"lacks '{key}'")
            return default
        value = self[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_KIND_NAMES[k] for k in kinds)
            raise self.error(key, f"must be {expected}, not {shown(value)}")
        return value

    def section(self, key: str, *, optional: bool = False) -> Fields:
        """The mapping under `key`; an empty one where an optional key is missing."""
        section: Fields = self.get_as(
            key, Fields, Fields(self.path, "", 0, self.unknown) if optional else ...
        )
        return section

    def number(self, key: str, kind: type[T], least: float, most: float, default: T | None = None) -> T:
        """The integer, or the number if `kind` is float, of `key`, from `least` to `most`."""
        kinds = (int, float) if kind is float else int
        value = self.get_as(key, kinds, ... if default is None else default)
        if not least <= value <= most:  # NaN is in no range
            raise self.error(key, f"must be between {least} and {most}, not {shown(value)}")
        return kind(value)

    def names(self, key: str, *, optional: bool = False) -> list[str]:
        """The list of different strings under `key`; an empty one where an optional key is missing."""
        names: list[str] = []
        for value in self.get_as(key, list, [] if optional else ...):
            if not isinstance(value, str):
                raise self.error(key, f"holds {shown(value)}, which is not a word")
            if value in names:
                raise self.error(key, f"names {shown(value)} twice")
            names.append(value)
        return names


class Items(list[Any]):
    """A list of a YAML file."""

    def __init__(self, items: Iterable[Any] = (), lines: Iterable[int] = ()) -> None:
        super().__init__(items)
        self.lines = list(lines)  # the line of each item


_KIND_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_KIND_NAMES |= {list: "a list", Fields: "a mapping"}


def load(path: Path, text: str | None = None) -> Fields:
    """The mapping that a YAML file of at most 1 MiB holds, or would hold with this text.

    Raises InputError if the file cannot be read, is not YAML, or uses more of YAML than plain data.
    """
    with table_errors_as_input_errors():
        data, lines = parse(path, read_text(path, _MAX_BYTES) if text is None else text)
    if not isinstance(data, dict):
        raise InputError(path, "must hold a mapping of keys to values")
    fields: Fields = _with_lines(path, "", (), data, lines, Mistakes())
    return fields


def _with_lines(path: Path, where: str, place: Place, value: Any, lines: Lines, unknown: Mistakes) -> Any:
    """Mappings become `Fields` and lists become `Items`, with their lines."""
    if isinstance(value, dict):
        fields = Fields(path, where, lines[(*place, None)], unknown)
        for key, inner in value.items():
            fields.lines[key] = lines[(*place, key)]
            inside = f"{where}.{key}" if where else key
            fields[key] = _with_lines(path, inside, (*place, key), inner, lines, unknown)
        return fields
    if isinstance(value, list):
        places = [(*place, position) for position in range(len(value))]
        items = (
            _with_lines(path, f"{where}[{i}]", places[i], item, lines, unknown)
            for i, item in enumerate(value)
        )
        return Items(items, (lines[place] for place in places))
    return value


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


def expression(fields: Fields, key: str, known: Collection[str]) -> expr.Expression:
    """The expression under `key`, over the names in `known`. Raises InputError."""
    try:
        return expr.parse(fields.get_as(key, str), known)
    except expr.ExpressionError as error:
        raise fields.error(key, str(error)) from None


def refuse_numbers_as_truths(
    fields: Fields, expressions: Iterable[tuple[str, expr.Expression]], conditions: Container[str]
) -> None:
    """Refuse names that and, or, not join though they stand for numbers: `a and b` is no number then."""
    for key, found in expressions:
        for name in sorted(expr.truths(found)):
            if name not in conditions:
                raise fields.error(key, f"joins {shown(name)}, which is no condition of `derived`")
