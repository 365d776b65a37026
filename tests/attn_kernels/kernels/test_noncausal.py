"""Attention in which queries see later keys, too, with windows on both sides."""

import pytest
import torch
from captured_server import Server, batch_of
from kernel_cases import FP8, assert_close, check, make_config, random_batch, scores

from attn_kernels import Config, Model, flash_attn_varlen_func, run
from attn_kernels.testing.poisoned import run_poisoned

# The interpreter also computes the rows of a tile that hold no query.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")

WINDOWS = {  # of flash_attn_varlen_func; None is any number of keys
    "all": ((-1, -1), None, None),
    "both sides": ((4, 4), 4, 4),
    "earlier": ((4, -1), 4, None),
    "later": ((-1, 3), None, 3),
    "uneven": ((2, 9), 2, 9),
    "none later": ((5, 0), 5, 0),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_torch_with_a_mask(name):
    """Of a sequence with more keys than queries, and of one with more queries than keys."""
    window_size, before, after = WINDOWS[name]
    batch = random_batch(((9, 20), (30, 14)), ratio=1, head_size=16)
    out = flash_attn_varlen_func(
        batch.q,
        batch.k_cache,
        batch.v_cache,
        20,
        batch.cu_seqlens_q,
        30,
        seqused_k=batch.seqused_k,
        block_table=batch.block_table,
        causal=False,
        window_size=window_size,
    )
    for seq, (queries, keys) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        tokens = slice(*batch.cu_seqlens_q[seq : seq + 2])
        distances = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
        seen = (distances >= -(keys if before is None else before)) | (before is None)
        seen &= (distances <= (after or 0)) | (after is None)
        pages = batch.block_table[seq, : -(-keys // 16)].long()
        k, v = (cache[pages].flatten(0, 1)[:keys] for cache in (batch.k_cache, batch.v_cache))
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(tensor.double().transpose(0, 1) for tensor in (batch.q[tokens], k, v)), attn_mask=seen
        )
        assert_close(out[tokens], expected.transpose(0, 1).nan_to_num())  # NaN: a query that sees no key


@pytest.mark.parametrize(
    "names", ["noncausal", "noncausal window=7 alibi sinks", "noncausal after=2 softcap"]
)
@pytest.mark.parametrize("config", [make_config(), make_config("invariant", 32), Config("stream_k", 16, 16)])
def test_every_variant_in_whole_batches_and_in_parts(config, names, whole_and_split):
    lens = (1, 3, 18, 0), (50, 70, 30, 9)
    batch = random_batch(lens, ratio=2, kv_heads=2, cache_dtype=FP8 if "softcap" in names else None)
    options = scores(4, names)
    check(batch, config, **options)
    if config.variant != "invariant":
        plan = batch.plan_in_parts(config, make_config(block_m=32))
        assert_close(run_poisoned(batch, plan, **options), batch.reference(**options))


def test_alibi_slopes_count_distances_on_both_sides():
    batch = random_batch(((20,), (20,)), ratio=1, head_size=16)
    options = {"causal": False, "alibi_slopes": torch.tensor([100.0])}
    out = run_poisoned(batch, batch.plan(config=make_config()), **options)
    values = batch.v_cache[batch.block_table[0, :2].long()].flatten(0, 1)[:20]
    torch.testing.assert_close(out, values)  # each query sees little but its own key


def test_drafts_that_see_each_other_behind_a_cached_context_in_replays_of_a_graph(many_splits):
    server = Server(make_config(), causal=False, sliding_window=50)
    for seed, lens in enumerate([((4, 4), (60, 150)), ((1, 4), (9, 200))]):
        batch = batch_of(*lens, seed=seed)
        expected = batch.reference(causal=False, sliding_window=50)
        assert_close(server.replay(batch), expected)


def test_plans_of_causal_layers_have_no_more_queries_than_keys():
    batch = random_batch(((20,), (9,)), ratio=2, head_size=16)
    with pytest.raises(ValueError, match="max_query_len"):
        batch.plan(config=make_config())
    with pytest.raises(ValueError, match="seqused_k"):
        batch.plan(config=make_config(), max_seq_len=20)
    model = Model(2, 1, 16, 16, torch.float16, causal=False)
    out = run(batch.plan(config=make_config(), model=model), batch.q, batch.k_cache, batch.v_cache)
    assert not out[:11].any()
