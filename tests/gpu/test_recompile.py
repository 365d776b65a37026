"""Triton compiles each kernel at most once for each config and head layout of a serving trace.

A launch that compiles would stall a server for a second. `ATTN_TEST_STEPS=1000` sets the length of the trace.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict

import pytest
import torch

from attn_kernels import Config
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.kernels.hopper_limits import hopper_for
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.measure.tensors import launches_of, plan_for, stand_in
from benchmarks.launch.ahead import count_by_kernel, draw

pytestmark = pytest.mark.gpu
STEPS = int(os.environ.get("ATTN_TEST_STEPS", "1000"))
LAYOUTS = (HeadLayout(32, 8), HeadLayout(28, 4))
CONFIGS = (
    Config("qblock", 64, 64),
    Config("qblock", 128, 128, num_warps=8, tma=1),
    Config("qblock", 16, 64),
    Config("stream_k", 16, 128, programs_per_sm=2, tma=1),
    Config("pod", 128, 64, num_stages=3, decode_tile=128),
)
LONGEST, KV_TOKENS, QUERY_TOKENS = 1024, 32 * 1024, 8 * 1024  # about the most of a batch


def allowed(configs: list[Config], on_hopper: bool) -> dict[str, int]:
    """The most binaries of each kernel: one for each config and head layout that launches it."""
    users: dict[str, set[tuple[Config, HeadLayout]]] = defaultdict(set)
    for config in configs:
        in_parts = needs_parts(config)
        for layout in LAYOUTS:
            if (config.tma or in_parts) and on_hopper:
                for name in ("hopper_kernel", "schedule_kernel", *["divide_kernel"] * in_parts):
                    users[name].add((config, layout))
                continue
            group = layout.num_query_heads // layout.num_kv_heads
            for part in VARIANTS[config.variant].specialise(config, group):
                users[part.kernel.fn.__name__].add((config, layout))
    return {name: len(pairs) for name, pairs in users.items()}


def test_no_kernel_is_compiled_twice(device: torch.device) -> None:
    on_hopper = hopper_for(device) is not None
    # Only the Hopper kernel computes mixed batches without other configs.
    configs = [config for config in CONFIGS if on_hopper or not needs_parts(config)]
    before = count_by_kernel(device)
    drawn = random.Random(0)
    steps = [draw(drawn, LONGEST, KV_TOKENS, QUERY_TOKENS) for _ in range(STEPS)]
    for batch in [batch.at(layout) for layout in LAYOUTS for batch in steps]:
        tensors = stand_in(batch, device)
        in_parts = all(part.num_query_tokens for part in batch.parts)
        for config in configs:
            if in_parts or not needs_parts(config):
                launches_of(plan_for(tensors, config), tensors)[0]()
    torch.cuda.synchronize()
    limits = allowed(configs, on_hopper)
    compiled = {
        name: count - before[name] for name, count in count_by_kernel(device).items() if name in limits
    }
    assert any(compiled.values())
    assert {name: count for name, count in compiled.items() if count > limits[name]} == {}
