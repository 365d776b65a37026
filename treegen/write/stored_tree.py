"""A tree as treegen.lock stores it: a line for each split and leaf, the low side of a split first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treegen.core.errors import shown
from treegen.core.spec import Config, KernelSpec
from treegen.core.tree import Leaf, Split, Tree

_MOST_NODES, _MOST_DEPTH = 1 << 14, 200


def stored(tree: Tree, kernel: KernelSpec) -> dict[str, list[str]]:
    """Everything of a tree but its gaps, which the next table decides anew."""
    return {"parameters": list(kernel.parameters), "nodes": list(_lines(tree))}


def _lines(tree: Tree) -> Iterator[str]:
    if isinstance(tree, Leaf):
        yield " ".join([tree.config.variant, *(str(value) for _, value in tree.config.parameters)])
        return
    yield f"{tree.feature} <= {tree.threshold}"
    yield from _lines(tree.low)
    yield from _lines(tree.high)


def tree_of(content: Any, kernel: KernelSpec) -> Tree:
    """The stored tree. Raises ValueError for anything that is no tree of this kernel's configs."""
    match content:
        case {"parameters": list(names), "nodes": list(nodes)} if len(nodes) <= _MOST_NODES:
            lines = iter(nodes)
        case _:
            raise ValueError("it must have parameters and nodes")
    tree = _next_tree(lines, names, kernel, 0)
    if next(lines, None) is not None:
        raise ValueError("it has nodes that no split leads to")
    return tree


def _next_tree(lines: Iterator[Any], names: Sequence[Any], kernel: KernelSpec, depth: int) -> Tree:
    line = str(next(lines, "the end"))
    match line.split(" "):
        case [feature, "<=", threshold] if feature.isidentifier() and depth < _MOST_DEPTH:
            low, high = (_next_tree(lines, names, kernel, depth + 1) for _ in range(2))
            return Split(feature, int(threshold), low, high)
        case [variant, *values] if variant in kernel.variants and len(values) == len(names):
            given = {str(name): int(value) for name, value in zip(names, values, strict=True)}
            return Leaf(Config(variant, _parameters(given, kernel)))
    raise ValueError(f"{shown(line)} is no node of a tree of {kernel.name}")


def _parameters(given: dict[str, int], kernel: KernelSpec) -> tuple[tuple[str, int], ...]:
    """The values of the spec's parameters: those that it has gained since have their default."""
    defaults = {name: known.default for name, known in kernel.parameters.items() if known.default is not None}
    values = {**defaults, **given}
    if values.keys() != kernel.parameters.keys():
        raise ValueError(f"the parameters of {kernel.name} are others now")
    return tuple((name, values[name]) for name in kernel.parameters)
