"""Launches of vLLM's kernel that compile it before a run."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import stand_in
from benchmarks.common.implementations import load_peers


@dataclass(frozen=True)
class VllmJob:
    """A launch of vLLM's kernel over one page; the kernel compiles for more than the head layout."""

    batch: Batch
    folder: Path  # holds peers.py

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
