"""How much of yesterday's tree is kept: all of it, unless the table says otherwise beyond noise."""

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

from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED, Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, leaves, size
from treegen.fit.choice_costs import CAP, choice_costs_of
from treegen.update.edits import edit, repair
from treegen.update.keep import How, Kept, keep

Ints = npt.NDArray[np.int64]
SHAPES: list[Row] = [(rows, columns, 2) for rows in range(1, 9) for columns in range(1, 9)]
GONE = Config("plain", (("block", 256), ("warps", 2)))
LOSES = round(math.log(1.3) * UNIT)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """64 scenarios, three configs, no noise. Costs are to be replaced."""
    sections = {"constraints": [], "derived": {}}
    return problem(tmp_path_factory.mktemp("project"), sections, shapes=SHAPES)


def _tree(posed: Problem) -> Split:
    """Four leaves of 16 scenarios: narrow, wide, medium, narrow."""
    narrow, medium, wide = (Leaf(config) for config in posed.configs)
    low, high = Split("columns", 4, narrow, wide, (4, 5)), Split("columns", 4, medium, narrow, (4, 5))
    return Split("rows", 4, low, high, (4, 5))


def _costs(posed: Problem, cost: Callable[[int, int], Sequence[int]]) -> Problem:
    """Other costs of the configs, given rows and columns."""
    shapes = zip(posed.column("rows").tolist(), posed.column("columns").tolist(), strict=True)
    return replace(posed, cost=np.array([cost(*shape) for shape in shapes], dtype=np.int64))


def _served(posed: Problem, lost: int = LOSES) -> Problem:
    """Costs for which `_tree` is right: whatever it does not choose loses."""

    def cost(rows: int, columns: int) -> list[int]:
        best = (0 if columns <= 4 else 2) if rows <= 4 else (1 if columns <= 4 else 0)
        return [0 if column == best else lost for column in range(3)]

    return _costs(posed, cost)


def _changed(posed: Problem, rows: range, columns: range, to: Sequence[int]) -> Problem:
    inside = np.isin(posed.column("rows"), rows) & np.isin(posed.column("columns"), columns)
    cost = posed.cost.copy()
    cost[inside] = to
    return replace(posed, cost=cost)


def _chosen(posed: Problem, tree: Tree) -> Ints:
    evidence = choice_costs_of(posed)
    return posed.cost[evidence.every, evidence.choices(tree, evidence.every)]


def _keep(
    posed: Problem, old: Tree, held_out: Ints | None = None, fresh: Tree | None = None, **options: bool
) -> Kept:
    """Without other arguments, with a fresh tree and held-out costs that nobody would take."""
    unseen = np.full((2, len(posed.cost)), CAP, dtype=np.int64) if held_out is None else held_out
    return keep(posed, fresh or Leaf(posed.configs[0]), lambda: unseen, old, **options)


def _turned(posed: Problem, tree: Tree, rows: slice) -> Problem:
    """There the tree's choice loses, and the other configs are best."""
    evidence, cost = choice_costs_of(posed), posed.cost.copy()
    cost[rows] = 0
    cost[evidence.every[rows], evidence.choices(tree, evidence.every)[rows]] = LOSES
    return replace(posed, cost=cost)


def _best(posed: Problem) -> Tree:
    """A tree that chooses the best in every scenario."""

    def below(features: list[str], rows: Ints) -> Tree:
        if not features:
            return Leaf(posed.configs[int(posed.cost[rows].sum(axis=0).argmin())])
        feature, *others = features
        values = np.unique(posed.column(feature)[rows]).tolist()
        parts = [below(others, rows[posed.column(feature)[rows] == value]) for value in values]
        tree = parts[0]
        for value, part in zip(values[:-1], parts[1:], strict=True):
            tree = Split(feature, value, tree, part)
        return tree

    return below(["rows", "columns"], np.arange(len(posed.cost)))


# Kept


def test_a_tree_that_is_right_is_kept(base: Problem) -> None:
    posed = _served(base)
    assert _keep(posed, _tree(posed)) == Kept(_tree(posed), How.KEPT)


def test_a_tree_that_is_fitted_again_is_kept(base: Problem) -> None:
    """Whatever it costs: a fresh one would be the same."""
    posed = _changed(_served(base), range(1, 9), range(1, 9), [0, LOSES, LOSES])
    found = _keep(posed, _tree(posed), np.zeros((2, 64), dtype=np.int64), _tree(posed))
    assert found == Kept(_tree(posed), How.KEPT)


