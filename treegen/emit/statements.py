"""Lay a tree out as the statements of a function body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treegen import expr
from treegen.spec import Config
from treegen.tree import Leaf, Split, Tree


@dataclass(frozen=True)
class Line:
    indent: int
    text: str


def statements(
    tree: Tree, derived: Mapping[str, expr.Expression], constant_name: Callable[[Config], str]
) -> list[Line]:
    """if-else statements that return the chosen constant.

    A derived feature is computed just before the first question that needs it. A question with a leaf on
    one side returns at once and goes on without an else, so that nesting shows real alternatives only.
    """

    def emit(node: Tree, indent: int, in_scope: frozenset[str]) -> Iterator[Line]:
        if isinstance(node, Leaf):
            yield Line(indent, f"return {constant_name(node.config)}")
            return
        for name in _needed(node.feature, derived, in_scope):
            yield Line(indent, f"{name} = {expr.to_python(derived[name])}")
            in_scope |= {name}
        low_first = isinstance(node.low, Leaf) or not isinstance(node.high, Leaf)
        first, second = (node.low, node.high) if low_first else (node.high, node.low)
        yield Line(indent, f"if {node.feature} {'<=' if low_first else '>'} {expr.number(node.threshold)}:")
        yield from emit(first, indent + 1, in_scope)
        if isinstance(first, Split):
            yield Line(indent, "else:")
            yield from emit(second, indent + 1, in_scope)
        else:
            yield from emit(second, indent, in_scope)

    return list(emit(tree, 0, frozenset()))


def _needed(name: str, derived: Mapping[str, expr.Expression], in_scope: frozenset[str]) -> list[str]:
    """The derived features to compute before `name` can be used, in order."""
    order: dict[str, None] = {}

    def visit(part: str) -> None:
        if part in derived and part not in in_scope and part not in order:
            for inner in sorted(expr.names(derived[part])):
                visit(inner)
            order[part] = None

    visit(name)
    return list(order)
