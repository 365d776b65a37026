"""Launches that compile the kernels of a run in parallel processes before it."""

from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_kernels import Config, plan
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import launches_of, plan_for, stand_in
from benchmarks.common.implementations import NotApplicable, load_peers

TRITON_PEERS = ("vllm_triton", "vllm_triton_33")  # of vLLM 0.24 and 0.33


def chosen(batch: Batch, device: torch.device, batch_invariant: bool = False) -> Config:
    """The config that `plan` chooses for a batch."""
    return plan_for(stand_in(batch, device), batch_invariant=batch_invariant).config


@dataclass(frozen=True)
class PlanJob:
    """A launch of what `plan` chooses for a batch, over one page. Only `plan` knows the kernels it needs."""

    batch: Batch
    in_parts: bool = False
    max_query_len: int | None = None  # for a graph that is captured for these maxima
    cost: int = 1 << 59

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({self})

    def run(self, device: torch.device) -> None:
        tensors = stand_in(self.batch, device)
        made = plan_for(tensors, in_parts=self.in_parts)
        if self.max_query_len is not None:
            made = plan(
                tensors.cu_seqlens_q,
                tensors.seqused_k,
                tensors.block_table,
                self.batch.model,
                num_query_tokens=self.batch.num_query_tokens,
                max_query_len=self.max_query_len,
                max_seq_len=self.batch.max_seq_len,
                for_capture=True,
            )
        launches_of(made, tensors)[0]()


@dataclass(frozen=True)
class VllmJob:
    """Launches of vLLM's kernel over one page, for batches that share most of what it compiles for."""

    batches: tuple[Batch, ...]
    folder: Path  # holds peers.py
    peer: str  # its function
    cost: int = 1 << 60

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset((batch, self.peer) for batch in self.batches)

    def run(self, device: torch.device) -> None:
        (vllm,), _ = load_peers(self.folder, (self.peer,))
        for batch in self.batches:
            with suppress(NotApplicable):
                vllm.prepare(stand_in(batch, device)).launches[0]()


def vllm_jobs(batches: Iterable[Batch], folder: Path, peer: str) -> list[VllmJob]:
    """One job for batches that are alike, so that no two processes compile the same kernel."""
    alike: dict[Hashable, list[Batch]] = {}
    for batch in batches:
        key = (batch.layout, batch.dtype, batch.cache_dtype, batch.block_size, batch.max_query_len > 1)
        alike.setdefault(key, []).append(batch)
    return [VllmJob(tuple(group), folder, peer) for group in alike.values()]
