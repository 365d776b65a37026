"""What a captured graph launches: one config for every batch up to the maxima that it is captured for.

A tree asks about the batch, but a graph is replayed for others than it was captured for. With few decode
programs (sequences times KV heads) the GPU is filled only by splitting contexts, and the tree's choice for
the maxima splits them for any lengths. With many, what it chooses for the longest contexts is wrong for
short ones. Then the GPU decides when the graph is replayed: ``DECIDED`` asks the tree how many segments this
batch needs, ``STREAM_K`` shares out whatever work there is. ``DECIDED`` is left out where the tree was not
printed as a Triton function, or does not even split the longest contexts. docs/graphs.md has the figures.
"""

from collections.abc import Mapping
from functools import cache

import torch

from attn_kernels.choose.heuristic import (
    Choose,
    Heuristic,
    choose_of,
    configs_of,
    describe_device,
    heuristic_for,
    segments_function_of,
)
from attn_kernels.choose.overrides import CONFIG
from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.kernels.static_grid import multiprocessors

STREAM_K = Config(
    "stream_k", block_m=16, tile_size=64, num_warps=4, num_stages=3, programs_per_sm=3, max_registers=168
)
DECIDED = Config("segmented", block_m=16, tile_size=64, num_segments=16, num_stages=3, device_segments=1)
TIMED_ON = ("sm_90",)  # elsewhere nobody knows which is faster, nor that these fit
LARGEST_HEAD = 128  # above, STREAM_K's registers would spill
# Decode programs a multiprocessor. Timed on 132 multiprocessors: up to 64 programs are few, 128 are some, 256
# many.
FEW, SOME = 0.5, 1.0


def for_decode(processors: int, can_decide: bool, maxima: Mapping[str, int]) -> Config | None:
    """What a graph for these maxima takes in place of the tree's choice; None where that is best.

    processors: multiprocessors of the GPU. can_decide: whether it is of use that the GPU asks the tree.
    maxima: the features of a ``choose``. A batch is of decode programs, one for each sequence and KV head,
    where a sequence has one query token, or so few that with all heads of a KV head they fit the rows of one
    query tile.
    """
    query_len, num_kv_heads = maxima["max_query_len"], maxima["num_kv_heads"]
    rows = query_len * (maxima["num_query_heads"] // num_kv_heads)
    if query_len != 1 and rows > STREAM_K.block_m:
        return None
    if maxima["head_size"] > LARGEST_HEAD:
        return DECIDED if can_decide else None
    programs = maxima["num_seqs"] * num_kv_heads
    if programs <= FEW * processors:
        return None
    return DECIDED if can_decide and programs <= SOME * processors else STREAM_K


@cache
def choose_for_capture(device: torch.device, device_key: str | None = None) -> Choose:
    """What chooses for plans ``for_capture``, from maxima; ``device_key`` as ``plan`` takes it.

    Raises ValueError about ``device_key`` or an environment variable.
    """
    return choose_of(heuristic_for_capture(device, device_key))


def heuristic_for_capture(device: torch.device, device_key: str | None = None) -> Heuristic:
    """As ``choose_for_capture``, and logs nothing."""
    heuristic = heuristic_for(device, device_key)
    return Heuristic(f"{heuristic.key} for capture", _for_device(heuristic, device))


def configs_for_capture(device: torch.device | str, device_key: str | None = None) -> list[Config]:
    """All that plans ``for_capture`` can choose on a device, whatever the heads. Raises ValueError as
    ``choose_for_capture``."""
    from generated import unified_attention  # late, as in heuristic_for_device

    device = torch.device(device)
    heuristic = heuristic_for(device, device_key)
    if heuristic.key == CONFIG:
        return [complete(heuristic.choose())]
    configs = configs_of(unified_attention.MODULES[heuristic.key])
    if not _is_timed_on(device):
        return configs
    decided = [DECIDED] if _has_function(heuristic) else []
    return [*configs, *decided, STREAM_K]


def _is_timed_on(device: torch.device) -> bool:
    return describe_device(device)[1] in TIMED_ON


def _has_function(heuristic: Heuristic) -> bool:
    return segments_function_of(heuristic.key) is not None


def _for_device(heuristic: Heuristic, device: torch.device) -> Choose:
    tree = heuristic.choose
    if heuristic.key == CONFIG or not _is_timed_on(device):
        return tree
    processors, has_function = multiprocessors(device), _has_function(heuristic)

    def choose(**maxima: int) -> LaunchConfig:
        by_tree = tree(**maxima)
        can_decide = has_function and complete(by_tree).num_segments > 1
        return for_decode(processors, can_decide, maxima) or by_tree

    return choose
