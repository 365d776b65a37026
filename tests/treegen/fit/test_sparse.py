"""Tables of a search that measures every config in some scenarios and a few configs in the others."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import Cell, Row, problem

from treegen.build import fit_tree
from treegen.core.problem import UNIT, UNTIMED, Problem
from treegen.core.tree import Leaf, Split, Tree
from treegen.fit.costs import costs

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


def _problem(folder: Path, cells: Callable[[Row], Sequence[Cell]]) -> Problem:
    return problem(folder, SECTIONS, shapes=SHAPES, times=cells, configs=CONFIGS)


@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_table_gives_about_as_good_a_tree(tmp_path: Path, seed: int) -> None:
    times = _times(seed)
    swept = set(random.Random(seed).sample(SHAPES, len(SHAPES) // 5))
    portfolio = _portfolio(times, swept, 10)
    full = _problem(tmp_path / "full", lambda shape: times[shape])
    sparse = _problem(
        tmp_path / "sparse",
        lambda shape: [
            time if shape in swept or c in portfolio else "" for c, time in enumerate(times[shape])
        ],
    )
    assert (sparse.cost == UNTIMED).mean() > 0.6
    lost = [costs(fit_tree(made), full).mean() / UNIT for made in (full, sparse)]
    alone = full.cost.mean(axis=0).min() / UNIT
    assert lost[0] < alone / 2, "there is something to find"
    assert lost[1] < lost[0] + 0.02


@pytest.mark.parametrize("swept", ["few rows", "many rows", "odd rows"])
def test_what_was_swept_is_no_reason_to_split(tmp_path: Path, swept: str) -> None:
    """Only columns decide what is fast; sweeps differ in rows."""

    def cells(shape: Row) -> list[Cell]:
        rows, columns, _ = shape
        full = {"few rows": rows <= 3, "many rows": rows > 9, "odd rows": rows % 2 == 1}[swept]
        good = [10.0, 12.0] if columns <= 64 else [12.0, 10.0]
        return [*good, *([20.0 + c for c in range(len(CONFIGS) - 2)] if full else [""] * (len(CONFIGS) - 2))]

    assert _split_features(fit_tree(_problem(tmp_path, cells))) == {"columns"}


@pytest.mark.parametrize("swept", ["few rows", "many rows"])
def test_a_config_that_only_the_sweep_timed_is_no_reason_to_split(tmp_path: Path, swept: str) -> None:
    """It is a little better where the sweep tried it, by no more than noise: one config serves all."""
    rng = random.Random(0)

    def cells(shape: Row) -> list[Cell]:
        full = (shape[0] <= 3) == (swept == "few rows")
        rest = [rng.uniform(9.9, 11) if full else "" for _ in range(len(CONFIGS) - 1)]
        return [rng.uniform(9.9, 10.1), *rest]

    made = _problem(tmp_path, cells)
    assert fit_tree(made) == Leaf(made.configs[0])


def _split_features(tree: Tree) -> set[str]:
    return (
        set()
        if isinstance(tree, Leaf)
        else {tree.feature} | _split_features(tree.low) | _split_features(tree.high)
    )


def test_a_config_measured_in_its_own_region_only_can_be_chosen_there(tmp_path: Path) -> None:
    def cells(shape: Row) -> list[Any]:
        others: list[Cell] = [10.0, 11.0, *[""] * (len(CONFIGS) - 3)]
        return [*others, 5.0 if shape[1] <= 16 else ""]

    made = _problem(tmp_path, cells)
    tree = fit_tree(made)
    assert isinstance(tree, Split) and (tree.feature, tree.low) == ("columns", Leaf(made.configs[-1]))
    assert costs(tree, made).sum() == 0
