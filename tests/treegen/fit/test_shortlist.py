"""shortlist: greedy, by comparison with the plain definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.costs import FAILED
from treegen.fit.search import MOST, shortlist

UNIT = 1_000_000
CELLS = st.integers(0, 3).map(lambda cell: cell * UNIT) | st.integers(0, UNIT) | st.just(FAILED)
GRIDS = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8)
)


def _together(loss: np.ndarray, columns: list[int]) -> int:
    """What is lost with the best of these columns in each row."""
    return sum(min(int(row[column]) for column in columns) for row in loss)


@examples(200)
@given(GRIDS)
def test_every_step_takes_the_column_that_saves_most(cells: list[list[int]]) -> None:
    loss = np.array(cells, dtype=np.int64)
    alone = [_together(loss, [column]) for column in range(loss.shape[1])]
    chosen: list[int] = []
    for column in shortlist(loss, UNIT).tolist():
        others = [c for c in range(loss.shape[1]) if c not in chosen]
        best = min(others, key=lambda c: (_together(loss, [*chosen, c]), alone[c], c))
        assert column == best
        chosen.append(column)


@examples(200)
@given(GRIDS)
def test_it_ends_where_no_other_column_saves_a_two_thousandth(cells: list[list[int]]) -> None:
    loss = np.array(cells, dtype=np.int64)
    chosen = shortlist(loss, UNIT).tolist()
    steps = [_together(loss, chosen[: count + 1]) for count in range(len(chosen))]
    enough = np.log(1.0005) * UNIT * len(loss)
    assert all(before - after > enough - 1 for before, after in pairwise(steps))
    for other in set(range(loss.shape[1])) - set(chosen):
        assert steps[-1] - _together(loss, [*chosen, other]) <= enough + 1


@examples(100)
@given(GRIDS, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(cells: list[list[int]], rng: object) -> None:
    shuffled = list(cells)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert shortlist(np.array(cells), UNIT).tolist() == shortlist(np.array(shuffled), UNIT).tolist()


@examples(100)
@given(GRIDS)
def test_no_scenario_is_left_to_what_failed_in_it(cells: list[list[int]]) -> None:
    loss = np.array(cells, dtype=np.int64)
    assume((loss.min(axis=1) < FAILED).all())
    assert (loss[:, shortlist(loss, UNIT)].min(axis=1) < FAILED).all()


def test_there_are_never_more_than_a_leaf_could_want() -> None:
    loss = np.full((40, 40), UNIT)
    np.fill_diagonal(loss, 0)
    assert shortlist(loss, UNIT).tolist() == list(range(MOST))


def test_of_two_near_equals_only_one_is_on_it() -> None:
    loss = np.array([[0, 100, UNIT], [100, 0, UNIT], [UNIT, UNIT, 0]])
    assert shortlist(loss, UNIT).tolist() == [0, 2]
