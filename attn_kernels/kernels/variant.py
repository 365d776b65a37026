"""A variant's declaration: kernels, launches, scratch memory and the configs that tuning tries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, Plan

Partials = tuple[Tensor, Tensor, Tensor]
Fragments = tuple[Tensor, Tensor, Tensor, Tensor]


@cache
def unused_partials(device: torch.device) -> Partials:
    """Small placeholders for partial results, which kernels take where no context is split."""
    values, maxima, sums = torch.empty((3, 4), dtype=torch.float32, device=device).unbind()
    return values, maxima, sums


@dataclass(frozen=True, slots=True)
class Scratch:
    """Allocates exactly the scratch memory that a plan needs; ``part``: as in ``Plan``."""

    device: torch.device
    # Partial results that there is room for: query tokens times query heads times splits.
    max_partials: int = 1 << 18  # 136 MB with heads of 128

    def cu_parts(self, num_seqs: int) -> tuple[Tensor, Tensor]:
        """int32, at least [num_seqs + 1] each: where the query tokens of each part's sequences begin."""
        return self._int32(num_seqs + 1), self._int32(num_seqs + 1)

    def schedule(self, length: int, part: int = 0) -> Tensor:
        """int32, at least [length]; its counters are zeros (``kernels.schedule``)."""
        return torch.zeros(length, dtype=torch.int32, device=self.device)

    def partials(self, num_rows: int, num_splits: int, head_padded: int) -> Partials:
        """Softmax states of splits, float32, few without splits; rows are query tokens times query heads.

        Weighted sums of values: at least [num_rows, num_splits, head_padded]. Maxima of scores, and sums of
        weights: at least [num_rows, num_splits] each.
        """
        if num_splits == 1:
            return unused_partials(self.device)
        return self._softmax_states((num_rows, num_splits), head_padded)

    def split_keys(self, part: int = 0) -> Tensor:
        """int32 [1], to which the device writes the number of keys per split."""
        return self._int32(1)

    def fragments(self, programs: int, block_m: int, head_padded: int) -> Fragments:
        """Counters of fragments, int32 zeros [2, programs], and softmax states, float32; at least so large.

        Sums of values are [2, programs, block_m, head_padded]; maxima and sums [2, programs, block_m] each.
        """
        counters = torch.zeros((2, programs), dtype=torch.int32, device=self.device)
        return counters, *self._softmax_states((2, programs, block_m), head_padded)

    def _int32(self, length: int) -> Tensor:
        return torch.empty(length, dtype=torch.int32, device=self.device)

    def _softmax_states(self, shape: tuple[int, ...], head_padded: int) -> Partials:
        shapes = ((*shape, head_padded), shape, shape)
        values, maxima, sums = (torch.empty(s, dtype=torch.float32, device=self.device) for s in shapes)
        return values, maxima, sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigGrid:
    """All combinations of some values of launch parameters, named by their letters in a config's name."""

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
    bind: Callable[[Plan, Layer], tuple[Launch, ...]]  # launches for layers of one signature, checked before
    bind_once: Callable[[Plan], tuple[Launch, ...]] | None = None  # launches once per plan, before any layer
    kernels: tuple[Any, ...] = ()  # the Triton kernels that it launches without the Hopper kernel
    parameters: frozenset[str] = frozenset()  # launch parameters that it has beside those of all variants
    mixed: bool = False  # computes both parts of a mixed batch in one launch, and no other batch
    batch_invariant: bool = False  # results for a sequence have the same bits in every batch
    # As ``splits.find_splits``, which is called if this is None.
    find_splits: Callable[[Config, Model, Lengths, int, int], tuple[int, int]] | None = None
    # A plan's ``workspace``, once all else of it is known; never synchronises.
    scratch: Callable[[Scratch, Plan], tuple[Tensor, ...]] = lambda *_: ()
    # Programs of a launch times ``block_m`` where programs keep fragments, the same for every batch; 0 where
    # contexts have splits with partial results instead.
    fragment_rows: Callable[[Config, torch.device], int] = lambda *_: 0
    samples: tuple[Config, ...]  # fit every GPU; the first stands for the variant in offline compilation
    grids: tuple[ConfigGrid, ...] = ()  # configs that attn-tune tries

    def configs(self, *, wide_heads: bool | None = None) -> list[Config]:
        """List the configs of all grids, or only of those with this value of ``wide_heads``."""
        grids = [grid for grid in self.grids if wide_heads in (None, grid.wide_heads)]
        return [config for grid in grids for config in grid.configs(self.name)]
