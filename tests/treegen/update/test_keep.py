"""How much of the previous tree is kept: all of it, unless edits or fresh trees are significantly better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import Row, problem
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, leaves, size
from treegen.crossval.folds import cross_validate, held_out
from treegen.fit.costs import CAP, choice_costs_of
from treegen.passes.guards import strip_guards
from treegen.update.edits import edit, repair
from treegen.update.keep import ChosenTree, TreeOrigin, keep

Ints = npt.NDArray[np.int64]
SHAPES: list[Row] = [(rows, columns, 2) for rows in range(1, 9) for columns in range(1, 9)]
GONE = Config("plain", (("block", 256), ("warps", 2)))
LOSES = round(math.log(1.3) * UNIT)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """64 scenarios, three configs, no noise. Costs are to be replaced."""
    sections = {"constraints": [], "derived": {}}
    return problem(tmp_path_factory.mktemp("project"), sections, shapes=SHAPES)


def _tree(made: Problem) -> Split:
    """Four leaves of 16 scenarios: narrow, wide, medium, narrow."""
    narrow, medium, wide = (Leaf(config) for config in made.configs)
    low, high = Split("columns", 4, narrow, wide, (4, 5)), Split("columns", 4, medium, narrow, (4, 5))
    return Split("rows", 4, low, high, (4, 5))


def _costs(made: Problem, cost: Callable[[int, int], Sequence[int]]) -> Problem:
    """Other costs of the configs, given rows and columns."""
    shapes = zip(made.column("rows").tolist(), made.column("columns").tolist(), strict=True)
    return replace(made, cost=np.array([cost(*shape) for shape in shapes], dtype=np.int64))


def _served(made: Problem, lost: int = LOSES) -> Problem:
    """Costs for which `_tree` is right: whatever it does not choose loses."""

    def cost(rows: int, columns: int) -> list[int]:
        best = (0 if columns <= 4 else 2) if rows <= 4 else (1 if columns <= 4 else 0)
        return [0 if column == best else lost for column in range(3)]

    return _costs(made, cost)


def _changed(made: Problem, rows: range, columns: range, to: Sequence[int]) -> Problem:
    inside = np.isin(made.column("rows"), rows) & np.isin(made.column("columns"), columns)
    cost = made.cost.copy()
    cost[inside] = to
    return replace(made, cost=cost)


def _chosen(made: Problem, tree: Tree) -> Ints:
    choice_costs = choice_costs_of(made)
    return made.cost[choice_costs.all_rows, choice_costs.choices(tree, choice_costs.all_rows)]


def _keep(
    made: Problem, old: Tree, held_out: Ints | None = None, fresh: Tree | None = None, **options: bool
) -> ChosenTree:
    """Without other arguments, with a fresh tree and held-out costs that cannot win."""
    unseen = np.full((2, len(made.cost)), CAP, dtype=np.int64) if held_out is None else held_out
    return keep(made, old, fresh or Leaf(made.configs[0]), lambda: unseen, **options)


def _summary(found: ChosenTree) -> tuple[Tree, TreeOrigin, int, int]:
    return found.tree, found.origin, found.leaves, found.splits


def _turned(made: Problem, tree: Tree, rows: slice) -> Problem:
    """There the tree's choice loses, and the other configs are best."""
    choice_costs, cost = choice_costs_of(made), made.cost.copy()
    cost[rows] = 0
    cost[choice_costs.all_rows[rows], choice_costs.choices(tree, choice_costs.all_rows)[rows]] = LOSES
    return replace(made, cost=cost)


def _best(made: Problem) -> Tree:
    """A tree that chooses the best in every scenario."""

    def below(features: list[str], rows: Ints) -> Tree:
        if not features:
            return Leaf(made.configs[int(made.cost[rows].sum(axis=0).argmin())])
        feature, *others = features
        values = np.unique(made.column(feature)[rows]).tolist()
        parts = [below(others, rows[made.column(feature)[rows] == value]) for value in values]
        tree = parts[0]
        for value, part in zip(values[:-1], parts[1:], strict=True):
            tree = Split(feature, value, tree, part)
        return tree

    return below(["rows", "columns"], np.arange(len(made.cost)))


# Kept


def test_the_best_tree_is_kept(base: Problem) -> None:
    made = _served(base)
    assert _summary(_keep(made, _tree(made))) == (_tree(made), TreeOrigin.KEPT, 0, 0)


def test_a_tree_that_is_fitted_again_is_kept(base: Problem) -> None:
    """Whatever it costs: a fresh one would be the same."""
    made = _changed(_served(base), range(1, 9), range(1, 9), [0, LOSES, LOSES])
    found = _keep(made, _tree(made), np.zeros((2, 64), dtype=np.int64), _tree(made))
    assert _summary(found) == (_tree(made), TreeOrigin.KEPT, 0, 0)


