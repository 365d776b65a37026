"""The config of a captured graph: one for every batch up to the maxima that the graph is captured for.

A tree chooses for one batch, but a graph is replayed for batches that it was not captured for. If decode
programs (sequences times KV heads) are few, only splitting contexts fills the GPU. Then the tree's choice for
the maxima splits contexts of any length. If they are many, the tree's choice for the longest contexts is
wrong for short ones. Then the GPU divides the work at each replay: ``ON_DEVICE`` calls the tree for the
number of segments of this batch, and ``STREAM_K`` shares all tiles evenly. So does a tree's own choice of
that variant, which stays. ``ON_DEVICE`` is left out where no
module has the tree as a Triton function, or where the tree does not split even the longest contexts.
docs/graphs.md has the figures.
"""

from collections.abc import Mapping
from functools import cache

import torch

from attn_kernels.choose.heuristic import (
    KERNEL,
    Choose,
    Heuristic,
    choose_of,
    configs_of,
    heuristic_for,
    segments_function_of,
)
from attn_kernels.choose.overrides import CONFIG
from attn_kernels.choose.packages import kernel_package
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.kernels.arguments import multiprocessors
from triton_tune.core.device import describe_device

STREAM_K = Config(
    "stream_k", block_m=16, tile_size=64, num_warps=4, num_stages=3, programs_per_sm=3, max_registers=168
)
ON_DEVICE = Config("segmented", block_m=16, tile_size=64, num_segments=16, num_stages=3, device_segments=1)
TIMED_ON = ("sm_90",)  # elsewhere these configs are untimed, and may not fit
MAX_HEAD_SIZE = 128  # above, STREAM_K spills registers
# Decode programs a multiprocessor, timed on 132 multiprocessors. Up to FEW the tree's choice is best, up to
# SOME splitting on the device is best, and above that STREAM_K.
FEW, SOME = 0.5, 1.0


def for_decode(multiprocessors: int, can_split_on_device: bool, maxima: Mapping[str, int]) -> Config | None:
    """The config of a decode graph in place of the tree's choice; None where the tree's choice is best.

    A decode graph has so few query tokens a sequence that one query tile holds them, for all query heads of a
    KV head. It has one program for each sequence and KV head.

    Args:
        multiprocessors: of the GPU.
        can_split_on_device: whether the tree is there as a Triton function, and splits the longest contexts.
        maxima: the features of a ``choose``.
    """
    query_len, num_kv_heads = maxima["max_query_len"], maxima["num_kv_heads"]
    rows = query_len * (maxima["num_query_heads"] // num_kv_heads)
    if query_len != 1 and rows > STREAM_K.block_m:
        return None
    if maxima["head_size"] > MAX_HEAD_SIZE:
        return ON_DEVICE if can_split_on_device else None
    programs = maxima["num_seqs"] * num_kv_heads
    if programs <= FEW * multiprocessors:
        return None
    return ON_DEVICE if can_split_on_device and programs <= SOME * multiprocessors else STREAM_K


@cache
def choose_for_capture(device: torch.device, device_key: str | None = None) -> Choose:
    """Return what chooses configs of plans ``for_capture``; ``device_key`` as ``plan`` takes it.

    Raises ValueError about ``device_key`` or an environment variable.
    """
    return choose_of(heuristic_for_capture(device, device_key))


def heuristic_for_capture(device: torch.device, device_key: str | None = None) -> Heuristic:
    """As ``choose_for_capture``, without logging."""
    heuristic = heuristic_for(device, device_key)
    return Heuristic(f"{heuristic.key} for capture", _for_device(heuristic, device))


def configs_for_capture(device: torch.device | str, device_key: str | None = None) -> list[Config]:
    """List the configs that plans ``for_capture`` can choose on a device, for any model.

    Raises ValueError as ``choose_for_capture``.
    """
    device = torch.device(device)
    heuristic = heuristic_for(device, device_key)
    if heuristic.key == CONFIG:
        return [complete(heuristic.choose())]
    configs = configs_of(kernel_package(KERNEL).MODULES[heuristic.key])
    if not _is_timed_on(device):
        return configs
    on_device = [ON_DEVICE] if _has_function(heuristic) else []
    return [*configs, *on_device, STREAM_K]


def _is_timed_on(device: torch.device) -> bool:
    return describe_device(device)[1] in TIMED_ON


def _has_function(heuristic: Heuristic) -> bool:
    return segments_function_of(heuristic.key) is not None


def _for_device(heuristic: Heuristic, device: torch.device) -> Choose:
    tree = heuristic.choose
    if heuristic.key == CONFIG or not _is_timed_on(device):
        return tree
    count, has_function = multiprocessors(device), _has_function(heuristic)

    def choose(**maxima: int) -> LaunchConfig:
        by_tree = tree(**maxima)
        if by_tree.variant == STREAM_K.variant:
            return by_tree
        can_split_on_device = has_function and complete(by_tree).num_segments > 1
        return for_decode(count, can_split_on_device, maxima) or by_tree

    return choose
