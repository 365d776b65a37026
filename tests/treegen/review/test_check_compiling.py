"""Which compilations cover all launches, and what their outcomes say."""

from dataclasses import replace

import pytest
from treegen_builders import DEVICE, device_and_kernel

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.spec import NO_DEVICE, Config, DeviceSpec, Spec
from treegen.emit.module import device_module
from treegen.review.check.checks import compile_problems, compile_tasks, largest_sizes
from treegen.review.check.hook import CompileCase, CompileOutcome, HookDescription, HookProcess, KernelNeeds
from treegen.write.modules import Module

CODE = HookDescription(
    frozenset({"rows", "columns", "heads"}),
    frozenset({"plain"}),
    {"block": None, "warps": None},
    ("columns", "area"),
    {"nvidia": ("sm_80",), "amd": ("gfx942",)},
)
LEAST = {"shared_memory": 400, "spills": 8}
SMALL, MIDDLE, LARGE, LARGEST = (
    Config("plain", (("block", block), ("warps", warps)))
    for block, warps in ((16, 2), (32, 1), (64, 4), (128, 8))
)


class Hook(HookProcess):
    """A hook of this process with an outcome for each case."""

    def __init__(self, outcome):
        self.outcome, self.compiled = outcome, list[CompileCase]()

    def describe(self):
        return CODE

    def compile(self, cases, jobs):
        self.compiled += cases
        return [self.outcome(case) for case in cases]


def project(folder, *rows, key=DEVICE, **kernel):
    """A device's module with these rows, beside a vendor's device with lower limits."""
    device, found = device_and_kernel(folder, **kernel)
    device = replace(device, limits={"shared_memory": 1000, "spills": 8})
    vendor = DeviceSpec("nvidia", (), None, "nvidia", {"shared_memory": 400})
    devices = {DEVICE: device, "nvidia": vendor}
    one = devices.get(key, NO_DEVICE)
    tree = 0
    for number in range(1, len(rows)):
        tree = Split("rows", 4 * number, tree, number)
    heuristic = Heuristic((RegimeRows("steps", tree, rows),) if rows else ())
    text = device_module(found, key, one.limits, heuristic)
    module = Module(found, one, folder / "m.py", text, heuristic)
    return Spec(folder / "treegen.yaml", folder, devices, {found.name: found}), module


def sizes(module, *names):
    found = largest_sizes(module, names)
    return [(dict(config.parameters)["block"], dict(largest)) for config, largest in found]


def test_configs_are_compiled_at_the_largest_sizes_of_models_that_launch_them(tmp_path):
    _, module = project(tmp_path, Row(SMALL, then=(MIDDLE,)), Row(LARGEST))
    assert sizes(module, "heads", "columns") == [
        (64, {"heads": None, "columns": None}),  # the fallback is launched everywhere
        *((block, {"heads": block, "columns": None}) for block in (16, 32, 128)),
    ]
    _, module = project(
        tmp_path,
        Row(SMALL, {"many": LARGEST}),
        constants=["heads", "columns"],
        derived={"area": "rows * columns", "each": "columns // max(1, heads)"},
        constraints=["columns % 16 == 0 and columns <= 1000", "heads >= 1"],
        classes={"few": "heads <= 6", "many": "otherwise"},
    )
    found = sizes(module, "columns", "each")
    assert found[1:] == [(16, {"columns": 992, "each": 992}), (128, {"columns": 992, "each": 141})]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("nvidia", {"sm_80": {"shared_memory": 400}}),
        ("default", {"gfx942": {}, "sm_80": LEAST, "sm_90": LEAST}),
    ],
)
def test_modules_are_compiled_for_all_they_serve(tmp_path, key, expected):
    """For the hook's architectures; `default` with the least limits of a vendor's devices."""
    spec, module = project(tmp_path, key=key)
    assert {one.case.target: one.limits for one in compile_tasks(spec, module, CODE)} == expected


def test_problems_of_outcomes(tmp_path):
    spec, module = project(tmp_path, Row(SMALL), Row(MIDDLE), Row(LARGE))
    by_block = {
        16: CompileOutcome({"main": KernelNeeds(1000, 900, 9), "sum": KernelNeeds(1001, None, None)}, None),
        32: CompileOutcome({}, "CompilationError: at 1:2"),
        64: CompileOutcome({}, None),
    }

    hook = Hook(lambda case: by_block[case.parameters["block"]])
    seen, problems = compile_problems(spec, [module], hook, 1)
    named = [("B64_W4", "no kernel"), ("B16_W2", "spilled"), ("B16_W2", "1,001 bytes"), ("B32_W1", "at 1:2")]
    for problem, words in zip(problems, named, strict=True):
        assert all(word in problem for word in (DEVICE, "sm_90", *words))
    assert seen.startswith("3 compilations for 3 configs")


def test_what_two_devices_launch_is_compiled_once_and_held_against_the_limits_of_both(tmp_path):
    spec, module = project(tmp_path, Row(SMALL), Row(MIDDLE))
    strict = replace(module.device, key="strict", limits={"shared_memory": 500})
    alike = replace(module.device, key="alike")
    hook = Hook(lambda case: CompileOutcome({"main": KernelNeeds(600, None, None)}, None))
    modules = [module, replace(module, device=alike), replace(module, device=strict)]
    _, problems = compile_problems(spec, modules, hook, 1)
    assert [case.parameters["block"] for case in hook.compiled] == [64, 16, 32]
    assert len(problems) == 3 and all(" strict, " in problem for problem in problems)
