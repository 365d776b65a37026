"""A batch whose keys lie on several ranks, as in decode context parallelism."""

from __future__ import annotations

import dataclasses

import torch

from attn_kernels.testing.poisoned import PoisonedBatch, make_batch


def shard(batch: PoisonedBatch, rank: int, ranks: int, interleave: int) -> PoisonedBatch:
    """The same queries over one rank's keys: of each `ranks` runs of `interleave` keys, one is its own.

    A rank's keys lie together, in pages of its own. It may have none of a sequence.
    """
    page, num_kv_heads, head_size = batch.k_cache.shape[1:]
    own = [
        torch.tensor([key for key in range(length) if key // interleave % ranks == rank], dtype=torch.long)
        for length in batch.context_lens
    ]
    made = make_batch(
        batch.query_lens,
        list(map(len, own)),
        num_query_heads=batch.q.shape[1],
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=page,
        dtype=batch.q.dtype,
        cache_dtype=batch.k_cache.dtype,
        device=batch.q.device,
    )
    for seq, keys in enumerate(own):
        to = torch.arange(len(keys))
        source = batch.block_table[seq, keys // page].long(), keys % page
        target = made.block_table[seq, to // page].long(), to % page
        for whole, part in ((batch.k_cache, made.k_cache), (batch.v_cache, made.v_cache)):
            part.view(torch.uint8)[target] = whole.view(torch.uint8)[source]
    return dataclasses.replace(made, q=batch.q)
