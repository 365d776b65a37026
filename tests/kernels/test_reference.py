"""The reference itself, against torch's dense attention."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attn_kernels.reference import paged_attention_reference
from attn_kernels.testing import make_batch


@pytest.mark.parametrize("max_scores", [2**25, 100, 1])
def test_reference_equals_dense_attention(max_scores):
    query_lens, context_lens = (5, 0, 1, 3), (5, 9, 33, 20)
    batch = make_batch(
        query_lens, context_lens, num_query_heads=6, num_kv_heads=2, head_size=16, block_size=8
    )
    tensors = (batch.q, batch.k_cache, batch.v_cache, batch.cu_seqlens_q, batch.seqused_k, batch.block_table)
    out = paged_attention_reference(*tensors, softmax_scale=0.2, max_scores=max_scores)
    assert out.dtype == torch.float64
    for seq, (query_len, context_len) in enumerate(zip(query_lens, context_lens, strict=True)):
        tokens = slice(int(batch.cu_seqlens_q[seq]), int(batch.cu_seqlens_q[seq + 1]))
        positions = torch.arange(context_len)
        pages, slots = batch.block_table[seq, positions // 8].long(), positions % 8
        q, k, v = (
            tensor.double().transpose(0, 1)
            for tensor in (batch.q[tokens], batch.k_cache[pages, slots], batch.v_cache[pages, slots])
        )
        visible = torch.ones(query_len, context_len, dtype=torch.bool).tril(context_len - query_len)
        dense = scaled_dot_product_attention(q, k, v, visible, scale=0.2, enable_gqa=True)
        torch.testing.assert_close(out[tokens], dense.transpose(0, 1))


def test_scale_defaults_to_one_over_the_root_of_the_head_size():
    batch = make_batch((3,), (9,), num_query_heads=2, num_kv_heads=2, head_size=16, block_size=8)
    assert torch.equal(batch.reference(), batch.reference(softmax_scale=0.25))
