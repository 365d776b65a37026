"""The tensors of a batch on a device, with enough KV caches that no launch finds its cache in the L2."""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.structures import Plan
from attn_kernels.launch.run import run
from attn_kernels.measure.batches import Batch
from attn_kernels.planning.plan import plan
from triton_tune.bench.timing import Launch
from triton_tune.core.device import cache_bytes

L2_MULTIPLE = 4
MAX_SETS = 512
MEMORY_SHARE = 0.3  # of the free memory, at most, for all sets


@dataclass(frozen=True)
class KVSet:
    """The tensors of one layer of a model, all contiguous and of the batch's dtypes.

    q, out: [num_query_tokens, num_query_heads, head_size];
    caches: [num_blocks, block_size, num_kv_heads, head_size].
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    out: torch.Tensor


@dataclass(frozen=True)
class BatchTensors:
    """A batch's index tensors (int32), shared by its KV sets as a serving step shares them among layers."""

    batch: Batch
    cu_seqlens_q: torch.Tensor
    seqused_k: torch.Tensor
    block_table: torch.Tensor
    sets: tuple[KVSet, ...]
    softmax_scale: float
    options: dict[str, Any] = field(default_factory=dict, compare=False)  # score options, as `run` takes them

    @property
    def device(self) -> torch.device:
        return self.cu_seqlens_q.device


def set_bytes(batch: Batch) -> int:
    """The size in bytes of one KV set: both caches, q and out."""
    slots = sum(batch.blocks_per_seq) * batch.block_size * batch.layout.num_kv_heads
    rows = batch.lengths.num_query_tokens * batch.layout.num_query_heads
    return 2 * batch.layout.head_size * (slots * batch.kv_element_size + rows * batch.dtype.itemsize)


def rotation(batch: Batch, device: torch.device, *, l2_multiple: int = L2_MULTIPLE) -> int:
    """The number of KV sets that keep the last-level cache cold, as far as memory allows.

    Together they are `l2_multiple` times its size, and at least two.
    """
    if device.type != "cuda":
        return 2
    cold = max(2, math.ceil(l2_multiple * cache_bytes(device) / batch.kv_bytes))
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(1, min(cold, MAX_SETS, int(MEMORY_SHARE * free / set_bytes(batch))))


def block_table(batch: Batch, seed: int) -> torch.Tensor:
    """Pages in random order, int32 [num_seqs, max_blocks_per_seq], padded with page 0."""
    blocks = batch.blocks_per_seq
    pages = torch.randperm(sum(blocks), generator=torch.Generator().manual_seed(seed)).to(torch.int32)
    table = torch.zeros(batch.lengths.num_seqs, max(blocks), dtype=torch.int32)
    for row, pages_of_row in zip(table, torch.split(pages, list(blocks)), strict=True):
        row[: len(pages_of_row)] = pages_of_row
    return table


def materialise(batch: Batch, device: torch.device, *, num_sets: int = 1, seed: int = 0) -> BatchTensors:
    """Allocate and fill `num_sets` KV sets with normal random numbers; outputs are poisoned with NaN."""
    return _materialise(batch, device, block_table(batch, seed), sum(batch.blocks_per_seq), num_sets, seed)


def stand_in(batch: Batch, device: torch.device) -> BatchTensors:
    """Tensors with one page that launch the same kernels as the batch's, for compiling ahead."""
    return _materialise(batch, device, torch.zeros_like(block_table(batch, 0)), 1)


def _materialise(
    batch: Batch, device: torch.device, table: torch.Tensor, num_blocks: int, num_sets: int = 1, seed: int = 0
) -> BatchTensors:
    layout, dtype, cache_dtype = batch.layout, batch.dtype, batch.cache_dtype or batch.dtype
    generator = torch.Generator(device=device).manual_seed(seed)
    cache = (num_sets, num_blocks, batch.block_size, layout.num_kv_heads, layout.head_size)
    rows = (num_sets, batch.lengths.num_query_tokens, layout.num_query_heads, layout.head_size)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device).normal_(generator=generator)

    q, k, v = normal(rows), normal(cache).to(cache_dtype), normal(cache).to(cache_dtype)
    out = torch.full(rows, math.nan, dtype=dtype, device=device)
    starts = torch.tensor((0, *batch.query_lens)).cumsum(0).to(torch.int32)
    return BatchTensors(
        batch=batch,
        cu_seqlens_q=starts.to(device),
        seqused_k=torch.tensor(batch.context_lens, dtype=torch.int32, device=device),
        block_table=table.to(device),
        sets=tuple(KVSet(*parts) for parts in zip(q, k, v, out, strict=True)),
        softmax_scale=layout.head_size**-0.5,
        options=score_options(batch, device),
    )


def plan_for(
    tensors: BatchTensors,
    config: LaunchConfig | None = None,
    *,
    in_parts: bool = False,
    batch_invariant: bool = False,
) -> Plan:
    """`attn_kernels.plan` of the batch, in parts on request and for configs that need them."""
    batch = tensors.batch
    in_parts = in_parts or (config is not None and needs_parts(config))
    return plan(
        tensors.cu_seqlens_q,
        tensors.seqused_k,
        tensors.block_table,
        replace(batch.model, batch_invariant=batch_invariant),
        **batch.lengths.as_arguments(),
        config=config,
        parts=batch.parts if in_parts else None,
    )


def launches_of(plan: Plan, tensors: BatchTensors) -> list[Launch]:

    def launch(kv: KVSet) -> None:
        options = tensors.options
        run(plan, kv.q, kv.k_cache, kv.v_cache, out=kv.out, softmax_scale=tensors.softmax_scale, **options)

    return [partial(launch, kv) for kv in tensors.sets]


def score_options(batch: Batch, device: torch.device) -> dict[str, Any]:
    """The score options of a batch that has any, as `run` takes them; sinks are of the queries' dtype."""
    scores, heads = batch.scores, batch.layout.num_query_heads
    options: dict[str, Any] = {"sliding_window": scores.window, "softcap": scores.softcap}
    options = {name: value for name, value in options.items() if value}
    if not scores.causal:
        options["causal"] = False
    if scores.sinks:
        options["sinks"] = torch.linspace(-1.0, 3.0, heads, device=device).to(batch.dtype)
    return options
