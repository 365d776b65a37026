"""The search for the tree of a regime, between greedy growth and the best tree of all."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.evidence import Evidence
from treegen.fit.search import Leaf, RowTree, Training, count_leaves, grow, local_search

ANY = Evidence(0.0)
STEP = 1000  # cost steps: evidence counts in these
LOSSES = (st.integers(0, 9) | st.integers(0, 1)).map(lambda n: n * STEP) | st.sampled_from([0, 1 << 36])


@st.composite
def training_sets(draw: st.DrawFn, classes: int = 2) -> Training:
    """Splits may repeat or have an empty side, scenarios may be on the same sides, losses may tie."""
    count, configs = draw(st.integers(1, 10)), draw(st.integers(1, 4))
    sides = st.lists(st.booleans(), min_size=count, max_size=count)
    row = st.lists(LOSSES, min_size=configs, max_size=configs)
    classes = draw(st.integers(1, classes))
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


def reordered(case: Training, order: list[int]) -> Training:
    """The same training set with its scenarios in another order."""
    own = {name: getattr(case, name)[order] for name in ("loss", "group", "cluster")}
    return replace(case, is_low=case.is_low[:, order], **own)


def least_total(case: Training) -> float:
    """The total of the best tree within the limits, by trying them all."""

    def totals(rows: frozenset[int], depth: int) -> dict[int, float]:
        """The least total of a subtree for each number of leaves."""
        inside = sorted(rows)
        parts = [[row for row in inside if case.group[row] == k] for k in range(case.classes)]
        lost = sum(float(case.loss[part].sum(axis=0).min()) for part in parts if part)
        found = {1: lost + case.leaf_price}
        for low in _low_sides(case, rows) if depth else ():
            for (one, a), (other, b) in product(
                totals(low, depth - 1).items(), totals(rows - low, depth - 1).items()
            ):
                if one + other <= case.max_leaves:
                    found[one + other] = min(found.get(one + other, np.inf), a + b)
        return found

    return min(totals(frozenset(range(len(case.loss))), case.max_depth).values())


def _low_sides(case: Training, rows: frozenset[int]) -> set[frozenset[int]]:
    sides = {frozenset(row for row in rows if split[row]) for split in case.is_low}
    return {low for low in sides if low and low != rows}


def _depth(tree: RowTree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(_depth(tree.low), _depth(tree.high))


def _greedy(case: Training) -> RowTree:
    return grow(case, case.best_cells(case.everywhere))


@examples(200)
@given(training_sets(classes=1))
def test_it_lies_between_greedy_growth_and_the_best_tree(case: Training) -> None:
    total = case.total(local_search(case))
    assert least_total(case) <= total <= case.total(_greedy(case))


def test_it_mostly_finds_the_best_tree_where_greedy_growth_does_not() -> None:
    rng, found, greedy = random.Random(3), 0, 0
    for _ in range(60):
        case = _random_case(rng)
        best = least_total(case)
        found += case.total(local_search(case)) == best
        greedy += case.total(_greedy(case)) == best
    assert found > max(30, greedy)


def _random_case(rng: random.Random) -> Training:
    sides = [[rng.random() < 0.5 for _ in range(12)] for _ in range(5)]
    loss = [[rng.randint(0, 9) * STEP for _ in range(3)] for _ in range(12)]
    zeros = np.zeros(12, dtype=np.int64)
    numbers = np.array(loss, dtype=np.float64)
    return Training(np.array(sides), numbers, zeros, 1, 2, 4, STEP, np.arange(12), 1, ANY, ANY, ANY)


@examples(150)
@given(training_sets())
def test_limits_hold_and_no_tree_is_better_than_the_best(case: Training) -> None:
    tree = local_search(case)
    assert _depth(tree) <= case.max_depth and count_leaves(tree) <= case.max_leaves
    assert case.total(tree) >= least_total(case)


@examples(100)
@given(training_sets(), st.randoms(use_true_random=False))
def test_the_order_of_scenarios_changes_nothing(case: Training, rng: random.Random) -> None:
    order = list(range(len(case.loss)))
    rng.shuffle(order)
    assert local_search(reordered(case, order)) == local_search(case)
