"""Passes over different keys give the attention over all of them, against float64 and poisoned memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shared_keys import Ranks, run_with_lse

from attn_kernels import Config
from attn_kernels.engines.two_passes import FAR
from attn_kernels.testing.poisoned import PoisonedBatch, make_batch, relative_error
from attn_kernels.testing.reference import paged_attention_reference

FP8 = torch.float8_e4m3fn
TOLERANCE = 2e-2
SINKS = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1.5, 0.0])


def batch_of(
    query_lens: list[int], context_lens: list[int], kv_heads: int = 1, **options: Any
) -> PoisonedBatch:
    heads = {"num_query_heads": 8, "num_kv_heads": kv_heads, "head_size": 32}
    return make_batch(query_lens, context_lens, block_size=16, **heads, **options)


@pytest.mark.parametrize("row_cost", [3.0, 0.02], ids=["whole", "split"])
@pytest.mark.parametrize(
    ("kv_heads", "cache_dtype", "options"),
    [
        (2, None, {}),
        (8, None, {"softcap": 3.0}),
        (1, None, {"sinks": SINKS}),
        (2, FP8, {"k_scale": 0.25, "v_scale": 0.5}),
    ],
    ids=["grouped", "softcap", "sinks", "fp8"],
)
def test_a_range_of_every_position_is_attention_without_a_mask(
    kv_heads: int,
    cache_dtype: torch.dtype | None,
    options: dict[str, Any],
    row_cost: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of sequences with more queries than keys, and of one without a key."""
    batch = batch_of([3, 20, 1, 5], [200, 7, 33, 0], kv_heads, cache_dtype=cache_dtype)
    monkeypatch.setattr("attn_kernels.kernels.splits.ROW_COST", row_cost)
    plan = batch.plan(config=Config("qblock", 64, 32), check=False)
    assert (plan.num_splits > 1) == (row_cost < 1)
    ranges = torch.tensor([[[-FAR, FAR]]], dtype=torch.int32).repeat(4, 1, 1)
    out, lse = run_with_lse(
        plan, batch.q, batch.k_cache, batch.v_cache, bidirectional_ranges=ranges, **options
    )
    # In float64, every query is a sequence of its own and the last of its keys.
    each = torch.tensor(batch.query_lens)
    alone = torch.full(lse.shape, torch.nan, dtype=torch.float64)
    expected = paged_attention_reference(
        *batch.tensors[:3],
        torch.arange(len(batch.q) + 1),
        batch.seqused_k.repeat_interleave(each),
        batch.block_table.repeat_interleave(each, 0),
        lse=alone,
        **options,
    )
    assert relative_error(out, expected) <= TOLERANCE
    torch.testing.assert_close(lse.double(), alone, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("ranks", "interleave", "query_lens", "context_lens"),
    [
        (4, 16, [1, 1, 1, 1], [5, 70, 33, 1]),
        (4, 16, [20, 7], [20, 7]),
        (4, 16, [4, 8, 5], [70, 30, 5]),
        (2, 1, [1, 1, 4, 25, 60, 1], [40, 17, 66, 41, 60, 9]),
    ],
    ids=["decodes", "prompts", "drafts", "mixed"],
)
def test_ranks_that_share_the_keys(
    ranks: int, interleave: int, query_lens: list[int], context_lens: list[int], module: str
) -> None:
    batch = batch_of(query_lens, context_lens)
    assert relative_error(Ranks(batch, ranks, interleave).attend(), batch.reference()) <= TOLERANCE


@pytest.mark.parametrize(
    ("cache_dtype", "options"),
    [
        (None, {"softcap": 3.0}),
        (None, {"sinks": SINKS}),
        (FP8, {"k_scale": 0.25, "v_scale": 0.5, "sinks": SINKS, "softmax_scale": 0.3}),
    ],
    ids=["softcap", "sinks", "fp8"],
)
def test_options_of_layers_on_ranks(cache_dtype: torch.dtype | None, options: dict[str, Any]) -> None:
    """Sinks count once, and the step's own keys are not those that the cache has rounded."""
    batch = batch_of([1, 3, 30], [40, 66, 77], cache_dtype=cache_dtype)
    assert relative_error(Ranks(batch, 2, 1, **options).attend(), batch.reference(**options)) <= TOLERANCE
