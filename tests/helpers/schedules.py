"""Schedules of the Hopper kernel, as the schedule's kernel writes them in Triton's interpreter."""

from types import SimpleNamespace
from unittest.mock import patch

import torch

from attn_kernels.core.structures import OfPlan
from attn_kernels.kernels import schedule as schedule_module
from attn_kernels.kernels.schedule import bind_schedule

UNTOUCHED = -7
COUNTERS = [5, 9]  # zeros in use; other numbers show that nothing writes them
MULTIPROCESSORS = 132


def scheduled(cu_prompts, cu_decodes, context_lens, roles, num_query_tokens, num_kv_heads=1, causal=True):
    """What the kernel writes, and two elements behind it."""
    plan = SimpleNamespace(
        lengths=SimpleNamespace(num_seqs=len(context_lens), num_query_tokens=num_query_tokens),
        batch=SimpleNamespace(seqused_k=torch.tensor(context_lens, dtype=torch.int32)),
        model=SimpleNamespace(num_kv_heads=num_kv_heads, causal=causal),
        device=torch.device("cpu"),
    )
    schedule = torch.full((roles.length(num_query_tokens, len(context_lens)) + 2,), UNTOUCHED).int()
    schedule[:2] = torch.tensor(COUNTERS)
    tensors = (schedule, *(torch.tensor(starts, dtype=torch.int32) for starts in (cu_prompts, cu_decodes)))
    launch = bind_schedule(roles, *(OfPlan(lambda plan, tensor=tensor: tensor) for tensor in tensors))
    with patch.object(schedule_module, "multiprocessors", return_value=MULTIPROCESSORS):
        arguments = [one.value(plan) if isinstance(one, OfPlan) else one for one in launch.arguments]
    launch.kernel[launch.grid(plan)](*arguments)
    return schedule.tolist()


def tiles_per_split(tiles, split_keys, tile_size, num_splits):
    """The tiles of each split, as ``splits.split_range`` says, in Python."""
    split_tiles = max(1, (split_keys + tile_size // 2) // tile_size)
    return -(-tiles // min(num_splits, max(1, (tiles + split_tiles // 2) // split_tiles)))
