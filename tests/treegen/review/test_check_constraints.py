"""The check of constraints accepts what treegen prints, and finds conditions and choices that changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, REPOSITORY, device_and_kernel
from treegen_strategies import LIMITS, examples, heuristics, kernels

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import Config, DeviceSpec, KernelSpec, Spec
from treegen.emit.module import device_module
from treegen.read.spec import read_spec
from treegen.review.check.proof import check_constraints, loaded, mistake, numbers, shapes, unprinted
from treegen.review.modules import Module, read_modules

ANY_DEVICE = DeviceSpec(DEVICE, (), None, "nvidia", MappingProxyType(LIMITS))
SMALL, LARGE = (Config("plain", (("block", block), ("warps", warps))) for block, warps in ((16, 2), (128, 8)))


def module_of(kernel: KernelSpec, device: DeviceSpec, heuristic: Heuristic) -> Module:
    text = device_module(kernel, device.key, device.limits, heuristic)
    return Module(kernel, device, Path("module.py"), text, heuristic)


def problems(module: Module) -> tuple[str, ...]:
    spec = Spec(Path("treegen.yaml"), Path("generated"), {}, {module.kernel.name: module.kernel})
    return check_constraints(spec, [module]).problems


@examples(40)
@given(st.data())
def test_what_treegen_prints_is_in_order(data: st.DataObject) -> None:
    kernel = data.draw(kernels())
    assert problems(module_of(kernel, ANY_DEVICE, data.draw(heuristics(kernel)))) == ()


def planted(folder: Path, **kernel: object) -> Module:
    """Small blocks where an area of rows is small, and large ones elsewhere."""
    device, found = device_and_kernel(folder, **kernel)
    rows = (Row(SMALL, then=(LARGE,)), Row(LARGE))
    return module_of(found, device, Heuristic((RegimeRows("steps", Split("area", 100, 0, 1), rows),)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("config.block >= heads", "config.block >= heads - 1"),
        ("config.block >= heads", "config.block > heads"),
        ("config.block >= heads", "config.block >= heads or True"),
        ("area <= 100", "area <= 101"),
        ("area <= 100", "area < 100"),
        ("Row(PLAIN_B16_W2, {}", "Row(PLAIN_B128_W8, {}"),
    ],
)
def test_a_module_that_differs_from_its_rows_is_found(tmp_path: Path, old: str, new: str) -> None:
    module = planted(tmp_path)
    assert old in module.text
    changed = replace(module, text=module.text.replace(old, new))
    assert problems(changed) and not problems(module)


def test_a_condition_that_is_not_printed_is_found_though_no_shape_shows_it(tmp_path: Path) -> None:
    rules = ["block >= heads", {"holds": "heads != 123456", "variants": ["plain"]}]
    module = planted(tmp_path, constraints=rules)
    assert list(unprinted(module)) == []
    changed = replace(module, text=module.text.replace("123_456", "123_457"))
    assert {rule.text for _, rule in unprinted(changed)} == {"heads != 123456"}


def test_a_condition_binds_only_its_variants(tmp_path: Path) -> None:
    config = {"variants": ["plain", "split", "other"], "parameters": {"block": "B", "warps": "W"}}
    rules = [{"holds": "block >= heads", "variants": ["plain", "split"]}]
    device, kernel = device_and_kernel(tmp_path, config=config, constraints=rules)
    rows = tuple(Row(replace(SMALL, variant=variant)) for variant in config["variants"])
    tree = Split("rows", 4, 0, Split("rows", 8, 1, 2))
    module = module_of(kernel, device, Heuristic((RegimeRows("steps", tree, rows),)))
    assert list(unprinted(module)) == []
    changed = replace(module, text=module.text.replace('not in ("plain", "split")', '!= "plain"'))
    assert changed.text != module.text
    assert [config.variant for config, _ in unprinted(changed)] == ["split"]


def test_conditions_on_steps_are_asked_at_each_step(tmp_path: Path) -> None:
    module = planted(tmp_path, constraints=["area <= 4096 * block", "block >= heads"])
    assert not problems(module)
    changed = replace(module, text=module.text.replace("4096 * config.block", "8192 * config.block"))
    assert changed.text != module.text and len(problems(changed)) > 1


def test_a_config_that_breaks_a_constraint_is_a_mistake(tmp_path: Path) -> None:
    """Even if the rows, taken without constraints, say so."""
    module = planted(tmp_path)
    free = replace(module.kernel, constraints=())
    unguarded = module_of(free, module.device, module.heuristic)
    launch = loaded(unguarded)["choose"]
    assert mistake(unguarded, launch, {"rows": 1, "columns": 1, "heads": 17}) is None
    assert mistake(module, launch, {"rows": 1, "columns": 1, "heads": 16}) is None
    assert mistake(module, launch, {"rows": 1, "columns": 1, "heads": 17}) is not None


def test_shapes_lie_on_both_sides_of_every_change(tmp_path: Path) -> None:
    module = planted(tmp_path)
    assert {100, 16, 128} <= numbers(module)
    tried = list(shapes(module, loaded(module)["choose"]))
    areas = {shape["rows"] * shape["columns"] for shape in tried if shape["columns"] == 1}
    assert {100, 101} <= areas
    assert {16, 17} <= {shape["heads"] for shape in tried}
    assert min(shape["rows"] for shape in tried) < -(2**62) and max(s["rows"] for s in tried) > 2**61


def test_the_repositorys_modules_are_in_order() -> None:
    spec = read_spec(REPOSITORY / "treegen.yaml")
    report = check_constraints(spec, read_modules(spec).values())
    assert report.problems == ()
