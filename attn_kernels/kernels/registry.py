"""The registry of kernel variants: what a config's ``variant`` may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels import (
    device_splits,
    naive,
    prefix_prefill,
    qblock,
    segmented,
    segments,
    split,
    static_grid,
    stream_k,
)
from attn_kernels.kernels.arguments import Specialisation
from attn_kernels.kernels.scratch import Needs, Scratch
from attn_kernels.kernels.static_grid import multiprocessors


def _no_workspace(scratch: Scratch, needs: Needs) -> tuple[Tensor, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Variant:
    """What a variant launches; it describes launches and makes none itself.

    Attributes:
        bind: its launches for layers of one signature; the arguments were checked.
        kernels: its Triton kernels.
        specialise: which of them a config launches where a KV head has so many query heads, and how compiled.
        parameters: the launch parameters that it heeds beside those that all do; others keep their defaults.
        one_row: a query tile has one row, so ``block_m`` is 1.
        workspace: what its kernels need beside the batch, once a plan; never synchronises.
        bind_once: what is launched once a plan, before any layer; None for nothing.
    """

    bind: Callable[[Plan, Layer], tuple[Launch, ...]]
    kernels: tuple[Any, ...]
    specialise: Callable[[Config, int], tuple[Specialisation, ...]]
    parameters: frozenset[str] = frozenset()
    one_row: bool = False
    workspace: Callable[[Scratch, Needs], tuple[Tensor, ...]] = _no_workspace
    bind_once: Callable[[Plan], tuple[Launch, ...]] | None = None


_DESCRIPTORS = frozenset({"descriptors"})
_SEGMENTS = frozenset({"num_segments", "device_segments"})
_PREFILL = prefix_prefill.prefix_prefill_kernel

VARIANTS: dict[str, Variant] = {
    "naive": Variant(naive.bind, (naive.naive_kernel,), naive.specialise, one_row=True),
    "prefix_prefill": Variant(prefix_prefill.bind, (_PREFILL,), prefix_prefill.specialise),
    "split": Variant(split.bind, (_PREFILL, split.decode_kernel), split.specialise),
    "qblock": Variant(qblock.bind, (qblock.qblock_kernel,), qblock.specialise, parameters=_DESCRIPTORS),
    "segmented": Variant(
        segmented.bind,
        (device_splits.decide_kernel, segmented.segmented_kernel, segments.reduce_kernel),
        segmented.specialise,
        parameters=_SEGMENTS,
        workspace=segments.partials,
        bind_once=segmented.bind_once,
    ),
    "static_grid": Variant(
        static_grid.bind,
        (
            device_splits.decide_kernel,
            static_grid.count_q_blocks_kernel,
            static_grid.static_grid_kernel,
            segments.reduce_kernel,
        ),
        static_grid.specialise,
        parameters=_SEGMENTS | {"programs_per_sm"},
        workspace=static_grid.workspace,
        bind_once=static_grid.bind_once,
    ),
    "stream_k": Variant(
        stream_k.bind,
        (stream_k.stream_k_kernel,),
        stream_k.specialise,
        parameters=frozenset({"programs_per_sm"}),
        workspace=stream_k.workspace,
    ),
}


def segments_of(config: Config) -> int:
    """How many partial results of a query head a config keeps; 0 if none."""
    return config.num_segments if config.num_segments > 1 or config.variant == "segmented" else 0


def fragment_rows(config: Config, device: torch.device) -> int:
    """Programs times ``block_m`` of a config whose programs keep fragments; 0 of any other."""
    if config.variant != "stream_k":
        return 0
    return multiprocessors(device) * config.programs_per_sm * config.block_m
