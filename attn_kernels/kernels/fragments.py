"""Partial results of Q-Blocks that several programs share, joined by the last of them to finish.

No program waits for another. A program's share of the line (see ``work``) is contiguous, so it holds at most
two fragments: a continuation of the Q-Block that its share begins in, and the beginning of the one that it
ends in. So memory for two a program serves every batch. A Q-Block is known by the program that begins it,
which begins no other shared one: its counter is that program's.
"""

import triton
import triton.language as tl

from attn_kernels.kernels.rows import in_base_2, query_heads, store_rows, valid_rows


@triton.jit
def fragment_of(program, begins, programs):
    """The number of a program's fragment: continuations, then beginnings."""
    return program + begins.to(tl.int32) * programs


@triton.jit
def store_fragment(
    partial_ptr, max_ptr, sum_ptr, fragment, block, acc, row_max, row_sum, const: tl.constexpr
):
    """Write a softmax state, float32: [2, programs, block_m, head_padded], twice [2, programs, block_m]."""
    BLOCK_M: tl.constexpr = const.block_m
    HEAD_PADDED: tl.constexpr = const.head_padded
    valid = valid_rows(block, const)
    first = fragment.to(tl.int64) * BLOCK_M
    rows = tl.arange(0, BLOCK_M)
    offsets = rows[:, None] * HEAD_PADDED + tl.arange(0, HEAD_PADDED)[None, :]
    tl.store(max_ptr + first + rows, row_max, mask=valid)
    tl.store(sum_ptr + first + rows, row_sum, mask=valid)
    tl.store(partial_ptr + first * HEAD_PADDED + offsets, acc, mask=valid[:, None])


@triton.jit
def load_fragment(partial_ptr, max_ptr, sum_ptr, fragment, written, const: tl.constexpr):
    """A softmax state that ``store_fragment`` wrote, past the L1 cache; rows not ``written`` are empty."""
    BLOCK_M: tl.constexpr = const.block_m
    HEAD_PADDED: tl.constexpr = const.head_padded
    first = fragment.to(tl.int64) * BLOCK_M
    rows = tl.arange(0, BLOCK_M)
    offsets = rows[:, None] * HEAD_PADDED + tl.arange(0, HEAD_PADDED)[None, :]
    partial_ptrs = partial_ptr + first * HEAD_PADDED + offsets
    row_max = tl.load(max_ptr + first + rows, mask=written, other=-1e38, cache_modifier=".cg")
    row_sum = tl.load(sum_ptr + first + rows, mask=written, other=0.0, cache_modifier=".cg")
    acc = tl.load(partial_ptrs, mask=written[:, None], other=0.0, cache_modifier=".cg")
    return acc, row_max, row_sum


@triton.jit
def is_last_to_arrive(counters_ptr, first, last):
    """Count the calling program, which wrote its fragment, among the programs ``first .. last``; whether all
    of them have written theirs, which the caller may read past the L1 cache then. Not so on AMD GPUs, see
    ``stream_k.why_not``."""
    tl.debug_barrier()  # the fragment is written by all threads, the counter by one
    arrived = tl.atomic_add(counters_ptr + first, 1, sem="acq_rel", scope="gpu")
    is_last = arrived == last - first
    if is_last:
        tl.store(counters_ptr + first, 0)  # for the next launch
    return is_last


@triton.jit
def join(partial_ptr, max_ptr, sum_ptr, first, last, programs, block, const: tl.constexpr):
    """The softmax state of a Q-Block from the fragments of the programs ``first .. last``.

    In their order on the line, whoever arrived last: so the sums are the same in every launch.
    """
    BLOCK_M: tl.constexpr = const.block_m
    AT_A_TIME: tl.constexpr = 4  # whose loads are in flight together
    valid = valid_rows(block, const)
    end = last + tl.zeros([BLOCK_M], dtype=tl.int32)
    acc, row_max, row_sum = load_fragment(partial_ptr, max_ptr, sum_ptr, first + programs, valid, const)
    for begin in tl.range(first + 1, last + 1, AT_A_TIME, num_stages=1):
        for number in tl.static_range(AT_A_TIME):
            program = begin + number
            more, more_max, more_sum = load_fragment(
                partial_ptr, max_ptr, sum_ptr, program, valid & (program <= end), const
            )
            new_max = tl.maximum(row_max, more_max)
            rescale = tl.exp2(row_max - new_max)
            weight = tl.exp2(more_max - new_max)
            acc = acc * rescale[:, None] + more * weight[:, None]
            row_sum = row_sum * rescale + more_sum * weight
            row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def finish(
    out_ptr,
    stride_out_token,
    stride_out_head,
    block,
    scoring,
    acc,
    row_max,
    row_sum,
    const: tl.constexpr,
):
    """Write the results of a softmax state that has met all keys; sinks, which have no key, join here. Rows
    that saw no key are zero."""
    if scoring.sinks_ptr is not None:
        valid = valid_rows(block, const)
        sinks = in_base_2(tl.load(scoring.sinks_ptr + query_heads(block, const), mask=valid, other=0.0))
        largest = tl.maximum(row_max, sinks)
        rescale = tl.exp2(row_max - largest)
        row_sum = row_sum * rescale + tl.exp2(sinks - largest)
        acc = acc * rescale[:, None]
    row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)
    store_rows(out_ptr, stride_out_token, stride_out_head, block, acc / row_sum[:, None], const)
