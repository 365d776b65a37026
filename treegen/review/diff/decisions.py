"""What a module launches in the scenarios of a table that another spec has read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from treegen.core import expr
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, map_leaves, split_features
from treegen.review.compiled_trees import Module

_Numbers = dict[Hashable, int]
Chosen = tuple[Config | None, ...]
"""A config a scenario; None where the table does not hold what the tree asks."""


def decisions(module: Module, problem: Problem) -> Chosen:
    """The module's choices in the problem's scenarios, in the words of the problem's kernel.

    A derived feature that the module's spec defines otherwise is computed anew from the table's columns.
    """
    tree = in_words_of(module, problem.kernel)
    needed = frozenset(split_features(tree))
    numbers: _Numbers = {}
    here = _meanings(module.kernel, module.device, numbers)
    there = _meanings(problem.kernel, problem.device, numbers)
    known = [name for name in problem.names if name not in here or here[name] == there.get(name)]
    result: list[Config | None] = []
    for row in problem.features.tolist():
        measured = dict(zip(problem.names, row, strict=True))
        values = {name: measured[name] for name in known}
        for name, expression in module.kernel.derived.items():
            parts = {**module.device.limits, **values}
            if name not in values and expr.names(expression) <= parts.keys():
                values[name] = expr.evaluate(expression, parts)
        result.append(choose(tree, values) if needed <= values.keys() else None)
    return tuple(result)


def in_words_of(module: Module, kernel: KernelSpec) -> Tree:
    """The module's tree with configs of another spec's kernel: parameters unknown there go, those unknown
    here get that kernel's default."""
    if module.kernel.parameters == kernel.parameters:
        return module.tree

    def told(leaf: Leaf) -> Leaf:
        own = dict(leaf.config.parameters)
        defaults = {name: parameter.default for name, parameter in kernel.parameters.items()}
        values = {name: own.get(name, default) for name, default in defaults.items()}
        return Leaf(
            replace(leaf.config, parameters=tuple((n, v) for n, v in values.items() if v is not None))
        )

    return map_leaves(module.tree, told)


def told_apart(old: Module, new: Module) -> Tree:
    """The old tree in the new one's words, where a derived feature that the new spec defines otherwise has a
    name of its own."""
    numbers: _Numbers = {}
    here, there = (_meanings(side.kernel, side.device, numbers) for side in (old, new))
    other = {name: f"{name} (old)" for name, found in here.items() if there.get(name, found) != found}

    def renamed(tree: Tree) -> Tree:
        if isinstance(tree, Leaf):
            return tree
        return Split(
            other.get(tree.feature, tree.feature), tree.threshold, renamed(tree.low), renamed(tree.high)
        )

    return renamed(in_words_of(old, new.kernel))


def _meanings(kernel: KernelSpec, device: DeviceSpec, numbers: _Numbers) -> dict[str, int]:
    """Each derived feature as a number, the same for the same arithmetic on raw features with the device's
    numbers put in. numbers: those given so far; the arithmetic itself may be exponentially long."""
    found: dict[str, int] = {}

    def number(expression: expr.Expression) -> int:
        match expression:
            case expr.Name(name) if name in found:
                return found[name]
            case expr.Call(function, arguments):
                return numbers.setdefault((function, *map(number, arguments)), len(numbers))
        return numbers.setdefault(expression, len(numbers))

    for name, expression in kernel.derived.items():
        found[name] = number(expr.substitute(expression, device.limits))
    return found
