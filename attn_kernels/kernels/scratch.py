"""The memory that a variant's kernels need beside the batch: how much, and where it comes from."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Partials = tuple[Tensor, Tensor, Tensor]
Fragments = tuple[Tensor, Tensor, Tensor, Tensor]


class Needs(NamedTuple):
    """What the sizes of a plan's scratch memory follow from; ``head_padded`` as ``CompileParams`` has it."""

    num_seqs: int
    num_query_tokens: int
    num_query_heads: int
    head_padded: int
    num_segments: int
    block_m: int = 0
    programs_per_sm: int = 0
    device_segments: int = 0


class Scratch(Protocol):
    """Where a plan's scratch memory comes from."""

    @property
    def device(self) -> torch.device: ...

    def cu_q_blocks(self, needs: Needs) -> Tensor:
        """int32, at least [num_seqs + 1]."""

    def partials(self, needs: Needs) -> Partials:
        """float32, at least [num_query_tokens, num_query_heads, num_segments, head_padded] elements for the
        sums of values, and twice [num_query_tokens, num_query_heads, num_segments] for their maxima and
        sums of weights."""

    def decided(self) -> Tensor:
        """int32 [1]."""

    def fragments(self, programs: int, needs: Needs) -> Fragments:
        """int32, at least [programs], zeros; and float32, at least [2, programs, block_m, head_padded]
        elements for the sums of values, twice [2, programs, block_m] for their maxima and sums of weights."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Allocates exactly what a plan needs."""

    device: torch.device

    def cu_q_blocks(self, needs: Needs) -> Tensor:
        return torch.empty(needs.num_seqs + 1, dtype=torch.int32, device=self.device)

    def partials(self, needs: Needs) -> Partials:
        rows = (needs.num_query_tokens, needs.num_query_heads, needs.num_segments)

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=self.device)

        return empty(*rows, needs.head_padded), empty(*rows), empty(*rows)

    def decided(self) -> Tensor:
        return torch.empty(1, dtype=torch.int32, device=self.device)

    def fragments(self, programs: int, needs: Needs) -> Fragments:
        rows = (2, programs, needs.block_m)

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=self.device)

        counters = torch.zeros(programs, dtype=torch.int32, device=self.device)
        return counters, empty(*rows, needs.head_padded), empty(*rows), empty(*rows)
