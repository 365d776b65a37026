"""Strict YAML: plain data only, every key once, and the line of every value.

PyYAML's safe loader lets a repeated key win silently, forgets line numbers and expands aliases without limit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tuning_table.errors import TableError, shown

Place: TypeAlias = tuple[str | int | None, ...]
"""The keys and positions that lead to a value. A last None stands for the mapping itself: the line where its
first key is, while without None it is the line of the key that holds the mapping."""
Lines: TypeAlias = Mapping[Place, int]

_MAX_DEPTH = 100  # PyYAML takes quadratic time for deep nesting
_MAX_DIGITS = 1000  # PyYAML takes quadratic time for numbers to base 60
_PREFIX = "tag:yaml.org,2002:"
_PLAIN_TAGS = {f"{_PREFIX}{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null")}


def pyyaml(where: Path) -> Any:
    """The module yaml. Raises TableError if PyYAML is not installed."""
    try:
        import yaml
    except ImportError:
        raise TableError(where, "needs PyYAML: pip install pyyaml") from None
    return yaml


def parse(path: Path, text: str) -> tuple[Any, Lines]:
    """The value that a YAML text holds, and the lines of its parts.

    path: for messages. Raises TableError, with the line, for anything that is not plain data.
    """
    yaml = pyyaml(path)
    lines: dict[Place, int] = {}
    try:
        reader = _YamlReader(path, yaml, yaml.SafeLoader(text), lines)
        return reader.document(), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise TableError(path, f"not valid YAML: {what}", mark.line + 1 if mark else None) from None


class _YamlReader:
    """Builds the value from PyYAML's events, and fails at the first event that is not plain data."""

    def __init__(self, path: Path, yaml: Any, loader: Any, lines: dict[Place, int]) -> None:
        self.path, self.yaml, self.loader, self.lines = path, yaml, loader, lines

    def document(self) -> Any:
        self.next()  # the stream begins
        if isinstance(self.next(), self.yaml.StreamEndEvent):
            return None
        value = self.value((), self.next())
        self.next()  # the document ends
        end = self.next()
        if not isinstance(end, self.yaml.StreamEndEvent):
            raise self.error(end, "not valid YAML: found another document")
        return value

    def next(self) -> Any:
        try:
            return self.loader.get_event()
        except (OverflowError, ValueError):  # "\U00110000"
            what = "not valid YAML: there is no such character"
            raise TableError(self.path, what, self.loader.line + 1) from None

    def error(self, event: Any, what: str) -> TableError:
        return TableError(self.path, what, event.start_mark.line + 1)

    def value(self, place: Place, event: Any) -> Any:
        yaml = self.yaml
        if len(place) > _MAX_DEPTH:
            raise TableError(self.path, "nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise self.error(event, "YAML aliases (*name) are not allowed")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        self.plain_tag(event, event.tag)
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(place, event)
        items: list[Any] = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            item = (*place, len(items))
            self.lines[item] = event.start_mark.line + 1
            items.append(self.value(item, event))
        return items

    def mapping(self, place: Place, event: Any) -> dict[str, Any]:
        self.lines[(*place, None)] = event.start_mark.line + 1
        values: dict[str, Any] = {}
        while not isinstance(key := self.next(), self.yaml.MappingEndEvent):
            if isinstance(key, self.yaml.AliasEvent):
                raise self.error(key, "YAML aliases (*name) are not allowed")
            if not isinstance(key, self.yaml.ScalarEvent) or self.tag(key) not in _PLAIN_TAGS:
                raise self.error(key, "a key must be a word")
            item = (*place, key.value)
            if key.value in values:
                first = self.lines[item]
                raise self.error(key, f"key {shown(key.value)} appears twice (first in line {first})")
            self.lines[item] = key.start_mark.line + 1
            values[key.value] = self.value(item, self.next())
        return values

    def tag(self, scalar: Any) -> str:
        if scalar.tag not in (None, "!"):
            return str(scalar.tag)
        return str(self.loader.resolve(self.yaml.ScalarNode, scalar.value, scalar.implicit))

    def plain_tag(self, event: Any, tag: str | None) -> None:
        if tag not in (None, "!", *_PLAIN_TAGS):
            raise self.error(event, f"YAML tag {tag} is not allowed")

    def scalar(self, event: Any) -> Any:
        tag, text = self.tag(event), event.value
        if tag == f"{_PREFIX}timestamp":  # an unquoted date is text
            return text
        self.plain_tag(event, tag)
        if tag == f"{_PREFIX}bool" and text not in ("true", "false"):
            raise self.error(event, f"write true or false, or quote {shown(text)}")  # YAML 1.1: yes, on, No
        try:
            if len(text) > _MAX_DIGITS and tag != f"{_PREFIX}str":
                raise ValueError
            return self.loader.construct_object(self.yaml.ScalarNode(tag, text), deep=True)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, self.yaml.YAMLError):
            raise self.error(event, f"cannot read the value {shown(text)}") from None
