"""Counting segments on the device, from the lengths of the batch for which a captured graph is replayed.

A config has room for some number of segments. The tree knows how many of them a batch needs, and is printed
as a Triton function, too (docs/in_kernel.md). One program calls this function once a plan, and the kernels
of all layers read the count.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    SEQUSED_K,
    Specialisation,
    one_program_grid,
)
from attn_kernels.kernels.linear_tiles import load_lengths


class BatchFeatures(NamedTuple):
    """The features of trees that lengths determine, of the sequences that have query tokens."""

    num_seqs: Any
    num_query_tokens: Any
    num_kv_tokens: Any  # int64: contexts may share pages; the others are int32
    max_query_len: Any
    max_seq_len: Any


@triton.jit
def batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs):
    """The BatchFeatures of a batch, from int32 [num_seqs + 1] and int32 [num_seqs]."""
    CHUNK: tl.constexpr = 256  # sequences at a time
    with_queries = tl.zeros([CHUNK], dtype=tl.int32)
    queries = tl.zeros([CHUNK], dtype=tl.int32)
    keys = tl.zeros([CHUNK], dtype=tl.int64)
    most_queries = tl.zeros([CHUNK], dtype=tl.int32)
    most_keys = tl.zeros([CHUNK], dtype=tl.int32)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        context_lens = tl.where(query_lens > 0, context_lens, 0)
        with_queries += (query_lens > 0).to(tl.int32)
        queries += query_lens
        keys += context_lens
        most_queries = tl.maximum(most_queries, query_lens)
        most_keys = tl.maximum(most_keys, context_lens)
    return BatchFeatures(
        tl.sum(with_queries, 0),
        tl.sum(queries, 0),
        tl.sum(keys, 0),
        tl.max(most_queries, 0),
        tl.max(most_keys, 0),
    )


@triton.jit(**JIT_OPTIONS)
def count_segments_kernel(
    num_segments_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs,
    num_query_heads,
    num_kv_heads,
    head_size,
    block_size,
    kv_element_size,
    most,
    num_segments: tl.constexpr,
):
    """Store into how many segments the batch's contexts are split, 1 to ``most``; one program.

    ``num_segments``: a generated function, which takes the features of trees by their names.
    """
    features = batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs)
    count = num_segments(
        num_seqs=features.num_seqs,
        num_query_tokens=features.num_query_tokens,
        num_kv_tokens=features.num_kv_tokens,
        max_query_len=features.max_query_len,
        max_seq_len=features.max_seq_len,
        num_query_heads=num_query_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        kv_element_size=kv_element_size,
    )
    tl.store(num_segments_ptr, tl.maximum(tl.minimum(count, most), 1))


@triton.jit
def all_segments(
    num_seqs,
    num_query_tokens,
    num_kv_tokens,
    max_query_len,
    max_seq_len,
    num_query_heads,
    num_kv_heads,
    head_size,
    block_size,
    kv_element_size,
):
    """Stands for a generated function where a kernel is compiled for no device in particular."""
    return 1 << 30


def specialise_count_segments(config: Config) -> tuple[Specialisation, ...]:
    """The kernel that counts segments, if the config has the device count them."""
    if not config.device_segments:
        return ()
    constants = {"num_segments": all_segments}
    return (Specialisation(count_segments_kernel, constants=constants, options=ONE_PROGRAM_OPTIONS),)


def bind_count_segments(plan: Plan, num_segments: OfPlan) -> tuple[Launch, ...]:
    """The launch that counts segments into an int32 [1]; none where the device counts none."""
    if plan.segments_function is None:
        return ()
    arguments = (
        num_segments,
        CU_SEQLENS_Q,
        SEQUSED_K,
        NUM_SEQS,
        plan.model.num_query_heads,
        plan.model.num_kv_heads,
        plan.model.head_size,
        plan.model.block_size,
        plan.model.kv_element_size,
        plan.config.num_segments,
        plan.segments_function,
    )
    return (Launch(count_segments_kernel, one_program_grid, arguments, ONE_PROGRAM_OPTIONS),)
