"""Device functions that find sequences and Q-Blocks, load queries and store results."""

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import QBlock, QueryTile, Scoring
from attn_kernels.kernels.online_softmax import attend_keys, row_mask, sequence_keys


@triton.jit
def find_sequence(cu_seqlens_q_ptr, num_seqs, number, base=0, BLOCK_Q: tl.constexpr = None):
    """The sequence that owns query token ``number`` of the batch, or with ``BLOCK_Q`` that Q-Block.

    Sequence i's Q-Blocks start at number ``(cu_seqlens_q[i] - base) // BLOCK_Q + i``, where ``base`` is
    ``cu_seqlens_q[0]``. This is an upper bound of the blocks before it, and needs no prefix sum over rounded
    lengths (arXiv 2511.11581, section 4.4).
    """
    low = 0
    high = num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        start = tl.load(cu_seqlens_q_ptr + middle)
        if BLOCK_Q is not None:
            start = (start - base) // BLOCK_Q + middle
        low = tl.where(start <= number, middle, low)
        high = tl.where(start <= number, high, middle)
    return low


@triton.jit
def load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs):
    """Query tokens and keys of sequences; 0 of those that do not exist."""
    exists = seqs < num_seqs
    starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
    stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
    keys = tl.load(seqused_k_ptr + seqs, mask=exists, other=0)
    return stops - starts, keys


@triton.jit
def in_base_2(scores):
    """Scores as float32 powers of 2 instead of e.

    The constant has no global name. Triton 3.6 hashes constexpr globals of called functions only if these
    were compiled before the kernel. A kernel of another hash misses the cache on disk.
    """
    return scores.to(tl.float32) * 1.4426950408889634


@triton.jit
def in_base_e(logarithms):
    return logarithms * 0.6931471805599453


@triton.jit
def last_key_seen(ranges, seq, first, last, own):
    """The last key that queries at ``first .. last`` see: that of a range with one of them, or else ``own``.

    All three are numbers; or ``first`` and ``last`` are [n, 1], ``own`` is [n], and so is the result.
    """
    CHUNK: tl.constexpr = 16  # ranges at a time
    ranges_ptr, max_ranges = ranges
    for begin in tl.range(0, max_ranges, CHUNK, num_stages=1):
        numbers = begin + tl.arange(0, CHUNK)
        pointers = ranges_ptr + (seq * max_ranges + numbers) * 2
        starts = tl.load(pointers, mask=numbers < max_ranges, other=0)
        ends = tl.load(pointers + 1, mask=numbers < max_ranges, other=-1)
        within = (starts <= last) & (ends >= first)
        own = tl.maximum(own, tl.max(tl.where(within, ends, -1), -1))
    return own


@triton.jit
def end_of_keys(block, ahead, ranges):
    """Where the keys end that a QBlock sees; it may see none."""
    first = block.context_len + block.first_query
    end = first + block.num_queries
    if ahead is not None:
        end = tl.minimum(end + ahead, block.num_keys)
    if ranges[0] is not None:
        last = last_key_seen(ranges, block.seq, first, first + block.num_queries - 1, end - 1)
        end = tl.minimum(last, block.num_keys - 1) + 1
    return end


@triton.jit
def make_q_block(
    cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head_in_group, block_q, first_column=0
):
    """The QBlock number ``block_in_seq`` of a sequence; ``block_q`` query tokens make a block."""
    seq_start = tl.load(cu_seqlens_q_ptr + seq)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
    first_query = block_in_seq * block_q
    num_queries = tl.minimum(query_len - first_query, block_q)
    first_token = (seq_start + first_query).to(tl.int64)
    context_len = tl.load(seqused_k_ptr + seq) - query_len
    of_sequence = (seq, first_query, num_queries, first_token, context_len)
    return QBlock(*of_sequence, kv_head.to(tl.int64), head_in_group, context_len + query_len, first_column)


