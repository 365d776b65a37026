"""The spec's words for what a tree may cost and what fitting minimises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import KERNEL, error_of, line_of, spec, write_spec

from treegen.core.expr import Number, parse
from treegen.core.spec import Budget, KernelSpec, Objective
from treegen.read.spec_file import read_spec

SIZE = {"max_depth": 4, "max_leaves": 8}


def _read(folder: Path, **kernel: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(**kernel))).kernels[KERNEL]


def test_by_default_leaves_are_free_and_scenarios_alike(tmp_path: Path) -> None:
    kernel = _read(tmp_path)
    assert kernel.budget == Budget(4, 8, leaf_price=0, config_price=0)
    assert kernel.objective == Objective(weight=Number(1), worst_case=0, untimed=2)


def test_prices(tmp_path: Path) -> None:
    tree = {**SIZE, "leaf_price": 0.0005, "config_price": 1}
    assert _read(tmp_path, tree=tree).budget == Budget(4, 8, leaf_price=0.0005, config_price=1.0)


def test_one_price_only(tmp_path: Path) -> None:
    assert _read(tmp_path, tree={**SIZE, "config_price": 0.25}).budget == Budget(4, 8, config_price=0.25)


def test_all_words_of_the_objective(tmp_path: Path) -> None:
    words = {"weight": "max(1, shared_memory - area)", "worst_case": 0.5, "untimed": 1.25}
    expected = Objective(parse("max(1, shared_memory - area)"), worst_case=0.5, untimed=1.25)
    assert _read(tmp_path, objective=words).objective == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, Objective()),
        ({"weight": 3}, Objective(weight=Number(3))),
        ({"weight": "rows"}, Objective(weight=parse("rows"))),
        ({"worst_case": 100}, Objective(worst_case=100.0)),
        ({"untimed": 100}, Objective(untimed=100.0)),
        ({"untimed": 1.0001}, Objective(untimed=1.0001)),
    ],
)
def test_each_word_is_optional(tmp_path: Path, words: dict[str, Any], expected: Objective) -> None:
    assert _read(tmp_path, objective=words).objective == expected


NAN, INFINITY = float("nan"), float("inf")
WRONG_PRICES = [
    (-0.0001, "must be between 0 and 1, not -0.0001"),
    (1.5, "must be between 0 and 1, not 1.5"),
    (NAN, "must be between 0 and 1, not nan"),
    (INFINITY, "must be between 0 and 1, not inf"),
    (10**400, "must be between 0 and 1, not 1000"),
    (True, "must be an integer or a number, not True"),
    (None, "must be an integer or a number, not None"),
    ([0.1], "must be an integer or a number, not [0.1]"),
    ("5e-4", "must be an integer or a number, not '5e-4'"),  # text to YAML 1.1
]


@pytest.mark.parametrize("word", ["leaf_price", "config_price"])
@pytest.mark.parametrize(("value", "says"), WRONG_PRICES)
def test_wrong_price(tmp_path: Path, word: str, value: Any, says: str) -> None:
    path = write_spec(tmp_path, spec(tree={**SIZE, word: value}))
    place = f"{path}:{line_of(path.read_text(), word)}: kernels.scale.tree.{word}: "
    assert error_of(read_spec, path).startswith(place + says)


WRONG_OBJECTIVES = [
    (
        "weight",
        "colour",
        "uses the unknown name 'colour'; known here: rows, columns, heads, area, shared_memory",
    ),
    ("weight", "block", "uses the unknown name 'block'"),
    ("weight", "rows / 2", "holds 'rows / 2'"),
    ("weight", "", "is not an expression"),
    ("weight", 1.5, "must be text or an integer, not 1.5"),
    ("weight", True, "must be text or an integer, not True"),
    ("worst_case", -1, "must be between 0 and 100, not -1"),
    ("worst_case", 100.5, "must be between 0 and 100, not 100.5"),
    ("worst_case", "much", "must be an integer or a number, not 'much'"),
    ("untimed", 1, "must be above 1"),
    ("untimed", 0.5, "must be between 1 and 100, not 0.5"),
    ("untimed", 101, "must be between 1 and 100, not 101"),
    ("untimed", NAN, "must be between 1 and 100, not nan"),
    ("untimed", False, "must be an integer or a number, not False"),
]


@pytest.mark.parametrize(("word", "value", "says"), WRONG_OBJECTIVES)
def test_wrong_objective(tmp_path: Path, word: str, value: Any, says: str) -> None:
    path = write_spec(tmp_path, spec(objective={word: value}))
    place = f"{path}:{line_of(path.read_text(), f'{word}:')}: kernels.scale.objective.{word}: "
    assert error_of(read_spec, path).startswith(place + says)


def test_an_unknown_word_of_the_objective(tmp_path: Path) -> None:
    path = write_spec(tmp_path, spec(objective={"weights": "rows"}))
    message = error_of(read_spec, path)
    assert message.startswith(f"{path}:{line_of(path.read_text(), 'weights:')}: ")
    assert "unknown word 'weights'; known here: weight, worst_case, untimed" in message


@pytest.mark.parametrize("objective", ["speed", None, ["weight"]])
def test_an_objective_that_is_no_mapping(tmp_path: Path, objective: Any) -> None:
    message = error_of(read_spec, write_spec(tmp_path, spec(objective=objective)))
    assert "kernels.scale.objective: must be a mapping, not " in message
