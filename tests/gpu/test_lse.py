"""The log-sum-exp of every variant against float64, alone and where outputs over shards are merged.

`ATTN_TEST_SEED=1` draws other batches.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch
from key_shards import shard
from launch_cases import FALLBACK, LSE_TOLERANCE, LaunchCase, LaunchFeatures, make_tensors, parts_of
from torch import Tensor

from attn_kernels import Config, merge_attention_states, run
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.structures import Plan
from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.hopper_launch import hopper_for
from attn_kernels.measure.batches import Batch, HeadLayout, varlen
from attn_kernels.measure.checking import TOLERANCE, Expected, check
from attn_kernels.testing.poisoned import PoisonedBatch, run_poisoned

pytestmark = pytest.mark.gpu
SEED = int(os.environ.get("ATTN_TEST_SEED", "0"))
POINTERS = Config("qblock", 16, 64)  # whole and split contexts
PROMPTS = Config("qblock", 128, 64, num_warps=8, num_stages=2, tma=1)
DECODES = Config("stream_k", 16, 64, num_stages=2, tma=1)
BOTH = Config("pod", 128, 64, num_stages=2)
CONFIGS = (POINTERS, PROMPTS, DECODES, BOTH)
LAYOUTS = (HeadLayout(32, 8, 128), HeadLayout(16, 4, 80), HeadLayout(8, 1, 256))
SHARDED = Batch("shards", "decode", (1,) * 6, (1, 3, 40, 700, 20, 5000), LAYOUTS[0], 16)
FEATURES = (
    LaunchFeatures(lse=True),
    LaunchFeatures(lse=True, window=128, sinks="half", strides="fused"),
    LaunchFeatures(lse=True, softcap=30.0, alibi=True),
    LaunchFeatures(lse=True, causal=False, window=128, sinks="half"),
    LaunchFeatures(lse=True, fp8=True, scales="tensor", window=1000, sinks="float32"),
)


def cases() -> Iterator[LaunchCase]:
    for i, layout in enumerate(LAYOUTS):
        for j, features in enumerate(FEATURES):
            rng = random.Random(f"lse/{SEED}/{i}/{j}")
            lengths = varlen(rng.randrange(2**20), max_seqs=12, max_context=4096, max_tokens=4096)
            batch = lengths.at(layout, (16, 64)[j % 2], (torch.bfloat16, torch.float16)[(i + j) % 2])
            taken = tuple(config for config in CONFIGS if is_taken(config, batch, features))
            # Queries of the largest scale outgrow their first maximum (hopper_q_blocks).
            scale = 1.0 if features.sinks or features.fp8 else (1.0, 64.0)[i % 2]
            yield LaunchCase(SEED + j, batch, taken, features, scale)


def is_taken(config: Config, batch: Batch, features: LaunchFeatures) -> bool:
    """Whether the kernel of a config computes a case, and not the pointers."""
    if config == POINTERS:
        return True
    layout = batch.layout
    heads = layout.num_query_heads // layout.num_kv_heads
    cache_bytes = 1 if features.fp8 else 2
    shape = (config, layout.head_size, batch.block_size, heads, cache_bytes)
    has_fp8 = "fp8" in hopper_limits.OPTIONS[config.variant]
    return (has_fp8 or not features.fp8) and hopper_limits.unsupported_shape(*shape) is None


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case.batch.layout} {case.features}")
def test_log_sum_exp(case: LaunchCase, device: torch.device, compiled: None) -> None:
    """A row outgrows its maximum, a context is split or shared by programs, a part writes its own columns."""
    if hopper_for(device) is None and any(config.tma or needs_parts(config) for config in case.configs):
        pytest.skip("needs a Hopper GPU, and a Triton with the parts of Gluon that the kernel uses")
    assert case.failures(device) == []


def plan_of(batch: PoisonedBatch, config: Config, **options: bool) -> Plan:
    if needs_parts(config):
        return batch.plan_in_parts(FALLBACK, FALLBACK, parts_of(SHARDED), config)
    return batch.plan(config=config, **options)


def shards(device: torch.device) -> tuple[PoisonedBatch, tuple[PoisonedBatch, PoisonedBatch]]:
    batch = make_tensors(SHARDED, device, SEED)
    return batch, (shard(batch, 0, 2, 16), shard(batch, 1, 2, 16))


def lse_of(batch: PoisonedBatch, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((batch.q.shape[1], batch.q.shape[0]), torch.nan, dtype=dtype, device=batch.q.device)


def assert_merged(batch: PoisonedBatch, out: Tensor, lse: Tensor) -> None:
    logarithms = lse_of(batch, torch.float64)
    values = batch.reference(lse=logarithms)
    rows = torch.arange(len(values), device=values.device)
    assert check(out, Expected(rows, values, TOLERANCE[out.dtype])).ok
    torch.testing.assert_close(lse.double(), logarithms, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_two_ranks_that_share_the_keys(config: Config, device: torch.device) -> None:
    """Decode context parallelism; one rank has no key of some sequences."""
    batch, parts = shards(device)
    states = []
    for part in parts:
        lse = lse_of(part)
        out = run_poisoned(part, plan_of(part, config), lse=lse)
        empty = [seq for seq, length in enumerate(part.context_lens) if length == 0]
        assert not out[empty].any() and (lse[:, empty] == -torch.inf).all()
        states += [out, lse]
    assert_merged(batch, *merge_attention_states(*states, out=states[0], lse=states[1]))


@pytest.mark.parametrize("config", (POINTERS, DECODES), ids=str)
def test_a_graph_of_both_ranks_and_their_merge(config: Config, device: torch.device) -> None:
    """Each replay writes the log-sum-exps anew, by a launch that Triton did not dispatch."""
    batch, parts = shards(device)
    plans = [plan_of(part, config, for_capture=True) for part in parts]
    outs, lses = [torch.empty_like(batch.q) for _ in parts], [lse_of(batch) for _ in parts]

    def step() -> None:
        for plan, part, out, lse in zip(plans, parts, outs, lses, strict=True):
            run(plan, part.q, part.k_cache, part.v_cache, out=out, lse=lse)
        merge_attention_states(outs[0], lses[0], outs[1], lses[1], out=outs[0], lse=lses[0])

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(2):
        for tensor in (*outs, *lses):
            tensor.fill_(torch.nan)
        graph.replay()
        assert_merged(batch, outs[0], lses[0])
