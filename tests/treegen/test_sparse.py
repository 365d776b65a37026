"""Tables of a search that measures every config in some scenarios and a few configs in the others."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import Cell, Row, problem
from treegen_strategies import examples

from treegen.fit.apply import costs
from treegen.fit.dominated import undominated
from treegen.fit.grow import grow
from treegen.fit.size import fit
from treegen.fit.spread import scatter, spread_of
from treegen.problem import FORBIDDEN, UNIT, UNMEASURED, Problem
from treegen.spec import Budget
from treegen.tree import Leaf, Split, Tree

CONFIGS = [
    {"id": f"b{block}w{warps}", "variant": "plain", "block": block, "warps": warps}
    for block in (16, 32, 64, 128, 256, 512)
    for warps in range(1, 9)
]
SECTIONS = {"constraints": [], "derived": {}, "tree": {"max_depth": 4, "max_leaves": 8}}
SHAPES: list[Row] = [(r, 1 << c, h) for r in range(1, 13) for c in range(2, 12) for h in (1, 2)]


def _times(seed: int) -> dict[Row, list[float]]:
    """Small blocks and few warps are good for few columns, large ones for many; rows hardly matter."""
    rng = random.Random(seed)
    own = [1 + rng.uniform(0, 0.1) for _ in CONFIGS]
    times = {}
    for rows, columns, heads in SHAPES:
        ideal_block, ideal_warps = columns / 2, 1 + math.log2(columns * heads) / 2
        times[rows, columns, heads] = [
            (10 + rows / 10)
            * own[i]
            * (1 + 0.1 * abs(math.log2(config["block"] / ideal_block)))
            * (1 + 0.05 * abs(config["warps"] - ideal_warps))
            * (1 + rng.uniform(-0.02, 0.02))
            for i, config in enumerate(CONFIGS)
        ]
    return times


def _portfolio(times: dict[Row, list[float]], swept: set[Row], size: int) -> list[int]:
    """The configs which together lose least in the scenarios that were swept, one after the other."""
    chosen: list[int] = []
    for _ in range(size):
        others = [c for c in range(len(CONFIGS)) if c not in chosen]
        chosen.append(
            min(others, key=lambda c: sum(math.log(min(times[s][k] for k in [*chosen, c])) for s in swept))
        )
    return chosen


def _posed(folder: Path, cells: Callable[[Row], Sequence[Cell]]) -> Problem:
    return problem(folder, SECTIONS, shapes=SHAPES, times=cells, configs=CONFIGS)


@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_table_gives_about_as_good_a_tree(tmp_path: Path, seed: int) -> None:
    times = _times(seed)
    swept = set(random.Random(seed).sample(SHAPES, len(SHAPES) // 5))
    portfolio = _portfolio(times, swept, 10)
    full = _posed(tmp_path / "full", lambda shape: times[shape])
    sparse = _posed(
        tmp_path / "sparse",
        lambda shape: [
            time if shape in swept or c in portfolio else "" for c, time in enumerate(times[shape])
        ],
    )
    assert (sparse.cost == UNMEASURED).mean() > 0.6
    lost = [costs(fit(posed, posed.kernel.budget), full).mean() / UNIT for posed in (full, sparse)]
    alone = full.cost.mean(axis=0).min() / UNIT
    assert lost[0] < alone / 2, "there is something to find"
    assert lost[1] < lost[0] + 0.02


@pytest.mark.parametrize("swept", ["few rows", "many rows", "odd rows"])
def test_what_was_swept_is_no_reason_to_split(tmp_path: Path, swept: str) -> None:
    """Only columns decide what is fast; sweeps are told apart by rows."""

    def cells(shape: Row) -> list[Cell]:
        rows, columns, _ = shape
        full = {"few rows": rows <= 3, "many rows": rows > 9, "odd rows": rows % 2 == 1}[swept]
        good = [10.0, 12.0] if columns <= 64 else [12.0, 10.0]
        return [*good, *([20.0 + c for c in range(len(CONFIGS) - 2)] if full else [""] * (len(CONFIGS) - 2))]

    posed = _posed(tmp_path, cells)
    trees = grow(posed, Budget(6, 12))
    assert [_asked(tree) for tree in trees] == [set(), {"columns"}]


def _asked(tree: Tree) -> set[str]:
    return set() if isinstance(tree, Leaf) else {tree.feature} | _asked(tree.low) | _asked(tree.high)


def test_a_config_measured_in_its_own_region_only_can_be_chosen_there(tmp_path: Path) -> None:
    def cells(shape: Row) -> list[Any]:
        others: list[Cell] = [10.0, 11.0, *[""] * (len(CONFIGS) - 3)]
        return [*others, 5.0 if shape[1] <= 16 else ""]

    posed = _posed(tmp_path, cells)
    tree = fit(posed, posed.kernel.budget)
    assert isinstance(tree, Split) and (tree.feature, tree.low) == ("columns", Leaf(posed.configs[-1]))
    assert costs(tree, posed).sum() == 0


cell = st.one_of(st.integers(0, 5 * UNIT), st.sampled_from([0, FORBIDDEN]))
grids = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=12)
)


@examples(100)
@given(grids)
def test_spread_of_a_full_table_is_its_costs_capped(rows: list[list[int]]) -> None:
    cost = np.array([[*row, 0] for row in rows])
    spread = spread_of(cost)
    assert (spread.cost == np.minimum(cost // 1000, 4000)).all() and spread.count.shape == (len(rows), 1)


@examples(100)
@given(grids, st.data())
def test_spread_does_not_depend_on_what_else_was_measured(rows: list[list[int]], data: st.DataObject) -> None:
    everywhere = np.array([[*row, 0] for row in rows])
    plain = spread_of(everywhere)
    # Nothing may be known of the last scenario, so that no other config reaches nine tenths of at most 12.
    known = data.draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    half = len(rows) // 2
    better = np.array([0 if i >= half else step * 1000 for i, step in enumerate(known)])[:, None]
    others = np.where(np.arange(len(rows))[:, None] < half, 0, UNMEASURED) * np.ones((1, 3), np.int64)
    shifted = np.where(everywhere < UNMEASURED, everywhere + better, everywhere)
    found = spread_of(np.hstack([shifted, others]))
    assert (found.cost == plain.cost).all() and (found.square == plain.square).all()
    assert (found.count == 1).all()


@examples(100)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(0, 4000)), min_size=3, max_size=3), min_size=1, max_size=9
    )
)
def test_missing_cells_have_no_part_in_the_scatter(cells: list[list[int | None]]) -> None:
    columns = [[value for value in column if value is not None] for column in zip(*cells, strict=True)]
    exact = [sum(v * v for v in c) - sum(c) ** 2 // max(1, len(c)) for c in columns]
    total, count = np.array([[sum(c) for c in columns]]), np.array([[len(c) for c in columns]])
    square = np.array([[sum(v * v for c in columns for v in c)]])
    assert scatter(total, square, count).tolist() == [sum(exact) // 3]


def test_which_configs_count_for_the_spread() -> None:
    cost = np.zeros((40, 5), np.int64)
    cost[:4, 1] = UNMEASURED  # a tenth
    cost[:5, 2] = UNMEASURED  # more
    cost[:, 3] = FORBIDDEN  # known everywhere, timed nowhere
    cost[:39, 4] = UNMEASURED
    assert spread_of(cost).cost.shape == (40, 3)
    stopped = np.where(np.arange(40)[:, None] < 20, UNMEASURED, cost)  # half of the run is missing
    assert spread_of(stopped[:, :3]).cost.shape == (40, 3)
    stopped[:, 3] = FORBIDDEN
    assert spread_of(stopped).cost.shape == (40, 4), "what may be launched nowhere sets no standard"


steps = st.sampled_from([0, 1, 2, UNMEASURED, FORBIDDEN])


@examples(100)
@given(st.lists(st.tuples(*[steps] * 6), min_size=1, max_size=8), st.data())
def test_no_leaf_misses_a_config_that_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, ...]], data: st.DataObject
) -> None:
    posed = _small(tmp_path_factory.mktemp("t"), rows)
    kept = undominated(posed)
    assert len(kept) >= 1 and kept.tolist() == sorted(set(kept.tolist()))
    leaf = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=len(rows), unique=True))
    assert posed.cost[leaf].sum(axis=0).min() == posed.cost[leaf][:, kept].sum(axis=0).min()
    assert grow(posed, Budget(4, 6), kept) == grow(posed, Budget(4, 6))


def _small(folder: Path, rows: list[tuple[int, ...]]) -> Problem:
    """A problem of six configs with these costs."""
    from dataclasses import replace

    shapes = [(i + 1, 5, 2) for i in range(len(rows))]
    posed = problem(folder, SECTIONS, shapes=shapes, times=lambda shape: range(1, 7), configs=CONFIGS[:6])
    return replace(posed, cost=np.array(rows, dtype=np.int64))


def test_the_same_of_two_equal_configs_is_kept_whatever_their_order(tmp_path: Path) -> None:
    posed = _small(tmp_path, [(1, 0, 0, 1, 2, 3), (1, 2, 2, 1, 2, 3)])
    assert undominated(posed).tolist() == [0, 1]
