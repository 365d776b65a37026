"""alternate, improve, polish: the total never rises, the limits hold; near what is proven to be best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_samples import allowed, leaves_of, price, sample, samples, shapes
from treegen_strategies import examples

import treegen.fit.polish as polishing
from treegen.fit.growth import grow
from treegen.fit.improve import alternate, improve, total
from treegen.fit.objective import FAILED
from treegen.fit.optimal import optimal
from treegen.fit.optimal_shape import Shape
from treegen.fit.polish import polish
from treegen.fit.sample import Sample

SQUARES = 5  # rows on each square of the checkerboard
CHECKERBOARD = sample(
    np.repeat([[1, 1, 0, 0], [1, 0, 1, 0]], SQUARES, axis=1),
    np.repeat([[0, 9, 20], [9, 0, 20], [9, 0, 20], [0, 9, 20]], SQUARES, axis=0),
)


@pytest.fixture
def any_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polishing takes whatever saves anything, be it by chance."""
    monkeypatch.setattr(polishing, "_EVIDENT", 0.0)


def _searched(case: Sample) -> Shape:
    return polish(case, improve(case, case.best_config(case.every)))


def _best(case: Sample) -> int:
    found = optimal(
        case.yes,
        case.loss.astype(np.int64),
        max_depth=case.max_depth,
        max_leaves=case.max_leaves,
        leaf_price=case.leaf_price,
    )
    assert found.proven
    return found.cost


@examples(100)
@given(samples(), st.data())
def test_the_total_is_that_of_every_row_at_its_leaf(case: Sample, data: st.DataObject) -> None:
    shape = data.draw(shapes(case))
    assert total(case, shape) == price(case, shape)


@examples(100)
@given(samples(), st.data())
def test_alternating_keeps_the_form_and_ends_where_nothing_helps(case: Sample, data: st.DataObject) -> None:
    shape = data.draw(shapes(case))
    other = alternate(case, shape)
    assert _form(other) == _form(shape)
    assert price(case, other) <= price(case, shape)
    assert alternate(case, other) == other


def _form(shape: Shape) -> object:
    return (_form(shape[1]), _form(shape[2])) if isinstance(shape, tuple) else 0


@examples(100)
@given(samples(), st.data())
def test_after_alternating_no_other_question_at_the_root_is_better(case: Sample, data: st.DataObject) -> None:
    shape = alternate(case, data.draw(shapes(case)))
    assume(isinstance(shape, tuple))
    assert isinstance(shape, tuple)
    for question in range(len(case.answers)):
        yes = int(case.answers[question].sum())
        if min(yes, len(case.loss) - yes) >= case.least:
            assert price(case, (question, *shape[1:])) >= price(case, shape)


def test_alternating_finds_a_root_that_growth_could_not_see() -> None:
    """Growth asks 0 first, which saves most alone; with 1 at the root, both sides could be made perfect."""
    says = [[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]]
    loss = [[0, 9], [0, 9], [9, 0], [0, 9], [9, 0], [9, 0]]
    assert alternate(sample(says, loss), (0, 0, 1)) == (1, 0, 1)


@examples(150)
@given(samples())
def test_a_search_keeps_to_the_limits_and_never_loses_by_a_step(case: Sample) -> None:
    root = case.best_config(case.every)
    grown, improved = grow(case, root), improve(case, root)
    polished = polish(case, improved)
    prices = [price(case, shape) for shape in (root, grown, improved, polished)]
    assert prices == sorted(prices, reverse=True)
    assert all(allowed(case, shape) for shape in (improved, polished))


@examples(150)
@given(samples())
def test_no_search_is_better_than_the_optimum(case: Sample) -> None:
    assert price(case, _searched(case)) >= _best(case)


def test_searches_come_near_the_optimum(any_saving: None) -> None:
    """60 samples of 40 rows in two features, of noisy costs, three questions deep: a third are optimal."""
    cases = [_random(seed) for seed in range(60)]
    best = [_best(case) for case in cases]
    grown = [price(case, grow(case, case.best_config(case.every))) for case in cases]
    searched = [price(case, _searched(case)) for case in cases]
    assert sum(found == least for found, least in zip(searched, best, strict=True)) >= 15
    assert sum(searched) < 1.06 * sum(best) < 1.1 * sum(best) < sum(grown)


