"""The hook through which `treegen check` compiles these kernels."""

import importlib
import inspect
import os
import tomllib
from pathlib import Path

import pytest
import torch

from attn_kernels import Model
from attn_kernels.core.config import Config
from attn_kernels.offline import hook as module
from attn_kernels.offline.compile import CompileCase as OfflineCase
from attn_kernels.offline.compile import CompileOutcome as OfflineOutcome
from attn_kernels.offline.compile import CompileShape
from attn_kernels.offline.hook import HOOK, MIXED_HOOK
from attn_kernels.offline.resources import Resources
from attn_kernels.planning import plan
from treegen.read.spec import read_spec
from treegen.review.check.checks import code_problems
from treegen.review.check.hook import GROUP, CompileCase, CompileOutcome, HookDescription, checked

REPOSITORY = Path(__file__).parents[1]
SPEC = read_spec(REPOSITORY / "treegen.yaml")
KERNELS = SPEC.kernels
KERNEL, MIXED = KERNELS["unified_attention"], KERNELS["mixed_attention"]
TILE = {"block_m": 16, "tile_size": 32, "num_warps": 4, "num_stages": 2}
ANY = {"head_size": None, "gqa_group_size": None, "kv_element_size": None}


def case(variant="qblock", target="sm_80", largest=ANY, **changes):
    return CompileCase(target, variant, {**TILE, **changes}, largest)


def recorded(monkeypatch):
    """The jobs that the hook would compile, in order; nothing is compiled."""
    recorded = []

    def note(attempt, jobs, processes):
        recorded.extend(jobs)
        return [OfflineOutcome({"k": Resources(job.shape.head_size, None, None)}) for job in jobs]

    monkeypatch.setattr(module, "compile_in_processes", note)
    return recorded


@pytest.mark.parametrize(("kernel", "hook"), [(KERNEL, HOOK), (MIXED, MIXED_HOOK)])
def test_pyprojects_entry_points_are_hooks(kernel, hook):
    entries = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert kernel.hook in entries
    place, _, name = entries[kernel.hook].partition(":")
    assert getattr(importlib.import_module(place), name) is hook
    described = checked(HookDescription, hook)
    assert described.parameters["block_m"] is None
    assert described.parameters["tma"] == 0
    assert described.refused
    assert not [*code_problems(kernel, described, SPEC.devices.values())]


@pytest.mark.parametrize(("hook", "limit", "old", "new"), [
    (HOOK, "holds: 128 * tile_size", "128 * ", ""),
    (HOOK, "tma: head_bytes % 32 == 0", "32", "8"),
    (HOOK, "idle_multiprocessors <= 16", "16", "32"),
    (HOOK, "gqa_group_size <= 128 and head_size", "128", "129"),
    (MIXED_HOOK, "num_kv_heads) <= 16", "16", "20"),
    (MIXED_HOOK, "block_size % 16 == 0 and head_size >= 64", "64", "48"),
])  # fmt: skip
def test_the_hook_finds_a_planted_wrong_limit_of_the_hopper_kernel(hook, limit, old, new, tmp_path):
    text = (REPOSITORY / "treegen.yaml").read_text()
    assert text.count(limit) == 1 and limit.count(old) == 1
    (tmp_path / "treegen.yaml").write_text(text.replace(limit, limit.replace(old, new)))
    kernel = read_spec(tmp_path / "treegen.yaml").kernels[(KERNEL if hook is HOOK else MIXED).name]
    problems = [*code_problems(kernel, checked(HookDescription, hook), [SPEC.devices["nvidia_h200"]])]
    assert problems
    assert all("refuses" in problem for problem in problems)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_parts_need_the_kernel_that_divides(target, monkeypatch):
    """And on Hopper GPUs the one launch; what computes the parts are cases of `unified_attention`."""
    nothing = dict.fromkeys(TILE, 0)
    ways = [CompileCase(target, way, nothing, ANY) for way in ("separate", "single")]
    pod = case("pod", target, {**ANY, "head_size": 64}, block_m=128, tile_size=64)
    outcomes = [checked(CompileOutcome, outcome) for outcome in MIXED_HOOK.compile([*ways, pod], 1)]
    assert [outcome.error for outcome in outcomes] == [None] * 3
    of_pod = {"divide", "schedule", "hopper"} if target == "sm_90" else {"divide"}
    assert [set(outcome.kernels) for outcome in outcomes] == [{"divide"}, {"divide"}, of_pod]


