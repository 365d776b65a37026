"""A table seen through the spec: translated words, derived features, and what every config costs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treegen_builders import (
    CONFIGS,
    DEVICE,
    KERNEL,
    NARROW,
    WIDE,
    error_of,
    problem,
    spec,
    write_spec,
    write_winners,
)

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

SHAPES = [(1, 8, 2), (64, 64, 2)]
FROM_COLUMNS: dict[str, Any] = {
    "features": ["rows", "columns"],
    "constants": [],
    "derived": {"heads": "columns // 4"},
}


def _winners(folder: Path, kernel: dict[str, Any] | None = None, **table: Any) -> Problem:
    read = read_spec(write_spec(folder, spec(**(kernel or {}))))
    table_folder = write_winners(folder / "tables/h100", **table)
    return build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(table_folder))


def _costs(built: Problem) -> dict[int, list[int]]:
    """Costs by the scenario's number of rows, because the order of scenarios does not matter."""
    return dict(zip(built.column("rows").tolist(), built.cost.tolist(), strict=True))


def test_cost_is_log_slowdown(tmp_path: Path) -> None:
    expected = {1: [0, math.log(1.5), math.log(3)], 64: [math.log(2), math.log(1.25), 0]}
    assert _costs(problem(tmp_path, shapes=SHAPES)) == {
        rows: [round(cost * UNIT) for cost in costs] for rows, costs in expected.items()
    }


def test_the_best_time_is_the_best_of_what_may_be_chosen(tmp_path: Path) -> None:
    built = problem(tmp_path, shapes=[(1, 8, 20)])  # block 16 is below 20 heads
    assert built.cost.tolist() == [[FORBIDDEN, 0, round(math.log(2) * UNIT)]]


def test_a_scenario_without_a_comparison_does_not_count(tmp_path: Path) -> None:
    """One time alone, a time beside a failure, and two times."""
    cells = {1: [10, "", ""], 2: [10, "inf", ""], 4: [10, 20, ""]}
    shapes = [(rows, 8, 2) for rows in cells]
    built = problem(tmp_path, shapes=shapes, times=lambda shape: cells[shape[0]])
    assert sorted(built.column("rows").tolist()) == [2, 4]
    assert (built.left_out, built.uncompared) == (1, 1)


@pytest.mark.parametrize(("cell", "cost"), [("inf", FORBIDDEN), ("", UNTIMED)])
def test_what_failed_or_was_not_measured(tmp_path: Path, cell: str, cost: int) -> None:
    built = problem(tmp_path, shapes=SHAPES, times=lambda shape: [cell, 2, 4] if shape[0] == 1 else [1, 2, 4])
    twice = round(math.log(2) * UNIT)
    assert _costs(built) == {1: [cost, 0, twice], 64: [0, twice, round(math.log(4) * UNIT)]}


def test_a_winner_costs_nothing_and_everything_else_one_unit(tmp_path: Path) -> None:
    built = _winners(tmp_path / "all", shapes=SHAPES)
    assert _costs(built) == {1: [0, UNIT, UNIT], 64: [UNIT, UNIT, 0]} and built.left_out == 0
    built = _winners(tmp_path / "failed", shapes=SHAPES, times=lambda shape: [10, "inf", ""])
    assert built.cost.tolist() == [[0, FORBIDDEN, UNIT]] * 2
    built = _winners(tmp_path / "constraint", shapes=[(1, 8, 20), (64, 64, 20)])  # forbids a winner
    assert (_costs(built), built.left_out) == ({64: [FORBIDDEN, UNIT, 0]}, 1)


def test_a_scenario_in_which_nothing_may_be_launched_is_left_out(tmp_path: Path) -> None:
    built = problem(tmp_path, shapes=[(1, 8, 2), (64, 64, 500)])
    assert (built.left_out, built.column("rows").tolist()) == (1, [1])


def test_constraints_on_features_that_the_table_lacks_forbid_nothing(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns", "heads", "depth"], "constraints": ["block >= depth * 1000"]}
    assert (problem(tmp_path, kernel, shapes=SHAPES).cost < FORBIDDEN).all()


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("rows", {1: 1, 64: 64}),
        ("area // 4 + heads", {1: 4, 64: 1026}),  # of a derived feature
        ("spare // 8", {1: 29056, 64: 29055}),  # of one that depends on a limit and on another one
        ("max(1, shared_memory // 232448 * columns)", {1: 8, 64: 64}),  # of a limit
        ("rows * 16384", {1: 16384, 64: 1 << 20}),
        (5, {1: 5, 64: 5}),
    ],
)
def test_weights_go_with_their_scenarios(tmp_path: Path, weight: str | int, expected: dict[int, int]) -> None:
    derived = {"area": "rows * columns", "share": "area // 512", "spare": "shared_memory - share"}
    built = problem(tmp_path, {"derived": derived, "objective": {"weight": weight}}, shapes=SHAPES[::-1])
    assert dict(zip(built.column("rows").tolist(), built.weight.tolist(), strict=True)) == expected
    assert built.weight.dtype == np.int64


