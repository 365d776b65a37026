"""What a spec says: defaults, ranges, paths, constraints of variants, defaults of parameters, words."""

import re
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    CONFIGS,
    DEVICE,
    KERNEL,
    REPOSITORY,
    device_and_kernel,
    error_of,
    problem,
    spec,
    write_spec,
)

from treegen.core.expr import parse_condition
from treegen.core.problem import FORBIDDEN
from treegen.core.spec import Budget, Config, KernelSpec, ModelClass, Regime
from treegen.read import words
from treegen.read.spec import read_spec


def kernel_of(folder: Path, **kernel: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(**kernel))).kernels[KERNEL]


def test_the_page_about_the_spec_lists_its_words() -> None:
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


def test_the_ends_of_ranges_are_accepted(tmp_path: Path) -> None:
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


def test_paths_start_at_the_specs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**spec(), "output": "my-package/trees"}
    path = write_spec(tmp_path / "project", content)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    read = read_spec(path)
    assert read.output == tmp_path / "project/my-package/trees"
    assert read.kernels[KERNEL].tables[DEVICE] == tmp_path / "project/tables/h100"


def test_regimes_and_classes_are_conditions_in_order_and_without_them_there_is_one_of_each(
    tmp_path: Path,
) -> None:
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


def test_what_follows_from_constants_and_limits_is_fixed_and_named_conditions_join_others(
    tmp_path: Path,
) -> None:
    derived = {"pair": "heads * 2", "room": "shared_memory - pair", "area": "rows * pair", "z": "area + room"}
    derived |= {"narrow": "heads <= 4", "fine": "narrow and not heads == 3"}
    classes, rules = {"few": "room <= 4", "many": "otherwise"}, ["block >= 32 or fine"]
    kernel = kernel_of(tmp_path, derived=derived, classes=classes, constraints=rules)
    assert set(kernel.fixed) == {"heads", "pair", "room", "narrow", "fine"}
    assert kernel.split_on == ("rows", "columns", "area", "z")
    for heads, fine in ((2, 1), (3, 0), (5, 0)):
        values = kernel.with_derived({"heads": heads, "shared_memory": 1, "rows": 1, "columns": 1})
        assert values["fine"] == fine


TWO = {"config": {"variants": ["plain", "split"], "parameters": {"block": "B", "warps": "W"}}}
BOUND = {"holds": "block >= heads", "variants": ["split"]}


def test_a_constraint_of_a_variant_forbids_that_variant_only(tmp_path: Path) -> None:
    configs = [
        {**config, "id": v + config["id"], "variant": v} for v in ("plain", "split") for config in CONFIGS
    ]
    table = {"shapes": [(1, 8, 40)], "configs": configs, "times": lambda shape: range(1, 7)}
    built = problem(tmp_path, {**TWO, "constraints": [BOUND]}, **table)
    forbidden = [c for i, c in enumerate(built.configs) if built.cost[0, i] == FORBIDDEN]
    assert forbidden == [Config("split", (("block", 16), ("warps", 2)))]


PARAMETERS: dict[str, Any] = {
    "parts": {"letter": "N", "default": 1},
    "block": "B",
    "warps": "W",
    "far": {"letter": "F", "default": 0},
}
WITH_DEFAULTS = {"config": {"variants": ["plain", "split"], "parameters": PARAMETERS}}
SHAPES = [(1, 8, 2), (64, 64, 2)]


def made(variant: str = "plain", parts: int = 1, block: int = 16, warps: int = 2, far: int = 0) -> Config:
    return Config(variant, (("parts", parts), ("block", block), ("warps", warps), ("far", far)))


def test_a_table_without_a_parameter_has_its_default(tmp_path: Path) -> None:
    built = problem(tmp_path / "a", WITH_DEFAULTS, shapes=SHAPES)
    expected = [made(block=c["block"], warps=c["warps"]).parameters for c in CONFIGS]
    assert [c.parameters for c in built.configs] == expected
    configs = [{**config, "parts": 1 + i} for i, config in enumerate(CONFIGS)]
    built = problem(tmp_path / "b", WITH_DEFAULTS, shapes=SHAPES, configs=configs)
    found = [dict(config.parameters) for config in built.configs]
    assert [(values["parts"], values["far"]) for values in found] == [(1, 0), (2, 0), (3, 0)]


def test_a_fallback_may_leave_out_defaults_and_words_are_a_list_or_name_integers(tmp_path: Path) -> None:
    fallback = {"variant": "plain", "block": 64, "warps": 4}
    for given_, expected in (({}, (1, 0)), ({"far": 1}, (1, 1)), ({"parts": 8}, (8, 0))):
        _, kernel = device_and_kernel(tmp_path, **WITH_DEFAULTS, fallback={**fallback, **given_})
        assert kernel.fallback == made(parts=expected[0], block=64, warps=4, far=expected[1])
    for listed in (["bf16", "fp8 e4m3"], {"fp8 e4m3": 1, "bf16": 0}):  # words are a list, or name integers
        values = kernel_of(tmp_path, values={"heads": listed}).values
        assert dict(values["heads"]) == {0: "bf16", 1: "fp8 e4m3"}
    without = spec(**WITH_DEFAULTS, fallback={"variant": "plain", "block": 64})
    assert "warps" in error_of(read_spec, write_spec(tmp_path, without))