@triton.jit
def find_q_block(
    cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, max_query_len, const: tl.constexpr
):
    """The QBlock number ``q_block`` of the batch, as ``find_sequence`` counts.

    Where one Q-Block holds the longest query, each sequence has one, of its own number. Programs along the
    grid's third axis share the query heads of a KV head, and the output's columns.
    """
    BLOCK_Q: tl.constexpr = const.block_q
    seq = q_block
    block_in_seq = q_block * 0
    if max_query_len > BLOCK_Q:
        base = tl.load(cu_seqlens_q_ptr)
        seq = find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, base, BLOCK_Q)
        block_in_seq = q_block - ((tl.load(cu_seqlens_q_ptr + seq) - base) // BLOCK_Q + seq)
    part = tl.program_id(2)
    head = part // const.column_parts * const.heads
    column = part % const.column_parts * const.columns
    return make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head, BLOCK_Q, column)


@triton.jit
def row_heads(block, const: tl.constexpr):
    return block.head_in_group + tl.arange(0, const.block_m) % const.heads


@triton.jit
def query_heads(block, const: tl.constexpr):
    return block.kv_head * const.gqa_group_size + row_heads(block, const)


@triton.jit
def valid_rows(block, const: tl.constexpr):
    valid = tl.arange(0, const.block_m) < block.num_queries * const.heads
    if const.gqa_group_size % const.heads != 0:
        valid = valid & (row_heads(block, const) < const.gqa_group_size)
    return valid


