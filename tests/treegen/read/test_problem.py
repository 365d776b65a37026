"""What a spec says; a table becomes arrays, and through the spec every config has a cost."""

import math
import re

import numpy as np
import pytest
from treegen_builders import (
    CONFIGS,
    DEVICE,
    KERNEL,
    NARROW,
    REPOSITORY,
    WIDE,
    error_of,
    problem,
    spec,
    write_spec,
    write_table,
    write_winners,
)

from treegen.core.expr import parse_condition
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED
from treegen.core.spec import Budget, Config, ModelClass, Regime
from treegen.core.table import Cells, median_times
from treegen.read import words
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

SHAPES = [(1, 8, 2), (64, 64, 2)]
THREE = [(1, 1, 2), (8, 8, 2), (64, 64, 2)]
OF_KINDS = [(rows, columns, kind) for rows in (1, 8, 64) for columns in (1, 8) for kind in (0, 1)]
FROM_COLUMNS = {
    "features": ["rows", "columns"],
    "constants": [],
    "derived": {"heads": "columns // 4"},
}


def test_a_table_becomes_arrays_without_scenarios_that_a_stopped_run_did_not_reach(tmp_path):
    rows = [["s003", 1, 40, 25, 20], ["s001", 1, 10, 15, 30], ["s001", 2, 10, 15, 30]]
    table = read_table(write_table(tmp_path / "t", shapes=THREE, rows=rows))
    known = (table.kernel, table.device_name, table.cells)
    assert known == ("scale", "NVIDIA H100 80GB HBM3", Cells.MEASURED)
    assert table.feature_names == ("rows", "columns", "heads")
    assert table.scenarios == ("s001", "s003")
    assert table.features.tolist() == [[1, 1, 2], [64, 64, 2]]
    assert [{"id": c.id, "variant": c.variant, **c.parameters} for c in table.configs] == [*CONFIGS]
    assert table.times.tolist() == [[40, 25, 20], [10, 15, 30], [10, 15, 30]]
    assert table.row_repeat.tolist() == [1, 1, 2]
    assert median_times(table).tolist() == [[10, 15, 30], [40, 25, 20]]
    assert table.provenance["date"] == "2026-01-31"


@pytest.mark.parametrize(("repeats", "median"), [
    ([[9, 1], [1, 2], [5, 30]], [5, 2]),
    ([[9, 1], [1, 2], [5, 30], [3, 4]], [4, 3]),
    ([["", 1], [7, ""], ["", 4], ["", 10]], [7, 4]),  # what was not measured is left out
    ([[1, 2], ["inf", 2], [1, 2]], [math.inf, 2]),  # what failed once failed
])  # fmt: skip
def test_the_median_of_repeats(tmp_path, repeats, median):
    rows = [["s001", number, *row] for number, row in enumerate(repeats, 1)]
    table = write_table(tmp_path / "t", shapes=THREE[:1], rows=rows, configs=(NARROW, WIDE))
    assert median_times(read_table(table)).tolist() == [median]


def _winners(folder, kernel=None, **table):
    read = read_spec(write_spec(folder, spec(**(kernel or {}))))
    table_folder = write_winners(folder / "tables/h100", **table)
    return build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(table_folder))


def _costs(built):
    """Costs by the scenario's number of rows, because the order of scenarios does not matter."""
    return dict(zip(built.column("rows").tolist(), built.cost.tolist(), strict=True))


def test_cost_is_the_log_of_the_slowdown_over_the_best_of_what_may_be_chosen(tmp_path):
    expected = {1: [0, math.log(1.5), math.log(3)], 64: [math.log(2), math.log(1.25), 0]}
    assert _costs(problem(tmp_path, shapes=SHAPES)) == {
        rows: [round(cost * UNIT) for cost in costs] for rows, costs in expected.items()
    }
    built = problem(tmp_path, shapes=[(1, 8, 20)])  # block 16 is below 20 heads
    assert built.cost.tolist() == [[FORBIDDEN, 0, round(math.log(2) * UNIT)]]


def test_a_scenario_without_a_comparison_does_not_count(tmp_path):
    """One time alone, a time beside a failure, and two times."""
    cells = {1: [10, "", ""], 2: [10, "inf", ""], 4: [10, 20, ""]}
    shapes = [(rows, 8, 2) for rows in cells]
    built = problem(tmp_path, shapes=shapes, times=lambda shape: cells[shape[0]])
    assert sorted(built.column("rows").tolist()) == [2, 4]
    assert (built.left_out, built.uncompared) == (1, 1)
    built = problem(tmp_path, shapes=[(1, 8, 2), (64, 64, 500)])
    assert (built.left_out, built.column("rows").tolist()) == (1, [1])


