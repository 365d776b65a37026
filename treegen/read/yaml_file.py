"""YAML from outside, read strictly: plain data only, and every value knows its line.

PyYAML's safe loader lets a repeated key win silently, forgets line numbers and expands aliases without
limit; this reader refuses repeated keys, aliases and tags, and keeps the lines for error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text

_MAX_BYTES = 1 << 20
"""PyYAML takes up to 20 microseconds a byte."""
_MAX_DIGITS = 1000

_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null")}


class Fields(Mapping[str, Any]):
    """One mapping of a YAML file; values are scalars, lists or further `Fields`."""

    def __init__(self, path: Path, where: str, line: int, items: dict[str, tuple[int, Any]]) -> None:
        self.path, self.where, self.line, self._items = path, where, line, items

    def __getitem__(self, key: str) -> Any:
        return self._items[key][1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def line_of(self, key: str) -> int:
        return self._items[key][0] if key in self._items else self.line

    def error(self, key: str | None, what: str) -> InputError:
        """An error about `key` of this mapping (or about the mapping itself)."""
        place = ".".join(part for part in (self.where, key) if part)
        line = self.line if key is None else self.line_of(key)
        return InputError(self.path, f"{place}: {what}" if place else what, line=line)

    def only(self, known: Iterable[str]) -> None:
        known = list(known)
        for key in self:
            if key not in known:
                place = f"{self.where}: " if self.where else ""
                what = f"{place}unknown word {shown(key)}; known here: {', '.join(known)}"
                raise InputError(self.path, what, line=self.line_of(key))

    def get_as(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """The value of `key`, checked to be of `kind`; `default` (when given) where the key is missing."""
        if key not in self._items:
            if default is ...:
                raise self.error(None, f"lacks '{key}'")
            return default
        value = self[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(_KIND_NAMES.get(k, k.__name__) for k in kinds)
            raise self.error(key, f"must be {wanted}, not {shown(value)}")
        return value

    def names(self, key: str) -> list[str]:
        """A list of strings without repetition."""
        names: dict[str, None] = {}
        for value in self.get_as(key, list):
            if not isinstance(value, str):
                raise self.error(key, f"holds {shown(value)}, which is not a word")
            if value in names:
                raise self.error(key, f"names {shown(value)} twice")
            names[value] = None
        return list(names)

    def plain(self) -> dict[str, Any]:
        """The mapping as ordinary dicts and lists."""
        return {key: _plain(self[key]) for key in self}


class Items(list[Any]):
    """A list of a YAML file that knows the line of each item."""

    def __init__(self, items: Iterable[Any], lines: list[int]) -> None:
        super().__init__(items)
        self.lines = lines


_KIND_NAMES = {
    str: "text",
    int: "an integer",
    list: "a list",
    Fields: "a mapping",
    float: "a number",
    bool: "true or false",
}


def _plain(value: Any) -> Any:
    if isinstance(value, Fields):
        return value.plain()
    return [_plain(item) for item in value] if isinstance(value, list) else value


class _Loader(yaml.SafeLoader):
    """Refuses aliases where they stand. It reads on only as far as nodes are composed, which ends at Python's
    recursion limit; to parse a long row of brackets to its end would take hours."""

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

    Raises InputError for a file that cannot be read, is no YAML, or uses more of YAML than plain data.
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
    if node.tag not in _PLAIN_TAGS:
        # Unquoted dates get a tag of their own; their text is what the author meant.
        if node.tag == "tag:yaml.org,2002:timestamp":
            return str(node.value)
        raise InputError(path, f"YAML tag {node.tag} is not allowed", line=line)
    if isinstance(node, yaml.MappingNode):
        items: dict[str, tuple[int, Any]] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or key_node.tag not in _PLAIN_TAGS:
                raise InputError(path, "a key must be a word", line=key_line)
            if key in items:
                raise InputError(
                    path, f"key {shown(key)} appears twice (first in line {items[key][0]})", line=key_line
                )
            items[key] = (key_line, _value(path, f"{where}.{key}" if where else key, value_node))
        return Fields(path, where, line, items)
    if isinstance(node, yaml.SequenceNode):
        return Items(
            (_value(path, f"{where}[{i}]", item) for i, item in enumerate(node.value)),
            [item.start_mark.line + 1 for item in node.value],
        )
    if node.tag == "tag:yaml.org,2002:bool" and node.value not in ("true", "false"):
        # YAML 1.1 takes yes, on, No, ... for booleans, too.
        raise InputError(path, f"write true or false, or quote {shown(node.value)}", line=line)
    try:
        if len(node.value) > _MAX_DIGITS and not node.tag.endswith(":str"):
            raise ValueError  # numbers to base 60 take quadratic time
        return yaml.constructor.SafeConstructor().construct_object(node, deep=True)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError):
        raise InputError(path, f"cannot read the value {shown(node.value)}", line=line) from None
