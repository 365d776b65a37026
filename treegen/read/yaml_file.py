"""Read YAML strictly: plain data only, and every value knows its line.

PyYAML's safe loader lets a repeated key win silently, forgets line numbers and expands aliases without limit.
This reader refuses repeated keys, aliases and tags, and keeps the lines for error messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text

_MAX_BYTES = 1 << 20  # PyYAML takes up to 20 microseconds per byte
_MAX_DIGITS = 1000  # Python takes quadratic time to read numbers in base 60
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null")}
T = TypeVar("T", int, float)


class Fields(dict[str, Any]):
    """One mapping of a YAML file. Its values are scalars, lists (`Items`) or further `Fields`.

    The methods that return a value raise InputError, with the line, if the value is missing or wrong.
    """

    def __init__(self, path: Path, where: str, line: int) -> None:
        super().__init__()
        self.path, self.where, self.line = path, where, line
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
        """Refuse every key that is not in `known`."""
        self.refuse_unknown("word", self, known)

    def refuse_unknown(
        self, kind: str, names: Iterable[str], known: Iterable[str], *, key: str | None = None
    ) -> None:
        """Refuse names that are not in `known`.

        kind: what the names stand for. key: where the names stand; None if they are themselves keys.
        """
        known = list(known)
        for name in names:
            if name not in known:
                what = f"unknown {kind} {shown(name)}; known here: {', '.join(known)}"
                raise self.error(key, what, line=self.line_of(key or name))

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
        section: Fields = self.get_as(key, Fields, Fields(self.path, "", 0) if optional else ...)
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

    def plain(self) -> dict[str, Any]:
        """The mapping as ordinary dicts and lists."""
        return {key: _plain(value) for key, value in self.items()}


class Items(list[Any]):
    """A list of a YAML file."""

    def __init__(self, items: Iterable[Any] = (), lines: Iterable[int] = ()) -> None:
        super().__init__(items)
        self.lines = list(lines)  # the line of each item


_KIND_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_KIND_NAMES |= {list: "a list", Fields: "a mapping"}


def _plain(value: Any) -> Any:
    if isinstance(value, Fields):
        return value.plain()
    return [_plain(item) for item in value] if isinstance(value, list) else value


class _Loader(yaml.SafeLoader):
    """Refuses aliases where they stand.

    It reads on only as far as it composes nodes, and composing ends at Python's recursion limit. To parse a
    long row of brackets to its end would take hours.
    """

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self.path = path

    def get_single_node(self) -> yaml.Node | None:
        try:
            return super().get_single_node()
        except (OverflowError, ValueError):  # "\U00110000"
            what = "not valid YAML: there is no such character"
            raise InputError(self.path, what, line=self.line + 1) from None

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
            raise InputError(self.path, "YAML aliases (*name) are not allowed", line=line)
        return super().compose_node(parent, index)


def load(path: Path) -> Fields:
    """The mapping that a YAML file of at most 1 MiB holds.

    Raises InputError if the file cannot be read, is not YAML, or uses more of YAML than plain data.
    """
    text = read_text(path, _MAX_BYTES)
    try:
        value = _value(path, "", _Loader(text, path).get_single_node())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        line = mark.line + 1 if mark is not None else None
        raise InputError(path, f"not valid YAML: {what}", line=line) from None
    except RecursionError:
        raise InputError(path, "nested too deeply") from None
    if not isinstance(value, Fields):
        raise InputError(path, "must hold a mapping of keys to values")
    return value


def _value(path: Path, where: str, node: yaml.Node | None) -> Any:
    if node is None:
        return None
    line = node.start_mark.line + 1
    if node.tag == "tag:yaml.org,2002:timestamp":  # an unquoted date: its text is what the author meant
        return str(node.value)
    if node.tag not in _PLAIN_TAGS:
        raise InputError(path, f"YAML tag {node.tag} is not allowed", line=line)
    if isinstance(node, yaml.MappingNode):
        return _fields(path, where, node)
    if isinstance(node, yaml.SequenceNode):
        return Items(
            (_value(path, f"{where}[{i}]", item) for i, item in enumerate(node.value)),
            (item.start_mark.line + 1 for item in node.value),
        )
    if node.tag == "tag:yaml.org,2002:bool" and node.value not in ("true", "false"):
        # YAML 1.1 reads yes, on, No, ... as booleans, too.
        raise InputError(path, f"write true or false, or quote {shown(node.value)}", line=line)
    try:
        if len(node.value) > _MAX_DIGITS and not node.tag.endswith(":str"):
            raise ValueError
        return yaml.constructor.SafeConstructor().construct_object(node, deep=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError):
        raise InputError(path, f"cannot read the value {shown(node.value)}", line=line) from None


def _fields(path: Path, where: str, node: yaml.MappingNode) -> Fields:
    fields = Fields(path, where, node.start_mark.line + 1)
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag not in _PLAIN_TAGS:
            raise InputError(path, "a key must be a word", line=line)
        key = key_node.value
        if key in fields:
            what = f"key {shown(key)} appears twice (first in line {fields.lines[key]})"
            raise InputError(path, what, line=line)
        fields.lines[key] = line
        fields[key] = _value(path, f"{where}.{key}" if where else key, value_node)
    return fields
