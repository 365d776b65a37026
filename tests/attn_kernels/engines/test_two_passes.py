"""Passes over different keys give the attention over all of them, against float64 and poisoned memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shared_keys import Ranks

from attn_kernels.testing.poisoned import PoisonedBatch, make_batch, relative_error

FP8 = torch.float8_e4m3fn
TOLERANCE = 2e-2
SINKS = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1.5, 0.0])


def batch_of(
    query_lens: list[int], context_lens: list[int], kv_heads: int = 1, **options: Any
) -> PoisonedBatch:
    heads = {"num_query_heads": 8, "num_kv_heads": kv_heads, "head_size": 32}
    return make_batch(query_lens, context_lens, block_size=16, **heads, **options)


@pytest.mark.parametrize(
    ("ranks", "interleave", "query_lens", "context_lens"),
    [
        (4, 16, [1, 1, 1, 1], [5, 70, 33, 1]),
        (4, 16, [20, 7], [20, 7]),
        (4, 16, [4, 8, 5], [70, 30, 5]),
        (2, 1, [1, 1, 4, 20, 25, 1], [33, 17, 36, 31, 25, 9]),
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
    batch = batch_of([1, 3, 12], [33, 36, 45], cache_dtype=cache_dtype)
    assert relative_error(Ranks(batch, 2, 1, **options).attend(), batch.reference(**options)) <= TOLERANCE