@pytest.mark.parametrize(("cell", "cost"), [("inf", FORBIDDEN), ("", UNTIMED)])
def test_what_failed_or_was_not_measured(tmp_path, cell, cost):
    built = problem(tmp_path, shapes=SHAPES, times=lambda shape: [cell, 2, 4] if shape[0] == 1 else [1, 2, 4])
    twice = round(math.log(2) * UNIT)
    assert _costs(built) == {1: [cost, 0, twice], 64: [0, twice, round(math.log(4) * UNIT)]}


def test_a_winner_costs_nothing_and_everything_else_one_unit(tmp_path):
    built = _winners(tmp_path / "all", shapes=SHAPES)
    assert _costs(built) == {1: [0, UNIT, UNIT], 64: [UNIT, UNIT, 0]} and built.left_out == 0
    built = _winners(tmp_path / "failed", shapes=SHAPES, times=lambda shape: [10, "inf", ""])
    assert built.cost.tolist() == [[0, FORBIDDEN, UNIT]] * 2
    built = _winners(tmp_path / "constraint", shapes=[(1, 8, 20), (64, 64, 20)])  # forbids a winner
    assert (_costs(built), built.left_out) == ({64: [FORBIDDEN, UNIT, 0]}, 1)


@pytest.mark.parametrize(("weight", "expected"), [
    ("rows", {1: 1, 64: 64}),
    ("area // 4 + heads", {1: 4, 64: 1026}),  # of a derived feature
    ("spare // 8", {1: 29056, 64: 29055}),  # of one that depends on a limit and on another one
    ("max(1, shared_memory // 232448 * columns)", {1: 8, 64: 64}),  # of a limit
    ("rows * 16384", {1: 16384, 64: 1 << 20}),
    (5, {1: 5, 64: 5}),
])  # fmt: skip
def test_weights_go_with_their_scenarios(tmp_path, weight, expected):
    derived = {"area": "rows * columns", "share": "area // 512", "spare": "shared_memory - share"}
    built = problem(tmp_path, {"derived": derived, "objective": {"weight": weight}}, shapes=SHAPES[::-1])
    assert dict(zip(built.column("rows").tolist(), built.weight.tolist(), strict=True)) == expected
    assert built.weight.dtype == np.int64


def test_a_table_may_lack_parts_of_derived_features_and_of_constraints(tmp_path):
    kernel = {**FROM_COLUMNS, "constraints": []}
    built = problem(tmp_path, kernel, features=["rows", "heads", "other"], shapes=[(7, 3, 0), (8, 5, 0)])
    assert built.names == ("rows", "heads") and sorted(built.column("heads").tolist()) == [3, 5]
    kernel = {**DEEP, "constraints": ["block >= depth * 1000"]}  # which forbids nothing then
    assert (problem(tmp_path, kernel, shapes=SHAPES).cost < FORBIDDEN).all()


TRANSLATE = {KERNEL: {"variant": "plain", "rename": {"ROWS": "rows", "BLOCK": "block"}}}
FOREIGN = [{"id": c["id"], "BLOCK": c["block"], "warps": c["warps"], "stages": 1} for c in CONFIGS]
FOREIGN_TABLE = {"shapes": SHAPES, "features": ["ROWS", "columns", "heads"], "configs": FOREIGN}
DEEP = {"features": ["rows", "columns", "heads", "depth"]}  # no table holds `depth`


def _with_constants(**constants):
    return {**DEEP, "translate": {KERNEL: {**TRANSLATE[KERNEL], "constants": constants}}}


def test_a_foreign_table_is_translated_and_may_leave_a_constant_feature_out(tmp_path):
    built = problem(tmp_path, _with_constants(depth=7), **FOREIGN_TABLE)
    assert built.column("depth").tolist() == [7] * len(built.cost)
    assert sorted(built.column("rows").tolist()) == [1, 64]
    assert [c.variant for c in built.configs] == ["plain"] * 3
    assert [dict(c.parameters) for c in built.configs] == [
        {name: config[name] for name in ("block", "warps")} for config in CONFIGS
    ]


def test_a_tables_words_become_the_specs_integers(tmp_path):
    sections = {"values": {"heads": {"bf16": 7, "fp16": 3}, "warps": {"flat": 5, "deep": 6}}}
    words = {"heads": ["fp16", "bf16"], "warps": ["flat", "deep"]}
    configs = ({**NARROW, "warps": 1}, {**WIDE, "warps": 0})
    table = {"shapes": OF_KINDS, "configs": configs, "times": lambda row: [1.0, 2.0], "values": words}
    found = problem(tmp_path, {**sections, "constraints": []}, **table)
    assert sorted(set(found.column("heads").tolist())) == [3, 7]
    by_scenario = dict(zip(found.scenarios, found.column("heads").tolist(), strict=True))
    assert (by_scenario["s001"], by_scenario["s002"]) == (3, 7)
    pairs = [tuple(config.parameters) for config in found.configs]
    assert pairs == [(("block", 16), ("warps", 6)), (("block", 128), ("warps", 5))]


