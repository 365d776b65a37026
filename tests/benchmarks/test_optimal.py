"""optimal: the best tree there is, by comparison with trying all of them; bounds that hold when cut short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from benchmarks.fit.prover import optimal_depth2
from benchmarks.fit.prover.optimal import Optimum, optimal, total
from benchmarks.fit.prover.optimal_depth2 import Subproblem, distinct, relaxed, shallow
from benchmarks.fit.prover.optimal_sums import digits
from treegen.core.problem import FORBIDDEN
from treegen.fit.training_set import IndexTree, count_leaves, height


@dataclass(frozen=True)
class Case:
    """answers: [questions, rows]; cost: [rows, configs]."""

    answers: np.ndarray
    cost: np.ndarray
    max_depth: int
    max_leaves: int | None
    leaf_price: int

    @property
    def limits(self) -> dict[str, int | None]:
        return {"max_depth": self.max_depth, "max_leaves": self.max_leaves, "leaf_price": self.leaf_price}

    def total(self, tree: IndexTree) -> int:
        return total(tree, self.answers, self.cost, self.leaf_price)

    def allows(self, tree: IndexTree) -> bool:
        return height(tree) <= self.max_depth and count_leaves(tree) <= (self.max_leaves or 99)


FEW, TIED, FAILING, HUGE = (
    st.integers(0, 9),
    st.integers(0, 1),
    st.sampled_from([0, 1, 5, FORBIDDEN]),
    st.integers(0, 1 << 51),
)


@st.composite
def cases(
    draw: st.DrawFn, questions: int, depth: int, cells: st.SearchStrategy[int] = FEW | TIED | FAILING
) -> Case:
    """Questions may repeat, be the opposite of another one, or be answered alike by all rows."""
    rows, configs = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    answers = draw(st.lists(st.lists(st.booleans(), min_size=rows, max_size=rows), max_size=questions))
    if answers and draw(st.booleans()):
        flip = draw(st.booleans())
        answers[-1] = [answer != flip for answer in answers[0]]
    cost = draw(st.lists(st.lists(cells, min_size=configs, max_size=configs), min_size=rows, max_size=rows))
    return Case(
        np.array(answers, dtype=bool).reshape(-1, rows),
        np.array(cost, dtype=np.int64),
        draw(st.integers(0, depth)),
        draw(st.none() | st.integers(1, 1 << depth)),
        draw(st.sampled_from([0, 0, 1, 3])),
    )


Weighed = tuple[int, int, tuple[int, ...], IndexTree]
"""Total, leaves, questions in preorder (-1 for a leaf), tree: the best one is the least."""


def _all_trees(case: Case, rows: list[int], depth: int) -> Iterator[Weighed]:
    """Every tree whose leaves take the first of the cheapest configs of their rows."""
    sums = [sum(int(case.cost[row, config]) for row in rows) for config in range(case.cost.shape[1])]
    yield min(sums) + case.leaf_price, 1, (-1,), sums.index(min(sums))
    if depth:
        for question, answers in enumerate(case.answers.tolist()):
            no_sides = list(_all_trees(case, [row for row in rows if not answers[row]], depth - 1))
            for yes in _all_trees(case, [row for row in rows if answers[row]], depth - 1):
                for no in no_sides:
                    used = (question, *yes[2], *no[2])
                    yield yes[0] + no[0], yes[1] + no[1], used, (question, yes[3], no[3])


def _first_of_all(case: Case) -> Weighed:
    trees = _all_trees(case, list(range(len(case.cost))), case.max_depth)
    return min((tree for tree in trees if tree[1] <= (case.max_leaves or 99)), key=lambda tree: tree[:3])


def _best(case: Case) -> Weighed:
    """The same by dynamic programming without bounds: feasible for more rows and questions."""
    known: dict[tuple[frozenset[int], int, int], Weighed] = {}

    def best(rows: frozenset[int], depth: int, leaves: int) -> Weighed:
        if (rows, depth, leaves) not in known:
            sums = case.cost[sorted(rows)].sum(axis=0)
            found = [(int(sums.min()) + case.leaf_price, 1, (-1,), int(sums.argmin()))]
            for question, answers in enumerate(case.answers if depth else ()):
                yes = frozenset(row for row in rows if answers[row])
                for share in range(1, leaves) if 0 < len(yes) < len(rows) else ():
                    one, other = best(yes, depth - 1, share), best(rows - yes, depth - 1, leaves - share)
                    used = (question, *one[2], *other[2])
                    found.append((one[0] + other[0], one[1] + other[1], used, (question, one[3], other[3])))
            known[rows, depth, leaves] = min(found, key=lambda tree: tree[:3])
        return known[rows, depth, leaves]

    return best(frozenset(range(len(case.cost))), case.max_depth, case.max_leaves or 1 << case.max_depth)


def _larger(seed: int, rows: int, depth: int, max_leaves: int | None = None) -> Case:
    """Thresholds on three features, and configs that suit some of their values.

    Many trees cost the same where the seed is odd.
    """
    random = np.random.default_rng(seed)
    features = random.integers(0, 6, size=(3, rows))
    answers = np.array([feature <= threshold for threshold in (0, 2, 4) for feature in features])
    suits = (features[0] * features[1] + features[2])[:, None] % 5 == np.arange(5)
    cost = np.where(suits, 0, 1) if seed % 2 else random.integers(0, 40, (rows, 5)) + 60 * ~suits
    return Case(answers, cost, depth, max_leaves, int(random.integers(0, 2 + 30 * (seed % 2 == 0))))


@examples(120)
@given(cases(questions=3, depth=3))
def test_it_is_the_first_of_all_best_trees(case: Case) -> None:
    result = optimal(case.answers, case.cost, **case.limits)
    cost, leaves, _, tree = _first_of_all(case)
    assert _best(case)[3] == tree
    assert (result.cost, count_leaves(result.tree), result.tree) == (cost, leaves, tree)
    assert result.proven and result.bound == cost == case.total(tree)


@examples(60)
@given(cases(questions=6, depth=4))
def test_it_is_the_first_best_tree_of_more_questions(case: Case) -> None:
    result = optimal(case.answers, case.cost, **case.limits)
    assert result.proven
    assert (result.cost, result.tree) == (case.total(result.tree), _best(case)[3])


@pytest.mark.parametrize("max_leaves", [None, 5, 7, 11])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_first_best_tree_of_more_rows(seed: int, max_leaves: int | None) -> None:
    case = _larger(seed, 24, 3 + seed % 3 // 2, max_leaves)
    result = optimal(case.answers, case.cost, **case.limits)
    assert result.proven
    assert (result.cost, result.tree) == (case.total(result.tree), _best(case)[3])


@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_cut_short_anywhere_it_brackets_the_best_tree(seed: int) -> None:
    case = _larger(seed, 24, 4, (None, 9)[seed % 4 // 2])
    least = _best(case)[0]
    bounds, costs = [0], [int(case.cost.sum()) + 1]
    for nodes in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 100_000):
        result = optimal(case.answers, case.cost, **case.limits, most_nodes=nodes)
        assert case.allows(result.tree) and result.nodes <= nodes
        assert bounds[-1] <= result.bound <= least <= result.cost <= costs[-1]
        assert result.cost == case.total(result.tree)
        bounds.append(result.bound)
        costs.append(result.cost)
    assert len(set(bounds)) > 3, "the bound never rose on the way: nothing was cut"
    assert bounds[-1] == least == costs[-1]


@pytest.mark.parametrize("seed", range(4))
def test_huge_costs_are_added_exactly(seed: int) -> None:
    case = _larger(seed, 24, 3)
    case = replace(case, cost=np.random.default_rng(seed).integers(0, 1 << 51, case.cost.shape))
    assert int(case.cost.sum(axis=0).min()) > 1 << 53
    result = optimal(case.answers, case.cost, **case.limits)
    cost, _, _, tree = _best(case)
    assert (result.cost, result.bound, result.tree) == (cost, cost, tree)


def test_it_makes_no_difference_how_many_questions_are_paired_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = _larger(1, 24, 3)
    at_once = optimal(case.answers, case.cost, **case.limits)
    monkeypatch.setattr(optimal_depth2, "_BLOCK", 2 * len(case.answers))
    assert optimal(case.answers, case.cost, **case.limits) == at_once


@examples(80)
@given(cases(questions=3, depth=3), st.integers(0, 3), st.data())
def test_a_start_is_never_made_worse_nor_preferred(case: Case, nodes: int, data: st.DataObject) -> None:
    trees = list(_all_trees(case, list(range(len(case.cost))), case.max_depth))
    start = data.draw(st.sampled_from([tree[3] for tree in trees if case.allows(tree[3])][:500]))
    cut = optimal(case.answers, case.cost, **case.limits, start=start, most_nodes=nodes)
    assert cut.bound <= _best(case)[0] <= cut.cost
    assert (cut.cost, count_leaves(cut.tree)) <= (case.total(start), count_leaves(start))
    assert optimal(case.answers, case.cost, **case.limits, start=start).tree == _best(case)[3]


def test_without_a_node_it_returns_what_is_known_before() -> None:
    answers = np.array([[True, True, False, False], [True, False, True, False]])
    cost = np.array([[0, 9], [9, 0], [9, 0], [0, 9]])
    assert optimal(answers, cost, max_depth=2, most_nodes=0) == Optimum(0, 18, 0, 0)
    start: IndexTree = (1, (0, 0, 1), (0, 1, 0))
    assert optimal(answers, cost, max_depth=2, start=start, most_nodes=0) == Optimum(start, 0, 0, 0)
    worse: IndexTree = (0, 1, 0)
    assert optimal(ANSWERS, COST, max_depth=1, start=worse, most_nodes=0) == Optimum((0, 0, 1), 0, 0, 0)


def test_a_checkerboard_is_solved() -> None:
    answers = np.array([[True, True, False, False], [True, False, True, False]])
    cost = np.array([[0, 9], [9, 0], [9, 0], [0, 9]])
    result = optimal(answers, cost, max_depth=2)
    assert (result.tree, result.cost) == ((0, (1, 0, 1), (1, 1, 0)), 0)


def test_failed_configs_are_left_out_where_a_tree_can() -> None:
    answers = np.array([[True, True, True, False], [True, False, False, False]])
    cost = np.array([[0, FORBIDDEN, 8], [3, 0, FORBIDDEN], [4, 0, FORBIDDEN], [FORBIDDEN, 0, 0]])
    assert optimal(answers, cost, max_depth=1).tree == (1, 0, 1)
    everywhere = np.full((4, 3), FORBIDDEN) + np.array([2, 1, 1])
    assert optimal(answers, everywhere, max_depth=2).tree == 1
    assert optimal(answers, everywhere, max_depth=2).cost == 4 * FORBIDDEN + 4


def test_of_equal_trees_the_first_wins_over_the_first_found() -> None:
    """Two questions in a row also give total 1 with four leaves; a leaf on the yes side comes before that."""
    answers = np.array([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], bool)
    cost = 1 - np.eye(5, dtype=np.int64)
    assert optimal(answers, cost, max_depth=2, max_leaves=4).tree == (0, (1, 0, 1), (2, 2, 3))
    assert optimal(answers, cost, max_depth=3, max_leaves=4).tree == (0, 0, (2, 2, (3, 3, 4)))


def test_a_leaf_must_save_its_price() -> None:
    answers = np.array([[True, False]])
    cost = np.array([[0, 5], [5, 0]])
    assert optimal(answers, cost, max_depth=3, leaf_price=4).tree == (0, 0, 1)
    assert optimal(answers, cost, max_depth=3, leaf_price=5).tree == 0
    assert optimal(answers, cost, max_depth=3, leaf_price=5).cost == 10


def test_without_rows_or_questions_the_first_cheapest_config_is_launched() -> None:
    nothing = optimal(np.zeros((2, 0), bool), np.zeros((0, 3), np.int64), max_depth=3, leaf_price=2)
    assert (nothing.tree, nothing.cost, nothing.bound) == (0, 2, 2)
    alike = optimal(np.zeros((0, 2), bool), np.array([[4, 1, 0], [0, 1, 2]]), max_depth=3)
    assert (alike.tree, alike.cost, alike.bound) == (1, 2, 2)


@examples(60)
@given(cases(questions=6, depth=2, cells=FEW | HUGE))
def test_the_relaxation_of_two_questions_is_a_lower_bound(case: Case) -> None:
    kept = distinct(case.answers)
    price = case.leaf_price + 1
    sub = Subproblem(kept, case.answers[kept], digits(case.cost), price)
    pairs = [(a, b) for a in range(case.cost.shape[1]) for b in range(a + 1)]
    lower = np.stack([np.minimum(case.cost[:, a], case.cost[:, b]) for a, b in pairs], axis=1)
    prices = np.array([price if a == b else 2 * price for a, b in pairs])
    bound = relaxed(sub, digits(lower), prices)
    assert bound <= shallow(sub, 4).best[-1].value
    if not len(kept):
        assert bound == shallow(sub, 4).best[-1].value


@pytest.mark.parametrize("most", [1, 9, 1 << 30, 1 << 49, 1 << 55])
def test_sums_of_digits_are_exact(most: int) -> None:
    random = np.random.default_rng(most)
    values = random.integers(most // 2, most, (70, 2), endpoint=True)
    answers, others = random.random((2, 5, 70)) < 0.8
    split = digits(values)
    exact = [[sum(values[row, column].tolist()) for column in (0, 1)] for row in answers]
    assert split.sums(answers.astype(np.float64)).tolist() == exact
    both = split.times(1, others.T.astype(np.float64)).sums(answers.astype(np.float64))
    assert both.tolist() == [[sum(values[row & other, 1].tolist()) for other in others] for row in answers]


ANSWERS, COST = np.array([[True, False]]), np.array([[0, 5], [5, 0]])


@pytest.mark.parametrize(
    ("answers", "cost", "limits", "complaint"),
    [
        (ANSWERS, COST[:, :0], {"max_depth": 1}, "one config at least"),
        (ANSWERS, COST.astype(float), {"max_depth": 1}, "must be int64"),
        (ANSWERS[:, :1], COST, {"max_depth": 1}, "for the rows of cost"),
        (ANSWERS.astype(int), COST, {"max_depth": 1}, "must be bool"),
        (ANSWERS, COST, {"max_depth": -1}, "one leaf at least"),
        (ANSWERS, COST, {"max_depth": 1, "max_leaves": 0}, "one leaf at least"),
        (ANSWERS, COST - 1, {"max_depth": 1}, "must not be negative"),
        (ANSWERS, COST, {"max_depth": 1, "leaf_price": -1}, "must not be negative"),
        (ANSWERS, COST, {"max_depth": 0, "start": (0, 0, 1)}, "beyond the limits"),
        (ANSWERS, COST, {"max_depth": 1, "max_leaves": 1, "start": (0, 0, 1)}, "beyond the limits"),
        (ANSWERS, COST << 58, {"max_depth": 1}, "too large"),
    ],
)
def test_what_does_not_fit_is_refused(
    answers: np.ndarray, cost: np.ndarray, limits: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        optimal(answers, cost, **limits)  # type: ignore[arg-type]
