"""The jobs that compile a tuning run's kernels, by launches on stand-ins for a scenario's tensors."""

from collections.abc import Hashable
from dataclasses import dataclass

import torch

from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SERIES, WITHOUT_KERNEL, needs_parts
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import MAX_DRAFT, Lengths
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import launches_of, materialise, plan_for, stand_in
from attn_kernels.tuning.scenarios.scenario import Shape, scenario_of, shape_of

# A decode and a prompt launch both kernels of `split`. No kernel depends on the lengths.
LENGTHS = (1, 2)
LENGTHS_OF_PARTS = (1, MAX_DRAFT + 1)


@dataclass(frozen=True)
class CompileJob:
    """One config at one shape."""

    shape: Shape
    config: Config

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({_kernels(self.config, self.shape)})

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.shape.layout.head_size

    def run(self, device: torch.device) -> None:
        shape, lengths = self.shape, LENGTHS_OF_PARTS if needs_parts(self.config) else LENGTHS
        tensors = materialise(scenario_of("small", lengths, lengths, shape).batch, device)
        launches_of(plan_for(tensors, self.config), tensors)[0]()


@dataclass(frozen=True)
class ChosenJob:
    """A mixed batch that is launched with the choices of another kernel's tree, in series or as a whole."""

    batch: Batch
    way: Config  # of ``choose.mixed.WITHOUT_KERNEL``
    configs: tuple[Config, ...]  # that are chosen

    @property
    def needs(self) -> frozenset[Hashable]:
        shape = shape_of(self.batch)
        return frozenset((self.way, _kernels(config, shape)) for config in self.configs)

    @property
    def cost(self) -> int:
        return sum(CompileJob(shape_of(self.batch), config).cost for config in self.configs)

    def run(self, device: torch.device) -> None:
        tensors = stand_in(self.batch, device)
        launches_of(plan_for(tensors, self.way), tensors)[0]()


def job_for(batch: Batch, config: Config, device: torch.device) -> CompileJob | ChosenJob:
    """The job that compiles what a config launches for a batch on a device."""
    if config not in WITHOUT_KERNEL:
        return CompileJob(shape_of(batch), config)
    choices = choices_for(batch.model, device)
    lengths = batch.parts if config == SERIES else (Lengths.of(batch.query_lens, batch.context_lens),)
    return ChosenJob(batch, config, tuple(map(choices.config, lengths)))


def _kernels(config: Config, shape: Shape) -> Hashable:
    """A key of the kernels that a config launches at a shape."""
    layout = shape.layout
    group = layout.num_query_heads // layout.num_kv_heads
    # Without descriptors, it sets the size of a launch and not the kernel.
    compiled = config if config.descriptors else config._replace(programs_per_sm=1)
    sizes = (group, layout.head_size, shape.block_size)
    scores = shape.scores
    options = (scores.window is not None, scores.softcap != 0.0, scores.sinks)
    return compiled, sizes, shape.dtype, shape.cache_dtype or shape.dtype, options
