"""First starts of servers: one rank compiles for all, and a cache filled without a GPU is complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.launch.first_start import start
from triton_tune.core.device import describe_device

pytestmark = pytest.mark.gpu


def test_of_two_ranks_one_compiles(device: torch.device, tmp_path: Path) -> None:
    outcomes = start(2, "llama3_8b", False, "cuda", tmp_path)
    idle, busy = sorted(int(str(outcome["compiled"])) for outcome in outcomes)
    assert idle == 0 < busy
    assert [outcome["failures"] for outcome in outcomes] == [[], []]


def test_a_cache_filled_without_a_gpu_holds_all_kernels(device: torch.device, tmp_path: Path) -> None:
    name, arch, _ = describe_device(device)
    key = next((key for key in ("nvidia_h100", "nvidia_h200") if key[-4:].upper() in name), None)
    if arch != "sm_90" or key is None:
        pytest.skip("needs a GPU with a module")
    words = f"--device-key {key} --target sm_90 --heads 32/8/128"
    hidden = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "attn_kernels.offline.fill_cache", *words.split()]
    subprocess.run(command, env=hidden, check=True)
    (outcome,) = start(1, "llama3_8b", False, "cuda", tmp_path)
    assert (outcome["compiled"], outcome["processes"], outcome["failures"]) == (0, 0, [])
