"""The way of a shape through a committed tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.errors import InputError
from treegen.core.expr import names
from treegen.core.problem import Problem
from treegen.core.spec import Config, Constraint
from treegen.core.tree import Leaf, Region, Split, Tree, halves, leaves
from treegen.passes.guards import UnprovableConstraint, bound_of
from treegen.review.explain.shape import raw_parts

TRUSTED = "only as measured"


@dataclass(frozen=True)
class Step:
    """The question `feature <= threshold`, the shape's value and so the answer.

    guards: for a question that no measurement asked, what it guards: texts of constraints, or TRUSTED; None
    for a fitted question. A guard's other side launches the fallback config, and no measured scenario goes
    there. fell: the guard sent this shape to the fallback.
    """

    feature: str
    threshold: int
    value: int
    guards: tuple[str, ...] | None
    fell: bool

    @property
    def answer(self) -> bool:
        return self.value <= self.threshold


@dataclass(frozen=True)
class Path:
    """The questions from the root to the leaf, its config, and the region of shapes that it serves."""

    steps: tuple[Step, ...]
    config: Config
    region: Region

    @property
    def fell(self) -> bool:
        """Whether a guard sent the shape to the fallback."""
        return any(step.fell for step in self.steps)


def trace(tree: Tree, values: Mapping[str, int], problem: Problem) -> Path:
    """Every question that a shape is asked. Raises InputError where a feature is asked that is not known."""
    steps = []
    region: Region = {}
    rows = np.arange(len(problem.cost))
    while isinstance(tree, Split):
        if tree.feature not in values:
            _refuse(tree.feature, problem)
        value = values[tree.feature]
        low, high = halves(tree, region)
        is_low = _column(tree.feature, problem)[rows] <= tree.threshold
        outside = _outside(tree, problem, is_low)
        goes_low = value <= tree.threshold
        side = tree.low if goes_low else tree.high
        guards = None if outside is None else _guarded(tree, outside, problem)
        steps.append(Step(tree.feature, tree.threshold, value, guards, side is outside))
        region = low if goes_low else high
        rows = rows[is_low == goes_low]
        tree = side
    return Path(tuple(steps), tree.config, region)


def _column(feature: str, problem: Problem) -> np.ndarray:
    """A feature in every scenario; no scenario is below a threshold of what the table does not hold."""
    if feature in problem.names:
        return problem.column(feature)
    return np.full(len(problem.cost), np.iinfo(np.int64).max)


def _outside(split: Split, problem: Problem, is_low: np.ndarray) -> Tree | None:
    """The side of a guard that launches the fallback; None for a fitted split. `strip_guards` undoes the
    same."""
    fallback = Leaf(problem.kernel.fallback)
    known = split.feature in problem.names
    if split.low == fallback and not (known and is_low.any()):
        return split.low
    if split.high == fallback and not (known and (~is_low).any()):
        return split.high
    return None


def _guarded(split: Split, outside: Tree, problem: Problem) -> tuple[str, ...]:
    """What a guard stands for: constraints of configs behind it that end at its threshold, and trust."""
    inside, is_upper = (split.low, True) if outside is split.high else (split.high, False)
    configs = dict.fromkeys(leaf.config for leaf, _ in leaves(inside))
    found = [
        constraint.text
        for constraint in problem.kernel.constraints
        if any(_ends(constraint, config, split, is_upper, problem) for config in configs)
    ]
    trusted = [TRUSTED] if split.feature in problem.kernel.trusted_as_measured else []
    return tuple(trusted + found)


def _ends(constraint: Constraint, config: Config, split: Split, is_upper: bool, problem: Problem) -> bool:
    """Whether a constraint lets a config run just up to (or from just above) a split's threshold."""
    if config == problem.kernel.fallback or not constraint.binds(config):
        return False
    if split.feature not in names(constraint.left) | names(constraint.right):
        return False
    try:
        bound = bound_of(constraint, config, problem.device)
    except UnprovableConstraint:
        return False
    if bound is None:
        return False
    return split.threshold == bound.greatest if is_upper else split.threshold + 1 == bound.least


def _refuse(feature: str, problem: Problem) -> None:
    raw = ", ".join(raw_parts(feature, problem.kernel)) or feature
    what = f"the committed tree asks {feature}, which the table of {problem.device.key} does not hold"
    raise InputError(feature, f"{what}; give {raw}")
