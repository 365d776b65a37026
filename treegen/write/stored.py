"""A heuristic as treegen.lock stores it: a line for each question and row of a tree, then the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treegen.core.errors import shown
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree
from treegen.core.spec import Config, KernelSpec

_DEEPEST = 32


def stored(heuristic: Heuristic, kernel: KernelSpec) -> dict[str, Any]:
    """A heuristic as plain data; `heuristic_of` is its inverse."""
    regimes = [
        {"name": regime.name, "tree": list(_lines(regime.tree)), "rows": [_row(row) for row in regime.rows]}
        for regime in heuristic.regimes
    ]
    return {"parameters": list(kernel.parameters), "regimes": regimes}


def _lines(tree: StepTree) -> Iterator[str]:
    if isinstance(tree, Split):
        yield f"{tree.feature} <= {tree.threshold}"
        yield from _lines(tree.low)
        yield from _lines(tree.high)
    else:
        yield f"row {tree}"


def _row(row: Row) -> dict[str, Any]:
    others = {name: _config(config) for name, config in row.others.items()}
    return {"config": _config(row.config), "others": others, "then": [_config(config) for config in row.then]}


def _config(config: Config) -> str:
    return " ".join([config.variant, *(str(value) for _, value in config.parameters)])


def heuristic_of(content: Any, kernel: KernelSpec) -> Heuristic:
    """The stored heuristic. Raises ValueError for anything that is no heuristic of this kernel's configs."""
    match content:
        case {"parameters": list(names), "regimes": list(regimes)}:
            return Heuristic(tuple(_regime(regime, names, kernel) for regime in regimes))
    raise ValueError("it must have parameters and regimes")


def _regime(content: Any, names: Sequence[Any], kernel: KernelSpec) -> RegimeRows:
    match content:
        case {"name": str(name), "tree": list(lines), "rows": list(rows)} if rows:
            left = iter(lines)
            tree = _tree(left, len(rows), 0)
            if next(left, None) is not None:
                raise ValueError(f"the tree of {shown(name)} has lines that no question leads to")
            return RegimeRows(name, tree, tuple(_read_row(row, names, kernel) for row in rows))
    raise ValueError(f"{shown(content)} is no regime with a name, a tree and rows")


def _tree(lines: Iterator[Any], rows: int, depth: int) -> StepTree:
    line = str(next(lines, "the end"))
    match line.split(" "):
        case ["row", number] if number.isdecimal() and int(number) < rows:
            return int(number)
        case [feature, "<=", threshold] if feature.isidentifier() and depth < _DEEPEST:
            low, high = (_tree(lines, rows, depth + 1) for _ in range(2))
            return Split(feature, int(threshold), low, high)
    raise ValueError(f"{shown(line)} is no question and no row")


def _read_row(content: Any, names: Sequence[Any], kernel: KernelSpec) -> Row:
    match content:
        case {"config": config, "others": dict(others), "then": list(then)}:
            own, *then = (_read_config(text, names, kernel) for text in (config, *then))
            by_class = {str(name): _read_config(other, names, kernel) for name, other in others.items()}
            return Row(own, by_class, tuple(then))
    raise ValueError(f"{shown(content)} is no row")


def _read_config(text: Any, names: Sequence[Any], kernel: KernelSpec) -> Config:
    """A config; parameters that the spec has gained since have their default."""
    match str(text).split(" "):
        case [variant, *values] if variant in kernel.variants and len(values) == len(names):
            given = tuple((str(name), int(value)) for name, value in zip(names, values, strict=True))
            config = kernel.own(Config(variant, given))
            known = [name for name, _ in config.parameters]
            if known == [*kernel.parameters] and {name for name, _ in given} <= {*known}:
                return config
    raise ValueError(f"{shown(text)} is no config of {kernel.name}")
