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


def parse(path: Path, text: str) -> tuple[dict[str, Any], Lines]:
    """The mapping that a YAML text holds, and the lines of its parts.

    path: for messages. Raises TableError, with the line, for anything that is not plain data.
    """
    yaml = pyyaml(path)
    depth = 0

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        def compose_node(self, parent: Any, index: Any) -> Any:
            nonlocal depth
            if self.check_event(yaml.AliasEvent):
                line = self.peek_event().start_mark.line + 1
                raise TableError(path, "YAML aliases (*name) are not allowed", line)
            if depth > _MAX_DEPTH:
                raise TableError(path, "nested too deeply")
            depth += 1
            node = super().compose_node(parent, index)
            depth -= 1
            return node

    try:
        loader = Loader(text)
        reader = _Values(path, yaml, loader)
        node = loader.get_single_node()
        value = None if node is None else reader.value((), node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise TableError(path, f"not valid YAML: {what}", mark.line + 1 if mark else None) from None
    except (OverflowError, ValueError):  # "\U00110000"
        raise TableError(path, "not valid YAML: there is no such character", loader.line + 1) from None
    if not isinstance(value, dict):
        raise TableError(path, "must hold a mapping of keys to values")
    return value, reader.lines


class _Values:
    """The values of PyYAML's nodes, if they are plain data, and their lines."""

    def __init__(self, path: Path, yaml: Any, loader: Any) -> None:
        self.path, self.yaml, self.loader = path, yaml, loader
        self.lines: dict[Place, int] = {}

    def value(self, place: Place, node: Any) -> Any:
        if node.tag == f"{_PREFIX}timestamp":  # an unquoted date is text
            return node.value
        if node.tag not in _PLAIN_TAGS:
            raise self.error(node, f"YAML tag {node.tag} is not allowed")
        if isinstance(node, self.yaml.ScalarNode):
            return self.scalar(node)
        if isinstance(node, self.yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.lines[(*place, position)] = item.start_mark.line + 1
            return [self.value((*place, position), item) for position, item in enumerate(node.value)]
        self.lines[(*place, None)] = node.start_mark.line + 1
        values: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, self.yaml.ScalarNode) or key.tag not in _PLAIN_TAGS:
                raise self.error(key, "a key must be a word")
            at = (*place, key.value)
            if key.value in values:
                raise self.error(
                    key, f"key {shown(key.value)} appears twice (first in line {self.lines[at]})"
                )
            self.lines[at] = key.start_mark.line + 1
            values[key.value] = self.value(at, item)
        return values

    def scalar(self, node: Any) -> Any:
        if node.tag == f"{_PREFIX}bool" and node.value not in ("true", "false"):  # YAML 1.1: yes, on, No
            raise self.error(node, f"write true or false, or quote {shown(node.value)}")
        try:
            if len(node.value) > _MAX_DIGITS and node.tag != f"{_PREFIX}str":
                raise ValueError
            return self.loader.construct_object(node, deep=True)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, self.yaml.YAMLError):
            raise self.error(node, f"cannot read the value {shown(node.value)}") from None

    def error(self, node: Any, what: str) -> TableError:
        return TableError(self.path, what, node.start_mark.line + 1)
