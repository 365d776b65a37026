"""Print a tree as the statements of a function body."""

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
    """The printers of a function's parts."""

    leaf: Callable[[Config], str]  # the statement of a leaf
    expression: Callable[[expr.Expression], str] = expr.to_python  # the expression of a derived feature
    returns: bool = True  # whether a leaf's statement leaves the function


def statements(tree: Tree, derived: Mapping[str, expr.Expression], dialect: Dialect) -> list[Line]:
    """If-else statements, each way through which ends with the statement of the leaf that it reaches.

    A derived feature is computed just before the first split that needs it. Of a split, a side that is a
    leaf is printed first. If leaves return, no else follows it; otherwise an elif follows where possible.
    """

    def emit(node: Tree, indent: int, in_scope: frozenset[str], keyword: str = "if") -> Iterator[Line]:
        if isinstance(node, Leaf):
            yield Line(indent, dialect.leaf(node.config))
            return
        for name in _needed(node.feature, derived, in_scope):
            yield Line(indent, f"{name} = {dialect.expression(derived[name])}")
            in_scope |= {name}
        low_first = isinstance(node.low, Leaf) or not isinstance(node.high, Leaf)
        first, second = (node.low, node.high) if low_first else (node.high, node.low)
        sign = "<=" if low_first else ">"
        yield Line(indent, f"{keyword} {node.feature} {sign} {expr.number(node.threshold)}:")
        yield from emit(first, indent + 1, in_scope)
        if isinstance(first, Leaf) and dialect.returns:
            yield from emit(second, indent, in_scope)
        elif not dialect.returns and _is_split_alone(second, derived, in_scope):
            yield from emit(second, indent, in_scope, "elif")
        else:
            yield Line(indent, "else:")
            yield from emit(second, indent + 1, in_scope)

    return list(emit(tree, 0, frozenset()))


def _is_split_alone(tree: Tree, derived: Mapping[str, expr.Expression], in_scope: frozenset[str]) -> bool:
    """Return whether the tree is printed as an `if`, with nothing to compute before it."""
    return isinstance(tree, Split) and not _needed(tree.feature, derived, in_scope)


def _needed(name: str, derived: Mapping[str, expr.Expression], in_scope: frozenset[str]) -> list[str]:
    """The derived features that must be computed before `name` can be used, in order."""
    order: dict[str, None] = {}

    def visit(part: str) -> None:
        if part in derived and part not in in_scope and part not in order:
            for inner in sorted(expr.names(derived[part])):
                visit(inner)
            order[part] = None

    visit(name)
    return list(order)
