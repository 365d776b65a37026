"""A server's persistent buffers, and graphs of one step captured over them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

import attn_kernels
from attn_kernels import Config, LaunchConfig, Plan
from attn_kernels.launch.run import begin
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import BatchTensors, KVSet
from attn_kernels.measure.timing import capture
from benchmarks.graphs.batches import Server

BLOCK_SIZE = 16
POOL_BYTES = 12 << 30  # of keys, and as many of values


class Buffers:
    """What a server allocates once: caches of all layers, and tensors that each step fills anew.

    The layers' caches are windows of one pool. They overlap where a batch is larger than the pool has room
    for, and then a batch is far larger than the L2 cache.
    """

    def __init__(self, server: Server, device: torch.device, dtype: torch.dtype) -> None:
        self.server, self.device, self.dtype = server, device, dtype
        layout, layers = server.layout, server.num_layers
        self.pages = server.max_tokens // BLOCK_SIZE + server.most_seqs + 1
        page = (BLOCK_SIZE, layout.num_kv_heads, layout.head_size)
        wanted = POOL_BYTES // (torch.Size(page).numel() * dtype.itemsize)
        pool = max(self.pages, min(wanted, self.pages * layers))
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)

        k, v = normal(pool, *page), normal(pool, *page)
        rows = (layers, server.most_query_tokens, layout.num_query_heads, layout.head_size)
        q, self.out = normal(*rows), normal(*rows)
        step = (pool - self.pages) // max(1, layers - 1)
        self.layers = [
            KVSet(
                q[i],
                k[i * step : i * step + self.pages],
                v[i * step : i * step + self.pages],
                self.out[i],
            )
            for i in range(layers)
        ]
        most = server.most_seqs

        def indices(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.cu_seqlens_q, self.seqused_k = indices(most + 1), indices(most)
        self.block_table = indices(most, -(-server.longest // BLOCK_SIZE))

    def fill(self, batch: Batch, seed: int) -> None:
        """A step's batch, padded with sequences without query tokens and keys."""
        n = batch.num_seqs
        self.cu_seqlens_q.fill_(batch.num_query_tokens)
        self.cu_seqlens_q[: n + 1] = torch.tensor([0, *accumulate(batch.query_lens)], dtype=torch.int32)
        self.seqused_k.zero_()
        self.seqused_k[:n] = torch.tensor(batch.context_lens, dtype=torch.int32)
        generator = torch.Generator(self.device).manual_seed(seed)
        pages = torch.randperm(self.pages, generator=generator, device=self.device, dtype=torch.int32)
        counts = torch.tensor(batch.blocks_per_seq)
        starts = (counts.cumsum(0) - counts).to(self.device)
        places = starts[:, None] + torch.arange(int(counts.max()), device=self.device)
        self.block_table.zero_()
        self.block_table[:n, : places.shape[1]] = pages[places.clamp_(max=self.pages - 1)]

    def of(self, num_seqs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The index tensors of so many sequences."""
        return self.cu_seqlens_q[: num_seqs + 1], self.seqused_k[:num_seqs], self.block_table[:num_seqs]

    def layers_of(self, tokens: int) -> list[KVSet]:
        """The layers for so many query tokens."""
        return [KVSet(kv.q[:tokens], kv.k_cache, kv.v_cache, kv.out[:tokens]) for kv in self.layers]

    def tensors(self, batch: Batch) -> BatchTensors:
        """A view of what was filled in, without the padding."""
        return BatchTensors(
            batch,
            *self.of(batch.num_seqs),
            tuple(self.layers_of(batch.num_query_tokens)),
            batch.layout.head_size**-0.5,
        )


@dataclass(frozen=True)
class Candidate:
    """Who attends. ``config``: None for what is chosen, for the batch or, with ``for_capture``, as ``plan``
    means it. ``peer``: another project's call."""

    name: str
    config: LaunchConfig | None = None
    for_capture: bool = False
    peer: Callable[..., None] | None = None


class Sizes(Protocol):
    """What a graph is captured for: ``Maxima``, or a batch."""

    @property
    def num_seqs(self) -> int: ...
    @property
    def num_query_tokens(self) -> int: ...
    @property
    def max_query_len(self) -> int: ...
    @property
    def max_seq_len(self) -> int: ...


class Step:
    """One step of every layer, captured as a graph; on a CPU, launched again at every replay.

    ``num_kv_tokens``: None where only the maxima are known.
    """

    def __init__(
        self, buffers: Buffers, candidate: Candidate, sizes: Sizes, num_kv_tokens: int | None = None
    ) -> None:
        self._index = buffers.of(sizes.num_seqs)
        self._layers = buffers.layers_of(sizes.num_query_tokens)
        self._device, self._candidate = buffers.device, candidate
        layout = buffers.server.layout
        self._limits = (sizes.max_query_len, sizes.max_seq_len, layout.head_size**-0.5)
        self._options: dict[str, Any] = {
            "num_query_tokens": sizes.num_query_tokens,
            "num_kv_tokens": num_kv_tokens,
            "max_query_len": sizes.max_query_len,
            "max_seq_len": sizes.max_seq_len,
            "model": layout.model(BLOCK_SIZE, buffers.dtype),
            "config": candidate.config,
            "check": False,
            "for_capture": candidate.for_capture,
        }
        self._plan: Plan | None = None
        self.replay_us = 0.0
        if self._device.type == "cuda":
            self._layers, every = self._layers[:1], self._layers
            self._go()  # compiles, and learns to launch directly
            torch.cuda.synchronize(self._device)
            self._layers = every
            self._graph = capture([self._go], 1, self._device)
        else:
            self._go()

    @property
    def config(self) -> Config | None:
        """None of a peer."""
        return self._plan.config if self._plan else None

    def _go(self) -> None:
        if self._candidate.peer is not None:
            for kv in self._layers:
                self._candidate.peer(kv.q, kv.k_cache, kv.v_cache, kv.out, *self._index, *self._limits)
            return
        self._plan = attn_kernels.plan(*self._index, **self._options)  # kept: its memory is the graph's
        self._run(self._plan)

    def _run(self, plan: Plan) -> None:
        for kv in self._layers:
            attn_kernels.run(plan, kv.q, kv.k_cache, kv.v_cache, out=kv.out)

    def replay(self) -> None:
        if self._device.type == "cuda":
            self._graph.replay()
        elif self._plan is not None:
            begin(self._plan)
            self._run(self._plan)

    def sample(self, repeats: int) -> list[float]:
        """Microseconds a layer of each replay, after one that is not timed."""
        if self._device.type != "cuda":
            return [1.0] * repeats
        self.replay()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]  # type: ignore[no-untyped-call]
        for start, end in events:
            start.record()
            self._graph.replay()
            end.record()
        torch.cuda.synchronize(self._device)
        return [1e3 * start.elapsed_time(end) / len(self._layers) for start, end in events]


def captured_exactly(buffers: Buffers, candidate: Candidate, batch: Batch) -> Step:
    return Step(buffers, candidate, batch, batch.num_kv_tokens)
