"""A kernel of flash-linear-attention below `@triton.heuristics`: tuned, checked and launched from outside."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from triton.runtime.autotuner import Autotuner, Heuristics

from triton_tune import tuned
from triton_tune.kernel.measuring import KernelFile
from triton_tune.kernel.workload import file_of, workload_on
from tuning_table.table import Failure

CPU = torch.device("cpu")
FILE = """
import fla.modules.token_shift as package
import torch
from triton_tune import Tuning


def call(x, cache):
    return package.token_shift_fwd(x, cache=cache, output_cache=True)  # two tensors among integers


def reference(x, cache):
    before = torch.zeros_like(x[:, :1]) if cache is None else cache[:, None]
    return torch.cat([before, x[:, :-1]], 1) - x, x[:, -1] + ERROR


TUNING = Tuning(
    kernel=package.token_shift_fwd_kernel_short,
    name="token_shift",
    call=call,
    shapes=[dict(T=5, D=12, cached=False), dict(T=1, D=32, cached=True)],
    arguments=lambda T, D, cached: (torch.randn(2, T, D), torch.randn(2, D) if cached else None),
    reference=reference,
    features={"T": "x.shape[1]"},
)
"""


class Config(NamedTuple):
    variant: str
    num_warps: int
    num_stages: int


@pytest.fixture
def package() -> Iterator[Any]:
    found = importlib.import_module("fla.modules.token_shift")
    kernel = found.token_shift_fwd_kernel_short
    assert isinstance(kernel, Heuristics) and isinstance(kernel.fn, Autotuner)
    autotuner = kernel.fn
    yield found
    kernel.fn = autotuner


def write(folder: Path, name: str, error: float = 0) -> KernelFile:
    (folder / f"{name}.py").write_text(FILE.replace("ERROR", str(error)))
    return KernelFile(folder / f"{name}.py", "token_shift")


def test_it_is_measured_with_features_of_its_arguments_and_all_results_checked(
    tmp_path: Path, package: Any
) -> None:
    right, wrong = write(tmp_path, "right"), write(tmp_path, "wrong", error=1)
    workload = workload_on(file_of(right.path), CPU)
    assert workload.features == ("BD", "T", "cache_dtype")
    assert workload.provenance == {"values": {"cache_dtype": ["float32", "none"]}}
    for shape in workload.subject.scenarios.values():
        measure = right.prepare(shape, CPU)
        assert isinstance(measure("W4_S2", 1e9), float)
        assert isinstance(wrong.prepare(shape, CPU)("W4_S2", 1e9), Failure)


def test_what_its_autotuner_chose_is_chosen_by_a_module(package: Any) -> None:
    def choose(*, T: int, cached: int) -> Config:
        return Config("token_shift", 4 if cached else 8, T)

    made: Any = types.ModuleType("token_shift")
    made.MODULES = {"default": types.SimpleNamespace(choose=choose)}
    made.key_for = lambda name, arch, vendor: "default"
    kernel = package.token_shift_fwd_kernel_short
    kernel.fn = tuned(made, features={"cached": "cache is not None"})(kernel.fn)
    x, cache = torch.randn(2, 3, 12), torch.randn(2, 12)
    result = package.token_shift_fwd(x, cache=cache, output_cache=True)
    assert torch.equal(result[0], torch.cat([cache[:, None], x[:, :-1]], 1) - x)
    assert torch.equal(result[-1], x[:, -1])
    assert (kernel.fn.best_config.num_warps, kernel.fn.best_config.num_stages) == (4, 3)
    package.token_shift_fwd(x[:, :1])
    assert (kernel.fn.best_config.num_warps, kernel.fn.best_config.num_stages) == (8, 1)
