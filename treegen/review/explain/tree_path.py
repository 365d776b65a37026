"""A shape's path through a committed tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.tree import Region, Split, Tree, halves
from treegen.passes.guards import ending, outside_of

TRUSTED = "only as measured"


@dataclass(frozen=True)
class PathStep:
    """A split on the path: is `feature <= threshold`?"""

    feature: str
    threshold: int
    value: int  # the shape's
    guards: tuple[str, ...] | None  # of a guard, the constraints that it guards, or TRUSTED; None if fitted
    fell: bool  # whether the shape is beyond this guard's bound

    @property
    def answer(self) -> bool:
        return self.value <= self.threshold


@dataclass(frozen=True)
class TreePath:
    """The splits from the root to a leaf."""

    steps: tuple[PathStep, ...]
    config: Config
    region: Region  # shapes that the leaf serves

    @property
    def fell(self) -> bool:
        """Return whether the shape is beyond a guard's bound."""
        return any(step.fell for step in self.steps)


def trace(tree: Tree, values: Mapping[str, int], problem: Problem) -> TreePath:
    """Follow a shape through the tree. Raises InputError where a split needs an unknown feature."""
    steps = []
    region: Region = {}
    rows = np.arange(len(problem.cost))
    while isinstance(tree, Split):
        if tree.feature not in values:
            raw = ", ".join(problem.kernel.raw_parts([tree.feature])) or tree.feature
            what = f"the committed tree splits on {tree.feature}, which the table of {problem.device.key}"
            raise InputError(tree.feature, f"{what} does not hold; give {raw}")
        value = values[tree.feature]
        low, high = halves(tree, region)
        is_low = _is_low(tree, problem)[rows]
        guarded = _guarded_side(tree, problem, is_low)
        goes_low = value <= tree.threshold
        side = tree.low if goes_low else tree.high
        guards = None if guarded is None else _guards(tree, guarded, problem)
        steps.append(PathStep(tree.feature, tree.threshold, value, guards, side is guarded))
        region = low if goes_low else high
        rows = rows[is_low == goes_low]
        tree = side
    return TreePath(tuple(steps), tree.config, region)


def _is_low(split: Split, problem: Problem) -> np.ndarray:
    """[scenarios] which go low; none does where the table does not hold the feature."""
    if split.feature not in problem.names:
        return np.zeros(len(problem.cost), dtype=bool)
    return problem.column(split.feature) <= split.threshold


def _guarded_side(split: Split, problem: Problem, is_low: np.ndarray) -> Tree | None:
    """The side of a guard beyond its bound; None for a fitted split. is_low: [scenarios that reach it]."""
    known = split.feature in problem.names
    below, above = known and bool(is_low.any()), known and bool((~is_low).any())
    return outside_of(split, below, above, problem)


def _guards(split: Split, guarded: Tree, problem: Problem) -> tuple[str, ...]:
    """The constraints that end at the threshold for a config behind the guard, and TRUSTED."""
    inside, is_upper = (split.low, True) if guarded is split.high else (split.high, False)
    constraints = (constraint.text for constraint in ending(split, inside, is_upper, problem))
    trusted = [TRUSTED] if split.feature in problem.kernel.trusted_as_measured else []
    return (*trusted, *constraints)
