"""What each command has compiled ahead: a config of ours, a config with features, a peer's kernels."""

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import stand_in
from benchmarks.common.implementations import load_peers
from verification.cases import Case
from verification.poisoned import load


def small(batch: Batch) -> Batch:
    """A batch of at most three tokens that launches the same kernels, which no length is compiled into."""
    decodes, prompts = 1 in batch.query_lens, batch.max_query_len > 1
    lens = (1,) * decodes + (2,) * prompts
    return dataclasses.replace(batch, name="small", kind="", query_lens=lens, context_lens=lens)


@dataclass(frozen=True)
class OwnJob:
    """One config of a case, launched on a few tokens."""

    case: Case
    config: Config

    @property
    def needs(self) -> frozenset[Hashable]:
        batch, layout = self.case.batch, self.case.batch.layout
        parts: tuple[str, ...] = ("all",)
        if self.config.variant == "split":
            parts = ("decode",) * (1 in batch.query_lens) + ("prefill",) * (batch.max_query_len > 1)
        group = layout.num_query_heads // layout.num_kv_heads
        shape = (group, layout.head_size, batch.block_size, batch.dtype)
        compiled = self.config._replace(programs_per_sm=1)  # a launch's size, not a kernel's
        return frozenset((compiled, shape, self.case.features.compiled, part) for part in parts)

    @property
    def cost(self) -> int:
        return self.config.block_m * self.config.tile_size * self.case.batch.layout.head_size

    @property
    def group(self) -> None:
        return None

    def run(self, device: torch.device) -> None:
        case = dataclasses.replace(self.case, batch=small(self.case.batch), far=0)
        load(case, device).launch(self.config)


def own_job(batch: Batch, config: Config) -> OwnJob:
    """A plain launch without features."""
    return OwnJob(Case("", batch, ()), config)


@dataclass(frozen=True)
class PeerJob:
    """vLLM's kernel on a batch's real shape over a cache of one page: what it compiles depends on more."""

    batch: Batch
    folder: Path

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({self.batch})

    @property
    def cost(self) -> int:
        return 1 << 60

    @property
    def group(self) -> Hashable:
        batch = self.batch
        return (batch.layout, batch.dtype, batch.block_size, batch.max_query_len > 1)

    def run(self, device: torch.device) -> None:
        (vllm,), _ = load_peers(self.folder, ("vllm_triton",))
        vllm.prepare(stand_in(self.batch, device)).launches[0]()
