"""Which compilations cover all leaves, and what their outcomes say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from treegen_builders import DEVICE, device_and_kernel

from treegen.core.spec import Config, DeviceSpec, Spec
from treegen.core.tree import Leaf, Split, Tree
from treegen.review.check.compiling import CompileTask, check_compile, compile_tasks, uncovered
from treegen.review.check.hook import CompileCase, CompileOutcome, HookDescription, KernelNeeds
from treegen.review.modules import NO_DEVICE, Module

CODE = HookDescription(
    frozenset({"rows", "columns", "heads"}),
    frozenset({"plain"}),
    {"block": None, "warps": None},
    ("columns", "area"),
    {"nvidia": ("sm_80",), "amd": ("gfx942",)},
)
SMALL, MIDDLE, LARGE = (
    Config("plain", (("block", block), ("warps", warps))) for block, warps in ((16, 2), (32, 1), (64, 4))
)


def project(folder: Path, tree: Tree, key: str = DEVICE) -> tuple[Spec, Module]:
    """The tree as the module of a device, beside a vendor's device with lower limits."""
    device, kernel = device_and_kernel(folder)
    device = replace(device, limits=MappingProxyType({"shared_memory": 1000, "spills": 8}))
    vendor = DeviceSpec("nvidia", (), None, "nvidia", MappingProxyType({"shared_memory": 400}))
    devices = {DEVICE: device, "nvidia": vendor}
    module = Module(kernel, devices.get(key, NO_DEVICE), folder / "m.py", "", tree)
    return Spec(folder / "treegen.yaml", folder, devices, {kernel.name: kernel}), module


def test_every_leaf_that_a_shape_reaches_is_compiled_at_the_largest_sizes_of_its_region(
    tmp_path: Path,
) -> None:
    unreachable = Split("rows", 4, Split("rows", 8, Leaf(SMALL), Leaf(MIDDLE)), Leaf(LARGE))
    tree = Split("columns", 128, unreachable, Leaf(LARGE))
    spec, module = project(tmp_path, tree)
    found = [
        (one.case.target, one.config, dict(one.case.largest)) for one in compile_tasks(spec, module, CODE)
    ]
    assert found == [
        ("sm_90", SMALL, {"columns": 128, "area": None}),
        ("sm_90", LARGE, {"columns": 128, "area": None}),
        ("sm_90", LARGE, {"columns": None, "area": None}),
    ]


def test_a_derived_size_is_at_most_what_its_parts_allow(tmp_path: Path) -> None:
    inner = Split("columns", 8, Split("columns", -1, Leaf(LARGE), Leaf(SMALL)), Leaf(LARGE))
    tree = Split("rows", 4, Split("rows", 0, Leaf(LARGE), inner), Leaf(LARGE))
    spec, module = project(tmp_path, tree)
    (found,) = [one for one in compile_tasks(spec, module, CODE) if one.config == SMALL]
    assert found.case.largest == {"columns": 8, "area": 32}


def test_the_module_of_a_vendor_is_compiled_for_the_hooks_architectures(tmp_path: Path) -> None:
    spec, module = project(tmp_path, Leaf(LARGE), "nvidia")
    (found,) = compile_tasks(spec, module, CODE)
    assert (found.case.target, found.limits) == ("sm_80", {"shared_memory": 400})


def test_the_default_module_is_compiled_for_every_architecture_with_the_least_limits(tmp_path: Path) -> None:
    spec, module = project(tmp_path, Leaf(LARGE), "default")
    found = {one.case.target: one.limits for one in compile_tasks(spec, module, CODE)}
    nvidia = {"shared_memory": 400, "spills": 8}
    assert found == {"gfx942": {}, "sm_80": nvidia, "sm_90": nvidia}


def test_problems_of_outcomes(tmp_path: Path) -> None:
    spec, module = project(
        tmp_path, Split("rows", 4, Leaf(SMALL), Split("heads", 4, Leaf(MIDDLE), Leaf(LARGE)))
    )
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
    named = [("B16_W2", "spilled"), ("B16_W2", "1,001 bytes"), ("B32_W1", "at 1:2"), ("B64_W4", "no kernel")]
    assert len(report.problems) == len(named)
    for problem, words in zip(report.problems, named, strict=True):
        assert all(word in problem for word in (DEVICE, "sm_90", *words))
    assert report.seen.startswith("scale: 3 compilations for 3 leaves")


def test_a_case_covers_others_of_smaller_sizes_and_weaker_limits() -> None:
    def task(head: int | None, warps: int = 2, **limits: int) -> CompileTask:
        parameters = (("block", 16), ("warps", warps))
        case = CompileCase("sm_90", "plain", dict(parameters), {"head": head})
        return CompileTask("gpu", Config("plain", parameters), case, limits)

    small, large, any_size, strict = task(64), task(128), task(None), task(64, spills=8)
    assert uncovered([small, large, small]) == [large]
    assert uncovered([any_size, large, strict]) == [any_size, strict]
    assert uncovered([small, strict]) == [strict]
    assert uncovered([large, task(64, 4)]) == [large, task(64, 4)]
