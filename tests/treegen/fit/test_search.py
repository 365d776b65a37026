"""The thresholds that a tree may ask about, and the search for the tree of a regime."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.costs import Evidence
from treegen.fit.search import Leaf, Training, count_leaves, grow, local_search
from treegen.fit.splits import candidate_splits, low_sides, round_between

ANY = Evidence(0.0)
STEP = 1000  # cost steps: evidence counts in these
LOSSES = (st.integers(0, 9) | st.integers(0, 1)).map(lambda n: n * STEP) | st.sampled_from([0, 1 << 36])


@st.composite
def training_sets(draw):
    """Splits may repeat or have an empty side, scenarios may be on the same sides, losses may tie."""
    count, configs = draw(st.integers(1, 10)), draw(st.integers(1, 4))
    sides = st.lists(st.booleans(), min_size=count, max_size=count)
    row = st.lists(LOSSES, min_size=configs, max_size=configs)
    classes = draw(st.integers(1, 2))
    return Training(
        is_low=np.array(draw(st.lists(sides, min_size=1, max_size=4)), dtype=np.bool_),
        loss=np.array(draw(st.lists(row, min_size=count, max_size=count)), dtype=np.float64),
        group=np.array(draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))),
        classes=classes,
        max_depth=draw(st.integers(0, 3)),
        max_leaves=draw(st.integers(1, 6)),
        leaf_price=draw(st.sampled_from([0, 0, STEP, 3 * STEP])),
        cluster=np.arange(count),
        enough=1,
        row=ANY,
        small=ANY,
        change=ANY,
    )


def plain(is_low, loss, max_depth, max_leaves):
    """A training set of one class, in which anything that gains a step is evidence."""
    zeros, each = np.zeros(len(loss), dtype=np.int64), np.arange(len(loss))
    return Training(is_low, loss, zeros, 1, max_depth, max_leaves, STEP, each, 1, ANY, ANY, ANY)


def least_total(case):
    """The total of the best tree within the limits, by trying them all."""

    def totals(rows, depth):
        """The least total of a subtree for each number of leaves."""
        inside = sorted(rows)
        parts = [[row for row in inside if case.group[row] == k] for k in range(case.classes)]
        lost = sum(float(case.loss[part].sum(axis=0).min()) for part in parts if part)
        found = {1: lost + case.leaf_price}
        sides = {frozenset(row for row in rows if split[row]) for split in case.is_low}
        for low in sides - {frozenset(), rows} if depth else ():
            for (one, a), (other, b) in product(
                totals(low, depth - 1).items(), totals(rows - low, depth - 1).items()
            ):
                if one + other <= case.max_leaves:
                    found[one + other] = min(found.get(one + other, np.inf), a + b)
        return found

    return min(totals(frozenset(range(len(case.loss))), case.max_depth).values())


def _depth(tree):
    return 0 if isinstance(tree, Leaf) else 1 + max(_depth(tree.low), _depth(tree.high))


def _greedy(case):
    return grow(case, case.best_cells(case.everywhere))


@examples(350)
@given(training_sets())
def test_limits_hold_and_it_lies_between_greedy_growth_and_the_best_tree(case):
    tree = local_search(case)
    assert _depth(tree) <= case.max_depth and count_leaves(tree) <= case.max_leaves
    assert case.total(tree) >= least_total(case)
    if case.classes == 1:
        assert case.total(tree) <= case.total(_greedy(case))


def test_it_mostly_finds_the_best_tree_where_greedy_growth_does_not():
    rng, found, greedy = random.Random(3), 0, 0
    for _ in range(60):
        sides = np.array([[rng.random() < 0.5 for _ in range(12)] for _ in range(5)])
        loss = np.array([[float(rng.randint(0, 9) * STEP) for _ in range(3)] for _ in range(12)])
        case = plain(sides, loss, 2, 4)
        best = least_total(case)
        found += case.total(local_search(case)) == best
        greedy += case.total(_greedy(case)) == best
    assert found > max(30, greedy)


def test_two_splits_at_once_only_add_to_what_single_splits_gain():
    rng, differ = random.Random(0), 0
    for _ in range(400):
        count = rng.randint(6, 14)
        orders = range(count), rng.sample(range(count), count)
        sides = np.array(
            [[place < bound for place in order] for order in orders for bound in range(1, count)]
        )
        loss = np.array([[float(rng.randint(0, 1) * STEP) for _ in range(3)] for _ in range(count)])
        case = plain(sides, loss, 4, 8)
        single, tree = _greedy(case), _greedy(replace(case, isolates=True))
        assert _depth(tree) <= case.max_depth and count_leaves(tree) <= case.max_leaves
        assert case.total(tree) <= case.total(single)
        differ += tree != single
    assert differ


@examples(100)
@given(training_sets(), st.randoms(use_true_random=False))
def test_the_order_of_scenarios_changes_nothing(case, rng):
    order = list(range(len(case.loss)))
    rng.shuffle(order)
    own = {name: getattr(case, name)[order] for name in ("loss", "group", "cluster")}
    assert local_search(replace(case, is_low=case.is_low[:, order], **own)) == local_search(case)


# Thresholds

VALUES = st.integers(0, 40) | st.integers(0, 5000) | st.integers(-60, 60) | st.integers(0, 1 << 62)
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1, max_size=8)
)


def _on_grid(low, high):
    """Whether some t with low <= t < high is on the grid: up to 15, 2^k or 3 * 2^k, or the opposite."""
    sizes = {*range(16), *(m << k for k in range(63) for m in (1, 3))}
    return any(low <= t < high for size in sizes for t in (size, -size))


@examples(200)
@given(TABLES, st.randoms(use_true_random=False))
def test_rows_are_divided_where_the_grid_lies_between_them(rows, rng):
    """All columns have few values; with many more, only the grid divides them."""
    features = np.array(rows, dtype=np.int64)
    many = np.arange(40)[:, None] + np.int64(1 << 40)  # none of these is on the grid but the first
    crowded = np.vstack([features, np.broadcast_to(many, (40, features.shape[1]))])
    few, grid = (low_sides(candidate_splits(known), features) for known in (features, crowded))
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (few[:, one] != few[:, other]).any() == (rows[one] != rows[other])
            apart = any(_on_grid(*sorted(pair)) for pair in zip(rows[one], rows[other], strict=True))
            assert (grid[:, one] != grid[:, other]).any() == apart
    assert len({side.tobytes() for side in few}) == len(few)  # no two splits divide alike
    assert all(0 < int(side.sum()) < len(rows) for side in few)
    shuffled = [*rows, *rows[:2]]
    rng.shuffle(shuffled)  # neither order nor copies count
    assert candidate_splits(np.array(shuffled, dtype=np.int64)) == candidate_splits(features)


NEAR_POWERS = st.builds(lambda power, offset: (1 << power) + offset, st.integers(40, 62), st.integers(-3, 3))
GAPS = st.integers(1, 10**5) | st.sampled_from([1, 2, 3, 5, 1000, 10**9, 2**62])


@examples(600)
@given(st.integers(-50, 10**5) | NEAR_POWERS, GAPS)
def test_a_threshold_separates_its_neighbours(below, gap):
    """Also where the values are beyond the precision of floats."""
    assert below <= round_between(below, below + gap) < below + gap


@pytest.mark.parametrize(
    ("below", "above", "threshold"),
    [(0, 1, 0), (1, 2, 1), (4, 6, 5), (64, 128, 96), (100, 300, 192), (1000, 1002, 1001)],
)
def test_round_numbers_between_neighbours(below, above, threshold):
    assert round_between(below, above) == threshold
