"""alternate, improve, polish: the total never rises, the limits hold; near what is proven to be best."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_samples import allowed, leaves_of, price, sample, samples, shapes
from treegen_strategies import examples

from benchmarks.fit.prover.optimal import optimal
from treegen.fit.growth import grow
from treegen.fit.index_tree import IndexTree
from treegen.fit.local_search import alternate, improve, total
from treegen.fit.training_set import TrainingSet


def _searched(case: TrainingSet) -> IndexTree:
    return improve(case, case.best_config(case.every))


def _best(case: TrainingSet) -> int:
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
def test_the_total_is_that_of_every_row_at_its_leaf(case: TrainingSet, data: st.DataObject) -> None:
    shape = data.draw(shapes(case))
    assert total(case, shape) == price(case, shape)


@examples(100)
@given(samples(), st.data())
def test_alternating_keeps_the_form_and_ends_where_nothing_helps(
    case: TrainingSet, data: st.DataObject
) -> None:
    shape = data.draw(shapes(case))
    other = alternate(case, shape)
    assert _form(other) == _form(shape)
    assert price(case, other) <= price(case, shape)
    assert alternate(case, other) == other


def _form(shape: IndexTree) -> object:
    return (_form(shape[1]), _form(shape[2])) if isinstance(shape, tuple) else 0


@examples(100)
@given(samples(), st.data())
def test_after_alternating_no_other_question_at_the_root_is_better(
    case: TrainingSet, data: st.DataObject
) -> None:
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
def test_a_search_keeps_to_the_limits_and_never_loses_by_a_step(case: TrainingSet) -> None:
    root = case.best_config(case.every)
    grown, improved = grow(case, root), improve(case, root)
    prices = [price(case, shape) for shape in (root, grown, improved)]
    assert prices == sorted(prices, reverse=True)
    assert allowed(case, improved)


@examples(150)
@given(samples())
def test_no_search_is_better_than_the_optimum(case: TrainingSet) -> None:
    assert price(case, _searched(case)) >= _best(case)


def test_searches_come_near_the_optimum() -> None:
    """60 samples of 40 rows in two features, of noisy costs, three questions deep: a third are optimal."""
    cases = [_random(seed) for seed in range(60)]
    best = [_best(case) for case in cases]
    grown = [price(case, grow(case, case.best_config(case.every))) for case in cases]
    searched = [price(case, _searched(case)) for case in cases]
    assert sum(found == least for found, least in zip(searched, best, strict=True)) >= 15
    assert sum(searched) < 1.06 * sum(best) < 1.1 * sum(best) < sum(grown)


def _random(seed: int) -> TrainingSet:
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 8, (40, 2))
    says = [features[:, f] <= t for f in range(2) for t in range(7)]
    band = (features @ rng.integers(1, 4, (2, 1)) // 8).ravel()
    loss = 20 * (np.arange(4) != band[:, None] % 4) + rng.integers(0, 12, (40, 4))
    return sample(says, loss, depth=3, leaves=6)


@examples(80)
@given(samples(), st.data())
def test_the_order_of_rows_changes_nothing(case: TrainingSet, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.loss))))
    limits = {"least": case.least, "depth": case.max_depth, "leaves": case.max_leaves}
    turned = sample(case.answers[:, order], case.loss[order], price=case.leaf_price, **limits)
    assert _searched(turned) == _searched(case)


@examples(80)
@given(samples())
def test_leaves_that_rows_reach_take_their_best_config(case: TrainingSet) -> None:
    for config, rows in leaves_of(case, _searched(case)):
        sums = case.loss[rows].sum(axis=0)
        assert sums[config] == sums.min()
