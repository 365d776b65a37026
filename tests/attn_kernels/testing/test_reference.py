"""The references themselves, against torch's dense attention and against each other."""

import pytest
import torch
from kernel_cases import FP8, random_batch, ranges_of
from kernel_cases import scores as score_options
from torch.nn.functional import scaled_dot_product_attention

from attn_kernels.testing.reference import paged_attention_reference

LENS = ((5, 0, 1, 3), (5, 9, 33, 20))


def dense(
    batch,
    softmax_scale,
    sliding_window=None,
    softcap=0.0,
    alibi_slopes=None,
    sinks=None,
    causal=True,
    keys_after=None,
    bidirectional_ranges=None,
    **scales,
):
    """Compute each sequence and head in turn with torch's dense attention in float64.

    The queries are zero and a bias holds the scores. A sink is one more key whose value is zero. What is
    visible is as in transformers' ``create_masks_for_vision_model``: window & (causal | same image).
    """
    ahead = sliding_window - 1 if keys_after is None and sliding_window else keys_after
    out = torch.full(batch.q.shape, torch.nan, dtype=torch.float64)
    block_size, ratio = batch.k_cache.shape[1], batch.q.shape[1] // batch.k_cache.shape[2]
    for seq, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        positions = torch.arange(context_len)
        pages, slots = batch.block_table[seq, positions // block_size].long(), positions % block_size
        tokens = slice(int(batch.cu_seqlens_q[seq]), int(batch.cu_seqlens_q[seq]) + query_len)
        query_positions = positions[context_len - query_len :]
        for head in range(batch.q.shape[1]):
            k = batch.k_cache.float()[pages, slots, head // ratio].double() * scales.get("k_scale", 1.0)
            v = batch.v_cache.float()[pages, slots, head // ratio].double() * scales.get("v_scale", 1.0)
            scores = softmax_scale * batch.q[tokens, head].double() @ k.T
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            if alibi_slopes is not None:
                scores = scores - alibi_slopes[head].double() * (query_positions[:, None] - positions).abs()
            visible = torch.ones(query_len, context_len, dtype=torch.bool)
            if causal or ahead is not None:
                visible = visible.tril(context_len - query_len + (0 if causal else ahead))
            for start, end in () if bidirectional_ranges is None else bidirectional_ranges[seq].tolist():
                inside = (start <= positions) & (positions <= end)
                visible |= inside[query_positions][:, None] & inside
            if sliding_window is not None:
                visible &= query_positions[:, None] < positions + sliding_window
            scores = torch.where(visible, scores, -torch.inf)
            if sinks is not None:
                scores = torch.cat([scores, sinks[head].double().expand(query_len, 1)], 1)
                v = torch.cat([v, torch.zeros_like(v[:1])])
            q = torch.zeros(query_len, 1, dtype=torch.float64)
            k = torch.zeros(len(v), 1, dtype=torch.float64)
            out[tokens, head] = scaled_dot_product_attention(q[None], k[None], v[None], scores[None])[0]
    return out


@pytest.mark.parametrize(
    "names, max_scores",
    [
        ("", 1),
        ("window=99", 2**25),
        ("window=6 softcap alibi sinks=half scales=tensor", 2**25),
        ("window=6 softcap alibi sinks scales", 1),
        ("noncausal", 100),
        ("noncausal window=4 alibi", 1),
        ("noncausal after=2", 2**25),
        ("noncausal window=9 after=3", 2**25),
        ("images", 1),
        ("images window=3", 2**25),
    ],
)
def test_reference_equals_dense_attention(names, max_scores):
    batch = random_batch(LENS, 3, 2, 16, block_size=8, cache_dtype=FP8 if "scales" in names else None)
    options = score_options(6, names.removeprefix("images")) | {"softmax_scale": 0.2}
    if names.startswith("images"):
        options["bidirectional_ranges"] = ranges_of([(1, 3)], [], [(0, 32)], [(10, 18), (17, 40), (9, 2)])
    out = paged_attention_reference(*batch.tensors, **options, max_scores=max_scores)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out, dense(batch, **options), rtol=1e-6, atol=1e-6)


def test_scale_defaults_to_one_over_the_root_of_the_head_size():
    batch = random_batch(((3,), (9,)), head_size=16)
    assert torch.equal(batch.reference(), batch.reference(softmax_scale=0.25))


def test_rows_of_no_sequence_are_nan():
    batch = random_batch(((2, 1), (9, 3)), head_size=16)
    q = torch.cat([batch.q, batch.q])
    out = paged_attention_reference(q, *batch.tensors[1:])
    assert not out[:3].isnan().any() and out[3:].isnan().all()
