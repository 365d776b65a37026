"""Launches of vLLM's kernel that compile it before a run."""

from collections.abc import Hashable, Iterable
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
    """Launches of vLLM's kernel over one page, for batches that share most of what it compiles for."""

    batches: tuple[Batch, ...]
    folder: Path  # holds peers.py
    peer: str  # its function

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset((batch, self.peer) for batch in self.batches)

    @property
    def cost(self) -> int:
        return 1 << 60

    def run(self, device: torch.device) -> None:
        (vllm,), _ = load_peers(self.folder, (self.peer,))
        for batch in self.batches:
            with suppress(NotApplicable):
                vllm.prepare(stand_in(batch, device)).launches[0]()


def vllm_jobs(batches: Iterable[Batch], folder: Path, peer: str) -> list[VllmJob]:
    """One job for batches that are alike, so that no two processes compile the same kernel."""
    alike: dict[Hashable, list[Batch]] = {}
    for batch in batches:
        key = (batch.layout, batch.dtype, batch.block_size, batch.max_query_len > 1)
        alike.setdefault(key, []).append(batch)
    return [VllmJob(tuple(group), folder, peer) for group in alike.values()]
