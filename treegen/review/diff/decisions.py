"""A module of one spec as another spec reads it: its choices in a table's scenarios, and its tree."""

from __future__ import annotations

from dataclasses import replace

from treegen.core import expr
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, choose, map_leaves, split_features
from treegen.review.modules import Module

KnownDecisions = tuple[Config | None, ...]
"""The config of each scenario; None if the table lacks a feature that the tree splits on."""


def known_decisions(module: Module, problem: Problem) -> KnownDecisions:
    """The module's choices in the problem's scenarios, with the parameters of the problem's kernel.

    A derived feature that the two specs define differently is computed from the table's columns by the
    definition of the module's spec.
    """
    tree = _with_parameters_of(problem.kernel, module)
    split_on = frozenset(split_features(tree))
    own = module.kernel.derived.keys() - _defined_alike(module, problem.kernel, problem.device)
    result: list[Config | None] = []
    for row in problem.features.tolist():
        known = {n: value for n, value in zip(problem.names, row, strict=True) if n not in own}
        values = module.kernel.with_derived({**module.device.limits, **known})
        result.append(choose(tree, values) if split_on <= values.keys() else None)
    return tuple(result)


def with_new_names(old: Module, new: Module) -> Tree:
    """The old tree in the names of the new spec.

    A derived feature that the new spec defines differently is renamed to `NAME (old)`.
    """
    both = old.kernel.derived.keys() & new.kernel.derived.keys()
    other = both - _defined_alike(old, new.kernel, new.device)

    def rename(tree: Tree) -> Tree:
        if isinstance(tree, Leaf):
            return tree
        name = f"{tree.feature} (old)" if tree.feature in other else tree.feature
        return Split(name, tree.threshold, rename(tree.low), rename(tree.high))

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


def _defined_alike(module: Module, kernel: KernelSpec, device: DeviceSpec) -> set[str]:
    """The derived features of a module that another spec writes alike, with the devices' limits inserted."""
    alike: set[str] = set()
    for name, written in module.kernel.derived.items():  # a definition may use those before it
        mine, other = expr.substitute(written, module.device.limits), kernel.derived.get(name)
        uses = expr.names(mine) & module.kernel.derived.keys()
        if other is not None and mine == expr.substitute(other, device.limits) and uses <= alike:
            alike.add(name)
    return alike
