"""Fragments: softmax states of Q-Blocks that several programs share, joined by the last to finish.

This is Stream-K's fix-up (arXiv 2301.03598) without waiting. A program's share of the tiles (see
``linear_tiles``) is contiguous. So it shares at most two Q-Blocks with others: it continues the Q-Block in
which its share begins, and begins the one in which its share ends. Thus memory for two fragments a program
serves every batch. A program begins at most one shared Q-Block, whose counter is therefore that program's.
"""

import triton
import triton.language as tl

from attn_kernels.kernels.query_tile import valid_rows


@triton.jit
def fragment_index(program, begins, programs):
    """The number of a program's fragment: continuations first, then beginnings."""
    return program + begins.to(tl.int32) * programs


@triton.jit
def store_fragment(
    partial_ptr, max_ptr, sum_ptr, fragment, block, acc, row_max, row_sum, const: tl.constexpr
):
    """Write a softmax state as float32: [2, programs, block_m, head_padded], twice [2, programs, block_m]."""
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
    """Read what ``store_fragment`` wrote, past the L1 cache; rows that are not ``written`` are empty."""
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
    """Count the calling program, which has written its fragment, among the programs ``first .. last``.

    Returns whether all of them have been counted. If so, the caller may read their fragments past the L1
    cache. AMD GPUs do not order memory so: see ``stream_k.why_not``.
    """
    tl.debug_barrier()  # all threads write the fragment, one adds to the counter
    arrived = tl.atomic_add(counters_ptr + first, 1, sem="acq_rel", scope="gpu")
    is_last = arrived == last - first
    if is_last:
        tl.store(counters_ptr + first, 0)  # for the next launch
    return is_last


@triton.jit
def join_fragments(partial_ptr, max_ptr, sum_ptr, first, last, programs, block, const: tl.constexpr):
    """The softmax state of a Q-Block from the fragments of the programs ``first .. last``.

    They are joined in the order of the programs, whichever finished last, so every launch gives the same
    sums.
    """
    BLOCK_M: tl.constexpr = const.block_m
    AT_A_TIME: tl.constexpr = 4  # fragments whose loads are in flight together
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
