"""Decided on the device, from the lengths of the batch that a captured graph is replayed for.

A config has room for some number of segments. How many of them a batch needs, the tree knows, which is
printed as a Triton function, too (docs/in_kernel.md). One program asks it, once a plan, and the kernels of
all layers read its answer.
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
    one_program,
)
from attn_kernels.kernels.work import lengths


class Facts(NamedTuple):
    """What lengths say of the sequences that have query tokens; named as the features of trees are."""

    num_seqs: Any
    num_query_tokens: Any
    num_kv_tokens: Any
    max_query_len: Any
    max_seq_len: Any


@triton.jit
def facts_of(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs):
    """Facts of a batch: int32, and int64 the sum of contexts, which may share pages."""
    CHUNK: tl.constexpr = 256  # sequences at a time
    with_queries = tl.zeros([CHUNK], dtype=tl.int32)
    queries = tl.zeros([CHUNK], dtype=tl.int32)
    keys = tl.zeros([CHUNK], dtype=tl.int64)
    most_queries = tl.zeros([CHUNK], dtype=tl.int32)
    most_keys = tl.zeros([CHUNK], dtype=tl.int32)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        context_lens = tl.where(query_lens > 0, context_lens, 0)
        with_queries += (query_lens > 0).to(tl.int32)
        queries += query_lens
        keys += context_lens
        most_queries = tl.maximum(most_queries, query_lens)
        most_keys = tl.maximum(most_keys, context_lens)
    return Facts(
        tl.sum(with_queries, 0),
        tl.sum(queries, 0),
        tl.sum(keys, 0),
        tl.max(most_queries, 0),
        tl.max(most_keys, 0),
    )


@triton.jit(**JIT_OPTIONS)
def decide_kernel(
    decided_ptr,
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
    """Store how many segments the batch's contexts are split into, 1 to ``most``; by one program.

    ``num_segments``: a generated function of the features of trees, by their names, as ``choose`` is.
    """
    facts = facts_of(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs)
    decided = num_segments(
        num_seqs=facts.num_seqs,
        num_query_tokens=facts.num_query_tokens,
        num_kv_tokens=facts.num_kv_tokens,
        max_query_len=facts.max_query_len,
        max_seq_len=facts.max_seq_len,
        num_query_heads=num_query_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        kv_element_size=kv_element_size,
    )
    tl.store(decided_ptr, tl.maximum(tl.minimum(decided, most), 1))


@triton.jit
def as_many_as_there_are(
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


def specialise_decide(config: Config) -> tuple[Specialisation, ...]:
    """Nothing where the device decides nothing."""
    if not config.device_segments:
        return ()
    constants = {"num_segments": as_many_as_there_are}
    return (Specialisation(decide_kernel, constants=constants, options=ONE_PROGRAM_OPTIONS),)


def bind_decide(plan: Plan, decided: OfPlan) -> tuple[Launch, ...]:
    """The launch that decides for a plan, into an int32 tensor of one element; none where nothing does."""
    if plan.segments_function is None:
        return ()
    arguments = (
        decided,
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
    return (Launch(decide_kernel, one_program, arguments, ONE_PROGRAM_OPTIONS),)
