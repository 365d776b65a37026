"""Scenarios: batches in which a tuning run times configs. Their names are the ids of rows in the table."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.measure.batches import Batch, HeadLayout, ScoreOptions
from tuning_table.names import is_id

FEATURES: tuple[str, ...] = tuple(Batch("", "decode", (1,), (1,)).features)
KINDS = ("decode", "prefill", "chunk", "spec", "mixed")
PLAIN = ScoreOptions()


@dataclass(frozen=True)
class Shape:
    """The properties of a batch for which kernels are compiled."""

    layout: HeadLayout
    block_size: int = 16  # tokens per page
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None  # None: as `dtype`
    scores: ScoreOptions = PLAIN

    def __str__(self) -> str:
        """Text for ids: `h32.8.128-p16`, the element types that are not bfloat16, and the score options."""
        heads = str(self.layout).replace("/", ".")
        types = [dtype_name(dtype) for dtype in (self.dtype, self.cache_dtype) if dtype]
        words = [*(name for name in types if name != "bfloat16"), *str(self.scores).split("+")]
        return "-".join([f"h{heads}", f"p{self.block_size}", *(w.replace(" ", "") for w in words if w)])


def shape_of(batch: Batch) -> Shape:
    cache_dtype = None if batch.cache_dtype == batch.dtype else batch.cache_dtype
    return Shape(batch.layout, batch.block_size, batch.dtype, cache_dtype, batch.scores)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def kind_of(query_lens: Sequence[int], context_lens: Sequence[int]) -> str:
    """The kind of a batch, one of KINDS; mixed batches hold decodes or drafts beside prompts.

    Sequences without query tokens do not count.
    """
    with_tokens = [(q, c) for q, c in zip(query_lens, context_lens, strict=True) if q]
    longest, shortest = max(with_tokens)[0], min(with_tokens)[0]
    if longest == 1:
        return "decode"
    if all(query == context for query, context in with_tokens):
        return "prefill"
    if longest <= MAX_DRAFT:
        return "spec"
    return "mixed" if shortest <= MAX_DRAFT else "chunk"


def scenario_of(id: str, query_lens: Sequence[int], context_lens: Sequence[int], shape: Shape) -> Batch:
    """The batch of these lengths, which determine its kind.

    Raises ValueError for impossible lengths, and for an id that tables refuse.
    """
    if not is_id(id):
        raise ValueError(f"scenario id {id!r}: 1 to 128 letters, digits and _ . = - are possible")
    kind = kind_of(query_lens, context_lens) if any(query_lens) else ""
    return Batch(id, kind, tuple(query_lens), tuple(context_lens), **vars(shape))


def digest(scenarios: Sequence[Batch]) -> str:
    """12 hex digits of a hash of ids, lengths and shapes; the order of the scenarios does not matter."""
    lines = sorted(repr((s.name, s.query_lens, s.context_lens, str(shape_of(s)))) for s in scenarios)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