def _random(seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 8, (40, 2))
    says = [features[:, f] <= t for f in range(2) for t in range(7)]
    band = (features @ rng.integers(1, 4, (2, 1)) // 8).ravel()
    loss = 20 * (np.arange(4) != band[:, None] % 4) + rng.integers(0, 12, (40, 4))
    return sample(says, loss, depth=3, leaves=6)


@examples(100)
@given(samples(least=1))
def test_polished_two_questions_deep_is_optimal(any_saving: None, case: Sample) -> None:
    """From any tree of that height; leaves may be as small as one row."""
    assume(case.max_depth <= 2)
    for start in (case.best_config(case.every), improve(case, 0)):
        polished = polish(case, start)
        # The whole tree is one end: none of its leaves is empty, so nothing keeps the optimum out.
        assert price(case, polished) == _best(case)


@examples(100)
@given(samples(), st.data())
def test_polishing_never_raises_the_total(case: Sample, data: st.DataObject) -> None:
    shape = data.draw(shapes(case))
    assume(allowed(case, shape))
    polished = polish(case, shape)
    assert allowed(case, polished) and price(case, polished) <= price(case, shape)


def test_a_checkerboard_is_told_apart() -> None:
    """No single split of it saves anything."""
    assert improve(CHECKERBOARD, 0) == 0
    assert polish(CHECKERBOARD, 0) == (0, (1, 0, 1), (1, 1, 0))


@pytest.mark.parametrize(("depth", "leaves"), [(1, 8), (4, 1)])
def test_a_checkerboard_within_too_small_a_budget_is_left(depth: int, leaves: int) -> None:
    case = sample(CHECKERBOARD.answers, CHECKERBOARD.loss, depth=depth, leaves=leaves)
    assert polish(case, 0) == 0


def test_leaves_below_the_least_are_not_polished_in() -> None:
    for least, solved in ((SQUARES, True), (SQUARES + 1, False)):
        case = sample(CHECKERBOARD.answers, CHECKERBOARD.loss, least=least)
        assert isinstance(polish(case, 0), tuple) == solved


def test_a_checkerboard_of_few_rows_may_be_chance() -> None:
    few = slice(None, None, SQUARES)
    case = sample(CHECKERBOARD.answers[:, few], CHECKERBOARD.loss[few])
    assert polish(case, 0) == 0


def test_what_fails_needs_no_proof() -> None:
    few = slice(None, None, SQUARES)
    loss = np.where(CHECKERBOARD.loss[few] == 9, FAILED, CHECKERBOARD.loss[few])
    assert polish(sample(CHECKERBOARD.answers[:, few], loss[:, :2]), 0) == (0, (1, 0, 1), (1, 1, 0))


def test_a_checkerboard_below_other_splits_is_told_apart() -> None:
    """Half of the rows want one of two more configs."""
    count = len(CHECKERBOARD.loss)
    says = np.zeros((4, 2 * count))
    says[:2, :count] = CHECKERBOARD.answers
    says[2, :count] = 1
    says[3, count : count + count // 2] = 1
    loss = np.full((2 * count, 4), 99.0)
    loss[:count, :2] = CHECKERBOARD.loss[:, :2]
    loss[count:, 2:] = np.where(says[3, count:, None], [0, 99], [99, 0])
    case = sample(says, loss)
    assert price(case, _searched(case)) == 0


@examples(80)
@given(samples(), st.data())
def test_the_order_of_rows_changes_nothing(case: Sample, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.loss))))
    limits = {"least": case.least, "depth": case.max_depth, "leaves": case.max_leaves}
    turned = sample(case.answers[:, order], case.loss[order], price=case.leaf_price, **limits)
    assert _searched(turned) == _searched(case)


@examples(80)
@given(samples())
def test_leaves_that_rows_reach_take_their_best_config(case: Sample) -> None:
    for config, rows in leaves_of(case, _searched(case)):
        sums = case.loss[rows].sum(axis=0)
        assert sums[config] == sums.min()
