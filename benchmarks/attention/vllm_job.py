"""Launches of vLLM's kernel that compile it before a run."""

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import stand_in
from benchmarks.common.implementations import NotApplicable, load_peers

TRITON_PEERS = ("vllm_triton", "vllm_triton_33")  # of vLLM 0.24 and 0.33


@dataclass(frozen=True)
class VllmJob:
    """A launch of vLLM's kernel over one page; the kernel compiles for more than the head layout."""

    batch: Batch
    folder: Path  # holds peers.py
    peer: str  # its function

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({(self.batch, self.peer)})

    @property
    def cost(self) -> int:
        return 1 << 60

    @property
    def group(self) -> Hashable:
        batch = self.batch
        return (self.peer, batch.layout, batch.dtype, batch.block_size, batch.max_query_len > 1)

    def run(self, device: torch.device) -> None:
        (vllm,), _ = load_peers(self.folder, (self.peer,))
        with suppress(NotApplicable):
            vllm.prepare(stand_in(self.batch, device)).launches[0]()
