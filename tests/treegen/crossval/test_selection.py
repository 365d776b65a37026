"""is_better: another way of fitting is taken only on evidence from scenarios that it has not seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import Row, problem

from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree
from treegen.crossval.selection import is_better

SHAPES: list[Row] = [(rows, columns, 2) for rows in range(1, 13) for columns in range(1, 11)]


def _times(shape: Row) -> list[float]:
    return [10.0, 12.0, 30.0] if shape[0] <= 6 else [12.0, 10.0, 30.0]


def _single(known: Problem) -> Tree:
    return Leaf(known.configs[0])


def _right(known: Problem) -> Tree:
    return Split("rows", 6, Leaf(known.configs[0]), Leaf(known.configs[1]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    folder = tmp_path_factory.mktemp("project")
    return problem(folder, {"constraints": [], "derived": {}}, shapes=SHAPES, times=_times)


def test_a_way_that_chooses_better_is_taken(made: Problem) -> None:
    assert is_better(made, _single, _right) and not is_better(made, _right, _single)
    assert not is_better(made, _right, _right), "no difference is no evidence"


def test_every_tree_is_scored_where_it_was_not_fitted(made: Problem) -> None:
    seen: list[set[str]] = []

    def fit(known: Problem) -> Tree:
        seen.append(set(known.scenarios))
        return _single(known)

    is_better(made, fit, _right)
    assert len(seen) == 3 and all(len(scenarios) == 80 for scenarios in seen)
    assert not set.intersection(*seen)


def test_few_scenarios_say_nothing(tmp_path: Path) -> None:
    few = problem(tmp_path, {"constraints": [], "derived": {}}, shapes=SHAPES[:99], times=_times)
    assert not is_better(few, _single, _right)
