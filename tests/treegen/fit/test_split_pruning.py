"""prune_splits: splits that noise explains go, real and necessary ones stay."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import Cell, Row, problem, time_rows
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, UNTIMED, Problem
from treegen.core.spec import Budget
from treegen.core.tree import Leaf, Split, Tree, size
from treegen.fit.costs import choice_costs_of, costs
from treegen.fit.search import search_tree
from treegen.fit.split_pruning import prune_splits

FREE = {"constraints": [], "derived": {}}
SHAPES: list[Row] = [(1 << k, heads + 1, 2) for k in range(12) for heads in range(6)]
ROOMY = Budget(5, 16)


def _noisy(folder: Path, best: Callable[[Row], Sequence[float]], seed: int = 0) -> Problem:
    """Times with 2% of noise a cell, twice a scenario."""
    rng = random.Random(seed)

    def cells(shape: Row) -> list[Cell]:
        return [time * rng.lognormvariate(0, 0.02) for time in best(shape)]

    return problem(folder, FREE, shapes=SHAPES, rows=time_rows(SHAPES, cells))


@pytest.mark.parametrize("seed", range(6))
def test_noise_around_equal_configs_leaves_one_leaf(tmp_path: Path, seed: int) -> None:
    made = _noisy(tmp_path, lambda shape: (10.0, 10.0, 10.0), seed)
    fitted = search_tree(made, ROOMY)
    assert size(fitted) > 4, "there is something to prune"
    assert isinstance(prune_splits(choice_costs_of(made), fitted), Leaf)


@pytest.mark.parametrize("seed", range(6))
def test_a_real_split_stays_and_only_it(tmp_path: Path, seed: int) -> None:
    made = _noisy(tmp_path, lambda s: (10.0, 13.0, 10.0 * 1.3) if s[0] <= 32 else (13.0, 10.0, 13.0), seed)
    narrow, medium, _ = made.configs
    split = Split("rows", 32, Leaf(narrow), Leaf(medium), (32, 64))
    assert prune_splits(choice_costs_of(made), split) == split
    inner = Split("columns", 3, Leaf(narrow), Leaf(narrow), (3, 4))
    assert prune_splits(choice_costs_of(made), replace(split, low=inner)) == split


def test_a_split_stays_though_only_what_is_below_it_saves(tmp_path: Path) -> None:
    """On a checkerboard, neither side of the root is better under its own config."""

    def times(shape: Row) -> Sequence[float]:
        return (10.0, 15.0, 99.0) if (shape[0] <= 32) == (shape[1] <= 3) else (15.0, 10.0, 99.0)

    made = _noisy(tmp_path, times)
    one, two, _ = map(Leaf, made.configs)
    tree = Split(
        "rows", 32, Split("columns", 3, one, two, (3, 4)), Split("columns", 3, two, one, (3, 4)), (32, 64)
    )
    assert prune_splits(choice_costs_of(made), tree) == tree


def test_a_split_that_no_single_config_can_replace_stays_though_it_saves_nothing(tmp_path: Path) -> None:
    def cells(shape: Row) -> list[Cell]:
        return ["inf" if shape == SHAPES[0] else 10.0, "inf" if shape == SHAPES[-1] else 10.0, "inf"]

    made = problem(tmp_path, FREE, shapes=SHAPES, times=cells)
    tree = Split("rows", 32, Leaf(made.configs[1]), Leaf(made.configs[0]), (32, 64))
    assert prune_splits(choice_costs_of(made), tree) == tree
    fixed = problem(tmp_path / "fixed", FREE, shapes=SHAPES, times=lambda s: [10.0, *cells(s)[1:]])
    assert prune_splits(choice_costs_of(fixed), tree) == Leaf(fixed.configs[0])


def test_untimed_choices_are_penalised_as_in_fitting(tmp_path: Path) -> None:
    """An untimed config does not compete with a timed one."""
    made = problem(
        tmp_path,
        FREE,
        shapes=SHAPES,
        times=lambda s: [10.0, "", 30.0] if s[0] <= 32 else ["", 10.0, 30.0],
    )
    split = Split("rows", 32, Leaf(made.configs[0]), Leaf(made.configs[1]), (32, 64))
    assert prune_splits(choice_costs_of(made), split) == split


cells = st.sampled_from([0, 0, 1000, 400_000, 700_000, UNTIMED, FORBIDDEN])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    shapes: list[Row] = [(r, c, 2) for r in (1, 2, 3, 4) for c in (1, 2, 3)]
    return problem(tmp_path_factory.mktemp("small"), FREE, shapes=shapes)


@st.composite
def _trees(draw: st.DrawFn, made: Problem) -> Tree:
    leaf = st.sampled_from(made.configs).map(Leaf)
    feature = st.sampled_from(["rows", "columns"])
    return draw(
        st.recursive(leaf, lambda t: st.builds(Split, feature, st.integers(1, 3), t, t), max_leaves=8)
    )


@examples(150)
@given(st.data())
def test_pruning_twice_is_pruning_once_and_fails_nowhere(small: Problem, data: st.DataObject) -> None:
    rows = len(small.cost)
    cost = data.draw(st.lists(st.tuples(cells, cells, cells), min_size=rows, max_size=rows))
    made = replace(small, cost=np.array(cost, dtype=np.int64))
    tree = data.draw(_trees(made))
    choice_costs = choice_costs_of(made)
    pruned = prune_splits(choice_costs, tree)
    assert size(pruned) <= size(tree)
    assert prune_splits(choice_costs, pruned) == pruned
    assume(costs(tree, made).max() < FORBIDDEN)
    assert costs(pruned, made).max() < FORBIDDEN
