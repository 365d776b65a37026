"""guard_tree: the next build strips the guards and adds the same ones."""

from __future__ import annotations

from pathlib import Path

from treegen_builders import CONFIGS, problem

from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, same_without_gaps
from treegen.passes.guards import guard_tree, strip_guards

SHAPES = [(rows, 8, heads) for rows in (1, 64) for heads in (1, 10)]


def _config(made: Problem, number: int) -> Config:
    parameters = {key: CONFIGS[number][key] for key in ("block", "warps")}
    return next(config for config in made.configs if dict(config.parameters) == parameters)


def test_a_leaf_that_no_scenario_reaches_and_that_a_new_constraint_forbids(tmp_path: Path) -> None:
    """Its guard would be the strictest; the next build would have neither the leaf nor the guard."""
    made = problem(tmp_path, {"constraints": ["block >= heads"]}, shapes=SHAPES)
    wide, narrow = _config(made, 2), _config(made, 0)  # blocks 128 and 16
    old = Split("heads", 20, Leaf(wide), Leaf(narrow))
    guarded = guard_tree(made, old)
    assert same_without_gaps(guard_tree(made, strip_guards(guarded, made)), guarded)
    assert same_without_gaps(guarded, Split("heads", 128, Leaf(wide), Leaf(made.kernel.fallback)))
