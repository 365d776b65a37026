"""A mapping of a YAML file: its values are checked as they are read, and errors name their lines."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from tuning_table.errors import TableError, shown
from tuning_table.names import is_word
from tuning_table.strict_yaml import Lines, Place
from tuning_table.table import LARGEST

T = TypeVar("T", int, float)
_KINDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_KINDS |= {list: "a list", dict: "a mapping"}


class Section(dict[str, Any]):
    """One mapping of a YAML file. Its values are scalars, lists or further sections.

    The methods that return a value raise TableError if the value is missing or wrong.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], lines: Lines, place: Place = ()) -> None:
        """lines: of all parts of the file; without them, errors name none. place: of this mapping."""
        self.path, self.lines, self.place = path, lines, place
        super().__init__((key, self._inside(value, (*place, key))) for key, value in values.items())

    def _inside(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return type(self)(self.path, value, self.lines, place)
        if isinstance(value, list):
            return [self._inside(item, (*place, position)) for position, item in enumerate(value)]
        return value

    def line_of(self, *keys: str | int | None) -> int:
        """The line of what the keys lead to, or of the whole mapping if it lacks that; 0 if unknown."""
        return self.lines.get((*self.place, *keys)) or self.lines.get((*self.place, None), 0)

    def error(self, key: str | None, what: str, *, line: int | None = None) -> TableError:
        """An error about `key` of this mapping, or about the whole mapping if `key` is None."""
        names = [*self.place, *([] if key is None else [key])]
        where = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        text = f"{where[1:]}: {what}" if where else what
        return TableError(self.path, text, line=line or self.line_of(key) or None)

    def only(self, known: Collection[str]) -> None:
        """Refuse keys that are not known."""
        for key in self:
            if key not in known:
                raise self.error(key, f"unknown word; known here: {', '.join(known)}")

    def get_as(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """The value of `key`, which must be of `kind`; `default`, if given, where the key is missing."""
        if key not in self:
            if default is ...:
                raise self.error(None, f"lacks '{key}'")
            return default
        value = self[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            expected = " or ".join(_KINDS[k] for k in kinds)
            raise self.error(key, f"must be {expected}, not {shown(value)}")
        return value

    def section(self, key: str, *, optional: bool = False) -> Self:
        """The mapping under `key`; an empty one where an optional key is missing."""
        empty = type(self)(self.path, {}, self.lines, (*self.place, key))
        section: Self = self.get_as(key, dict, empty if optional else ...)
        return section

    def number(self, key: str, kind: type[T], least: float, most: float, default: T | None = None) -> T:
        """The integer, or the number if `kind` is float, of `key`, from `least` to `most`."""
        kinds = (int, float) if kind is float else int
        value = self.get_as(key, kinds, ... if default is None else default)
        if not least <= value <= most:  # NaN is in no range
            raise self.error(key, f"must be between {least} and {most}, not {shown(value)}")
        return kind(value)

    def by_number(self, key: str) -> dict[int, str]:
        """The words of a list by their places from 0, or those of `{word: integer}` by their integers."""
        listed = self.get_as(key, (list, dict))
        words = self.names(key) if isinstance(listed, list) else list(listed)
        for word in words:
            if not is_word(word):
                raise self.error(key, f"{shown(word)} is no word (letters, digits, spaces and _ . % / + -)")
        numbers = [*range(len(words))]
        if not isinstance(listed, list):
            numbers = [listed.number(word, int, -LARGEST, LARGEST) for word in words]
        if len(set(numbers)) < len(words) or not words:
            raise self.error(key, "needs words with different integers")
        return dict(zip(numbers, words, strict=True))

    def names(self, key: str, *, optional: bool = False) -> list[str]:
        """The list of different strings under `key`, at least one; if optional, none or no list will do."""
        names: list[str] = []
        for value in self.get_as(key, list, [] if optional else ...):
            if not isinstance(value, str):
                raise self.error(key, f"holds {shown(value)}, which is not a word")
            if value in names:
                raise self.error(key, f"names {shown(value)} twice")
            names.append(value)
        if not names and not optional:
            raise self.error(key, "is empty")
        return names
