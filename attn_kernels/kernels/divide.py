"""Dividing a mixed batch in memory into its decodes and its prompts, once a plan.

The host says how many leading sequences are decodes, and how long. The device reads where that holds. So no
wrong count gives a wrong result: the sequences that it does not hold for count as prompts.
"""

from operator import attrgetter

import triton
import triton.language as tl

from attn_kernels.core.structures import Launch, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    one_program_grid,
)


@triton.jit(**JIT_OPTIONS)
def divide_kernel(
    cu_decodes_ptr,
    cu_prompts_ptr,
    cu_seqlens_q_ptr,
    num_seqs,
    num_decodes,
    num_decode_tokens,
    max_decode_len,
):
    """Write where the query tokens of each part's sequences begin; one program.

    The decodes are the longest prefix of the sequences that keeps three limits: ``num_decodes`` sequences,
    ``max_decode_len`` query tokens in each, and ``num_decode_tokens`` in all. Both outputs are int32
    [num_seqs + 1]. In that of the decodes, sequences behind the prefix have no tokens, and in that of the
    prompts, sequences of the prefix have none. Tokens keep their numbers.
    """
    CHUNK: tl.constexpr = 256  # sequences at a time
    boundary = num_decodes
    for first in tl.range(0, num_decodes, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        exists = seqs < num_decodes
        starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
        stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
        fits = (stops - starts <= max_decode_len) & (stops <= num_decode_tokens)
        boundary = tl.minimum(boundary, tl.min(tl.where(fits, num_decodes, seqs), 0))
    for first in tl.range(0, num_seqs + 1, CHUNK, num_stages=1):
        places = first + tl.arange(0, CHUNK)
        exists = places <= num_seqs
        decodes = tl.load(cu_seqlens_q_ptr + tl.minimum(places, boundary), mask=exists, other=0)
        prompts = tl.load(cu_seqlens_q_ptr + tl.maximum(places, boundary), mask=exists, other=0)
        tl.store(cu_decodes_ptr + places, decodes, mask=exists)
        tl.store(cu_prompts_ptr + places, prompts, mask=exists)


def _of_part(index: int, name: str) -> OfPlan:
    read = attrgetter(name)
    return OfPlan(lambda plan: read(plan.parts[index]))


ARGUMENTS = (
    _of_part(0, "cu_seqlens_q"),
    _of_part(1, "cu_seqlens_q"),
    CU_SEQLENS_Q,
    NUM_SEQS,
    _of_part(0, "num_seqs"),
    _of_part(0, "num_query_tokens"),
    _of_part(0, "max_query_len"),
)


def bind_divide(plan: Plan) -> tuple[Launch, ...]:
    """The launch that divides the batch of a plan with parts."""
    return (Launch(divide_kernel, one_program_grid, ARGUMENTS, ONE_PROGRAM_OPTIONS),)
