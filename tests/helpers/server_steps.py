"""Random steps of a server: decode, speculative, chunks, prompts and their mixtures, of all sizes."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

import attn_kernels
from attn_kernels import Model, Parts

MOST_TOKENS = 32 * 1024


def indices(values: Sequence[int], offset: int) -> Tensor:
    """An index tensor that begins ``offset`` elements into its memory."""
    return torch.tensor([0] * offset + list(values), dtype=torch.int32)[offset:]


@dataclass(frozen=True)
class Step:
    """Lengths of a batch, and what its plan and its tensors are like."""

    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    model: Model

    @property
    def parts(self) -> Parts:
        return Parts.of(self.query_lens, self.context_lens)

    def plan(self, **how: Any) -> Any:
        """The index tensors begin anywhere, and the table's rows are as far apart as it comes."""
        chance = random.Random(str(self))
        width = -(-max(self.context_lens) // self.model.block_size) + chance.choice((0, 1, 7, 16))
        rows, pitch = len(self.query_lens), width + chance.randrange(3)
        table = indices([0] * (rows * pitch), chance.randrange(4)).view(rows, pitch)[:, :width]
        return attn_kernels.plan(
            indices([0, *accumulate(self.query_lens)], chance.randrange(4)),
            indices(self.context_lens, chance.randrange(4)),
            table,
            self.model,
            num_query_tokens=sum(self.query_lens),
            num_kv_tokens=chance.choice((None, sum(self.context_lens))),
            max_query_len=max(self.query_lens),
            max_seq_len=max(self.context_lens),
            check=False,
            **how,
        )


def steps(count: int, models: Sequence[Model], seed: int = 0) -> Iterator[Step]:
    chance = random.Random(seed)
    for _ in range(count):
        num_seqs = chance.choice((1, 1, 2, 3, 8, 16, 17, 64, 256))
        longest = min(chance.choice((1, 1, 1, 2, 4, 8, 64, 1024)), MOST_TOKENS // num_seqs)
        past = chance.choice((0, 1, 100, 1000, 10_000, 100_000))
        query_lens = [chance.randint(0 if num_seqs > 1 else 1, longest) for _ in range(num_seqs)]
        query_lens[0] = max(1, query_lens[0])
        context_lens = tuple(length + chance.randint(past // 2, past) for length in query_lens)
        yield Step(tuple(query_lens), context_lens, chance.choice(models))
