"""The configs that a module of one spec launches in a table's scenarios, as another spec reads them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from treegen.core import expr
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, map_leaves, split_features
from treegen.review.modules import Module

_Numbers = dict[Hashable, int]
KnownDecisions = tuple[Config | None, ...]
"""The config of each scenario; None if the table lacks a feature that the tree splits on."""


def known_decisions(module: Module, problem: Problem) -> KnownDecisions:
    """The module's choices in the problem's scenarios, with the parameters of the problem's kernel.

    A derived feature that the two specs define differently is computed from the table's columns by the
    definition of the module's spec.
    """
    tree = _with_parameters_of(problem.kernel, module)
    split_on = frozenset(split_features(tree))
    numbers: _Numbers = {}
    here = _definitions(module.kernel, module.device, numbers)
    there = _definitions(problem.kernel, problem.device, numbers)
    known = [name for name in problem.names if name not in here or here[name] == there.get(name)]
    result: list[Config | None] = []
    for row in problem.features.tolist():
        measured = dict(zip(problem.names, row, strict=True))
        values = module.kernel.with_derived({**module.device.limits, **{n: measured[n] for n in known}})
        result.append(choose(tree, values) if split_on <= values.keys() else None)
    return tuple(result)


def with_new_names(old: Module, new: Module) -> Tree:
    """The old tree in the names of the new spec.

    A derived feature that the new spec defines differently is renamed to `NAME (old)`.
    """
    numbers: _Numbers = {}
    before, after = (_definitions(module.kernel, module.device, numbers) for module in (old, new))
    renamed = {name: f"{name} (old)" for name, number in before.items() if after.get(name, number) != number}

    def rename(tree: Tree) -> Tree:
        if isinstance(tree, Leaf):
            return tree
        feature = renamed.get(tree.feature, tree.feature)
        return Split(feature, tree.threshold, rename(tree.low), rename(tree.high))

    return rename(_with_parameters_of(new.kernel, old))


def _with_parameters_of(kernel: KernelSpec, module: Module) -> Tree:
    """The module's tree with the parameters of another spec's kernel.

    A parameter unknown there is dropped; a missing one gets its default.
    """
    if module.kernel.parameters == kernel.parameters:
        return module.tree

    def translated(leaf: Leaf) -> Leaf:
        stated = dict(leaf.config.parameters)
        values = {name: stated.get(name, known.default) for name, known in kernel.parameters.items()}
        parameters = tuple((name, value) for name, value in values.items() if value is not None)
        return Leaf(replace(leaf.config, parameters=parameters))

    return map_leaves(module.tree, translated)


def _definitions(kernel: KernelSpec, device: DeviceSpec, numbers: _Numbers) -> dict[str, int]:
    """A number for each derived feature; equal definitions have equal numbers.

    Two features are equal if they are the same arithmetic on raw features, with the device's limits inserted.
    Definitions are never written out, as their length may be exponential.

    Args:
        numbers: those given so far
    """
    numbering: dict[str, int] = {}

    def number(expression: expr.Expression) -> int:
        match expression:
            case expr.Name(name) if name in numbering:
                return numbering[name]
            case expr.Call(function, arguments):
                return numbers.setdefault((function, *map(number, arguments)), len(numbers))
        return numbers.setdefault(expression, len(numbers))

    for name, expression in kernel.derived.items():
        numbering[name] = number(expr.substitute(expression, device.limits))
    return numbering
