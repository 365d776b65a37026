"""A variant's declaration: kernels, launches, scratch memory and the configs that tuning tries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import Specialisation

Partials = tuple[Tensor, Tensor, Tensor]
Fragments = tuple[Tensor, Tensor, Tensor, Tensor]


class ScratchSizes(NamedTuple):
    num_seqs: int
    num_query_tokens: int
    num_query_heads: int
    head_padded: int  # as in ``CompileParams``
    num_splits: int
    block_m: int = 0
    for_capture: bool = False
    part: int = 0  # of a mixed batch, 0 or 1, or 2 for both: what is computed once per plan is kept apart
    gqa_group_size: int = 1
    config: Config | None = None


class ScratchMaxima(NamedTuple):
    """A config's share of a workspace's size, the same for every batch."""

    splits: bool = False  # whether it keeps partial results of splits
    fragment_rows: int = 0  # programs of a launch times block_m, where programs keep fragments


class Scratch(Protocol):
    """A source of a plan's scratch memory."""

    @property
    def device(self) -> torch.device: ...

    def cu_parts(self, num_seqs: int) -> tuple[Tensor, Tensor]:
        """int32, at least [num_seqs + 1] each: where the query tokens of each part's sequences begin."""

    def schedule(self, length: int, sizes: ScratchSizes) -> Tensor:
        """int32, at least [length]; its counters are zeros (``kernels.schedule``)."""

    @property
    def max_partials(self) -> int:
        """Partial results that there is room for: query tokens times query heads times splits."""

    def partials(self, sizes: ScratchSizes) -> Partials:
        """Softmax states of splits, float32.

        The weighted sums of values: at least [num_query_tokens, num_query_heads, num_splits, head_padded]
        elements. The maxima of scores and the sums of weights: at least
        [num_query_tokens, num_query_heads, num_splits] each. One element of each without splits.
        """

    def split_keys(self, sizes: ScratchSizes) -> Tensor:
        """int32 [1], the keys of each split that the device finds."""

    def fragments(self, programs: int, sizes: ScratchSizes) -> Fragments:
        """Counters and softmax states of fragments.

        The counters: int32, at least [2, programs], zeros. The weighted sums of values: float32, at least
        [2, programs, block_m, head_padded]. The maxima of scores and the sums of weights: float32, at least
        [2, programs, block_m] each.
        """


@cache
def unused_partials(device: torch.device) -> Partials:
    """What kernels take in place of partial results where no context is split."""
    values, maxima, sums = torch.empty((3, 4), dtype=torch.float32, device=device).unbind()
    return values, maxima, sums


@dataclass(frozen=True, slots=True)
class Fresh:
    """Allocates exactly what a plan needs."""

    device: torch.device
    max_partials: int = 1 << 18  # 136 MB with heads of 128

    def cu_parts(self, num_seqs: int) -> tuple[Tensor, Tensor]:
        return self._int32(num_seqs + 1), self._int32(num_seqs + 1)

    def schedule(self, length: int, sizes: ScratchSizes) -> Tensor:
        return torch.zeros(length, dtype=torch.int32, device=self.device)

    def partials(self, sizes: ScratchSizes) -> Partials:
        if sizes.num_splits == 1:
            return unused_partials(self.device)
        return self._softmax_states(
            (sizes.num_query_tokens, sizes.num_query_heads, sizes.num_splits), sizes.head_padded
        )

    def split_keys(self, sizes: ScratchSizes) -> Tensor:
        return self._int32(1)

    def fragments(self, programs: int, sizes: ScratchSizes) -> Fragments:
        counters = torch.zeros((2, programs), dtype=torch.int32, device=self.device)
        return counters, *self._softmax_states((2, programs, sizes.block_m), sizes.head_padded)

    def _int32(self, length: int) -> Tensor:
        return torch.empty(length, dtype=torch.int32, device=self.device)

    def _softmax_states(self, shape: tuple[int, ...], head_padded: int) -> Partials:
        shapes = ((*shape, head_padded), shape, shape)
        values, maxima, sums = (torch.empty(s, dtype=torch.float32, device=self.device) for s in shapes)
        return values, maxima, sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigGrid:
    """All combinations of values of launch parameters, which have their letters of a config's name."""

    M: tuple[int, ...]
    T: tuple[int, ...]
    W: tuple[int, ...]
    S: tuple[int, ...]
    D: tuple[int, ...] = (0,)
    wide_heads: bool = False  # only for heads of more than 256 elements, on NVIDIA GPUs

    def configs(self, variant: str) -> Iterator[Config]:
        for sizes in product(self.M, self.T, self.W, self.S, self.D):
            yield Config(variant, *sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kernel implementation. It describes launches and makes none itself."""

    name: str  # what ``Config.variant`` calls it
    kernels: tuple[Any, ...]  # its Triton kernels
    bind: Callable[[Plan, Layer], tuple[Launch, ...]]  # launches for layers of one signature, checked before
    bind_once: Callable[[Plan], tuple[Launch, ...]] | None = None  # launches once per plan, before any layer
    # The kernels that a config launches for this many query heads per KV head, and their constants.
    specialise: Callable[[Config, int], tuple[Specialisation, ...]]
    parameters: frozenset[str] = frozenset()  # launch parameters that it has beside those of all variants
    mixed: bool = False  # computes both parts of a mixed batch in one launch, and no other batch
    batch_invariant: bool = False  # results for a sequence have the same bits in every batch
    # As ``splits.find_splits``, which is called if this is None.
    find_splits: Callable[[Config, Model, Lengths, int, int], tuple[int, int]] | None = None
    scratch: Callable[[Scratch, ScratchSizes], tuple[Tensor, ...]] = (
        lambda *_: ()
    )  # of a plan; no synchronising
    scratch_maxima: Callable[[Config, torch.device], ScratchMaxima] = lambda *_: (
        ScratchMaxima()
    )  # for a workspace
    samples: tuple[Config, ...]  # fit every GPU; the first stands for the variant in offline compilation
    grids: tuple[ConfigGrid, ...] = ()  # configs that attn-tune tries
