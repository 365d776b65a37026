"""The kernel that stores new keys and values in a paged cache."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("num_tokens",), do_not_specialize_on_alignment=("slots_ptr",))
def store_kernel(
    keys_ptr,
    values_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    num_tokens,
    stride_keys,
    stride_values,
    stride_page,
    stride_slot,
    stride_head,
    NUM_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy ROWS tokens; grid (tokens / ROWS).

    Keys and values are rows of NUM_HEADS * HEAD_SIZE elements. A token's slot is negative if it has none.
    COLUMNS is the power of two from NUM_HEADS * HEAD_SIZE on.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    present = (rows < num_tokens)[:, None] & (columns < NUM_HEADS * HEAD_SIZE)[None, :]
    from_rows = rows.to(tl.int64)[:, None]
    slots = tl.load(slots_ptr + rows, mask=rows < num_tokens, other=-1)
    keys = tl.load(keys_ptr + from_rows * stride_keys + columns[None, :], mask=present)
    values = tl.load(values_ptr + from_rows * stride_values + columns[None, :], mask=present)
    present &= (slots >= 0)[:, None]
    places = (slots // BLOCK_SIZE) * stride_page + (slots % BLOCK_SIZE) * stride_slot
    inside = (columns // HEAD_SIZE) * stride_head + columns % HEAD_SIZE
    to = places[:, None] + inside[None, :]
    tl.store(k_cache_ptr + to, keys, mask=present)
    tl.store(v_cache_ptr + to, values, mask=present)
