"""Decodes on a Hopper GPU: a fixed number of programs that share the keys of any batch evenly, in one launch.

The module ``hopper_shares`` tells how, and names the sources. Layers that the Hopper kernel cannot compute
are launched as those of ``qblock``.
"""

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels import qblock
from attn_kernels.kernels.arguments import head_padded, multiprocessors, of_workspace
from attn_kernels.kernels.hopper_launch import bind_hopper, launches, take_schedule
from attn_kernels.kernels.variant import ConfigGrid, Scratch, Variant

*FRAGMENTS, SCHEDULE = map(of_workspace, range(5))


def take_scratch(scratch: Scratch, plan: Plan) -> tuple[Tensor, ...]:
    """The fragments, whose counters are zero between launches, and the schedule."""
    schedule = take_schedule(scratch, plan)
    if not schedule:
        return qblock.take_scratch(scratch, plan)
    head = head_padded(plan.model.head_size)
    return *scratch.fragments(multiprocessors(plan.device), plan.config.block_m, head), *schedule


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One launch, of as many programs as the GPU has multiprocessors."""
    by_hopper = bind_hopper(plan, layer, SCHEDULE, fragments=FRAGMENTS)
    return by_hopper or qblock.bind_with_pointers(plan, layer)


def fragment_rows(config: Config, device: torch.device) -> int:
    return multiprocessors(device) * config.block_m if launches(config, device) else 0


VARIANT = Variant(
    name="stream_k",
    bind=bind,
    bind_once=qblock.bind_once,
    kernels=qblock.VARIANT.kernels,
    parameters=frozenset({"tma"}),
    scratch=take_scratch,
    fragment_rows=fragment_rows,
    samples=(Config("stream_k", block_m=16, tile_size=64, tma=1),),
    grids=(ConfigGrid(M=(16,), T=(64, 128), W=(4,), S=(2,), D=(1,)),),
)
