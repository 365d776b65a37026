"""A scenario: a batch that a tuning run times configs in, under an id that heads its rows in the table."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from attn_kernels.measure.batches import Batch, HeadLayout
from tuning_table.names import is_id

FEATURES: tuple[str, ...] = tuple(Batch("", "decode", (1,), (1,)).features)
KINDS = ("decode", "prefill", "chunk", "spec", "mixed")
MAX_DRAFT = 8  # more query tokens than that are a prompt's, not a speculation's


@dataclass(frozen=True)
class Scenario:
    """A batch under a unique id of letters, digits and `_ . = -`; raises ValueError on another id."""

    id: str
    batch: Batch

    def __post_init__(self) -> None:
        if not is_id(self.id):
            raise ValueError(f"scenario id {self.id!r}: 1 to 128 letters, digits and _ . = - are possible")


@dataclass(frozen=True)
class Shape:
    """What kernels are compiled for beside a config. `cache_dtype` is None where it is `dtype`."""

    layout: HeadLayout
    block_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None

    def __str__(self) -> str:
        """`h32.8.128-p16`, with the element types where they are not bfloat16: usable in an id."""
        heads = ".".join(map(str, dataclasses.astuple(self.layout)))
        types = [dtype_name(dtype) for dtype in (self.dtype, self.cache_dtype) if dtype]
        return "-".join([f"h{heads}", f"p{self.block_size}", *(name for name in types if name != "bfloat16")])


def shape_of(batch: Batch) -> Shape:
    cache_dtype = None if batch.cache_dtype == batch.dtype else batch.cache_dtype
    return Shape(batch.layout, batch.block_size, batch.dtype, cache_dtype)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def kind_of(query_lens: Sequence[int], context_lens: Sequence[int]) -> str:
    """One of KINDS, from the sequences that have query tokens; mixed is decode or drafts beside prompts."""
    with_tokens = [(q, c) for q, c in zip(query_lens, context_lens, strict=True) if q]
    longest, shortest = max(with_tokens)[0], min(with_tokens)[0]
    if longest == 1:
        return "decode"
    if all(query == context for query, context in with_tokens):
        return "prefill"
    if longest <= MAX_DRAFT:
        return "spec"
    return "mixed" if shortest <= MAX_DRAFT else "chunk"


def scenario_of(id: str, query_lens: Sequence[int], context_lens: Sequence[int], shape: Shape) -> Scenario:
    """The scenario of these lengths: its batch is named as it is, and the lengths say of which kind it is.

    Raises ValueError where the lengths are impossible.
    """
    batch = Batch(
        id,
        kind_of(query_lens, context_lens) if any(query_lens) else "",
        tuple(query_lens),
        tuple(context_lens),
        shape.layout,
        shape.block_size,
        shape.dtype,
        shape.cache_dtype,
    )
    return Scenario(id, batch)


def digest(scenarios: Sequence[Scenario]) -> str:
    """12 hex digits over ids, lengths and shapes, whatever the scenarios' order."""
    lines = sorted(
        repr((s.id, s.batch.query_lens, s.batch.context_lens, str(shape_of(s.batch)))) for s in scenarios
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
