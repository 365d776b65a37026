"""Passes over different keys give the attention over all of them, against float64 and poisoned memory."""

import pytest
import torch
from shared_keys import Ranks

from attn_kernels.testing.poisoned import make_batch, relative_error

FP8 = torch.float8_e4m3fn
SCALES = {"k_scale": 0.25, "v_scale": 0.5}
SINKS = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1.5, 0.0])


@pytest.mark.parametrize(
    ("ranks", "interleave", "lens", "cache_dtype", "options"),
    [
        (4, 16, ([1, 1, 1, 1], [5, 70, 33, 1]), None, {}),
        (4, 16, ([20, 7], [20, 7]), None, {}),
        (4, 16, ([4, 8, 5], [70, 30, 5]), None, {"softcap": 3.0}),
        (2, 1, ([1, 1, 4, 20, 25, 1], [33, 17, 36, 31, 25, 9]), None, {"sinks": SINKS}),
        (2, 1, ([1, 3, 12], [33, 36, 45]), FP8, SCALES | {"sinks": SINKS, "softmax_scale": 0.3}),
    ],
    ids=["decodes", "prompts", "drafts", "mixed", "fp8"],
)
def test_ranks_that_share_the_keys(ranks, interleave, lens, cache_dtype, options):
    """Sinks count once, and the step's own keys are not those that the cache has rounded."""
    heads = {"num_query_heads": 8, "num_kv_heads": 1, "head_size": 32}
    batch = make_batch(*lens, block_size=16, **heads, cache_dtype=cache_dtype)
    got = Ranks(batch, ranks, interleave, **options).attend()
    assert relative_error(got, batch.reference(**options)) <= 2e-2