def test_a_derived_feature_may_be_a_column_of_a_table_without_its_parts(tmp_path: Path) -> None:
    kernel = {**FROM_COLUMNS, "constraints": []}
    built = problem(tmp_path, kernel, features=["rows", "heads", "other"], shapes=[(7, 3, 0), (8, 5, 0)])
    assert built.names == ("rows", "heads") and sorted(built.column("heads").tolist()) == [3, 5]


TRANSLATE = {KERNEL: {"variant": "plain", "rename": {"ROWS": "rows", "BLOCK": "block"}}}
FOREIGN = [{"id": c["id"], "BLOCK": c["block"], "warps": c["warps"], "stages": 1} for c in CONFIGS]


def test_a_foreign_table_is_translated(tmp_path: Path) -> None:
    names = ["ROWS", "columns", "heads"]
    kernel = {"translate": TRANSLATE}
    built = problem(tmp_path, kernel, shapes=SHAPES, features=names, configs=FOREIGN)
    assert sorted(built.column("rows").tolist()) == [1, 64]
    assert [c.variant for c in built.configs] == ["plain"] * 3
    assert [dict(c.parameters) for c in built.configs] == [
        {name: config[name] for name in ("block", "warps")} for config in CONFIGS
    ]


FOREIGN_TABLE = {"shapes": SHAPES, "features": ["ROWS", "columns", "heads"], "configs": FOREIGN}
DEEP: dict[str, Any] = {"features": ["rows", "columns", "heads", "depth"]}  # no table holds `depth`


def _with_constants(**constants: int) -> dict[str, Any]:
    return {**DEEP, "translate": {KERNEL: {**TRANSLATE[KERNEL], "constants": constants}}}


def test_a_foreign_table_may_leave_a_constant_feature_out(tmp_path: Path) -> None:
    built = problem(tmp_path, _with_constants(depth=7), **FOREIGN_TABLE)
    assert built.column("depth").tolist() == [7] * len(built.cost)


def _configs(**changes: Any) -> dict[str, Any]:
    """A table whose configs have these parameters changed, or left out where None."""
    changed = ({**config, **changes} for config in CONFIGS)
    return {"configs": [{key: v for key, v in config.items() if v is not None} for config in changed]}


TWINS = [{**NARROW, "stages": 1}, {**NARROW, "id": "other", "stages": 2}, {**WIDE, "stages": 1}]
RENAMED = {"translate": {KERNEL: {"variant": "plain", "rename": {"columns": "rows"}}}}
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"shapes": [(1, 8, 500), (64, 64, 501)]}),  # no config may be launched
    ({}, {"shapes": [(2**40, 2**40, 2)]}),  # a derived feature grows beyond 62 bits
    ({}, {"times": lambda shape: [10, "", ""]}),  # nothing to compare
    ({}, {"kernel": "softmax"}),
    ({}, {"configs": TWINS}),  # equal in all parameters of the spec
    ({}, _configs(warps=None)),
    ({}, _configs(variant="fast")),
    (
        {"config": {"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}}},
        _configs(variant=None),
    ),
    (FROM_COLUMNS, {}),  # the column differs
    ({**DEEP, "split_on": ["depth"]}, {}),
    ({"features": ["rows", "Columns"], "constants": [], "derived": {}, "constraints": []}, {}),
    ({**DEEP, "objective": {"weight": "depth"}}, {}),
    (_with_constants(columns=3), FOREIGN_TABLE),
    ({"translate": TRANSLATE}, {}),
    ({"invariants": ["heads <= 2", "rows < 8"]}, {"shapes": [(7, 1, 2), (8, 1, 2)]}),
    (RENAMED, {}),
    *(({"objective": {"weight": weight}}, {}) for weight in ("rows - 1", "2 - rows", "rows * 16385", 0)),
]


@pytest.mark.parametrize(("kernel", "table"), REFUSED)
def test_a_table_that_contradicts_the_spec_is_refused_by_name(
    tmp_path: Path, kernel: dict[str, Any], table: dict[str, Any]
) -> None:
    message = error_of(lambda: problem(tmp_path, kernel, **{"shapes": SHAPES, **table}))
    assert message.startswith(f"{tmp_path / 'tables/h100'}: ")
