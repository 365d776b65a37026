"""What kernels learn of a batch on the device, against the same learnt on the host."""

import random

import pytest
import torch
import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import CompileParams
from attn_kernels.kernels.device_splits import batch_features
from attn_kernels.kernels.linear_tiles import count_tiles

BATCHES, MOST_SEQS, HEAD_SIZE, BLOCK_SIZE = 60, 600, 16, 16


@triton.jit
def measure_kernel(
    found_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs_ptr,
    num_kv_heads,
    window,
    stride,
    const: tl.constexpr,
):
    batch = tl.program_id(0)
    cu_seqlens_q_ptr += batch * (stride + 1)
    seqused_k_ptr += batch * stride
    num_seqs = tl.load(num_seqs_ptr + batch)
    facts = batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs)
    tiles = count_tiles(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const)
    found_ptr += batch * 6
    tl.store(found_ptr, facts.num_seqs)
    tl.store(found_ptr + 1, facts.num_query_tokens)
    tl.store(found_ptr + 2, facts.num_kv_tokens)
    tl.store(found_ptr + 3, facts.max_query_len)
    tl.store(found_ptr + 4, facts.max_seq_len)
    tl.store(found_ptr + 5, tiles)


def random_lens(rng):
    """Around the 256 sequences that are measured at a time, with and without query tokens and keys."""
    num_seqs = rng.choice((0, 1, 2, rng.randint(3, 255), 256, 257, MOST_SEQS))
    queries = [rng.choice((0, 1, 1, 1, rng.randint(1, 4), rng.randint(1, 300))) for _ in range(num_seqs)]
    return [
        (query, query + rng.choice((0, rng.randint(0, 15), rng.randint(0, 130_000)))) for query in queries
    ]


def on_host(lens, ratio, kv_heads, window, const):
    """Facts by counting; ``num_tiles``: no Q-Block is charged less than the tiles that it visits."""
    lens = [(query, keys) for query, keys in lens if query]
    facts = {
        "num_seqs": len(lens),
        "num_query_tokens": sum(query for query, _ in lens),
        "num_kv_tokens": sum(keys for _, keys in lens),
        "max_query_len": max((query for query, _ in lens), default=0),
        "max_seq_len": max((keys for _, keys in lens), default=0),
    }
    block_q, tile = const.block_m // const.heads, const.tile_size
    tiles = 0
    for query, keys in lens:
        each = -(-keys // tile)
        if window is not None:
            reach = min(keys, window) + min(query, block_q) - 1
            each = min(each, max(-(-(offset + reach) // tile) for offset in range(tile)))
        tiles += -(-query // block_q) * kv_heads * -(-ratio // const.heads) * max(each, 1)
    return [*facts.values(), tiles]


@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("ratio, kv_heads", [(4, 8), (1, 2), (40, 1)])
def test_facts_and_the_length_of_the_line_are_those_of_the_host(ratio, kv_heads, window):
    rng = random.Random(f"{ratio}/{window}")
    windowed = window is not None
    const = CompileParams(
        HEAD_SIZE, HEAD_SIZE, BLOCK_SIZE, ratio, min(ratio, 16), 16, 32, 2, 1, 8, 8, True, windowed, False,
        False, False,
    )  # fmt: skip
    batches = [random_lens(rng) for _ in range(BATCHES)]
    cu_seqlens_q = torch.zeros(BATCHES, MOST_SEQS + 1, dtype=torch.int32)
    seqused_k = torch.full((BATCHES, MOST_SEQS), 7, dtype=torch.int32)
    for index, lens in enumerate(batches):
        n, pairs = len(lens), torch.tensor(lens, dtype=torch.int32).view(-1, 2)
        cu_seqlens_q[index, 1 : n + 1] = pairs[:, 0].cumsum(0)
        seqused_k[index, :n] = pairs[:, 1]
    num_seqs = torch.tensor([len(lens) for lens in batches], dtype=torch.int32)
    found = torch.zeros(BATCHES, 6, dtype=torch.int64)
    sizes = (num_seqs, kv_heads, window or 0, MOST_SEQS)
    measure_kernel[(BATCHES,)](found, cu_seqlens_q, seqused_k, *sizes, const)
    assert found.tolist() == [on_host(lens, ratio, kv_heads, window, const) for lens in batches]