def test_its_features_are_those_that_a_plan_passes():
    """All of them are keywords of the one call, and arguments of `plan` or of the batch it is given."""
    given = {*inspect.signature(plan.plan).parameters, *inspect.signature(Model).parameters}
    assert set(HOOK.features) == set(KERNEL.features) <= given | {"num_seqs", "kv_element_size"}


def test_sizes_are_the_largest_and_equal_cases_compile_once(monkeypatch):
    for sizes, largest in (
        (ANY, (256, 64)),
        ({"head_size": 128, "gqa_group_size": 16, "kv_element_size": 2}, (128, 16)),
        ({"head_size": 1000, "gqa_group_size": 1000, "kv_element_size": 8}, (512, 64)),
        ({"head_size": -3, "gqa_group_size": 0, "kv_element_size": 1}, (1, 1, "fp8")),
        ({}, (256, 64)),
    ):
        jobs = recorded(monkeypatch)
        list(HOOK.compile([case(largest=sizes)], 1))
        head_size, group, *features = largest
        shape = CompileShape("sm_80", head_size, 16, group, torch.bfloat16, tuple(features))
        assert jobs == [OfflineCase(Config("qblock", **TILE), shape)]
    jobs = recorded(monkeypatch)
    cases = [case(largest={**ANY, "head_size": size}) for size in (64, 256, 128, None)]
    outcomes = list(HOOK.compile([*cases, CompileCase("sm_80", "qblock", {"block_n": 16}, ANY)], 1))
    assert [job.shape.head_size for job in jobs] == [256, 128, 64]
    assert [one.kernels["k"].shared_memory for one in outcomes[:-1]] == [64, 256, 128, 256]
    assert "block_n" in str(outcomes[-1].error)


def test_kernels_compile_where_triton_interprets(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    small = {**ANY, "head_size": 64}
    cases = [case(target=name, largest={**small, "kv_element_size": 1}) for name in ("gfx942", "sm_123")]
    cases = [case(largest=small), *cases, case(block_m=24)]
    nvidia, amd, unknown, impossible = (checked(CompileOutcome, one) for one in HOOK.compile(cases, 2))
    assert os.environ["TRITON_INTERPRET"] == "1"
    for outcome in (nvidia, amd):
        assert outcome.error is None
        assert set(outcome.kernels) == {"qblock", "split_keys", "reduce16", "reduce64", "reduce256"}
    # The spec's constraint: a tile of K and V in flight, then queries and weights of 16 rows.
    tiles, rows = 4 * 32 * 64, 2 * 16 * (64 + 32)
    assert tiles <= nvidia.kernels["qblock"].shared_memory <= tiles + rows
    assert amd.kernels["qblock"].registers in range(16, 513)
    assert "sm_123" in str(unknown.error)
    assert "block_m" in str(impossible.error)


def test_a_compiler_that_crashes_costs_one_case(monkeypatch, tmp_path):
    (tmp_path / "crashing_compiler.py").write_text(
        "import os\n"
        "from attn_kernels.offline.compile import CompileOutcome\n"
        "def attempt(job):\n"
        "    size = job.shape.head_size\n"
        "    return os._exit(3) if size == 2 else CompileOutcome({}, f'fine {size}')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module, "attempt", importlib.import_module("crashing_compiler").attempt)
    cases = [case(largest={**ANY, "head_size": size}) for size in (1, 2, 3)]
    errors = [outcome.error for outcome in HOOK.compile(cases, 2)]
    assert errors == ["fine 1", "the compiler ended its process", "fine 3"]
