"""Both parts of a mixed batch in one launch of the Hopper kernel, as in POD-Attention (arXiv 2410.18038).

``tile_size`` and ``num_stages`` are of the prompts. The decodes' ring takes the shared memory that is left.
"""

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import head_padded, multiprocessors, of_workspace
from attn_kernels.kernels.hopper_launch import bind_hopper, bind_schedules, take_schedule
from attn_kernels.kernels.variant import ConfigGrid, Scratch, Variant

SCHEDULE, *FRAGMENTS, CU_DECODES = map(of_workspace, range(6))
MAX_ROWS = 64  # of a decode's query tile, whatever the model


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    return bind_schedules(plan, SCHEDULE, CU_DECODES)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One launch; none if the kernel cannot compute the layer, and its parts have to be launched."""
    return bind_hopper(plan, layer, SCHEDULE, cu_decodes=CU_DECODES, fragments=FRAGMENTS)


def take_scratch(scratch: Scratch, plan: Plan) -> tuple[Tensor, ...]:
    schedule = take_schedule(scratch, plan)
    if not schedule:
        return ()
    head = head_padded(plan.model.head_size)
    return *schedule, *scratch.fragments(multiprocessors(plan.device), MAX_ROWS, head)


def fragment_rows(config: Config, device: torch.device) -> int:
    return multiprocessors(device) * MAX_ROWS


VARIANT = Variant(
    name="pod",
    bind=bind,
    bind_once=bind_once,
    mixed=True,
    scratch=take_scratch,
    fragment_rows=fragment_rows,
    samples=(Config("pod", block_m=128, tile_size=64, num_stages=3),),
    # Beside ``separate`` and ``single``, two stages or other tiles of decodes saved another 0.3% on average.
    grids=(ConfigGrid(M=(128,), T=(64,), W=(4,), S=(3,)),),
)