def _configs(**changes):
    """A table whose configs have these parameters changed, or left out where None."""
    changed = ({**config, **changes} for config in CONFIGS)
    return {"configs": [{key: v for key, v in config.items() if v is not None} for config in changed]}


TWO = {"config": {"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}}}
TWINS = [{**NARROW, "stages": 1}, {**NARROW, "id": "other", "stages": 2}, {**WIDE, "stages": 1}]
RENAMED = {"translate": {KERNEL: {"variant": "plain", "rename": {"columns": "rows"}}}}
REFUSED = [
    ({}, {"shapes": [(1, 8, 500), (64, 64, 501)]}),  # no config may be launched
    ({}, {"shapes": [(2**40, 2**40, 2)]}),  # a derived feature grows beyond 62 bits
    ({}, {"times": lambda shape: [10, "", ""]}),  # nothing to compare
    ({}, {"kernel": "softmax"}),
    ({}, {"configs": TWINS}),  # equal in all parameters of the spec
    ({}, _configs(warps=None)),
    ({}, _configs(variant="fast")),
    (TWO, _configs(variant=None)),
    (FROM_COLUMNS, {}),  # the column differs
    ({**DEEP, "split_on": ["depth"]}, {}),
    ({"features": ["rows", "Columns"], "constants": [], "derived": {}, "constraints": []}, {}),
    ({**DEEP, "objective": {"weight": "depth"}}, {}),
    (_with_constants(columns=3), FOREIGN_TABLE),
    ({"translate": TRANSLATE}, {}),
    ({"invariants": ["heads <= 2", "rows < 8"]}, {"shapes": [(7, 1, 2), (8, 1, 2)]}),
    (RENAMED, {}),
    *(  # a word of the table that the spec lacks
        ({"values": values}, {"shapes": OF_KINDS, "values": {"heads": words}})
        for values, words in (
            ({}, ["bf16", "fp16"]),
            ({"heads": ["bf16"]}, ["bf16", "fp16"]),
            ({"heads": ["bf16", "fp16"]}, ["bf16"]),
        )
    ),
    *(({"objective": {"weight": weight}}, {}) for weight in ("rows - 1", "2 - rows", "rows * 16385", 0)),
]


@pytest.mark.parametrize(("kernel", "table"), REFUSED)
def test_contradictions_are_named(tmp_path, kernel, table):
    message = error_of(lambda: problem(tmp_path, kernel, **{"shapes": SHAPES, **table}))
    assert message.startswith(f"{tmp_path / 'tables/h100'}: ")


# What a spec says


def kernel_of(folder, **kernel):
    return read_spec(write_spec(folder, spec(**kernel))).kernels[KERNEL]


def test_the_page_about_the_spec_lists_its_words():
    """Each table of docs/spec.md below its heading, against what the reader knows."""
    page = (REPOSITORY / "docs/spec.md").read_text()
    config = {f"config.{word}" for word in words.CONFIG}
    known = {
        "The whole file": {"format", "output", "devices.<key>", "kernels.<name>"},
        "A device": {*words.DEVICE},
        "A kernel": {*words.KERNEL} - {"config", "translate"} | {*config, "translate.<kernel>"},
        "Tree": {*words.TREE},
    }
    for heading, expected in known.items():
        (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
        first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        assert {word for cell in first_cells for word in re.findall("`(.*?)`", cell)} == expected, heading


def test_the_ends_of_ranges_are_accepted(tmp_path):
    content = spec(
        tree={"max_depth": 4, "max_rows": 12, "max_configs": 64, "row_price": 1, "cell_price": 0},
        fallback={"variant": "plain", "block": 2**31 - 1, "warps": 0},
        features=["rows", "columns", "heads", "a" * 64],
        derived={"area": "rows" + " + rows" * 42 + "  "},
    )
    content["devices"][DEVICE]["limits"] = {"memory": 2**62, "less": -(2**62)}
    read = read_spec(write_spec(tmp_path, content))
    assert read.devices[DEVICE].limits["memory"] == -read.devices[DEVICE].limits["less"] == 2**62
    kernel = read.kernels[KERNEL]
    assert kernel.budget == Budget(4, 12, 64, row_price=1, cell_price=0)
    assert kernel_of(tmp_path, tree={"max_rows": 8}).budget == Budget(max_rows=8)  # all are optional
    assert kernel.fallback.parameters == (("block", 2**31 - 1), ("warps", 0))
    assert kernel.features[-1] == "a" * 64
    for divisor in ("3", "max(1, columns)", "max(columns, 1)", "next_power_of_2(columns)"):
        assert "area" in kernel_of(tmp_path, derived={"area": f"rows // {divisor}"}).derived


def test_regimes_and_classes_are_conditions_in_order(tmp_path):
    kernel = kernel_of(tmp_path, classes={})
    assert kernel.regimes == (Regime("steps", None, ("rows", "columns", "area")),)
    assert kernel.classes == (ModelClass("all", None),)
    assert kernel.hold_out_by == kernel.constants == ("heads",) and kernel.steps == ("rows", "columns")
    few = {"when": "area < 9", "split_on": ["rows"], "max_rows": 4}
    kernel = kernel_of(
        tmp_path,
        split_on=["area", "rows"],
        regimes={"one": "rows <= 1", "few": few, "rest": "otherwise"},
        classes={"odd": "heads % 2 == 1 and heads > 2", "other": "otherwise"},
        hold_out_by=["heads", "area"],
    )
    assert kernel.regimes == (
        Regime("one", parse_condition("rows <= 1"), ("area", "rows")),
        Regime("few", parse_condition("area < 9"), ("rows",), 4),
        Regime("rest", None, ("area", "rows")),
    )
    assert kernel.classes[0] == ModelClass("odd", parse_condition("heads % 2 == 1 and heads > 2"))
    assert kernel.hold_out_by == ("heads", "area")


def test_what_follows_from_constants_and_limits_is_fixed(tmp_path):
    derived = {"pair": "heads * 2", "room": "shared_memory - pair", "area": "rows * pair", "z": "area + room"}
    derived |= {"narrow": "heads <= 4", "fine": "narrow and not heads == 3"}
    classes, rules = {"few": "room <= 4", "many": "otherwise"}, ["block >= 32 or fine"]
    kernel = kernel_of(tmp_path, derived=derived, classes=classes, constraints=rules)
    assert set(kernel.fixed) == {"heads", "pair", "room", "narrow", "fine"}
    assert kernel.split_on == ("rows", "columns", "area", "z")
    for heads, fine in ((2, 1), (3, 0), (5, 0)):
        values = kernel.with_derived({"heads": heads, "shared_memory": 1, "rows": 1, "columns": 1})
        assert values["fine"] == fine


BOUND = {"holds": "block >= heads", "variants": ["split"]}


def test_a_constraint_of_a_variant_forbids_that_variant_only(tmp_path):
    configs = [
        {**config, "id": v + config["id"], "variant": v} for v in ("plain", "split") for config in CONFIGS
    ]
    table = {"shapes": [(1, 8, 40)], "configs": configs, "times": lambda shape: range(1, 7)}
    built = problem(tmp_path, {**TWO, "constraints": [BOUND]}, **table)
    forbidden = [c for i, c in enumerate(built.configs) if built.cost[0, i] == FORBIDDEN]
    assert forbidden == [Config("split", (("block", 16), ("warps", 2)))]


PARAMETERS = {
    "parts": {"letter": "N", "default": 1},
    "block": "B",
    "warps": "W",
    "far": {"letter": "F", "default": 0},
}
WITH_DEFAULTS = {"config": {"variants": ["plain", "split"], "parameters": PARAMETERS}}


def made(variant="plain", parts=1, block=16, warps=2, far=0):
    return Config(variant, (("parts", parts), ("block", block), ("warps", warps), ("far", far)))


def test_a_table_without_a_parameter_has_its_default(tmp_path):
    built = problem(tmp_path / "a", WITH_DEFAULTS, shapes=SHAPES)
    expected = [made(block=c["block"], warps=c["warps"]).parameters for c in CONFIGS]
    assert [c.parameters for c in built.configs] == expected
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    built = problem(tmp_path / "b", WITH_DEFAULTS, shapes=SHAPES, configs=configs)
    found = [dict(config.parameters) for config in built.configs]
    assert [(values["parts"], values["far"]) for values in found] == [(1, 0), (2, 0), (3, 0)]


def test_a_fallback_may_leave_out_defaults_and_words_are_a_list_or_name_integers(tmp_path):
    fallback = {"variant": "plain", "block": 64, "warps": 4}
    for given_, expected in (({}, (1, 0)), ({"far": 1}, (1, 1)), ({"parts": 8}, (8, 0))):
        kernel = kernel_of(tmp_path, **WITH_DEFAULTS, fallback={**fallback, **given_})
        assert kernel.fallback == made(parts=expected[0], block=64, warps=4, far=expected[1])
    for listed in (["bf16", "fp8 e4m3"], {"fp8 e4m3": 1, "bf16": 0}):  # words are a list, or name integers
        values = kernel_of(tmp_path, values={"heads": listed}).values
        assert dict(values["heads"]) == {0: "bf16", 1: "fp8 e4m3"}
    without = spec(**WITH_DEFAULTS, fallback={"variant": "plain", "block": 64})
    assert "warps" in error_of(read_spec, write_spec(tmp_path, without))
