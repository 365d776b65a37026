"""A table seen through the spec: translated words, derived features, and what every config costs."""

from __future__ import annotations

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
    write_project,
    write_spec,
    write_winners,
)

from treegen.core.errors import InputError
from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED, Problem
from treegen.read.build_problem import build_problem
from treegen.read.spec_file import read_spec
from treegen.read.table_file import read_table

SHAPES = [(1, 8, 2), (64, 64, 2)]


def _winners(folder: Path, kernel: dict[str, Any] | None = None, **table: Any) -> Problem:
    read = read_spec(write_spec(folder, spec(**(kernel or {}))))
    table_folder = write_winners(folder / "tables/h100", **table)
    return build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(table_folder))


def _costs(posed: Problem) -> dict[int, list[int]]:
    """Costs by the scenario's number of rows, as the order of scenarios is nobody's business."""
    return dict(zip(posed.column("rows").tolist(), posed.cost.tolist(), strict=True))


def test_cost_is_log_slowdown(tmp_path: Path) -> None:
    expected = {1: [0, math.log(1.5), math.log(3)], 64: [math.log(2), math.log(1.25), 0]}
    assert _costs(problem(tmp_path, shapes=SHAPES)) == {
        rows: [round(cost * UNIT) for cost in costs] for rows, costs in expected.items()
    }


def test_the_best_time_is_the_best_of_what_may_be_chosen(tmp_path: Path) -> None:
    posed = problem(tmp_path, shapes=[(1, 8, 20)])  # block 16 is below 20 heads
    assert posed.cost.tolist() == [[FORBIDDEN, 0, round(math.log(2) * UNIT)]]


@pytest.mark.parametrize(("cell", "cost"), [("inf", FORBIDDEN), ("", UNMEASURED)])
def test_what_failed_or_was_not_measured(tmp_path: Path, cell: str, cost: int) -> None:
    posed = problem(tmp_path, shapes=SHAPES, times=lambda shape: [cell, 2, 4] if shape[0] == 1 else [1, 2, 4])
    twice = round(math.log(2) * UNIT)
    assert _costs(posed) == {1: [cost, 0, twice], 64: [0, twice, round(math.log(4) * UNIT)]}


def test_a_failure_outweighs_thousands_of_cells_that_were_not_measured() -> None:
    assert FORBIDDEN > 10_000 * UNMEASURED


def test_no_loss_outweighs_a_cell_that_was_not_measured(tmp_path: Path) -> None:
    times = ["1e-99", "9e11", "1"]
    try:
        posed = problem(tmp_path, shapes=SHAPES, times=lambda shape: times)
    except InputError:  # a time below a thousandth of a nanosecond need not be accepted
        return
    assert posed.cost.max() < UNMEASURED


def test_a_winner_costs_nothing_and_everything_else_one_unit(tmp_path: Path) -> None:
    posed = _winners(tmp_path, shapes=SHAPES)
    assert _costs(posed) == {1: [0, UNIT, UNIT], 64: [UNIT, UNIT, 0]}
    assert posed.left_out == 0


def test_a_scenario_whose_winner_breaks_a_constraint_is_left_out(tmp_path: Path) -> None:
    posed = _winners(tmp_path, shapes=[(1, 8, 20), (64, 64, 20)])
    assert posed.cost.tolist() == [[FORBIDDEN, UNIT, 0]]
    assert (posed.left_out, posed.column("rows").tolist()) == (1, [64])


def test_a_scenario_in_which_nothing_may_be_launched_is_left_out(tmp_path: Path) -> None:
    posed = problem(tmp_path, shapes=[(1, 8, 2), (64, 64, 500)])
    assert (posed.left_out, posed.column("rows").tolist()) == (1, [1])


def test_constraints_that_leave_no_scenario(tmp_path: Path) -> None:
    message = error_of(lambda: problem(tmp_path, shapes=[(1, 8, 500), (64, 64, 501)]))
    assert "the constraints of scale leave no scenario with a config to choose" in message


def test_a_config_that_failed_in_a_table_of_winners_is_forbidden(tmp_path: Path) -> None:
    posed = _winners(tmp_path, shapes=SHAPES, times=lambda shape: [10, "inf", ""])
    assert posed.cost.tolist() == [[0, FORBIDDEN, UNIT]] * 2