@triton.jit
def row_offsets(block, stride_token, stride_head, const: tl.constexpr):
    """Element offset of the first row (int64) in q or out, and of each row from there (int32 [block_m])."""
    rows = tl.arange(0, const.block_m)
    first_head = block.kv_head * const.gqa_group_size + block.head_in_group
    first = (block.first_token * stride_token + first_head * stride_head) * const.query_unit
    each = ((rows // const.heads) * stride_token + (rows % const.heads) * stride_head) * const.query_unit
    return first, each


@triton.jit
def load_queries(q, block, scoring, const: tl.constexpr):
    """The QueryTile of a QBlock; ``q`` is the pointer, and the strides of a token and a head."""
    q_ptr, stride_token, stride_head = q
    columns = tl.arange(0, const.head_padded)
    valid = valid_rows(block, const)
    first, each = row_offsets(block, stride_token, stride_head, const)
    q_ptrs = q_ptr + first + (each[:, None] + columns[None, :])
    rows = tl.load(q_ptrs, mask=row_mask(valid, const.head_size, columns, const), other=0.0)
    first_position = block.context_len + block.first_query
    slopes = valid.to(tl.float32)  # unused without ALiBi
    if const.alibi:
        slopes = in_base_2(tl.load(scoring.slopes_ptr + query_heads(block, const), mask=valid, other=0.0))
    positions = first_position + tl.arange(0, const.block_m) // const.heads
    last_keys = positions
    shared_last = first_position
    if scoring.ahead is not None:
        last_keys += scoring.ahead
        shared_last += scoring.ahead
    if scoring.ranges[0] is not None:
        column = positions[:, None]
        last_keys = last_key_seen(scoring.ranges, block.seq, column, column, last_keys)
        shared_last = tl.minimum(tl.min(last_keys, 0), block.num_keys)
    last_position = first_position + block.num_queries - 1
    return QueryTile(
        rows, rows, slopes, positions, first_position, last_position, slopes, last_keys, shared_last
    )


@triton.jit
def in_half_precision(queries, const: tl.constexpr):
    """The QueryTile in fp16, each row divided by a power of two, so that its numbers are below 2.

    fp16 holds every fp8 number, and GPUs convert fp8 to fp16 in fewer instructions than to bf16.
    """
    q = queries.q.to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(q), 1), 1e-30)
    exponents = largest.to(tl.int32, bitcast=True) & 0x7F800000
    inverse = (0x7F000000 - exponents).to(tl.float32, bitcast=True)
    q = (q * inverse[:, None]).to(tl.float16)
    odd = q
    if const.paired:
        q, odd = tl.split(tl.reshape(q, [q.shape[0], q.shape[1] // 2, 2]))
    return QueryTile(q, odd, exponents.to(tl.float32, bitcast=True), *queries[3:])


@triton.jit
def initial_state(const: tl.constexpr):
    """The softmax state before the first key.

    The maximum begins below every score, but finite. So a tile that is masked for a row adds weights of
    exp2(-inf) = 0, and exp2(-inf + inf) never occurs.
    """
    BLOCK_M: tl.constexpr = const.block_m
    COLUMNS: tl.constexpr = const.columns
    acc = tl.zeros([BLOCK_M, COLUMNS], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], -1e38, dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    return acc, row_max, row_sum


@triton.jit
def first_key(first_position, window, WINDOWED: tl.constexpr):
    key = first_position * 0
    if WINDOWED:
        key = tl.maximum(first_position - window + 1, 0)
    return key


@triton.jit
def first_tile(first_position, window, tile_size, WINDOWED: tl.constexpr):
    """Return where the tile of ``first_key`` begins, in keys."""
    return first_key(first_position, window, WINDOWED) // tile_size * tile_size


@triton.jit
def load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr):
    """Both scales: each is a number times what its pointer holds, if there is one."""
    if k_scale_ptr is not None:
        k_scale *= tl.load(k_scale_ptr)
    if v_scale_ptr is not None:
        v_scale *= tl.load(v_scale_ptr)
    return k_scale, v_scale


@triton.jit
def attend_cache(block, queries, cache, scoring, scales, start, stop, const: tl.constexpr):
    """The softmax state of a query tile after the cached keys ``start .. stop - 1``, without sinks."""
    state = initial_state(const)
    # A sequence without cached keys uses none, but the id of its first page is looked up.
    last = tl.maximum(stop - 1, 0)
    first = tl.minimum(first_key(queries.first_position, scoring.window, const.windowed), last)
    keys = sequence_keys(cache, block.seq, block.kv_head, block.first_column, first, last, const)
    k_scale, v_scale = scales
    scaled = Scoring(scoring.factor * k_scale, *scoring[1:])
    if cache.k[0].dtype.element_ty.primitive_bitwidth == 8:
        queries = in_half_precision(queries, const)
    if const.paired:
        acc = state[0]
        state = (tl.split(tl.reshape(acc, [acc.shape[0], acc.shape[1] // 2, 2])), state[1], state[2])
    acc, row_max, row_sum = attend_keys(state, queries, keys, scaled, start, stop, const)
    if const.paired:
        acc = tl.reshape(tl.join(acc[0], acc[1]), [const.block_m, const.columns])
    return acc * v_scale, row_max, row_sum


@triton.jit
def store_output(out, block, values, const: tl.constexpr):
    """Write results [block_m, columns] to the output, in its dtype; ``out`` is like ``q`` there."""
    out_ptr, stride_token, stride_head = out
    columns = block.first_column + tl.arange(0, const.columns)
    first, each = row_offsets(block, stride_token, stride_head, const)
    out_ptrs = out_ptr + first + (each[:, None] + columns[None, :])
    mask = row_mask(valid_rows(block, const), const.head_size, columns, const)
    tl.store(out_ptrs, values.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def store_normalised(out, lse, block, scoring, acc, row_max, row_sum, const: tl.constexpr):
    """Write the results of a softmax state that has seen all keys, but no sinks yet.

    Rows that saw no key are zero. ``lse``: the pointer, None for none, and the stride of a head.
    """
    if scoring.sinks_ptr is not None:
        valid = valid_rows(block, const)
        sinks = in_base_2(tl.load(scoring.sinks_ptr + query_heads(block, const), mask=valid, other=0.0))
        largest = tl.maximum(row_max, sinks)
        rescale = tl.exp2(row_max - largest)
        row_sum = row_sum * rescale + tl.exp2(sinks - largest)
        acc = acc * rescale[:, None]
        row_max = largest
    if lse[0] is not None:
        row_max = tl.where(row_sum == 0.0, float("-inf"), row_max)
    row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)
    store_output(out, block, acc / row_sum[:, None], const)
    if lse[0] is not None:
        tokens = block.first_token + tl.arange(0, const.block_m) // const.heads
        lse_ptrs = lse[0] + query_heads(block, const) * lse[1] + tokens
        tl.store(lse_ptrs, in_base_e(row_max + tl.log2(row_sum)), mask=valid_rows(block, const))
