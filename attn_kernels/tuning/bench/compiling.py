"""The jobs that compile a tuning run's kernels: each launches one config at one shape on a few tokens."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch

from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import launches_of, materialise, plan_for
from attn_kernels.tuning.scenarios.scenario import Shape

# A decode and a prompt launch both kernels of `split`. No kernel depends on the lengths.
LENGTHS = (1, 2)


@dataclass(frozen=True)
class CompileJob:
    """One config at one shape."""

    shape: Shape
    config: Config

    @property
    def needs(self) -> frozenset[Hashable]:
        shape = self.shape
        layout = shape.layout
        group = layout.num_query_heads // layout.num_kv_heads
        compiled = self.config._replace(programs_per_sm=1)  # it sets the size of a launch, not the kernel
        sizes = (group, layout.head_size, shape.block_size)
        return frozenset({(compiled, sizes, shape.dtype, shape.cache_dtype or shape.dtype)})

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.shape.layout.head_size

    @property
    def group(self) -> None:
        return None

    def run(self, device: torch.device) -> None:
        shape = self.shape
        batch = Batch(
            "small", "", LENGTHS, LENGTHS, shape.layout, shape.block_size, shape.dtype, shape.cache_dtype
        )
        tensors = materialise(batch, device)
        launches_of(plan_for(tensors, self.config), tensors)[0]()
