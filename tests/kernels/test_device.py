"""Device functions on their own, where the kernels' results would not show a mistake."""

import pytest
import torch
import triton
import triton.language as tl

from attn_kernels.kernels.device import find_sequence, load_page_ids

TILE = 32


@triton.jit
def store_page_ids(
    out_ptr, table_ptr, tile_start, last_key, TILE_SIZE: tl.constexpr, PAGE_SIZE: tl.constexpr
):
    page_ids = load_page_ids(table_ptr, tile_start, last_key, TILE_SIZE, PAGE_SIZE)
    tl.store(out_ptr + tl.arange(0, TILE_SIZE), page_ids + tl.zeros([TILE_SIZE], dtype=tl.int32))


@triton.jit
def store_sequences(out_ptr, cu_seqlens_q_ptr, num_seqs, BLOCK_Q: tl.constexpr):
    q_block = tl.program_id(0)
    tl.store(out_ptr + q_block, find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, BLOCK_Q))


@pytest.mark.parametrize("page_size", [1, 8, 24, 32, 64])
@pytest.mark.parametrize("last_key", [0, 31, 32, 50, 63, 64, 95])
def test_page_ids_are_read_no_further_than_the_last_key(page_size, last_key):
    owned = last_key // page_size + 1
    table = torch.cat([torch.arange(100, 100 + owned), torch.full((200,), -1)]).to(torch.int32)
    for tile_start in range(0, last_key + 2 * TILE, TILE):  # the kernel looks one tile ahead
        out = torch.zeros(TILE, dtype=torch.int32)
        store_page_ids[(1,)](out, table, tile_start, last_key, TILE, page_size)
        keys = torch.arange(tile_start, tile_start + TILE).clamp(max=last_key)
        if page_size % TILE == 0:
            keys = keys[:1].expand(TILE)
        assert torch.equal(out, table[keys // page_size]), tile_start


@pytest.mark.parametrize("query_lens", [(5,), (4, 4), (0, 0, 9, 0, 1, 0), (1,) * 7, (3, 8, 0)])
@pytest.mark.parametrize("block_q", [1, 3, 4, 16])
def test_every_q_block_finds_its_sequence(query_lens, block_q):
    starts = [sum(query_lens[:i]) for i in range(len(query_lens) + 1)]
    num_blocks = starts[-1] // block_q + len(query_lens)
    first_blocks = [start // block_q + i for i, start in enumerate(starts[:-1])]
    expected = [
        max(i for i, first in enumerate(first_blocks) if first <= block) for block in range(num_blocks)
    ]
    out = torch.full((num_blocks,), -1, dtype=torch.int32)
    store_sequences[(num_blocks,)](out, torch.tensor(starts, dtype=torch.int32), len(query_lens), block_q)
    assert out.tolist() == expected
    for i, length in enumerate(query_lens):
        room = expected.count(i) * block_q
        assert room >= length, "every query token has a program"
