"""What a captured graph launches: one config for every batch up to the maxima that it is captured for.

A tree asks about the batch, but a graph is replayed for others than it was captured for. With few decode
programs (sequences times KV heads) the GPU is filled only by splitting contexts, and the tree's choice for
the maxima splits them for any lengths. With many, what it chooses for the longest contexts is wrong for
short ones; then ``stream_k`` shares out whatever work there is when the graph is replayed.
"""

from collections.abc import Mapping
from functools import cache

import torch

from attn_kernels.choicelog import logged
from attn_kernels.choose import (
    Choose,
    Heuristic,
    configs_of,
    describe_device,
    heuristic_for_device,
    heuristic_for_key,
)
from attn_kernels.config import Config, LaunchConfig, complete
from attn_kernels.kernels.static_grid import multiprocessors
from attn_kernels.overrides import CONFIG, overrides

STREAM_K = Config(
    "stream_k", block_m=16, tile_size=64, num_warps=4, num_stages=3, programs_per_sm=3, max_registers=168
)
TIMED_ON = ("sm_90",)  # elsewhere nobody knows which is faster, nor that STREAM_K fits
LARGEST_HEAD = 128  # above, STREAM_K's registers would spill
PROGRAMS_PER_SM = 0.5  # decode programs that are many; timed: 64 on 132 multiprocessors are few, 128 many


def takes_stream_k(processors: int, maxima: Mapping[str, int]) -> bool:
    """Whether a graph for these maxima takes ``STREAM_K``: they are of decode programs, which are many.

    processors: multiprocessors of the GPU. maxima: the features of a ``choose``. A batch is of decode
    programs, one for each sequence and KV head, where a sequence has one query token, or so few that with
    all heads of a KV head they fit the rows of one query tile.
    """
    query_len, num_kv_heads = maxima["max_query_len"], maxima["num_kv_heads"]
    rows = query_len * (maxima["num_query_heads"] // num_kv_heads)
    one_tile = query_len == 1 or rows <= STREAM_K.block_m
    fits = one_tile and maxima["head_size"] <= LARGEST_HEAD
    return fits and maxima["num_seqs"] * num_kv_heads > PROGRAMS_PER_SM * processors


@cache
def choose_for_capture(device: torch.device, device_key: str | None = None) -> Choose:
    """What chooses for plans ``for_capture``, from maxima; ``device_key`` as ``plan`` takes it.

    Raises ValueError about ``device_key`` or an environment variable.
    """
    heuristic = _heuristic(device, device_key)
    choose = _with_stream_k(heuristic, device)
    return logged(f"{heuristic.key} for capture", choose) if overrides().log else choose


def configs_for_capture(device: torch.device | str, device_key: str | None = None) -> list[Config]:
    """All that plans ``for_capture`` can choose on a device: for ``Workspace.for_maxima`` and
    ``compile_ahead``. Raises ValueError as ``choose_for_capture``."""
    from generated import unified_attention  # late, as in heuristic_for_device

    device = torch.device(device)
    heuristic = _heuristic(device, device_key)
    if heuristic.key == CONFIG:
        return [complete(heuristic.choose())]
    configs = configs_of(unified_attention.MODULES[heuristic.key])
    return [*configs, STREAM_K] if _is_timed_on(device) else configs


def _heuristic(device: torch.device, device_key: str | None) -> Heuristic:
    return heuristic_for_device(device) if device_key is None else heuristic_for_key(device_key)


def _is_timed_on(device: torch.device) -> bool:
    return describe_device(device)[1] in TIMED_ON


def _with_stream_k(heuristic: Heuristic, device: torch.device) -> Choose:
    tree = heuristic.choose
    if heuristic.key == CONFIG or not _is_timed_on(device):
        return tree
    processors = multiprocessors(device)

    def choose(**maxima: int) -> LaunchConfig:
        return STREAM_K if takes_stream_k(processors, maxima) else tree(**maxima)

    return choose
