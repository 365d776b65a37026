"""A variant's declaration: kernels, launches, scratch memory and the configs that tuning tries."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import Specialisation
from attn_kernels.kernels.scratch import Scratch, ScratchMaxima, ScratchSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigGrid:
    """All combinations of values of launch parameters, which have their letters of a config's name."""

    M: tuple[int, ...]
    T: tuple[int, ...]
    W: tuple[int, ...]
    S: tuple[int, ...]
    N: tuple[int, ...] = (1,)
    P: tuple[int, ...] = (1,)
    D: tuple[int, ...] = (0,)
    K: tuple[int, ...] = (0,)

    def configs(self, variant: str) -> Iterator[Config]:
        """The configs of a variant; the last parameter varies fastest."""
        values = (self.M, self.T, self.W, self.S, self.N, self.P, self.D, self.K)
        for m, t, w, s, n, p, d, k in product(*values):
            yield Config(variant, m, t, n, w, s, p, d, decode_tile=k)


def no_scratch(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    return ()


def no_scratch_maxima(config: Config, device: torch.device) -> ScratchMaxima:
    return ScratchMaxima()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kernel implementation. It describes launches and makes none itself."""

    name: str  # what ``Config.variant`` calls it
    kernels: tuple[Any, ...]  # its Triton kernels
    bind: Callable[[Plan, Layer], tuple[Launch, ...]]  # launches for layers of one signature, checked before
    bind_once: Callable[[Plan], tuple[Launch, ...]] | None = None  # launches once a plan, before any layer
    # The kernels that a config launches for so many query heads a KV head, and what they are compiled for.
    specialise: Callable[[Config, int], tuple[Specialisation, ...]]
    parameters: frozenset[str] = frozenset()  # launch parameters that it has beside those of all variants
    mixed: bool = False  # computes both parts of a mixed batch in one launch, and no other batch
    one_row: bool = False  # block_m is 1, so its products use no matrix instructions
    one_head: bool = False  # a tile of block_m rows holds query tokens of one head
    # Rows of the query tiles in decode, from the query heads a KV head, where these are not block_m.
    decode_rows: Callable[[int], int] | None = None
    scratch: Callable[[Scratch, ScratchSizes], tuple[Tensor, ...]] = no_scratch  # of a plan; no synchronising
    scratch_maxima: Callable[[Config, torch.device], ScratchMaxima] = no_scratch_maxima  # for a workspace
    samples: tuple[Config, ...]  # fit every GPU; the first stands for the variant in offline compilation
    grids: tuple[ConfigGrid, ...] = ()  # configs that attn-tune tries
