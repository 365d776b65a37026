"""What kernels compute of a batch's lengths, against the host: features, and the linear order of tiles."""

import random

import pytest
import torch
import triton
import triton.language as tl
from kernel_cases import make_config

from attn_kernels.kernels.arguments import launch_constants
from attn_kernels.kernels.segments import batch_features
from attn_kernels.kernels.stream_k_device import count_tiles, find_tile

ROWS, TILE = 16, 32


@triton.jit
def measure_kernel(
    out_ptr, cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const: tl.constexpr
):
    features = batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs)
    tl.store(out_ptr, features.num_seqs)
    tl.store(out_ptr + 1, features.num_query_tokens)
    tl.store(out_ptr + 2, features.num_kv_tokens)
    tl.store(out_ptr + 3, features.max_query_len)
    tl.store(out_ptr + 4, features.max_seq_len)
    tiles = count_tiles(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const)
    tl.store(out_ptr + 5, tiles)


@triton.jit
def find_kernel(
    out_ptr, numbers_ptr, cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const: tl.constexpr
):
    number = tl.load(numbers_ptr + tl.program_id(0))
    tiles = find_tile(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, number, const)
    out_ptr += tl.program_id(0) * 6
    tl.store(out_ptr, tiles.block.seq)
    tl.store(out_ptr + 1, tiles.block.kv_head)
    tl.store(out_ptr + 2, tiles.block.head_in_group)
    tl.store(out_ptr + 3, tiles.block.first_query)
    tl.store(out_ptr + 4, tiles.start)
    tl.store(out_ptr + 5, tiles.stop)


def launch(kernel, programs, lens, ratio, kv_heads, window, *tensors):
    """Six numbers of each program, for (query tokens, keys) of each sequence."""
    shape = {"head_size": 16, "block_size": 16, "queries_per_kv": ratio, "windowed": window is not None}
    config = make_config("stream_k", ROWS, TILE)
    const = launch_constants(config, "nvidia", (16,), (16,) * 6, 2, **shape)[2]
    pairs = torch.tensor(lens, dtype=torch.int32).view(-1, 2)
    beyond = torch.full((5,), 7)  # of sequences that do not exist
    starts = torch.cat([torch.zeros(1), pairs[:, 0].cumsum(0), beyond]).int()
    keys = torch.cat([pairs[:, 1], beyond]).int()
    out = torch.zeros(programs, 6, dtype=torch.int64)
    kernel[(programs,)](out, *tensors, starts, keys, len(lens), kv_heads, window or 0, const)
    return out.tolist()


def q_block_tiles(query, keys, block_q, window):
    if window is not None:
        seen = min(keys, window) + min(query, block_q) - 1
        keys = min(keys, TILE * max(-(-(offset + seen) // TILE) for offset in range(TILE)))
    return max(1, -(-keys // TILE))


def sequences_on_host(lens, ratio, window):
    """Blocks of a head, head splits, and tiles of a block, of each sequence."""
    block_q, splits = ROWS // min(ratio, ROWS), -(-ratio // ROWS)
    return [(-(-q // block_q), splits, q_block_tiles(q, k, block_q, window)) for q, k in lens]


def count_on_host(lens, ratio, kv_heads, window):
    return sum(
        blocks * kv_heads * splits * tiles for blocks, splits, tiles in sequences_on_host(lens, ratio, window)
    )


def find_on_host(number, lens, ratio, kv_heads, window):
    """By division within a sequence, as a long one has too many Q-Blocks to count."""
    start = 0
    for seq, (blocks, splits, tiles) in enumerate(sequences_on_host(lens, ratio, window)):
        length = blocks * kv_heads * splits * tiles
        if number < start + length:
            block_number = (number - start) // tiles
            head, block = divmod(block_number, blocks)
            kv_head, split = divmod(head, splits)
            begin = start + block_number * tiles
            first_query = block * (ROWS // min(ratio, ROWS))
            return [seq, kv_head, split * ROWS, first_query, begin, begin + tiles]
        start += length
    raise ValueError("past the last tile")


def random_lens(rng):
    """Around the 256 sequences that are measured at a time, with and without query tokens and keys."""
    num_seqs = rng.choice((0, 1, 2, rng.randint(3, 255), 256, 257, 600))
    queries = [rng.choice((0, 1, 1, 1, rng.randint(1, 4), rng.randint(1, 300))) for _ in range(num_seqs)]
    return [
        (query, query + rng.choice((0, rng.randint(0, 15), rng.randint(0, 130_000)))) for query in queries
    ]


@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("ratio, kv_heads", [(4, 8), (1, 2), (40, 1)])
def test_features_and_the_number_of_tiles(ratio, kv_heads, window):
    rng = random.Random(f"{ratio}/{window}")
    for _ in range(20):
        lens = random_lens(rng)
        queries, keys = zip(*[pair for pair in lens if pair[0]] or [(0, 0)], strict=True)
        features = [sum(q > 0 for q in queries), sum(queries), sum(keys), max(queries), max(keys)]
        (found,) = launch(measure_kernel, 1, lens, ratio, kv_heads, window)
        assert found == [*features, count_on_host(lens, ratio, kv_heads, window)]


def check_find(numbers, lens, ratio, kv_heads, window):
    found = launch(find_kernel, len(numbers), lens, ratio, kv_heads, window, torch.tensor(numbers))
    assert found == [find_on_host(number, lens, ratio, kv_heads, window) for number in numbers]


@pytest.mark.parametrize("window", [None, 1, 70])
@pytest.mark.parametrize("ratio, kv_heads", [(4, 3), (40, 2)])
def test_every_tile_belongs_to_one_q_block(ratio, kv_heads, window):
    """Around sequences without queries or keys, at both ends of the 256 that are measured at a time."""
    rng = random.Random(f"{ratio}/{window}")
    lens = [(rng.choice((0, 1, 1, 9)), rng.choice((0, 1, 31, 32, 33, 300))) for _ in range(40)]
    lens = [(min(query, keys), keys) for query, keys in lens]
    lens = [(0, 5), *lens, *[(0, 9)] * 230, (2, 0), *lens, (1, 100), (0, 0), (0, 70)]
    whole = count_on_host(lens, ratio, kv_heads, window)
    check_find([0, whole - 1, *rng.sample(range(whole), 60)], lens, ratio, kv_heads, window)


@pytest.mark.parametrize("window", [None, 2**31 - 1])
def test_tile_numbers_may_exceed_32_bits(window, overflow_checks):
    lens = [(1, 2**20), (2**20, 2**24), (0, 2**24), (1, 2**24), (2**20, 2**20)]
    whole = count_on_host(lens, 8, 8, window)
    assert whole > 2**40
    check_find([0, 2**31, 2**32 + 1, 2**40 + 7, whole - 2**21, whole - 1], lens, 8, 8, window)
