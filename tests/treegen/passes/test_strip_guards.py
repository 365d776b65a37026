"""strip_guards: a tree read from a module becomes the fitted tree again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import REPOSITORY, SIDES, Row, problem
from treegen_strategies import examples

from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree, size
from treegen.emit.package import device_module
from treegen.fit.costs import choice_costs_of
from treegen.passes.guards import guard_tree, strip_guards
from treegen.passes.simplify import simplify
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.update.keep import keep
from treegen.write.lock import committed_tree

SHAPES: list[Row] = [(rows, columns, 40 if rows > 100 else 2) for rows in SIDES for columns in SIDES]
SECTIONS = {"trusted_as_measured": ["columns"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("project"), SECTIONS, shapes=SHAPES)


def _without_gaps(tree: Tree) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    return Split(tree.feature, tree.threshold, _without_gaps(tree.low), _without_gaps(tree.high))


def _count(tree: Tree, made: Problem, rows: np.ndarray) -> int:
    """The fewest scenarios in a leaf."""
    if isinstance(tree, Leaf):
        return len(rows)
    low = made.column(tree.feature)[rows] <= tree.threshold
    return min(_count(tree.low, made, rows[low]), _count(tree.high, made, rows[~low]))


def _fitted(made: Problem) -> st.SearchStrategy[Tree]:
    """Trees as a fit gives them: every leaf holds a scenario, and what it launches is allowed there."""
    split = st.sampled_from(["rows", "columns", "area", "heads"])
    trees: st.SearchStrategy[Tree] = st.recursive(
        st.sampled_from(made.configs).map(Leaf),
        lambda inner: st.builds(Split, split, st.sampled_from([2, 3, 16, 100, 600]), inner, inner),
        max_leaves=6,
    )
    choice_costs = choice_costs_of(made)

    def possible(tree: Tree) -> bool:
        return _count(tree, made, choice_costs.all_rows) > 0 and not choice_costs.fails(
            tree, choice_costs.all_rows
        )

    return trees.map(simplify).filter(possible)


@examples(60)
@given(st.data())
def test_guards_are_stripped(made: Problem, data: st.DataObject) -> None:
    """At the root there is one for columns, in leaves of narrow blocks one for heads."""
    tree = data.draw(_fitted(made))
    printed = _without_gaps(guard_tree(made, tree))
    found = strip_guards(printed, made)
    assert _without_gaps(found) == tree
    assert _without_gaps(guard_tree(made, found)) == printed


def test_guards_in_leaves_are_stripped(made: Problem) -> None:
    narrow, _, wide = (Leaf(config) for config in made.configs)
    tree = Split("rows", 100, narrow, wide, (64, 512))
    printed = guard_tree(made, tree)
    assert printed != tree and "heads" in str(printed)
    assert strip_guards(printed, made) == tree


def test_gaps_are_those_of_the_scenarios_that_reach_the_split(made: Problem) -> None:
    narrow, _, wide = (Leaf(config) for config in made.configs)
    tree = Split("rows", 20, Split("area", 100, narrow, wide), wide)
    found = strip_guards(tree, made)
    assert isinstance(found, Split) and isinstance(found.low, Split)
    assert found.gap == (8, 64) and found.low.gap == (64, 512)


def test_what_no_scenario_reaches_stays_if_it_is_not_the_fallback(made: Problem) -> None:
    narrow, _, wide = (Leaf(config) for config in made.configs)
    fallback = Leaf(made.kernel.fallback)
    for tree in (Split("rows", 1000, narrow, wide), Split("rows", 0, wide, narrow)):
        assert strip_guards(tree, made) == tree
    assert strip_guards(Split("rows", 1000, narrow, fallback), made) == narrow
    assert strip_guards(Split("rows", 0, fallback, narrow), made) == narrow


def test_a_fallback_that_scenarios_reach_stays(made: Problem) -> None:
    narrow, fallback = Leaf(made.configs[0]), Leaf(made.kernel.fallback)
    found = strip_guards(Split("heads", 2, narrow, fallback), made)
    assert found == Split("heads", 2, narrow, fallback, (2, 40))


def test_a_feature_that_the_table_lacks(made: Problem) -> None:
    """A guard's goes; any other split is left for the caller to refuse."""
    narrow, _, wide = (Leaf(config) for config in made.configs)
    fallback = Leaf(made.kernel.fallback)
    assert strip_guards(Split("depth", 7, narrow, fallback), made) == narrow
    assert strip_guards(Split("depth", 7, narrow, wide), made) == Split("depth", 7, narrow, wide)


SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNEL = SPEC.kernels["unified_attention"]


@pytest.mark.parametrize("key", KERNEL.tables)
def test_the_committed_modules_get_the_same_guards_again(key: str) -> None:
    device, path = SPEC.devices[key], Path(SPEC.output / KERNEL.name / f"{key}.py")
    committed = committed_tree(KERNEL, device, path, path.read_text())
    made = build_problem(KERNEL, device, read_table(KERNEL.tables[key]))
    fitted = strip_guards(committed, made)
    assert size(fitted) <= KERNEL.budget.max_leaves
    assert device_module(KERNEL, key, device.limits, guard_tree(made, fitted)) == path.read_text()
    found = keep(made, committed, fitted, lambda: np.empty((0, len(made.cost)), dtype=np.int64))
    assert _without_gaps(found.tree) == _without_gaps(fitted)