def test_a_few_scenarios_prove_nothing(base: Problem) -> None:
    """Five of the sixteen of a leaf lose 30% by its config, the others as much by any other."""
    made = _changed(_served(base), range(1, 6), range(4, 5), [LOSES, 0, LOSES])
    assert _keep(made, _tree(made)).origin is TreeOrigin.KEPT


# Edited


def test_a_leaf_that_became_worse_is_changed_and_nothing_else(base: Problem) -> None:
    made, old = _served(base), _tree(base)
    slow = _changed(made, range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    low = Split("columns", 4, Leaf(made.configs[1]), Leaf(made.configs[2]), (4, 5))
    found = _keep(slow, old)
    assert _summary(found) == (Split("rows", 4, low, old.high, (4, 5)), TreeOrigin.EDITED, 1, 0)
    assert str(found) == "edited: 1 leaf"


def test_a_split_whose_other_side_is_better_everywhere_is_left_out(base: Problem) -> None:
    turned = _changed(_served(base), range(1, 5), range(1, 5), [2 * LOSES, LOSES, 0])
    expected = Split("rows", 4, Leaf(base.configs[2]), _tree(base).high, (4, 5))
    assert _summary(_keep(turned, _tree(base))) == (expected, TreeOrigin.EDITED, 0, 1)


def test_several_edits(base: Problem) -> None:
    slow = _changed(_served(base), range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    slow = _changed(slow, range(5, 9), range(1, 5), [2 * LOSES, LOSES, 0])
    found = _keep(slow, _tree(base))
    assert str(found) == "edited: 2 leaves" and not _chosen(slow, found.tree).any()


@pytest.mark.parametrize(("price", "leaves_changed"), [(0.06, 1), (0.07, 0)])
def test_a_config_that_is_new_pays_its_price(base: Problem, price: float, leaves_changed: int) -> None:
    """A quarter of all scenarios would lose log 1.3 less, 6.6% of the mean."""
    narrow, _, wide = (Leaf(config) for config in base.configs)
    made = _changed(_served(base), range(5, 9), range(1, 9), [0, LOSES, LOSES])
    made = _changed(made, range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    budget = replace(made.kernel.budget, config_price=price)
    priced = replace(made, kernel=replace(made.kernel, budget=budget))
    old = Split("rows", 4, Split("columns", 4, narrow, wide), narrow)
    assert _keep(priced, old).leaves == leaves_changed


# Cells without a time


def test_an_untimed_choice_is_no_reason_for_an_edit(base: Problem) -> None:
    """The leaf's config was timed in four of its sixteen scenarios."""
    made = _changed(_served(base), range(1, 5), range(1, 4), [UNTIMED, 0, LOSES])
    assert _keep(made, _tree(made)).origin is TreeOrigin.KEPT


def test_a_leaf_does_not_take_an_untimed_config(base: Problem) -> None:
    """Medium was timed in half of the leaf's scenarios, where it is best: it is penalised in the others."""
    slow = _changed(_served(base), range(1, 5), range(1, 5), [LOSES, UNTIMED, LOSES])
    slow = _changed(slow, range(1, 5), range(1, 3), [LOSES, 0, LOSES])
    assert _keep(slow, _tree(slow)).origin is TreeOrigin.KEPT


def test_a_single_slow_cell_decides_nothing(base: Problem) -> None:
    """A cell a million times slower counts as one four times slower."""
    slow = _changed(_served(base), range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    once = _changed(slow, range(1, 2), range(1, 2), [14 * UNIT, 0, LOSES])
    assert _keep(once, _tree(once)).leaves == 1


# Repairs


@pytest.mark.parametrize("cell", [FORBIDDEN, UNTIMED])
def test_a_config_that_can_no_longer_be_launched_is_replaced(base: Problem, cell: int) -> None:
    """Wide failed in one of its scenarios, or was never timed anywhere."""
    made = _served(base)
    cost = made.cost.copy()
    cost[:, 2] = np.where(made.column("rows") == 1, cell, cost[:, 2]) if cell == FORBIDDEN else cell
    found = _keep(replace(made, cost=cost), _tree(made))
    assert found.leaves == 1 and found.origin is TreeOrigin.EDITED
    assert Leaf(made.configs[2]) not in [leaf for leaf, _ in leaves(found.tree)]


def test_a_config_that_the_table_lost_is_replaced(base: Problem) -> None:
    made, old = _served(base), _tree(base)
    lost = Split("rows", 4, old.low, Split("columns", 4, Leaf(GONE), old.high.high), (4, 5))  # type: ignore[union-attr]
    assert _summary(_keep(made, lost)) == (old, TreeOrigin.EDITED, 1, 0)


def test_a_leaf_in_which_everything_fails_somewhere_is_not_kept(base: Problem) -> None:
    made = _served(base)
    cost = made.cost.copy()
    for column in range(3):
        cost[column, column] = FORBIDDEN  # the first three scenarios are in one leaf
    assert _keep(replace(made, cost=cost), _tree(made)).origin is TreeOrigin.FRESH


# What the spec no longer allows


@pytest.mark.parametrize("change", [{"max_leaves": 3}, {"max_depth": 1}])
def test_a_tree_beyond_the_budget_is_not_kept(base: Problem, change: dict[str, int]) -> None:
    made = _served(base)
    budget = replace(made.kernel.budget, **change)
    found = _keep(replace(made, kernel=replace(made.kernel, budget=budget)), _tree(made))
    assert (found.origin, found.tree) == (TreeOrigin.FRESH, Leaf(made.configs[0])) and found.why_fresh


def test_a_tree_that_splits_on_a_feature_that_the_spec_gave_up_is_not_kept(base: Problem) -> None:
    made = replace(_served(base), split_on=("columns",))
    beyond = Split("depth", 3, _tree(made), Leaf(made.configs[0]))
    for tree, feature in ((_tree(made), "rows"), (beyond, "depth")):
        assert feature in (_keep(made, tree).why_fresh or "")


def test_a_changed_basis_forbids_to_keep_a_tree_unless_the_fresh_one_is_the_same(base: Problem) -> None:
    made, fresh = _served(base), Leaf(base.configs[0])
    unseen = np.full((1, 64), CAP, dtype=np.int64)
    found = keep(made, _tree(made), fresh, lambda: unseen, changed="the budget changed")
    assert (found.tree, found.origin, found.why_fresh) == (fresh, TreeOrigin.FRESH, "the budget changed")
    assert keep(made, fresh, fresh, lambda: unseen, changed="the budget changed").origin is TreeOrigin.KEPT


@pytest.mark.parametrize("previous", [None, "it was edited"])
def test_without_a_previous_tree_the_fitted_one_is_taken_without_what_looks_like_a_guard(
    base: Problem, previous: str | None
) -> None:
    """The next build would strip it."""
    best = Leaf(base.configs[0])
    fitted = Split("rows", 1000, best, Leaf(base.kernel.fallback))
    found = keep(base, previous, fitted, lambda: np.zeros((0, 64), dtype=np.int64))
    assert found == ChosenTree(best, TreeOrigin.FRESH, best, why_fresh=previous)


# Fresh trees


def _halves(made: Problem) -> Problem:
    """Narrow is best in odd columns, medium in even ones; the tree launches narrow everywhere."""
    return _costs(made, lambda rows, columns: [0, LOSES, LOSES] if columns % 2 else [LOSES, 0, LOSES])


def test_fresh_trees_that_are_better_where_they_were_not_fitted_win(base: Problem) -> None:
    made, old = _halves(base), Leaf(base.configs[0])
    found = _keep(made, old, np.zeros((2, 64), dtype=np.int64), _best(made))
    assert found.tree == strip_guards(_best(made), made) and found.origin is TreeOrigin.FRESH
    assert found.why_fresh is not None and "14.0% +- 3.3%" in found.why_fresh


@pytest.mark.parametrize(("worse", "origin"), [(5, TreeOrigin.KEPT), (12, TreeOrigin.FRESH)])
def test_a_fresh_tree_that_is_better_only_where_it_was_fitted_needs_more_proof(
    base: Problem, worse: int, origin: TreeOrigin
) -> None:
    """It is perfect on the table, and held out no better than the old one: two or three standard errors."""
    made, old = _turned(_served(base), _tree(base), slice(worse)), _tree(base)
    held_out = np.tile(_chosen(made, old), (2, 1))
    assert not _chosen(made, _best(made)).any()
    assert _keep(made, old, held_out, _best(made)).origin is origin


def test_folds_are_fitted_only_for_a_tree_that_is_better_where_it_was_fitted(base: Problem) -> None:
    def never() -> Ints:
        raise AssertionError("no folds are needed")

    made = _served(base)
    assert keep(made, _tree(made), Leaf(made.configs[0]), never).origin is TreeOrigin.KEPT


def test_choices_without_a_time_count_against_the_old_tree_only_if_scenarios_are_new(base: Problem) -> None:
    made, old = _served(base), _tree(base)
    untimed = _changed(made, range(1, 9), range(1, 3), [UNTIMED, UNTIMED, 0])
    held_out = np.zeros((2, 64), dtype=np.int64)
    best, same = _best(untimed), np.full((2, 64), UNTIMED)
    assert _keep(untimed, old, held_out, best).origin is TreeOrigin.KEPT
    assert _keep(untimed, old, held_out, best, other_scenarios=True).origin is TreeOrigin.FRESH
    assert _keep(untimed, old, same, best, other_scenarios=True).origin is TreeOrigin.KEPT


@pytest.mark.parametrize(("weight", "origin"), [(1, TreeOrigin.KEPT), (100, TreeOrigin.FRESH)])
def test_scenarios_count_by_their_weight(base: Problem, weight: int, origin: TreeOrigin) -> None:
    """Fresh trees gain much in six scenarios and lose a little in twenty."""
    made, held_out = _turned(_served(base), _tree(base), slice(6)), np.zeros((1, 64), dtype=np.int64)
    weights = np.ones(64, dtype=np.int64)
    weights[:6], held_out[0, 6:26] = weight, LOSES // 4
    weighted = replace(made, weight=weights)
    assert _keep(weighted, _tree(made), held_out, _best(weighted)).origin is origin


# Whatever the table


@st.composite
def _cases(draw: st.DrawFn, base: Problem) -> tuple[Problem, Tree, Ints]:
    """Costs that favour some config in each of four parts, an old tree and held-out costs."""
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    part = (base.column("rows") > 4) * 2 + (base.column("columns") > 4)
    level = rng.integers(0, 3, (4, 3)) * draw(st.sampled_from([5_000, 50_000, 300_000]))
    cost = level[part] + rng.integers(0, draw(st.sampled_from([1, 10_000, 200_000])), (64, 3))
    cost[rng.random((64, 3)) < draw(st.sampled_from([0, 0.3]))] = UNTIMED
    cost[rng.random((64, 3)) < draw(st.sampled_from([0, 0.02]))] = FORBIDDEN
    cost[np.arange(64), rng.integers(0, 3, 64)] = 0
    configs = [*map(Leaf, base.configs), Leaf(GONE)]
    tree: st.SearchStrategy[Tree] = st.recursive(
        st.sampled_from(configs),
        lambda inner: st.builds(
            Split, st.sampled_from(["rows", "columns"]), st.sampled_from([0, 2, 4, 6, 9]), inner, inner
        ),
        max_leaves=8,
    )
    held_out = cost[np.arange(64), rng.integers(0, 3, (2, 64))]
    return replace(base, cost=cost), draw(tree), np.asarray(held_out)


@examples(150)
@given(st.data())
def test_what_is_kept_is_kept_again(base: Problem, data: st.DataObject) -> None:
    made, old, held_out = data.draw(_cases(base))
    fresh = _tree(made)
    found = keep(made, old, fresh, lambda: held_out)
    again = keep(made, found.tree, fresh, lambda: held_out)
    assert (again.tree, again.origin) in [(found.tree, TreeOrigin.KEPT), (fresh, TreeOrigin.FRESH)]
    if found.origin is not TreeOrigin.FRESH:
        assert _summary(again) == (found.tree, TreeOrigin.KEPT, 0, 0)


@examples(150)
@given(st.data())
def test_edits_save_and_never_launch_what_fails(base: Problem, data: st.DataObject) -> None:
    made, old, _ = data.draw(_cases(base))
    choice_costs = choice_costs_of(made)
    repaired = repair(choice_costs, old).tree
    if choice_costs.fails(repaired, choice_costs.all_rows):
        return
    found = edit(choice_costs, repaired)
    assert not choice_costs.fails(found.tree, choice_costs.all_rows) and size(found.tree) <= size(repaired)
    if found.leaves or found.splits:
        drop = choice_costs.drop(repaired, found.tree, choice_costs.all_rows)
        assert drop.loss.sum() > 0
    assert edit(choice_costs, found.tree) == type(found)(found.tree, 0, 0)


def test_held_out_costs_are_those_of_trees_that_have_not_seen_the_scenario(base: Problem) -> None:
    """The tree of the n-th fold launches config n % 3, so that costs tell which one chose."""
    seen: list[frozenset[str]] = []

    def fit(known: Problem) -> Tree:
        seen.append(frozenset(known.scenarios))
        return Leaf(known.configs[(len(seen) - 1) % 3])

    made = _served(base)
    found = held_out(made, cross_validate(made, fit))
    assert found.shape == (1, 64) and len(seen) == 5
    for row, scenario in enumerate(made.scenarios):
        (number,) = [fold for fold in range(5) if scenario not in seen[fold]]
        assert found[0, row] == made.cost[row, number % 3]
