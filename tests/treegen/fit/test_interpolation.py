"""interpolate: rows between measured neighbours of one kind, which keep the order among features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.interpolation import NEIGHBOURS, interpolate

SIZE = st.integers(0, 9) | st.integers(0, 1 << 40) | st.integers(-30, 30)
FEW = 16  # values of a feature that makes kinds


@st.composite
def _tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a kind and two sizes, of which the second is at least the first.

    There are enough rows that sizes do not count as kinds.
    """
    count = draw(st.integers(1, 30))
    smaller = draw(st.lists(SIZE, min_size=count, max_size=count, unique=True))
    more = draw(st.lists(st.integers(0, 1 << 40), min_size=count, max_size=count, unique=True))
    kind = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    features = np.array([kind, smaller, np.add(smaller, more)], dtype=np.int64).T
    loss = draw(
        st.lists(st.lists(st.integers(0, 1 << 36), min_size=2, max_size=2), min_size=count, max_size=count)
    )
    return features, np.array(loss, dtype=np.int64)


@examples(150)
@given(_tables())
def test_each_row_is_mixed_with_its_nearest_of_the_same_kind(table: tuple[np.ndarray, np.ndarray]) -> None:
    features, loss = table
    found, lost = interpolate(features, loss)
    assert (np.array([features.shape[1], loss.shape[1]]) == [found.shape[1], lost.shape[1]]).all()
    kinds = [len(set(column)) <= FEW for column in features.T.tolist()]
    points = np.rint(100 * np.log2(np.maximum(features, 1))).astype(np.int64)
    place = 0
    for group in sorted({tuple(row[kinds].tolist()) for row in features}):
        rows = [i for i, row in enumerate(features) if tuple(row[kinds].tolist()) == group]
        for row in rows:
            others = [i for i in rows if (features[i] != features[row]).any()]
            others.sort(key=lambda i: (int(((points[i] - points[row])[np.invert(kinds)] ** 2).sum()), i))
            for near in others[:NEIGHBOURS]:
                low, high = np.sort(features[[row, near]], axis=0)
                assert (low <= found[place]).all() and (found[place] <= high).all()
                share = np.rint(loss[row] * (2 / 3) + loss[near] * (1 / 3))
                assert (np.abs(lost[place] - share) <= 1).all()
                place += 1
    assert place == len(found) == len(lost)


@examples(150)
@given(_tables())
def test_the_order_among_features_is_kept(table: tuple[np.ndarray, np.ndarray]) -> None:
    features, loss = table
    found, _ = interpolate(features, loss)
    assert (features[:, 1] <= features[:, 2]).all() and (found[:, 1] <= found[:, 2]).all()


def test_a_row_lies_a_third_of_the_way_on_the_logarithmic_scale() -> None:
    features = np.array([[1 << (3 * k)] for k in range(20)])
    found, lost = interpolate(features, np.array([[300 * k] for k in range(20)]))
    assert found[:4].ravel().tolist() == [2, 4, 8, 16]  # towards 8, 64, 512 and 4096
    assert lost[:4].ravel().tolist() == [100, 200, 300, 400]


def test_products_of_features_stay_products() -> None:
    side = np.array([1 << (3 * k) for k in range(18)])
    found, _ = interpolate(np.stack([side, side**2, side * side**2], axis=1), np.zeros((18, 1), np.int64))
    assert len(found) and (found[:, 0] * found[:, 1] == found[:, 2]).all()


def test_kinds_are_not_mixed() -> None:
    sizes = np.arange(1, 41)
    features = np.stack([np.where(sizes % 2, 64, 256), sizes * 100], axis=1)
    loss = np.where(sizes % 2, 0, 9000)[:, None]
    found, lost = interpolate(features, loss)
    assert set(found[:, 0].tolist()) == {64, 256}
    assert (lost.ravel() == np.where(found[:, 0] == 64, 0, 9000)).all()


def test_a_table_of_few_sizes_gets_no_rows_between_them() -> None:
    features = np.array([[1 << k, 2] for k in range(FEW)])
    assert [len(rows) for rows in interpolate(features, np.zeros((FEW, 3), np.int64))] == [0, 0]


@pytest.mark.parametrize(("count", "more"), [(4096, True), (4097, False)])
def test_a_dense_table_gets_no_rows(count: int, more: bool) -> None:
    features = np.stack([np.arange(count) % 1024, np.arange(count) // 1024], axis=1)[:, ::-1]
    features = np.hstack([features, np.arange(count)[:, None] % 17])
    found, lost = interpolate(features, np.zeros((count, 1), np.int64))
    assert bool(len(found)) == bool(len(lost)) == more
    assert found.shape[1:] == (3,) and lost.shape[1:] == (1,)
