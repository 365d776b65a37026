"""The registry of kernel variants: what a config's ``variant`` may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attn_kernels.config import Config
from attn_kernels.kernels import naive, prefix_prefill, qblock, segmented, segments, split, static_grid
from attn_kernels.kernels.arguments import Specialisation
from attn_kernels.structures import Layer, Plan


def _no_workspace(plan: Plan) -> tuple[Tensor, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Variant:
    """How a variant is launched.

    Attributes:
        launch: launches its kernels; the arguments were checked.
        kernels: its Triton kernels.
        specialise: which of them a config launches where a KV head has so many query heads, and how compiled.
        parameters: the launch parameters that it heeds beside those that all do; others keep their defaults.
        one_row: a query tile has one row, so ``block_m`` is 1.
        workspace: allocates what its kernels need beside the batch, once a plan; never synchronises.
    """

    launch: Callable[[Plan, Layer], None]
    kernels: tuple[Any, ...]
    specialise: Callable[[Config, int], tuple[Specialisation, ...]]
    parameters: frozenset[str] = frozenset()
    one_row: bool = False
    workspace: Callable[[Plan], tuple[Tensor, ...]] = _no_workspace


_DESCRIPTORS = frozenset({"descriptors"})
_SEGMENTS = frozenset({"num_segments"})
_PREFILL = prefix_prefill.prefix_prefill_kernel

VARIANTS: dict[str, Variant] = {
    "naive": Variant(naive.launch, (naive.naive_kernel,), naive.specialise, one_row=True),
    "prefix_prefill": Variant(prefix_prefill.launch, (_PREFILL,), prefix_prefill.specialise),
    "split": Variant(split.launch, (_PREFILL, split.decode_kernel), split.specialise),
    "qblock": Variant(qblock.launch, (qblock.qblock_kernel,), qblock.specialise, parameters=_DESCRIPTORS),
    "segmented": Variant(
        segmented.launch,
        (segmented.segmented_kernel, segments.reduce_kernel),
        segmented.specialise,
        parameters=_SEGMENTS,
        workspace=segments.allocate_partials,
    ),
    "static_grid": Variant(
        static_grid.launch,
        (static_grid.static_grid_kernel, segments.reduce_kernel),
        static_grid.specialise,
        parameters=_SEGMENTS | {"programs_per_sm"},
        workspace=static_grid.workspace,
    ),
}
