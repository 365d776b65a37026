"""Other methods: what they learn, within which limits, and how they choose in other tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import NARROW, SIDES, Row, problem

from treegen.core.heuristic import Heuristic, RegimeRows, Split
from treegen.core.heuristic import Row as HeuristicRow
from treegen.crossval.peers import FOREST, OURS, PEERS, SINGLE, classifier, forest, learn
from treegen.crossval.score import costs_of

ROOMY = 8  # leaves
SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]
METHODS = {"classifier": classifier, FOREST: forest}


def _bands(row: Row) -> list[float]:
    """Three bands of rows, in which another config is best each time."""
    best = 0 if row[0] <= 1 else 1 if row[0] <= 64 else 2
    return [10.0 + 5 * abs(best - config) for config in range(3)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_what_the_features_tell_apart_is_learned_by_their_names(
    tmp_path: Path, method: Callable[..., Any]
) -> None:
    made = problem(tmp_path / "bands", shapes=SHAPES, times=_bands)
    rule = method(made, ROOMY)
    assert costs_of(rule.columns(made), made).max() == 0
    turned = replace(made, names=made.names[::-1], features=made.features[:, ::-1])
    assert rule.columns(turned).tolist() == rule.columns(made).tolist()
    made = problem(tmp_path / "one", configs=[NARROW], shapes=SHAPES, times=lambda s: [5.0])
    assert len(set(method(made, ROOMY).columns(made))) == 1


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_the_classifier_has_as_many_leaves_as_it_may(tmp_path: Path, leaves: int) -> None:
    """With one, it is the config of least total cost."""
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = classifier(made, leaves)
    assert rule.leaves == leaves and len(set(rule.columns(made))) == leaves
    assert leaves > 1 or set(rule.columns(made)) == {made.cost.sum(axis=0).argmin()}


def test_peers_get_as_many_leaves_as_our_rows_have_cells(tmp_path: Path) -> None:
    """Two rows, of which a class of models launches one with another config."""
    made = problem(
        tmp_path, {"classes": {"few": "heads <= 4", "many": "otherwise"}}, shapes=SHAPES, times=_bands
    )
    narrow, medium, wide = made.configs
    rows = HeuristicRow(narrow, {"many": wide}), HeuristicRow(medium)
    heuristic = Heuristic((RegimeRows(made.kernel.regimes[0].name, Split("rows", 1, 0, 1), rows),))
    rules = learn(made, heuristic)
    assert list(rules) == [OURS, *PEERS]
    assert rules[OURS].leaves == rules["classifier"].leaves == 3
    assert rules[FOREST].leaves is None and rules[SINGLE].leaves == 1
