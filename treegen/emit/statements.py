"""Lay a tree out as the statements of a function body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree


@dataclass(frozen=True)
class Line:
    indent: int
    text: str


@dataclass(frozen=True)
class Dialect:
    """How a function's parts are printed. answer: the statement of a leaf. expression: what computes a
    derived feature. returns: whether an answer leaves the function; else it stands alone in its branch."""

    answer: Callable[[Config], str]
    expression: Callable[[expr.Expression], str] = expr.to_python
    returns: bool = True


def statements(tree: Tree, derived: Mapping[str, expr.Expression], dialect: Dialect) -> list[Line]:
    """if-else statements that end with the answer of the leaf that they reach.

    A derived feature is computed just before the first question that needs it. A question with a leaf on
    one side answers at once and goes on without an else where answers return, and else with an elif where it
    can, so that nesting shows real alternatives only.
    """

    def emit(node: Tree, indent: int, in_scope: frozenset[str], question: str = "if") -> Iterator[Line]:
        if isinstance(node, Leaf):
            yield Line(indent, dialect.answer(node.config))
            return
        for name in _needed(node.feature, derived, in_scope):
            yield Line(indent, f"{name} = {dialect.expression(derived[name])}")
            in_scope |= {name}
        low_first = isinstance(node.low, Leaf) or not isinstance(node.high, Leaf)
        first, second = (node.low, node.high) if low_first else (node.high, node.low)
        sign = "<=" if low_first else ">"
        yield Line(indent, f"{question} {node.feature} {sign} {expr.number(node.threshold)}:")
        yield from emit(first, indent + 1, in_scope)
        if isinstance(first, Leaf) and dialect.returns:
            yield from emit(second, indent, in_scope)
        elif not dialect.returns and _asks_at_once(second, derived, in_scope):
            yield from emit(second, indent, in_scope, "elif")
        else:
            yield Line(indent, "else:")
            yield from emit(second, indent + 1, in_scope)

    return list(emit(tree, 0, frozenset()))


def _asks_at_once(tree: Tree, derived: Mapping[str, expr.Expression], in_scope: frozenset[str]) -> bool:
    """Whether a question comes first, with nothing to compute before it."""
    return isinstance(tree, Split) and not _needed(tree.feature, derived, in_scope)


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