def test_constraints_on_features_that_the_table_lacks_forbid_nothing(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns", "heads", "depth"], "constraints": ["block >= depth * 1000"]}
    assert (problem(tmp_path, kernel, shapes=SHAPES).cost < FORBIDDEN).all()


def test_a_limit_of_the_device_forbids(tmp_path: Path) -> None:
    posed = problem(tmp_path, {"constraints": ["block * 2000 <= shared_memory"]}, shapes=SHAPES)
    assert (posed.cost >= FORBIDDEN).tolist() == [[False, False, True]] * 2


def test_derived_features_are_computed(tmp_path: Path) -> None:
    derived = {"area": "rows * columns", "share": "area // max(1, heads)", "spare": "shared_memory - area"}
    posed = problem(tmp_path, {"derived": derived}, shapes=SHAPES)
    rows = [dict(zip(posed.names, row, strict=True)) for row in posed.features.tolist()]
    assert {row["rows"]: (row["area"], row["share"], row["spare"]) for row in rows} == {
        1: (8, 4, 232440),
        64: (4096, 2048, 228352),
    }


def test_every_scenario_weighs_one_by_default(tmp_path: Path) -> None:
    assert problem(tmp_path, shapes=SHAPES).weight.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("rows", {1: 1, 64: 64}),
        ("area // 4 + heads", {1: 4, 64: 1026}),  # of a derived feature
        ("max(1, shared_memory // 232448 * columns)", {1: 8, 64: 64}),  # of a limit
        ("rows * 16384", {1: 16384, 64: 1 << 20}),
        (5, {1: 5, 64: 5}),
    ],
)
def test_weights_go_with_their_scenarios(tmp_path: Path, weight: str | int, expected: dict[int, int]) -> None:
    posed = problem(tmp_path, {"objective": {"weight": weight}}, shapes=SHAPES[::-1])
    assert dict(zip(posed.column("rows").tolist(), posed.weight.tolist(), strict=True)) == expected
    assert posed.weight.dtype == np.int64


def test_a_scenario_that_is_left_out_takes_its_weight_along(tmp_path: Path) -> None:
    shapes = [(1, 8, 2), (7, 8, 500), (64, 64, 2)]
    assert problem(tmp_path, {"objective": {"weight": "rows"}}, shapes=shapes).weight.tolist() == [1, 64]


@pytest.mark.parametrize(
    ("weight", "scenario", "value"),
    [
        ("rows - 1", "s001", "0"),
        ("2 - rows", "s002", "-62"),
        ("rows * 16385", "s002", "1048640"),
        ("rows * 4611686018427387903", "s001", "4611686018427387903"),
        (0, "s001", "0"),
    ],
)
def test_a_weight_that_is_none(tmp_path: Path, weight: str | int, scenario: str, value: str) -> None:
    message = error_of(lambda: problem(tmp_path, {"objective": {"weight": weight}}, shapes=SHAPES))
    says = f"scenario {scenario} gets the weight {value}; a weight is a whole number from 1 to 1048576"
    assert message == f"{tmp_path / 'tables/h100'}: {says}"


@pytest.mark.parametrize("weight", ["depth", "rows * size"])
def test_a_table_that_lacks_what_weighs_its_scenarios(tmp_path: Path, weight: str) -> None:
    kernel = {
        "features": ["rows", "columns", "heads", "depth"],
        "derived": {"size": "depth * 2"},
        "objective": {"weight": weight},
    }
    message = error_of(lambda: problem(tmp_path, kernel, shapes=SHAPES))
    lacks = weight.split()[-1]
    assert message.endswith(f"does not hold {lacks}, which weighs the scenarios of scale")


def test_scenarios_are_in_the_order_of_their_features(tmp_path: Path) -> None:
    shapes = [(8, 2, 2), (1, 9, 2), (64, 1, 2), (8, 1, 2), (1, 1, 2)]
    posed = problem(tmp_path, shapes=shapes)
    assert posed.features.tolist() == sorted(posed.features.tolist())


