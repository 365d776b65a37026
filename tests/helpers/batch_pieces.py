"""Parts of a batch's sequences, computed in batches of their own: to compare results by bits."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn_kernels.testing.poisoned import PoisonedBatch


class Piece(NamedTuple):
    """Consecutive query tokens of a sequence; later ones are not in the cache yet."""

    seq: int
    first: int
    stop: int


def whole(batch: PoisonedBatch) -> list[Piece]:
    """Every sequence as one piece."""
    return [Piece(seq, 0, length) for seq, length in enumerate(batch.query_lens)]


def drawn(batch: PoisonedBatch, rng: random.Random, most: int) -> Iterator[list[Piece]]:
    """Batches of pieces that cover every query token once.

    Each sequence is cut at random places, and each batch holds up to ``most`` pieces of different sequences
    in random order.
    """
    waiting: dict[int, list[Piece]] = {}
    for seq, length in enumerate(batch.query_lens):
        cuts = sorted(rng.sample(range(1, length), rng.randint(0, min(3, length - 1)))) if length > 1 else []
        waiting[seq] = [Piece(seq, *ends) for ends in zip([0, *cuts], [*cuts, length], strict=True)]
    while waiting:
        chosen = rng.sample(sorted(waiting), min(len(waiting), rng.randint(1, most)))
        yield [waiting[seq].pop(0) for seq in chosen]
        waiting = {seq: pieces for seq, pieces in waiting.items() if pieces}


def batch_of(batch: PoisonedBatch, pieces: Sequence[Piece]) -> PoisonedBatch:
    """A batch of these pieces, over the caches of all."""
    device = batch.q.device
    query_lens = [piece.stop - piece.first for piece in pieces]
    before = [batch.context_lens[piece.seq] - batch.query_lens[piece.seq] for piece in pieces]
    context_lens = [keys + piece.stop for keys, piece in zip(before, pieces, strict=True)]
    return replace(
        batch,
        q=batch.q[tokens(batch, pieces)],
        cu_seqlens_q=torch.tensor([0, *accumulate(query_lens)], dtype=torch.int32, device=device),
        seqused_k=torch.tensor(context_lens, dtype=torch.int32, device=device),
        block_table=batch.block_table[[piece.seq for piece in pieces]],
        query_lens=tuple(query_lens),
        context_lens=tuple(context_lens),
    )


def tokens(batch: PoisonedBatch, pieces: Sequence[Piece]) -> Tensor:
    """The numbers of the pieces' query tokens in the batch of whole sequences."""
    starts = [0, *accumulate(batch.query_lens)]
    ranges = [torch.arange(starts[seq] + first, starts[seq] + stop) for seq, first, stop in pieces]
    return torch.cat(ranges).to(batch.q.device)


def same_bits(out: Tensor, expected: Tensor) -> bool:
    return torch.equal(out.view(torch.int16), expected.view(torch.int16))


def differing(batch: PoisonedBatch, pieces: Sequence[Piece], out: Tensor, expected: Tensor) -> Any:
    """The pieces whose bits are not those expected of the batch of whole sequences."""
    wanted = expected[tokens(batch, pieces)]
    lengths = [piece.stop - piece.first for piece in pieces]
    both = zip(pieces, out.split(lengths), wanted.split(lengths), strict=True)
    return [piece for piece, own, other in both if not same_bits(own, other)]
