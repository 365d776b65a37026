"""Which compilations cover all launches, and what their outcomes say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from treegen_builders import DEVICE, device_and_kernel

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree
from treegen.core.spec import Config, DeviceSpec, Spec
from treegen.emit.module import device_module
from treegen.review.check.compiling import check_compile, compile_tasks, largest_sizes
from treegen.review.check.hook import CompileCase, CompileOutcome, HookDescription, KernelNeeds
from treegen.review.modules import NO_DEVICE, Module

CODE = HookDescription(
    frozenset({"rows", "columns", "heads"}),
    frozenset({"plain"}),
    {"block": None, "warps": None},
    ("columns", "area"),
    {"nvidia": ("sm_80",), "amd": ("gfx942",)},
)
SMALL, MIDDLE, LARGE, LARGEST = (
    Config("plain", (("block", block), ("warps", warps)))
    for block, warps in ((16, 2), (32, 1), (64, 4), (128, 8))
)


def project(folder: Path, *rows: Row, key: str = DEVICE, **kernel: object) -> tuple[Spec, Module]:
    """A device's module with these rows, beside a vendor's device with lower limits."""
    device, found = device_and_kernel(folder, **kernel)
    device = replace(device, limits=MappingProxyType({"shared_memory": 1000, "spills": 8}))
    vendor = DeviceSpec("nvidia", (), None, "nvidia", MappingProxyType({"shared_memory": 400}))
    devices = {DEVICE: device, "nvidia": vendor}
    one = devices.get(key, NO_DEVICE)
    heuristic = Heuristic(())
    if rows:
        tree: StepTree = 0
        for number in range(1, len(rows)):
            tree = Split("rows", 4 * number, tree, number)
        heuristic = Heuristic((RegimeRows("steps", tree, rows),))
    text = device_module(found, key, one.limits, heuristic)
    module = Module(found, one, folder / "m.py", text, heuristic)
    return Spec(folder / "treegen.yaml", folder, devices, {found.name: found}), module


def sizes(found: Iterable[tuple[Config, Mapping[str, int | None]]]) -> list[tuple[int, dict[str, Any]]]:
    return [(dict(config.parameters)["block"], dict(largest)) for config, largest in found]


def test_configs_are_compiled_at_the_largest_sizes_of_models_that_launch_them(tmp_path: Path) -> None:
    _, module = project(tmp_path, Row(SMALL, then=(MIDDLE,)), Row(LARGEST))
    found = sizes(largest_sizes(module, ["heads", "columns"]))
    assert found == [
        (64, {"heads": None, "columns": None}),  # the fallback is launched everywhere
        (16, {"heads": 16, "columns": None}),
        (32, {"heads": 32, "columns": None}),
        (128, {"heads": 128, "columns": None}),
    ]


def test_sizes_follow_classes_derived_features_and_remainders(tmp_path: Path) -> None:
    _, module = project(
        tmp_path,
        Row(SMALL, {"many": LARGEST}),
        constants=["heads", "columns"],
        derived={"area": "rows * columns", "each": "columns // max(1, heads)"},
        constraints=["columns % 16 == 0 and columns <= 1000", "heads >= 1"],
        classes={"few": "heads <= 6", "many": "otherwise"},
    )
    found = sizes(largest_sizes(module, ["columns", "each"]))
    assert found[1:] == [(16, {"columns": 992, "each": 992}), (128, {"columns": 992, "each": 141})]


def test_sizes_that_exclude_each_other_are_compiled_both(tmp_path: Path) -> None:
    _, module = project(
        tmp_path,
        Row(SMALL),
        constants=["heads", "columns"],
        constraints=["heads * columns <= 64 * block and heads <= 64 and columns <= 512", "heads != 2"],
    )
    found = [largest for block, largest in sizes(largest_sizes(module, ["heads", "columns"])) if block == 16]
    assert {"heads": 64, "columns": 16} in found and len(found) > 1
    assert all(one["heads"] * one["columns"] <= 1024 for one in found)


def test_the_module_of_a_vendor_is_compiled_for_the_hooks_architectures(tmp_path: Path) -> None:
    spec, module = project(tmp_path, key="nvidia")
    (found,) = compile_tasks(spec, module, CODE)
    assert (found.case.target, found.limits) == ("sm_80", {"shared_memory": 400})


def test_the_default_module_is_compiled_for_every_architecture_with_the_least_limits(tmp_path: Path) -> None:
    spec, module = project(tmp_path, key="default")
    found = {one.case.target: one.limits for one in compile_tasks(spec, module, CODE)}
    nvidia = {"shared_memory": 400, "spills": 8}
    assert found == {"gfx942": {}, "sm_80": nvidia, "sm_90": nvidia}


def test_problems_of_outcomes(tmp_path: Path) -> None:
    spec, module = project(tmp_path, Row(SMALL), Row(MIDDLE), Row(LARGE))
    by_block = {
        16: CompileOutcome({"main": KernelNeeds(1000, 900, 9), "sum": KernelNeeds(1001, None, None)}, None),
        32: CompileOutcome({}, "CompilationError: at 1:2"),
        64: CompileOutcome({}, None),
    }
    report = check_compile(
        spec,
        module.kernel,
        [module],
        CODE,
        lambda cases, jobs: [by_block[case.parameters["block"]] for case in cases],
        1,
    )
    named = [("B64_W4", "no kernel"), ("B16_W2", "spilled"), ("B16_W2", "1,001 bytes"), ("B32_W1", "at 1:2")]
    assert len(report.problems) == len(named)
    for problem, words in zip(report.problems, named, strict=True):
        assert all(word in problem for word in (DEVICE, "sm_90", *words))
    assert report.seen.startswith("scale: 3 compilations for 3 configs")


def test_what_two_devices_launch_is_compiled_once_and_held_against_the_limits_of_both(tmp_path: Path) -> None:
    spec, module = project(tmp_path, Row(SMALL), Row(MIDDLE))
    strict = replace(module.device, key="strict", limits=MappingProxyType({"shared_memory": 500}))
    alike = replace(module.device, key="alike")
    compiled: list[CompileCase] = []

    def compile_cases(cases: Sequence[CompileCase], jobs: int) -> list[CompileOutcome]:
        compiled.extend(cases)
        return [CompileOutcome({"main": KernelNeeds(600, None, None)}, None) for _ in cases]

    modules = [module, replace(module, device=alike), replace(module, device=strict)]
    report = check_compile(spec, module.kernel, modules, CODE, compile_cases, 1)
    assert [case.parameters["block"] for case in compiled] == [64, 16, 32]
    assert len(report.problems) == 3 and all(" strict, " in problem for problem in report.problems)
