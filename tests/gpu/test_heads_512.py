"""Heads of 320 and 512 are right with every config that tuning tries, and where the Hopper kernel stops."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from launch_cases import LaunchCase, LaunchFeatures

from attn_kernels import Config
from attn_kernels.measure.batches import HeadLayout, varlen
from attn_kernels.tuning.space.rules import Gpu, reason_of_model
from attn_kernels.tuning.space.space import declared

pytestmark = pytest.mark.gpu
K = 1024
HOPPER = Gpu("sm_90", "nvidia", 232448, 132)
FP8 = torch.float8_e4m3fn
# The Hopper kernel refuses these heads: the Q-Block kernel computes them with smaller tiles.
REFUSED = [Config.parse("qblock_M128_T128_W8_S3_D1"), Config.parse("stream_k_M16_T64_W4_S2_D1")]
CASES = (
    (HeadLayout(16, 2, 512), LaunchFeatures()),
    (HeadLayout(8, 2, 512), LaunchFeatures(window=1000, sinks="half", strides="fused")),
    (HeadLayout(32, 4, 512), LaunchFeatures(fp8=True, scales="tensor")),
    (HeadLayout(16, 4, 320), LaunchFeatures(window=128, softcap=30.0, alibi=True)),
    (HeadLayout(16, 4, 320), LaunchFeatures(fp8=True, scales="float", sinks="float32", window=17)),
)


def cases() -> Iterator[LaunchCase]:
    for i, (layout, features) in enumerate(CASES):
        rng = random.Random(f"heads of 512/{i}")
        lengths = varlen(rng.randrange(2**20), max_seqs=12, max_context=8 * K, max_tokens=24 * K)
        dtype = torch.float16 if i == 3 else torch.bfloat16
        batch = lengths.at(layout, (16, 32, 64, 16, 24)[i], dtype)
        model = layout.model(batch.block_size, dtype, FP8 if features.fp8 else None)
        tried = [config for config in declared("nvidia") if reason_of_model(config, model, HOPPER) is None]
        yield LaunchCase(i, batch, (None, *tried, *REFUSED), features, in_pairs=i == 0)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case.batch.layout} {case.features}")
def test_wide_heads(case: LaunchCase, device: torch.device, compiled: None) -> None:
    assert case.failures(device) == []
