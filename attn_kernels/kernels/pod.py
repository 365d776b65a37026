"""Both parts of a mixed batch in one launch of the Hopper kernel.

POD-Attention (arXiv 2410.18038) overlaps the prompts' products with the reads of the decodes' caches. The
module ``hopper`` tells how a program divides its warps between both. ``tile_size`` and ``num_stages`` are of
the prompts, and ``decode_tile`` is of the decodes, whose ring takes the shared memory that is left.
"""

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import CU_SEQLENS_Q, Specialisation, of_workspace
from attn_kernels.kernels.hopper_gate import hopper_for
from attn_kernels.kernels.schedule import bind_schedule, schedule_kernel
from attn_kernels.kernels.scratch import Scratch, ScratchMaxima, ScratchSizes
from attn_kernels.kernels.static_grid import multiprocessors
from attn_kernels.kernels.variant import ConfigGrid, Variant

SCHEDULE, *FRAGMENTS, CU_DECODES = map(of_workspace, range(6))
MAX_ROWS = 64  # of a decode's query tile, whatever the model


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    """The launch that computes the schedule; none where the kernel cannot be used."""
    hopper = hopper_for(plan.device)
    if hopper is None:
        return ()
    roles = hopper.roles_of(plan.config, plan.model.queries_per_kv)
    return (bind_schedule(roles, SCHEDULE, CU_SEQLENS_Q, CU_DECODES),)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One launch; none if the kernel cannot compute the layer, and its parts have to be launched."""
    hopper = hopper_for(plan.device)
    if hopper is None or hopper.why_not(plan, layer) is not None:
        return ()
    return (hopper.bind(plan, layer, SCHEDULE, CU_SEQLENS_Q, CU_DECODES, FRAGMENTS),)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    """None of Triton's own kernels: ``offline.sources`` compiles the Hopper kernel."""
    return ()


def take_scratch(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    """The schedule and the decodes' fragments, where the kernel can be used."""
    hopper = hopper_for(scratch.device)
    if hopper is None or sizes.config is None:
        return ()
    roles = hopper.roles_of(sizes.config, sizes.queries_per_kv)
    schedule = scratch.schedule(roles.length(sizes.num_query_tokens, sizes.num_seqs), sizes)
    rows = hopper.decode_rows(sizes.config, sizes.queries_per_kv)
    return (
        schedule,
        *scratch.fragments(multiprocessors(scratch.device), sizes._replace(block_m=min(rows, MAX_ROWS))),
    )


def scratch_maxima(config: Config, device: torch.device) -> ScratchMaxima:
    return ScratchMaxima(fragment_rows=multiprocessors(device) * MAX_ROWS)


VARIANT = Variant(
    name="pod",
    kernels=(schedule_kernel,),
    bind=bind,
    bind_once=bind_once,
    specialise=specialise,
    parameters=frozenset({"decode_tile"}),
    mixed=True,
    scratch=take_scratch,
    scratch_maxima=scratch_maxima,
    samples=(Config("pod", block_m=128, tile_size=64, num_stages=3, decode_tile=128),),
    # Of the combinations that fit shared memory, those that were best in some batch on an H200.
    grids=(
        ConfigGrid(M=(128,), T=(64,), W=(4,), S=(2, 3), K=(64, 128)),
        ConfigGrid(M=(128,), T=(128,), W=(4,), S=(2,), K=(64,)),
    ),
)
