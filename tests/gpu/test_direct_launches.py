"""Direct launches give the bits of Triton's dispatch, whatever changes from one layer to the next."""

from __future__ import annotations

import pytest
import torch
from direct_launches import CHANGES, FEW, DirectLaunches, compare, stress

from benchmarks.launch.launch_cost import CONFIGS

pytestmark = pytest.mark.gpu
CASES = [
    DirectLaunches(name, config, FEW if name == "decodes on Hopper" else tuple(CHANGES))
    for name, config in CONFIGS.items()
]
STRESS_SECONDS = 3.0  # of each config


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_that_change_have_the_bits_of_triton_launches(
    case: DirectLaunches, device: torch.device, compiled: None
) -> None:
    count, wrong = compare(case.cases(device))
    assert count and wrong == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_layers_of_many_threads_have_the_bits_of_triton_launches(
    case: DirectLaunches, device: torch.device, compiled: None
) -> None:
    launches, wrong = stress(case.cases(device), device, STRESS_SECONDS, threads=8)
    assert launches and wrong == []


@pytest.mark.parametrize("case", CASES[:1], ids=str)
def test_a_second_gpu_has_the_bits_of_triton_launches(case: DirectLaunches, compiled: None) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    every = [one for index in range(2) for one in case.cases(torch.device("cuda", index))]
    count, wrong = compare(every)
    assert count and wrong == []
