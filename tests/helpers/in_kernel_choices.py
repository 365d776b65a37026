"""The rows that kernels find on the device, for batches whose lengths only kernels read."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from choice_kernels import measured_choice_kernel
from torch import Tensor

from generated import unified_attention

LAYOUTS = tuple((kv * group, kv) for kv in (1, 2, 3, 4, 8, 16) for group in (1, 2, 4, 5, 7, 8, 16, 32, 128))
HEAD_SIZES = (32, 63, 64, 72, 80, 96, 112, 127, 128, 129, 160, 192, 256, 257, 320)
MOST_HEADS, MOST_SEQS, MOST_KEYS = 128, 1024, 1 << 20
KINDS = ("decode", "prefill", "mixed", "tiny", "huge")
MODEL_FEATURES = ("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size")


@dataclass(frozen=True)
class RandomBatch:
    """The lengths of a batch's sequences, and what kernels are compiled for."""

    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    model: tuple[int, ...]  # values of MODEL_FEATURES

    def features(self) -> dict[str, int]:
        """Return the arguments of `choose`. Like kernels, it leaves out sequences without query tokens."""
        pairs = [(q, k) for q, k in zip(self.query_lens, self.context_lens, strict=True) if q]
        return {
            "num_seqs": len(pairs),
            "num_query_tokens": sum(q for q, _ in pairs),
            "num_kv_tokens": sum(k for _, k in pairs),
            "max_query_len": max((q for q, _ in pairs), default=0),
            "max_seq_len": max((k for _, k in pairs), default=0),
            **dict(zip(MODEL_FEATURES, self.model, strict=True)),
        }


def draw(rng: random.Random, count: int) -> list[RandomBatch]:
    """Draw batches of all kinds in turn; lengths are log-uniform."""
    return [_draw(rng, KINDS[number % len(KINDS)]) for number in range(count)]


def _draw(rng: random.Random, kind: str) -> RandomBatch:
    most_seqs, most_keys = {"tiny": (4, 64), "huge": (MOST_SEQS, MOST_KEYS)}.get(kind, (256, 1 << 17))
    longest = _spread(rng, most_keys)
    contexts = [_spread(rng, longest) for _ in range(_spread(rng, most_seqs))]
    queries = [_query_len(rng, kind, keys) for keys in contexts]
    if rng.random() < 0.1:  # padding, as captured batches have it
        kept = rng.randrange(len(queries))
        queries[kept:] = [0] * (len(queries) - kept)
    heads, kv_heads = rng.choice([layout for layout in LAYOUTS if layout[0] <= MOST_HEADS])
    model = (
        heads,
        kv_heads,
        rng.choice(HEAD_SIZES),
        rng.choice((16, 32, 64, 128)),
        rng.choice((1, 2, 4)),
    )
    return RandomBatch(tuple(queries), tuple(contexts), model)


def _query_len(rng: random.Random, kind: str, keys: int) -> int:
    if kind == "decode" or (kind in ("mixed", "huge") and rng.random() < 0.8):
        return 1
    return min(keys, _spread(rng, 1 << 15))


def _spread(rng: random.Random, most: int) -> int:
    """Draw from 1 to `most`, log-uniformly."""
    return min(most, int(2 ** rng.uniform(0, most.bit_length())))


def on_device(function: object, batches: Sequence[RandomBatch], device: str) -> list[int]:
    """Return the row that a kernel finds for each batch after it has read the lengths."""

    def tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    cu_seqlens = [n for batch in batches for n in accumulate(batch.query_lens, initial=0)]
    firsts = list(accumulate((len(batch.query_lens) for batch in batches), initial=0))
    chosen = torch.full((len(batches),), -1, dtype=torch.int32, device=device)
    measured_choice_kernel[(len(batches),)](
        chosen,
        tensor(cu_seqlens),
        tensor([n for batch in batches for n in batch.context_lens]),
        tensor(firsts),
        tensor([n for batch in batches for n in batch.model]),
        function,
    )
    rows: list[int] = chosen.tolist()
    return rows


def of_rows(key: str, batch: RandomBatch) -> list[Any]:
    """What each row of a device's module launches on a batch's model, over all kinds of steps."""
    configs = unified_attention.MODULES[key].configs(*batch.model)
    return list(chain.from_iterable(configs))


def differences(
    key: str, function: object, batches: Sequence[RandomBatch], device: str
) -> list[tuple[RandomBatch, int]]:
    """Return the batches for which a kernel finds a row that is not the choice of the host, and that row."""
    choose = unified_attention.MODULES[key].choose
    rows = zip(batches, on_device(function, batches, device), strict=True)
    return [(batch, row) for batch, row in rows if of_rows(key, batch)[row] != choose(**batch.features())]
