"""A server's persistent buffers, and a step that is captured over them as a graph."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

import attn_kernels
from attn_kernels import Lengths, Parts
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import BatchTensors, KVSet
from attn_kernels.measure.timing import Timed, replay_us
from benchmarks.graphs.server_batches import CaptureServer
from triton_tune.bench.timing import capture

BLOCK_SIZE = 16
POOL_BYTES = 12 << 30  # of keys, and as many of values


class ServerBuffers:
    """A server's allocations: the caches of all layers, and tensors that each step fills anew.

    The layers' caches are windows of one pool. They overlap where a batch is larger than the pool has room
    for. Such a batch is far larger than the L2 cache.
    """

    def __init__(self, server: CaptureServer, device: torch.device, dtype: torch.dtype) -> None:
        self.server, self.device = server, device
        self.model = server.layout.model(BLOCK_SIZE, dtype)
        layout, layers, largest = server.layout, server.num_layers, server.largest
        self.pages = server.max_tokens // BLOCK_SIZE + largest.num_seqs + 1
        page = (BLOCK_SIZE, layout.num_kv_heads, layout.head_size)
        affordable = POOL_BYTES // (torch.Size(page).numel() * dtype.itemsize)
        pool = max(self.pages, min(affordable, self.pages * layers))
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)

        k, v = normal(pool, *page), normal(pool, *page)
        rows = (layers, largest.num_query_tokens, layout.num_query_heads, layout.head_size)
        q, self.out = normal(*rows), normal(*rows)
        step = (pool - self.pages) // max(1, layers - 1)
        windows = [slice(i * step, i * step + self.pages) for i in range(layers)]
        self.layers = [KVSet(q[i], k[pages], v[pages], self.out[i]) for i, pages in enumerate(windows)]
        most = largest.num_seqs

        def indices(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.cu_seqlens_q, self.seqused_k = indices(most + 1), indices(most)
        self.block_table = indices(most, -(-largest.max_seq_len // BLOCK_SIZE))

    def fill(self, batch: Batch, seed: int) -> None:
        """Write a batch into the index tensors; padding sequences have no query tokens and no keys."""
        n = len(batch.query_lens)
        self.cu_seqlens_q.fill_(batch.lengths.num_query_tokens)
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

    def index(self, num_seqs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return cu_seqlens_q, seqused_k and block_table of the first sequences."""
        return self.cu_seqlens_q[: num_seqs + 1], self.seqused_k[:num_seqs], self.block_table[:num_seqs]

    def layers_of(self, tokens: int) -> list[KVSet]:
        """Return the layers with q and out of the first query tokens."""
        return [KVSet(kv.q[:tokens], kv.k_cache, kv.v_cache, kv.out[:tokens]) for kv in self.layers]

    def tensors(self, batch: Batch) -> BatchTensors:
        """Return what `fill` wrote for a batch, without the padding."""
        index, layers = self.index(batch.lengths.num_seqs), self.layers_of(batch.lengths.num_query_tokens)
        return BatchTensors(batch, *index, tuple(layers), batch.layout.head_size**-0.5)


class CapturedStep(Timed):
    """One step of every layer as a graph; on a CPU every replay plans and launches it again.

    lengths: what the graph is captured for: one batch, or the maxima of many. parts: those of the decodes and
    the prompts, to plan them apart. peer: another project's kernel, in place of ours.
    """

    def __init__(
        self,
        buffers: ServerBuffers,
        lengths: Lengths,
        *,
        for_capture: bool,
        parts: Parts | None = None,
        peer: Callable[..., None] | None = None,
    ) -> None:
        super().__init__([])  # its own method would keep the graph alive in a cycle
        self._device, self._peer = buffers.device, peer
        self._layers = buffers.layers_of(lengths.num_query_tokens)
        self._index = buffers.index(lengths.num_seqs)
        self._limits = (lengths.max_query_len, lengths.max_seq_len, buffers.model.head_size**-0.5)
        self._make_plan = partial(
            attn_kernels.plan,
            *self._index,
            buffers.model,
            **lengths.as_arguments(),
            check=False,
            for_capture=for_capture,
            parts=parts,
        )
        self._go()  # compiles, and prepares direct launches
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self._graph = capture([self._go], 1, self._device)

    def _go(self) -> None:
        """Plan and launch one step."""
        if self._peer is None:  # the plan is kept, because the graph uses its memory
            self._plan = self._make_plan()
        for kv in self._layers:
            if self._peer is None:
                attn_kernels.run(self._plan, kv.q, kv.k_cache, kv.v_cache, out=kv.out)
            else:
                self._peer(kv.q, kv.k_cache, kv.v_cache, kv.out, *self._index, *self._limits)

    def replay(self) -> None:
        """Compute the step for the batch that the buffers hold."""
        if self._device.type == "cuda":
            self._graph.replay()
        else:
            self._go()

    def sample(self, repeats: int) -> list[float]:
        """Return the microseconds per layer of each replay, after one that is not timed."""
        if self._device.type != "cuda":
            return [1.0] * repeats
        return [us / len(self._layers) for us in replay_us(self._graph, repeats, self._device)]
