"""The cases of tests on a GPU find faults; here in the interpreter, on batches of a few tokens."""

import random
from typing import Any

import pytest
import torch
from launch_cases import LaunchCase, LaunchFeatures

import attn_kernels
from attn_kernels import Config
from attn_kernels.measure.batches import Batch, HeadLayout

CPU = torch.device("cpu")
CONFIGS = (None, Config("qblock", 16, 16), Config("qblock", 32, 16))
BATCH = Batch("tiny", "mixed", (1, 0, 1, 12), (20, 5, 33, 20), HeadLayout(4, 2, 32), dtype=torch.float16)


def test_random_features_are_right() -> None:
    features = LaunchFeatures.draw(random.Random(0), fp8=False)
    for seed in (0, 1):
        assert LaunchCase(seed, BATCH, CONFIGS, features, in_pairs=True).failures(CPU) == []


def test_a_cache_whose_used_pages_lie_at_its_end_is_right() -> None:
    assert LaunchCase(0, BATCH, CONFIGS[1:2], far=1 << 16).failures(CPU) == []


def test_every_launch_that_reads_hidden_keys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is one key too long reads NaN."""
    run = attn_kernels.run

    def wider(*args: Any, sliding_window: int, **options: Any) -> Any:
        return run(*args, sliding_window=sliding_window + 1, **options)

    monkeypatch.setattr(attn_kernels, "run", wider)
    case = LaunchCase(0, BATCH, CONFIGS[1:], LaunchFeatures(window=4))
    assert len(case.failures(CPU)) == len(case.configs)


def test_a_second_launch_with_other_bits_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run, outs = attn_kernels.run, []

    def flip(*args: Any, out: Any, **options: Any) -> None:
        run(*args, out=out, **options)
        outs.append(out)
        if len(outs) % 2 == 0:
            out.view(torch.int16)[-1, -1, -1] ^= 1

    monkeypatch.setattr(attn_kernels, "run", flip)
    case = LaunchCase(0, BATCH, CONFIGS, LaunchFeatures(strides="off"))
    assert len(case.failures(CPU)) == len(CONFIGS)


def test_a_launch_that_raises_is_a_failure() -> None:
    (line,) = LaunchCase(0, BATCH, (Config("qblock", 3, 16),)).failures(CPU)
    assert "block_m" in line


def test_jobs_run_what_they_compile() -> None:
    jobs = list(LaunchCase(0, BATCH, CONFIGS, LaunchFeatures(softcap=5.0)).jobs())
    assert len({key for job in jobs for key in job.needs}) == len(CONFIGS)
    for job in jobs:
        job.run(CPU)
