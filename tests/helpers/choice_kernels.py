"""Kernels that store which rows generated Triton functions find."""

import triton
import triton.language as tl

from attn_kernels.kernels.segments import batch_features


@triton.jit
def measured_choice_kernel(
    out_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    first_ptr,
    shape_ptr,
    FUNCTION: tl.constexpr,
):
    """Find the row of one batch per program, by ``batch_features`` of the lengths that begin at ``first``."""
    batch = tl.program_id(0)
    first = tl.load(first_ptr + batch)
    num_seqs = tl.load(first_ptr + batch + 1) - first
    shape_ptr += batch * 5
    num_kv_heads = tl.load(shape_ptr + 1)
    facts = batch_features(cu_seqlens_q_ptr + first + batch, seqused_k_ptr + first, num_seqs)
    chosen = FUNCTION(
        facts.num_seqs,
        facts.num_query_tokens,
        facts.num_kv_tokens,
        facts.max_query_len,
        facts.max_seq_len,
        tl.load(shape_ptr),
        num_kv_heads,
        tl.load(shape_ptr + 2),
        tl.load(shape_ptr + 3),
        tl.load(shape_ptr + 4),
    )
    tl.store(out_ptr + batch, chosen)


@triton.jit
def choice_kernel(out_ptr, features_ptr, stride, count, FUNCTION: tl.constexpr):
    """Find the rows of batches, each given by ten features."""
    for batch in range(tl.program_id(0), count, tl.num_programs(0)):
        at = features_ptr + batch * stride
        chosen = FUNCTION(
            tl.load(at),
            tl.load(at + 1),
            tl.load(at + 2),
            tl.load(at + 3),
            tl.load(at + 4),
            tl.load(at + 5),
            tl.load(at + 6),
            tl.load(at + 7),
            tl.load(at + 8),
            tl.load(at + 9),
        )
        tl.store(out_ptr + batch, chosen)


@triton.jit
def constant_choice_kernel(out_ptr, FEATURES: tl.constexpr, FUNCTION: tl.constexpr):
    """Find the row for ten features that are known when the kernel is compiled."""
    chosen = FUNCTION(
        FEATURES[0],
        FEATURES[1],
        FEATURES[2],
        FEATURES[3],
        FEATURES[4],
        FEATURES[5],
        FEATURES[6],
        FEATURES[7],
        FEATURES[8],
        FEATURES[9],
    )
    tl.store(out_ptr, chosen)
