"""Print a tree as the statements of a function body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, split_features


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
    compact: bool = True  # whether equal leaves share an `if`, and sides of a split what they compute


def statements(tree: Tree, derived: Mapping[str, expr.Expression], dialect: Dialect) -> list[Line]:
    """If-else statements; each way through them ends with the statement of its leaf.

    A derived feature is computed before the first split that needs it, or whose sides both need it. A side
    that is a leaf is printed first. If leaves return, no else follows such a side, and splits in a row that
    lead to equal leaves are one `if` with `or`. If leaves do not return, an elif follows where possible.
    """

    def emit(node: Tree, indent: int, in_scope: frozenset[str], keyword: str = "if") -> Iterator[Line]:
        if isinstance(node, Leaf):
            yield Line(indent, dialect.leaf(node.config))
            return
        for name in _needed(node, derived, in_scope, dialect):
            yield Line(indent, f"{name} = {dialect.expression(derived[name])}")
            in_scope |= {name}
        first, second = _leaf_first(node)
        tests = [_test(node, first)]
        while dialect.compact and dialect.returns and _is_split_alone(second, derived, in_scope, dialect):
            rest = _beside(second, first)
            if rest is None:
                break
            tests.append(_test(second, first))
            second = rest
        yield Line(indent, f"{keyword} {' or '.join(tests)}:")
        yield from emit(first, indent + 1, in_scope)
        if isinstance(first, Leaf) and dialect.returns:
            yield from emit(second, indent, in_scope)
        elif not dialect.returns and _is_split_alone(second, derived, in_scope, dialect):
            yield from emit(second, indent, in_scope, "elif")
        else:
            yield Line(indent, "else:")
            yield from emit(second, indent + 1, in_scope)

    return list(emit(tree, 0, frozenset()))


def _leaf_first(split: Split) -> tuple[Tree, Tree]:
    """Both sides; a leaf comes first, or else the low side."""
    low_first = isinstance(split.low, Leaf) or not isinstance(split.high, Leaf)
    return (split.low, split.high) if low_first else (split.high, split.low)


def _beside(tree: Tree, leaf: Tree) -> Tree | None:
    """The other side of a split with this leaf on one side; None for another tree."""
    if isinstance(tree, Split) and isinstance(leaf, Leaf):
        for side, other in ((tree.low, tree.high), (tree.high, tree.low)):
            if side == leaf:
                return other
    return None


def _test(split: Tree, side: Tree) -> str:
    """The comparison that leads to a side of a split."""
    assert isinstance(split, Split)
    sign = "<=" if split.low == side else ">"
    return f"{split.feature} {sign} {expr.number(split.threshold)}"


def _is_split_alone(
    tree: Tree, derived: Mapping[str, expr.Expression], in_scope: frozenset[str], dialect: Dialect
) -> bool:
    """Return whether the tree is printed as an `if`, with nothing to compute before it."""
    return isinstance(tree, Split) and not _needed(tree, derived, in_scope, dialect)


def _needed(
    split: Split, derived: Mapping[str, expr.Expression], in_scope: frozenset[str], dialect: Dialect
) -> list[str]:
    """The derived features to compute before a split, in order: its own, and those of both its sides."""
    order: dict[str, None] = {}

    def visit(part: str) -> None:
        if part in derived and part not in in_scope and part not in order:
            for inner in sorted(expr.names(derived[part])):
                visit(inner)
            order[part] = None

    visit(split.feature)
    if dialect.compact:
        low, high = (expr.with_parts(split_features(side), derived) for side in (split.low, split.high))
        for name in low:
            if name in high:
                visit(name)
    return list(order)
