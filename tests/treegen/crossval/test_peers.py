"""Other methods: what they learn, within which limits, and how they choose in other tables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from treegen_builders import NARROW, SIDES, Row, planted, problem

from treegen.core.heuristic import Heuristic, RegimeRows, Split
from treegen.core.heuristic import Row as HeuristicRow
from treegen.crossval import helion
from treegen.crossval.choices import asked, decisions_of, score_decisions
from treegen.crossval.peers import (
    FOREST,
    OURS,
    SINGLE,
    classifier,
    forest,
    greedy,
    learn,
    peers,
    single_best,
)
from treegen.fit.fit import fit
from treegen.fit.search import greedy_search

ROOMY = 8  # leaves
SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]
TREES = {"greedy": greedy, "classifier": classifier}


def _bands(row: Row) -> list[float]:
    """Three bands of rows, in which another config is best each time."""
    best = 0 if row[0] <= 1 else 1 if row[0] <= 64 else 2
    return [10.0 + 5 * abs(best - config) for config in range(3)]


def test_the_single_best_is_the_config_of_least_total_cost(tmp_path: Path) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = single_best(made, ROOMY)
    best = made.configs[int(made.cost.sum(axis=0).argmin())]
    assert set(rule.choose(made)) == {best} and rule.leaves == 1


@pytest.mark.parametrize("method", [*TREES.values(), forest], ids=[*TREES, FOREST])
def test_what_the_features_tell_apart_is_learned(tmp_path: Path, method: Callable[..., Any]) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = method(made, ROOMY)
    assert score_decisions(rule.choose(made), made).cost.max() == 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", [*TREES.values(), forest], ids=[*TREES, FOREST])
def test_a_table_of_one_config(tmp_path: Path, method: Callable[..., Any]) -> None:
    made = problem(tmp_path, configs=[NARROW], shapes=SHAPES, times=lambda s: [5.0])
    assert len(set(method(made, ROOMY).choose(made))) == 1


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_the_classifier_has_as_many_leaves_as_it_may(tmp_path: Path, leaves: int) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = classifier(made, leaves)
    assert rule.leaves == leaves and len(set(rule.choose(made))) == leaves


def test_peers_get_as_many_leaves_as_our_rows_have_cells(tmp_path: Path) -> None:
    """Two rows, of which a class of models launches one with another config."""
    made = problem(
        tmp_path, {"classes": {"few": "heads <= 4", "many": "otherwise"}}, shapes=SHAPES, times=_bands
    )
    narrow, medium, wide = made.configs
    rows = HeuristicRow(narrow, {"many": wide}), HeuristicRow(medium)
    heuristic = Heuristic((RegimeRows(made.kernel.regimes[0].name, Split("rows", 1, 0, 1), rows),))
    rules = learn(made, heuristic)
    assert list(rules) == [OURS, *peers()]
    assert rules[OURS].leaves == rules["classifier"].leaves == 3
    assert rules[FOREST].leaves is None and rules[SINGLE].leaves == 1


def test_greedy_rows_are_the_fit_s_without_its_search(tmp_path: Path) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = greedy(made, ROOMY)
    assert rule.choose(made) == decisions_of(fit(made, greedy_search), made)


@pytest.mark.parametrize("method", [*TREES.values(), forest], ids=[*TREES, FOREST])
def test_rules_find_their_features_by_name(tmp_path: Path, method: Callable[..., Any]) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    turned = replace(made, names=made.names[::-1], features=made.features[:, ::-1])
    rule = method(made, ROOMY)
    assert rule.choose(turned) == rule.choose(made)


def test_helion_gets_times_and_its_answer_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helion is a large install: here, a stand-in with the names that the adapter was written against.

    It takes the second of the selected configs where the second feature is above 8.
    """
    cells = {(1, 1, 2): ["", 15.0, 30.0], (1, 8, 2): [10.0, "inf", 20.0]}
    sections = {"derived": {}, "split_on": ["rows", "columns"]}
    made = problem(tmp_path, sections, times=lambda s: cells.get(s, planted(s)))
    seen: list[Any] = []

    def generate(kernel_name: str, data: Any, **given: Any) -> Any:
        assert given == {"selected_configs": [{"place": 2}, {"place": 0}], "feature_names": ["key_1"]}
        seen.append(data)
        choose = f"def key_{kernel_name}(*args):\n if args[1] <= 8:\n  return 0\n return 1\n"
        return SimpleNamespace(generated_code=f"{choose}def autotune_{kernel_name}(*args):\n return 1\n")

    generator = SimpleNamespace(
        ShapeConfigData=SimpleNamespace,
        PerformanceTarget=lambda **given: SimpleNamespace(backend="decision_tree", **given),
        select_config_subset=lambda data, target: ([2, 0], {}),
        select_shape_features=lambda shapes, verbose: SimpleNamespace(selected_features=["key_1"]),
        get_backend=lambda name: SimpleNamespace(generate_heuristic=generate),
    )
    monkeypatch.setattr(helion, "_generator", lambda: generator)
    monkeypatch.setitem(sys.modules, "helion", SimpleNamespace(Config=SimpleNamespace(from_dict=dict)))
    rule = helion.helion(made, ROOMY)
    assert rule.leaves == 2
    assert rule.choose(made) == tuple(made.configs[2 if n <= 8 else 0] for n in made.column("columns"))
    (data,) = seen
    first = {f"key_{i}": int(made.column(name)[0]) for i, name in enumerate(asked(made))}
    assert data.shape_features[0] == first and data.selected_config_indices == [2, 0]
    assert data.timings[:2] == pytest.approx(np.array([[np.inf, 1, 2], [1, np.inf, 2]]), rel=1e-5)


@pytest.mark.skipif(helion.version() is None, reason="needs helion")
def test_helion_itself_learns_what_the_features_tell_apart(tmp_path: Path) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = helion.helion(made, ROOMY)
    assert score_decisions(rule.choose(made), made).cost.max() == 0 and rule.leaves == 3


def test_without_helion_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helion, "version", lambda: None)
    assert "helion" not in peers.__wrapped__()  # type: ignore[attr-defined]
    monkeypatch.setattr(helion, "version", lambda: "1.5.1")
    assert list(peers.__wrapped__())[-2:] == ["helion", FOREST]  # type: ignore[attr-defined]