def test_a_split_that_decides_nothing_is_no_reason_for_an_edit(base: Problem) -> None:
    posed = _costs(base, lambda rows, columns: [0, 0, 0])
    assert _keep(posed, _tree(posed)).how is How.KEPT


def test_a_few_scenarios_prove_nothing(base: Problem) -> None:
    """Five of the sixteen of a leaf lose 30% by its config, the others as much by any other."""
    posed = _changed(_served(base), range(1, 6), range(4, 5), [LOSES, 0, LOSES])
    assert _keep(posed, _tree(posed)).how is How.KEPT


# Edited


def test_a_leaf_that_became_worse_is_changed_and_nothing_else(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    slow = _changed(posed, range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    found = _keep(slow, old)
    medium = Leaf(posed.configs[1])
    low = Split("columns", 4, medium, Leaf(posed.configs[2]), (4, 5))
    assert found == Kept(Split("rows", 4, low, old.high, (4, 5)), How.EDITED, leaves=1)
    assert str(found) == "edited: 1 leaf"


def test_a_split_whose_other_side_is_better_everywhere_is_left_out(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    turned = _changed(posed, range(1, 5), range(1, 5), [2 * LOSES, LOSES, 0])
    found = _keep(turned, old)
    assert found == Kept(Split("rows", 4, Leaf(posed.configs[2]), old.high, (4, 5)), How.EDITED, splits=1)
    assert str(found) == "edited: 1 split"


def test_one_leaf_may_take_the_place_of_a_whole_tree(base: Problem) -> None:
    posed = _costs(base, lambda rows, columns: [LOSES, 2 * LOSES, 0])
    found = _keep(posed, _tree(posed))
    assert found == Kept(Leaf(posed.configs[2]), How.EDITED, splits=3)


def test_several_edits(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    slow = _changed(posed, range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    slow = _changed(slow, range(5, 9), range(1, 5), [2 * LOSES, LOSES, 0])
    found = _keep(slow, old)
    assert (found.leaves, found.splits) == (2, 0) and not _chosen(slow, found.tree).any()
    assert str(found) == "edited: 2 leaves"


@pytest.mark.parametrize(("price", "leaves_changed"), [(0.06, 1), (0.07, 0)])
def test_a_config_that_is_new_pays_its_price(base: Problem, price: float, leaves_changed: int) -> None:
    """A quarter of all scenarios would lose log 1.3 less, 6.6% of the mean."""
    narrow, _, wide = (Leaf(config) for config in base.configs)
    posed = _changed(_served(base), range(5, 9), range(1, 9), [0, LOSES, LOSES])
    posed = _changed(posed, range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    budget = replace(posed.kernel.budget, config_price=price)
    priced = replace(posed, kernel=replace(posed.kernel, budget=budget))
    old = Split("rows", 4, Split("columns", 4, narrow, wide), narrow)
    assert _keep(priced, old).leaves == leaves_changed


# Cells without a time


def test_a_choice_that_nobody_timed_is_no_reason_for_an_edit(base: Problem) -> None:
    """The leaf's config was timed in four of its sixteen scenarios."""
    posed = _changed(_served(base), range(1, 5), range(1, 4), [UNMEASURED, 0, LOSES])
    assert _keep(posed, _tree(posed)).how is How.KEPT


def test_a_leaf_does_not_take_what_nobody_timed(base: Problem) -> None:
    """Medium was timed in half of the leaf's scenarios, where it is best: it is charged in the others."""
    slow = _changed(_served(base), range(1, 5), range(1, 5), [LOSES, UNMEASURED, LOSES])
    slow = _changed(slow, range(1, 5), range(1, 3), [LOSES, 0, LOSES])
    assert _keep(slow, _tree(slow)).how is How.KEPT


def test_a_single_failure_does_not_hide_what_the_others_say(base: Problem) -> None:
    """A cell a million times slower counts as one four times slower."""
    slow = _changed(_served(base), range(1, 5), range(1, 5), [LOSES, 0, 2 * LOSES])
    once = _changed(slow, range(1, 2), range(1, 2), [14 * UNIT, 0, LOSES])
    assert _keep(once, _tree(once)).leaves == 1


# Repairs


@pytest.mark.parametrize("cell", [FORBIDDEN, UNMEASURED])
def test_a_config_that_can_no_longer_be_launched_is_replaced(base: Problem, cell: int) -> None:
    """Wide failed in one of its scenarios, or was never timed anywhere."""
    posed = _served(base)
    cost = posed.cost.copy()
    cost[:, 2] = np.where(posed.column("rows") == 1, cell, cost[:, 2]) if cell == FORBIDDEN else cell
    found = _keep(replace(posed, cost=cost), _tree(posed))
    assert found.leaves == 1 and found.how is How.EDITED
    assert Leaf(posed.configs[2]) not in [leaf for leaf, _ in leaves(found.tree)]


def test_a_config_that_the_table_lost_is_replaced(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    lost = Split("rows", 4, old.low, Split("columns", 4, Leaf(GONE), old.high.high), (4, 5))  # type: ignore[union-attr]
    assert _keep(posed, lost) == Kept(old, How.EDITED, leaves=1)


def test_a_leaf_that_nothing_reaches_goes_only_if_its_config_is_gone(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    kept = Split("rows", 100, old, Leaf(posed.configs[2]))
    assert _keep(posed, kept) == Kept(kept, How.KEPT)
    assert _keep(posed, Split("rows", 100, old, Leaf(GONE))) == Kept(old, How.EDITED, splits=1)


def test_a_leaf_in_which_everything_fails_somewhere_is_not_kept(base: Problem) -> None:
    posed = _served(base)
    cost = posed.cost.copy()
    for column in range(3):
        cost[column, column] = FORBIDDEN  # the first three scenarios are in one leaf
    found = _keep(replace(posed, cost=cost), _tree(posed))
    assert found.how is How.FRESH
    assert found.why == "it launches what failed or breaks a constraint where no single config would do"


# What the spec no longer allows


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_leaves": 3}, "it has 4 leaves, and the budget is 3"),
        ({"max_depth": 1}, "it is 2 splits deep, and the budget is 1"),
    ],
)
def test_a_smaller_budget(base: Problem, change: dict[str, int], why: str) -> None:
    posed = _served(base)
    budget = replace(posed.kernel.budget, **change)
    found = _keep(replace(posed, kernel=replace(posed.kernel, budget=budget)), _tree(posed))
    assert (found.how, found.why, found.tree) == (How.FRESH, why, Leaf(posed.configs[0]))


def test_a_feature_that_trees_may_no_longer_split_on(base: Problem) -> None:
    posed = replace(_served(base), split_on=("columns",))
    assert _keep(posed, _tree(posed)).why == "it asks about rows, which trees may no longer split on"
    beyond = Split("depth", 3, _tree(posed), Leaf(posed.configs[0]))
    assert _keep(posed, beyond).why == "it asks about depth, which trees may no longer split on"


# Fresh trees


def _halves(posed: Problem) -> Problem:
    """Narrow is best in odd columns, medium in even ones; the tree launches narrow everywhere."""
    return _costs(posed, lambda rows, columns: [0, LOSES, LOSES] if columns % 2 else [LOSES, 0, LOSES])


def test_fresh_trees_that_are_better_where_they_were_not_fitted_win(base: Problem) -> None:
    posed, old = _halves(base), Leaf(base.configs[0])
    found = _keep(posed, old, np.zeros((2, 64), dtype=np.int64), _best(posed))
    assert (found.tree, found.how) == (_best(posed), How.FRESH)
    assert found.why == "fresh trees choose better in scenarios that they have not seen, by 14.0%"


def test_a_fresh_tree_that_is_better_only_where_it_was_fitted_does_not_win(base: Problem) -> None:
    """It is perfect on the table, and held out no better than the old one."""
    posed, old = _halves(base), Leaf(base.configs[0])
    held_out = np.tile(_chosen(posed, old), (2, 1))
    assert not _chosen(posed, _best(posed)).any()
    assert _keep(posed, old, held_out, _best(posed)) == Kept(old, How.KEPT)


def test_folds_are_asked_only_for_a_tree_that_is_better_where_it_was_fitted(base: Problem) -> None:
    def never() -> Ints:
        raise AssertionError("was asked")

    posed = _served(base)
    assert keep(posed, Leaf(posed.configs[0]), never, _tree(posed)).how is How.KEPT


def test_the_whole_tree_needs_less_proof_than_an_edit(base: Problem) -> None:
    """Five scenarios of 64 fall by 30%: sqrt(5) standard deviations, more than 2 and less than 3."""
    posed, old = _served(base), _tree(base)
    held_out = np.zeros((2, 64), dtype=np.int64)
    for count, how in ((5, How.FRESH), (3, How.KEPT)):
        worse = _turned(posed, old, slice(count))
        assert _keep(worse, old, held_out, _best(worse)).how is how


def test_the_repeats_of_cross_validation_are_no_further_evidence(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    many, worse = np.zeros((20, 64), dtype=np.int64), _turned(posed, old, slice(3))
    assert _keep(worse, old, many, _best(worse)).how is How.KEPT


def test_copies_of_a_scenario_are_no_further_evidence(base: Problem) -> None:
    """A leaf of three scenarios, each there ten times, loses 30%."""
    posed = _changed(_served(base), range(1, 2), range(1, 4), [LOSES, 0, LOSES])
    old = Split("rows", 1, Split("columns", 3, Leaf(base.configs[0]), Leaf(base.configs[2])), _tree(base))
    some = np.flatnonzero((posed.column("rows") == 1) & (posed.column("columns") <= 3))
    others = np.setdiff1d(np.arange(64), some)
    assert _keep(posed.rows(np.concatenate([others, np.repeat(some, 10)])), old).how is How.KEPT
    apart = posed.rows(np.concatenate([others, np.repeat(some, 10)]))
    numbered = apart.features.copy()
    numbered[:, apart.names.index("heads")] = np.arange(len(numbered))
    assert _keep(replace(apart, features=numbered), old).how is How.EDITED


def test_choices_without_a_time_count_against_the_old_tree_only_if_scenarios_are_new(base: Problem) -> None:
    posed, old = _served(base), _tree(base)
    untimed = _changed(posed, range(1, 9), range(1, 3), [UNMEASURED, UNMEASURED, 0])
    held_out = np.zeros((2, 64), dtype=np.int64)
    best, same = _best(untimed), np.full((2, 64), UNMEASURED)
    assert _keep(untimed, old, held_out, best).how is How.KEPT
    assert _keep(untimed, old, held_out, best, other_scenarios=True).how is How.FRESH
    assert _keep(untimed, old, same, best, other_scenarios=True).how is How.KEPT


@pytest.mark.parametrize(("weight", "how"), [(1, How.KEPT), (100, How.FRESH)])
def test_scenarios_count_by_their_weight(base: Problem, weight: int, how: How) -> None:
    """Fresh trees gain much in ten scenarios and lose a little in twenty."""
    posed, held_out = _turned(_served(base), _tree(base), slice(10)), np.zeros((1, 64), dtype=np.int64)
    weights = np.ones(64, dtype=np.int64)
    weights[:10], held_out[0, 10:30] = weight, LOSES // 4
    weighted = replace(posed, weight=weights)
    assert _keep(weighted, _tree(posed), held_out, _best(weighted)).how is how


# Whatever the table


@st.composite
def _cases(draw: st.DrawFn, base: Problem) -> tuple[Problem, Tree, Ints]:
    """Costs that favour some config in each of four parts, an old tree and held-out costs."""
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    part = (base.column("rows") > 4) * 2 + (base.column("columns") > 4)
    level = rng.integers(0, 3, (4, 3)) * draw(st.sampled_from([5_000, 50_000, 300_000]))
    cost = level[part] + rng.integers(0, draw(st.sampled_from([1, 10_000, 200_000])), (64, 3))
    cost[rng.random((64, 3)) < draw(st.sampled_from([0, 0.3]))] = UNMEASURED
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
    posed, old, held_out = data.draw(_cases(base))
    fresh = _tree(posed)
    found = keep(posed, fresh, lambda: held_out, old)
    again = keep(posed, fresh, lambda: held_out, found.tree)
    assert (again.tree, again.how) == (found.tree, How.KEPT) or (again.tree, again.how) == (fresh, How.FRESH)
    if found.how is not How.FRESH:
        assert again == Kept(found.tree, How.KEPT)


@examples(150)
@given(st.data())
def test_edits_save_and_never_launch_what_fails(base: Problem, data: st.DataObject) -> None:
    posed, old, _ = data.draw(_cases(base))
    evidence = choice_costs_of(posed)
    mended = repair(evidence, old).tree
    if evidence.fails(mended, evidence.every):
        return
    found = edit(evidence, mended)
    assert not evidence.fails(found.tree, evidence.every) and size(found.tree) <= size(mended)
    if found.leaves or found.splits:
        fall = evidence.fall(mended, found.tree, evidence.every)
        assert fall.loss.sum() > 0
    assert edit(evidence, found.tree) == type(found)(found.tree, 0, 0)
