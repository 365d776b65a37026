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
from treegen_builders import NARROW, SIDES, Cell, Row, planted, problem

from treegen.core.problem import FORBIDDEN
from treegen.core.spec import Budget
from treegen.core.tree import depth, size
from treegen.crossval import helion
from treegen.crossval.choices import score_decisions
from treegen.crossval.peers import (
    FOREST,
    OURS,
    classifier,
    forest,
    greedy,
    learn,
    peers,
    regressor,
    single_best,
)
from treegen.fit.search import greedy as grown

ROOMY = Budget(4, 8)
SHAPES = [(rows, columns, 2) for rows in SIDES for columns in SIDES]
TREES = {"greedy": greedy, "classifier": classifier, "regressor": regressor}


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


@pytest.mark.parametrize("method", TREES.values(), ids=TREES)
@pytest.mark.parametrize(("depth", "leaves", "found"), [(4, 1, 1), (4, 2, 2), (4, 3, 3), (1, 8, 2)])
def test_peers_keep_to_the_budget(
    tmp_path: Path, method: Callable[..., Any], depth: int, leaves: int, found: int
) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    rule = method(made, Budget(depth, leaves))
    assert rule.leaves == found and len(set(rule.choose(made))) <= found


def test_peers_get_the_leaves_of_our_tree(tmp_path: Path) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    tree = grown(made, Budget(4, 2))
    rules = learn(made, tree)
    assert list(rules) == [OURS, *peers()]
    assert {rules[name].leaves for name in (OURS, *TREES)} == {size(tree)} == {2}
    assert rules[FOREST].leaves is None and depth(tree) == 1


@pytest.mark.parametrize("method", [*TREES.values(), forest], ids=[*TREES, FOREST])
def test_rules_find_their_features_by_name(tmp_path: Path, method: Callable[..., Any]) -> None:
    made = problem(tmp_path, shapes=SHAPES, times=_bands)
    turned = replace(made, names=made.names[::-1], features=made.features[:, ::-1], split_on=())
    rule = method(made, ROOMY)
    assert rule.choose(turned) == rule.choose(made)


def test_the_regressor_is_not_blinded_by_failures(tmp_path: Path) -> None:
    """A failure weighs no more than any config that is far too slow, so three leaves find the three bands."""

    def times(row: Row) -> list[Cell]:
        far = [1.0 if time == 10 else 1000.0 for time in _bands(row)]
        return [*far[:2], "inf" if row in ((1, 8, 2), (1, 512, 2), (64, 1, 2)) and far[2] > 1 else far[2]]

    made = problem(tmp_path, shapes=SHAPES, times=times)
    assert (made.cost == FORBIDDEN).sum() == 3
    rule = regressor(made, Budget(4, 3))
    assert score_decisions(rule.choose(made), made).cost.max() == 0


def test_helion_gets_times_and_its_answer_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helion is a large install: here, a stand-in with the names that the adapter was written against.

    It takes the second of the selected configs where the third feature is above 8.
    """
    cells = {(1, 1, 2): ["", 15.0, 30.0], (1, 8, 2): [10.0, "inf", 20.0]}
    sections = {"split_on": ["heads", "area", "columns"]}
    made = problem(tmp_path, sections, times=lambda s: cells.get(s, planted(s)))
    seen: list[Any] = []

    def generate(kernel_name: str, data: Any, **given: Any) -> Any:
        assert given == {"selected_configs": [{"place": 2}, {"place": 0}], "feature_names": ["key_2"]}
        seen.append(data)
        choose = f"def key_{kernel_name}(*args):\n if args[2] <= 8:\n  return 0\n return 1\n"
        return SimpleNamespace(generated_code=f"{choose}def autotune_{kernel_name}(*args):\n return 1\n")

    generator = SimpleNamespace(
        ShapeConfigData=SimpleNamespace,
        PerformanceTarget=lambda **given: SimpleNamespace(backend="decision_tree", **given),
        select_config_subset=lambda data, target: ([2, 0], {}),
        select_shape_features=lambda shapes, verbose: SimpleNamespace(selected_features=["key_2"]),
        get_backend=lambda name: SimpleNamespace(generate_heuristic=generate),
    )
    monkeypatch.setattr(helion, "_generator", lambda: generator)
    monkeypatch.setitem(sys.modules, "helion", SimpleNamespace(Config=SimpleNamespace(from_dict=dict)))
    rule = helion.helion(made, ROOMY)
    assert rule.leaves == 2
    assert rule.choose(made) == tuple(made.configs[2 if n <= 8 else 0] for n in made.column("columns"))
    (data,) = seen
    first = {f"key_{i}": int(made.column(name)[0]) for i, name in enumerate(made.split_on)}
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