def test_a_derived_feature_may_be_a_column_of_a_table_without_its_parts(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns"], "derived": {"heads": "columns // 4"}, "constraints": []}
    posed = problem(tmp_path, kernel, features=["rows", "heads", "other"], shapes=[(7, 3, 0), (8, 5, 0)])
    assert posed.names == ("rows", "heads") and sorted(posed.column("heads").tolist()) == [3, 5]


def test_a_column_that_contradicts_its_own_definition(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns"], "derived": {"heads": "columns // 4"}, "constraints": []}
    assert "heads" in error_of(lambda: problem(tmp_path, kernel, shapes=SHAPES))


def test_a_derived_feature_beyond_62_bits(tmp_path: Path) -> None:
    message = error_of(lambda: problem(tmp_path, shapes=[(2**40, 2**40, 2)]))
    assert "derived feature area grows beyond 62 bits" in message


def test_split_on_keeps_the_order_of_the_spec(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns", "heads", "depth"], "split_on": ["area", "depth", "rows"]}
    assert problem(tmp_path, kernel, shapes=SHAPES).split_on == ("area", "rows")


def test_nothing_to_split_on(tmp_path: Path) -> None:
    kernel = {"features": ["rows", "columns", "heads", "depth"], "split_on": ["depth"]}
    assert "holds none of the features that scale may split on" in error_of(lambda: problem(tmp_path, kernel))


TRANSLATE = {KERNEL: {"variant": "plain", "rename": {"ROWS": "rows", "BLOCK": "block"}}}
FOREIGN = [{"id": c["id"], "BLOCK": c["block"], "warps": c["warps"], "stages": 1} for c in CONFIGS]


def test_a_foreign_table_is_translated(tmp_path: Path) -> None:
    names = ["ROWS", "columns", "heads"]
    kernel = {"translate": TRANSLATE}
    posed = problem(tmp_path, kernel, shapes=SHAPES, features=names, configs=FOREIGN)
    assert sorted(posed.column("rows").tolist()) == [1, 64]
    assert [(c.variant, c.parameters) for c in posed.configs] == [
        ("plain", (("block", 16), ("warps", 2))),
        ("plain", (("block", 64), ("warps", 4))),
        ("plain", (("block", 128), ("warps", 8))),
    ]


def _with_constants(constants: dict[str, int]) -> dict[str, object]:
    return {
        "features": ["rows", "columns", "heads", "depth"],
        "translate": {KERNEL: {**TRANSLATE[KERNEL], "constants": constants}},
    }


FOREIGN_TABLE = {"shapes": SHAPES, "features": ["ROWS", "columns", "heads"], "configs": FOREIGN}


def test_a_foreign_table_may_leave_a_constant_feature_out(tmp_path: Path) -> None:
    posed = problem(tmp_path, _with_constants({"depth": 7}), **FOREIGN_TABLE)
    assert posed.column("depth").tolist() == [7] * len(posed.cost)


@pytest.mark.parametrize(
    ("constants", "what"),
    [
        ({"columns": 3}, "has a column columns, which the spec says it leaves out"),
        ({"rows": 3}, "constants.rows: is renamed from a column, so it is not a constant"),
        ({"deep": 3}, "constants: unknown feature 'deep'; known here: rows, columns, heads, depth"),
        ({"depth": 1 << 63}, "constants.depth: must be between -4611686018427387904 and"),
    ],
)
def test_constants_that_cannot_be(tmp_path: Path, constants: dict[str, int], what: str) -> None:
    assert what in error_of(lambda: problem(tmp_path, _with_constants(constants), **FOREIGN_TABLE))


def test_a_translated_word_that_the_table_lacks(tmp_path: Path) -> None:
    message = error_of(lambda: problem(tmp_path, {"translate": TRANSLATE}))
    assert "has no 'ROWS', which the spec translates; it has block, columns, heads, rows, warps" in message


def test_a_translation_to_a_name_that_the_table_has_already(tmp_path: Path) -> None:
    kernel = {"translate": {KERNEL: {"variant": "plain", "rename": {"columns": "rows"}}}}
    assert "rows" in error_of(lambda: problem(tmp_path, kernel))


def test_a_table_of_another_kernel(tmp_path: Path) -> None:
    assert "softmax" in error_of(lambda: problem(tmp_path, kernel="softmax"))


def test_configs_that_the_spec_cannot_tell_apart(tmp_path: Path) -> None:
    configs = [{**NARROW, "stages": 1}, {**NARROW, "id": "other", "stages": 2}, {**WIDE, "stages": 1}]
    message = error_of(lambda: problem(tmp_path, configs=configs))
    assert "configs narrow and other differ only in parameters unknown to the spec" in message


def test_a_config_without_a_parameter_of_the_spec(tmp_path: Path) -> None:
    configs = [{"id": c["id"], "variant": "plain", "block": c["block"]} for c in CONFIGS]
    assert "config narrow lacks the parameter warps of scale" in error_of(
        lambda: problem(tmp_path, configs=configs)
    )


@pytest.mark.parametrize("variant", ["fast", None])
def test_a_config_of_an_unknown_variant(tmp_path: Path, variant: str | None) -> None:
    configs = [{k: v for k, v in {**c, "variant": variant}.items() if v is not None} for c in CONFIGS]
    message = error_of(lambda: problem(tmp_path, configs=configs))
    assert f"config narrow has variant {variant!r}; known: plain" in message


def test_limits_of_one_device_do_not_leak_into_names_of_another(tmp_path: Path) -> None:
    write_project(tmp_path)
    content = spec(
        derived={"cap": "rows * columns", "next": "cap + 1"},
        tables={DEVICE: "tables/h100", "b": "tables/h100"},
    )
    content["devices"][DEVICE]["limits"] = {"cap": 5}
    content["devices"]["b"] = {"vendor": "amd"}
    try:
        read = read_spec(write_spec(tmp_path, content))
    except InputError as error:  # refusing the name is as good
        assert "cap" in str(error)
        return
    posed = build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(tmp_path / "tables/h100"))
    assert posed.column("next").tolist() == [area + 1 for area in posed.column("cap").tolist()]
