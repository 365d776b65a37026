"""Device functions that place, load, begin and store the query rows of a program."""

import triton
import triton.language as tl

from attn_kernels.kernels.attend import attend
from attn_kernels.kernels.compile_params import Block, Rows, Scales, Scoring
from attn_kernels.kernels.pages import find_sequence, keys_of, row_mask


@triton.jit
def in_base_2(scores):
    """Scores as float32 powers of 2 instead of e.

    The constant has no global name: Triton 3.6 hashes constexpr globals of called functions or not by the
    order in which kernels compile, and a kernel of another hash misses the cache on disk.
    """
    return scores.to(tl.float32) * 1.4426950408889634


@triton.jit
def place(cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head_in_group, const: tl.constexpr):
    """The Block of a sequence's query block number ``block_in_seq``; ``num_queries`` < 1 past its end."""
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    seq_start = tl.load(cu_seqlens_q_ptr + seq)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
    first_query = block_in_seq * BLOCK_Q
    return Block(
        seq,
        first_query,
        tl.minimum(query_len - first_query, BLOCK_Q),
        (seq_start + first_query).to(tl.int64),
        tl.load(seqused_k_ptr + seq) - query_len,
        kv_head.to(tl.int64),
        head_in_group,
    )


@triton.jit
def place_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, const: tl.constexpr):
    """The Block of Q-Block number ``q_block``; ``num_queries`` < 1 where there is none. Programs along the
    grid's third axis share a KV head's query heads."""
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    seq = find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, BLOCK_Q)
    block_in_seq = q_block - (tl.load(cu_seqlens_q_ptr + seq) // BLOCK_Q + seq)
    head = tl.program_id(2) * const.heads
    return place(cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head, const)


@triton.jit
def row_heads(block, const: tl.constexpr):
    """Each row's query head, counted within its group."""
    return block.head_in_group + tl.arange(0, const.block_m) % const.heads


@triton.jit
def query_heads(block, const: tl.constexpr):
    """Each row's query head."""
    return block.kv_head * const.queries_per_kv + row_heads(block, const)


@triton.jit
def valid_rows(block, const: tl.constexpr):
    """Which rows hold a query token and a head."""
    valid = tl.arange(0, const.block_m) < block.num_queries * const.heads
    if const.queries_per_kv % const.heads != 0:
        valid = valid & (row_heads(block, const) < const.queries_per_kv)
    return valid


@triton.jit
def row_offsets(block, stride_token, stride_head, const: tl.constexpr):
    """Element offset of the first row (int64), and of each row from it (int32), in a tensor of queries."""
    rows = tl.arange(0, const.block_m)
    first_head = block.kv_head * const.queries_per_kv + block.head_in_group
    first = (block.first_token * stride_token + first_head * stride_head) * const.query_unit
    each = ((rows // const.heads) * stride_token + (rows % const.heads) * stride_head) * const.query_unit
    return first, each


@triton.jit
def load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const: tl.constexpr):
    """The query tile of a Block."""
    columns = tl.arange(0, const.head_padded)
    valid = valid_rows(block, const)
    first, each = row_offsets(block, stride_q_token, stride_q_head, const)
    q_ptrs = q_ptr + first + (each[:, None] + columns[None, :])
    q = tl.load(q_ptrs, mask=row_mask(valid, const), other=0.0)
    first_position = block.context_len + block.first_query
    slopes = valid.to(tl.float32)  # without ALiBi of no use
    if const.alibi:
        slopes = in_base_2(tl.load(scoring.slopes_ptr + query_heads(block, const), mask=valid, other=0.0))
    return Rows(
        q,
        first_position + tl.arange(0, const.block_m) // const.heads,
        first_position,
        first_position + block.num_queries - 1,
        slopes,
    )


@triton.jit
def begin(block, scoring, WITH_SINKS: tl.constexpr, const: tl.constexpr):
    """Accumulator, running maximum and running sum before the first key. A sink is a key without a value.

    The maximum begins below every score, but finite: so a tile that is masked for a row adds weights of
    exp2(-inf) = 0, and exp2(-inf + inf) never occurs.
    """
    BLOCK_M: tl.constexpr = const.block_m
    HEAD_PADDED: tl.constexpr = const.head_padded
    acc = tl.zeros([BLOCK_M, HEAD_PADDED], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], -1e38, dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    if WITH_SINKS and scoring.sinks_ptr is not None:
        heads = query_heads(block, const)
        sinks = tl.load(scoring.sinks_ptr + heads, mask=valid_rows(block, const), other=0.0)
        row_max = tl.maximum(in_base_2(sinks), row_max)  # a sink may be -inf
        row_sum += 1.0
    return acc, row_max, row_sum


@triton.jit
def first_key(first_position, window, const: tl.constexpr):
    """The first key that a Block sees whose first row is at ``first_position``."""
    key = first_position * 0
    if const.windowed:
        key = tl.maximum(first_position - window + 1, 0)
    return key


@triton.jit
def first_tile(first_position, window, const: tl.constexpr):
    """Where the tile of ``first_key`` begins."""
    return first_key(first_position, window, const) // const.tile_size * const.tile_size


@triton.jit
def load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr):
    """The scales of cached keys and values, from a number and a pointer each."""
    if k_scale_ptr is not None:
        k_scale *= tl.load(k_scale_ptr)
    if v_scale_ptr is not None:
        v_scale *= tl.load(v_scale_ptr)
    return Scales(k_scale, v_scale)


@triton.jit
def attend_cache(
    block, rows, cache, scoring, scales, start, stop, WITH_SINKS: tl.constexpr, const: tl.constexpr
):
    """Softmax state of a query tile after the cached keys ``start .. stop - 1``."""
    acc, row_max, row_sum = begin(block, scoring, WITH_SINKS, const)
    # Of a sequence without cached keys nothing is used, but its first page's id is looked up.
    last = tl.maximum(stop - 1, 0)
    first = tl.minimum(first_key(rows.first_position, scoring.window, const), last)
    keys = keys_of(cache, block.seq, block.kv_head, first, last, const)
    scaled = Scoring(
        scoring.factor * scales.k, scoring.cap, scoring.window, scoring.slopes_ptr, scoring.sinks_ptr
    )
    acc, row_max, row_sum = attend(acc, row_max, row_sum, rows, keys, scaled, start, stop, const)
    return acc * scales.v, row_max, row_sum


@triton.jit
def store_rows(out_ptr, stride_out_token, stride_out_head, block, values, const: tl.constexpr):
    """Write a tile [block_m, head_padded] of results."""
    columns = tl.arange(0, const.head_padded)
    first, each = row_offsets(block, stride_out_token, stride_out_head, const)
    out_ptrs = out_ptr + first + (each[:, None] + columns[None, :])
    mask = row_mask(valid_rows(block, const), const)
    tl.store(out_ptrs, values.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def attend_and_store(
    q_ptr,
    stride_q_token,
    stride_q_head,
    out_ptr,
    stride_out_token,
    stride_out_head,
    block,
    cache,
    scoring,
    scales,
    const: tl.constexpr,
):
    """All of a Block: its query tile over every cached key that it sees, to the output."""
    rows = load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const)
    start = first_tile(rows.first_position, scoring.window, const)
    stop = rows.last_position + 1
    acc, _, row_sum = attend_cache(block, rows, cache, scoring, scales, start, stop, True, const)
    store_rows(out_ptr, stride_out_token, stride_out_head, block, acc / row_sum[:, None], const)
