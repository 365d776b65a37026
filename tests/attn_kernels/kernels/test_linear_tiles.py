"""Positions on ``stream_k``'s line of tiles, against the same found on the host piece after tiles."""

import random

import pytest
import torch
import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import CompileParams
from attn_kernels.kernels.linear_tiles import find_tile

ROWS, TILE = 16, 32


@triton.jit
def locate_kernel(
    found_ptr,
    positions_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs,
    num_kv_heads,
    window,
    const: tl.constexpr,
):
    position = tl.load(positions_ptr + tl.program_id(0))
    tiles = find_tile(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, position, const)
    found_ptr += tl.program_id(0) * 6
    tl.store(found_ptr, tiles.block.seq)
    tl.store(found_ptr + 1, tiles.block.kv_head)
    tl.store(found_ptr + 2, tiles.block.head_in_group)
    tl.store(found_ptr + 3, tiles.block.first_query)
    tl.store(found_ptr + 4, tiles.start)
    tl.store(found_ptr + 5, tiles.stop)


def const_of(ratio, windowed):
    return CompileParams(
        16, 16, 16, ratio, min(ratio, ROWS), ROWS, TILE, 2, 1, 8, 8, True, windowed, False, False, False
    )


def tiles_of(query, keys, block_q, window):
    if window is not None:
        seen = min(keys, window) + min(query, block_q) - 1
        keys = min(keys, TILE * max(-(-(offset + seen) // TILE) for offset in range(TILE)))
    return max(1, -(-keys // TILE))


def on_host(position, lens, ratio, kv_heads, window):
    """By division within a sequence, as a long one has too many pieces to count."""
    block_q, splits = ROWS // min(ratio, ROWS), -(-ratio // ROWS)
    start = 0
    for seq, (query, keys) in enumerate(lens):
        blocks, tiles = -(-query // block_q), tiles_of(query, keys, block_q, window)
        length = blocks * kv_heads * splits * tiles
        if position < start + length:
            number = (position - start) // tiles
            kv_head, number_in_head = divmod(number, splits * blocks)
            split, block = divmod(number_in_head, blocks)
            begin = start + number * tiles
            return [seq, kv_head, split * ROWS if splits > 1 else 0, block * block_q, begin, begin + tiles]
        start += length
    raise ValueError("behind the line")


def length_of(lens, ratio, kv_heads, window):
    block_q, splits = ROWS // min(ratio, ROWS), -(-ratio // ROWS)
    return sum(-(-q // block_q) * kv_heads * splits * tiles_of(q, k, block_q, window) for q, k in lens)


def located(positions, lens, ratio, kv_heads, window):
    queries, keys = torch.tensor(lens, dtype=torch.int32).T.contiguous()
    starts = torch.cat([torch.zeros(1), queries.cumsum(0)]).int()
    found = torch.zeros(len(positions), 6, dtype=torch.int64)
    sizes = (len(lens), kv_heads, window or 0)
    tensors = (found, torch.tensor(positions), starts, keys)
    locate_kernel[(len(positions),)](*tensors, *sizes, const_of(ratio, window is not None))
    return found.tolist()


@pytest.mark.parametrize("window", [None, 1, 70])
@pytest.mark.parametrize("ratio, kv_heads", [(4, 3), (40, 2)])
def test_every_position_belongs_to_one_piece(ratio, kv_heads, window):
    """Around sequences without queries or keys, at both ends of the 256 that are looked at together."""
    rng = random.Random(f"{ratio}/{window}")
    lens = [(rng.choice((0, 1, 1, 9)), rng.choice((0, 1, 31, 32, 33, 300))) for _ in range(40)]
    lens = [(min(query, keys), keys) for query, keys in lens]
    lens = [(0, 5), *lens, *[(0, 9)] * 230, (2, 0), *lens, (1, 100), (0, 0), (0, 70)]
    whole = length_of(lens, ratio, kv_heads, window)
    positions = [0, whole - 1, *rng.sample(range(whole), 60)]
    assert located(positions, lens, ratio, kv_heads, window) == [
        on_host(position, lens, ratio, kv_heads, window) for position in positions
    ]


@pytest.mark.parametrize("window", [None, 2**31 - 1])
def test_a_line_may_be_longer_than_32_bits(window, overflow_checks):
    lens = [(1, 2**20), (2**20, 2**24), (0, 2**24), (1, 2**24), (2**20, 2**20)]
    whole = length_of(lens, 8, 8, window)
    assert whole > 2**40
    positions = [0, 2**31, 2**32 + 1, 2**40 + 7, whole - 2**21, whole - 1]
    assert located(positions, lens, 8, 8, window) == [
        on_host(position, lens, 8, 8, window) for position in positions
    ]
