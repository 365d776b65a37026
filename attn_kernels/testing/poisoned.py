"""Random paged batches whose unused memory is poisoned, for tests and for checks of a config on its GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from attn_kernels.choose.choices import checked, choices_for
from attn_kernels.core.batch import Batch
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.kernels.variant import Scratch
from attn_kernels.launch.run import begin, run
from attn_kernels.planning.plan import Planning, plan
from attn_kernels.testing.reference import paged_attention_reference

GARBAGE_PAGE = 2**30  # far outside any cache: reading it would fault


@dataclass(frozen=True, slots=True, eq=False)
class PoisonedBatch:
    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        caches = (self.k_cache, self.v_cache)
        return (self.q, *caches, self.cu_seqlens_q, self.seqused_k, self.block_table)

    @property
    def model(self) -> Model:
        _, block_size, num_kv_heads, head_size = self.k_cache.shape
        heads = (self.q.shape[1], num_kv_heads, head_size)
        return Model(*heads, block_size, self.q.dtype, self.k_cache.dtype)

    def plan(self, **options: Any) -> Plan:
        """``attn_kernels.plan`` of this batch; ``options`` are its keyword arguments, or replace them."""
        arguments = Lengths.of(self.query_lens, self.context_lens).as_arguments()
        arguments |= {"num_query_tokens": len(self.q), "model": self.model}  # q may be padded
        return plan(self.cu_seqlens_q, self.seqused_k, self.block_table, **(arguments | options))

    def plan_in_parts(
        self,
        decodes: LaunchConfig,
        prompts: LaunchConfig,
        parts: Parts | None = None,
        fused: LaunchConfig | None = None,
    ) -> Plan:
        """Plan this batch in two parts of these configs; with any ``parts``, which need not be right.

        fused: the config of one launch for both parts, where its kernel can compute the layer.
        """
        lens = (self.query_lens, self.context_lens)
        lengths, parts = Lengths.of(*lens), parts or Parts.of(*lens)
        batch = Batch(self.cu_seqlens_q, self.seqused_k, self.block_table, self.q.device, lengths, parts)
        planning = Planning(batch, choices_for(self.model, self.q.device, None), Scratch(self.q.device))
        configs = checked(decodes), checked(prompts)
        made = planning.in_parts(configs, None if fused is None else checked(fused))
        begin(made)
        return made

    def reference(self, **scoring: Any) -> Tensor:
        """Return the float64 result; ``scoring`` as ``attn_kernels.run`` takes it."""
        return paged_attention_reference(*self.tensors, **scoring)


def make_batch(
    query_lens: Sequence[int],
    context_lens: Sequence[int],
    *,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: torch.dtype = torch.bfloat16,
    cache_dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> PoisonedBatch:
    """Make a batch of normally distributed values in randomly ordered pages.

    NaN fills the pages that no sequence owns, and the end of each last page. Block-table entries past a
    sequence's last page hold an id far outside the cache.

    Args:
        query_lens: query tokens of each sequence.
        context_lens: keys of each sequence, its query tokens included.
        cache_dtype: of the caches; ``dtype`` if None.
    """
    generator = torch.Generator(device).manual_seed(seed)
    num_pages = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(num_pages) + 2
    ids = torch.randperm(num_blocks, generator=generator, device=device).to(torch.int32)
    pages = torch.split(ids[: sum(num_pages)], num_pages)
    table_shape = (len(query_lens), max(num_pages, default=0) + 1)
    table = torch.full(table_shape, GARBAGE_PAGE, dtype=torch.int32, device=device)
    hidden = torch.ones(num_blocks, block_size, dtype=torch.bool, device=device)
    for seq, (length, own_pages) in enumerate(zip(context_lens, pages, strict=True)):
        table[seq, : len(own_pages)] = own_pages
        slots = torch.arange(len(own_pages) * block_size, device=device).view(-1, block_size)
        hidden[own_pages.long()] = slots >= length

    def cache() -> Tensor:
        shape = (num_blocks, block_size, num_kv_heads, head_size)
        values = torch.randn(shape, generator=generator, device=device).to(dtype)
        values = values.masked_fill_(hidden[:, :, None, None], torch.nan)
        return values if cache_dtype is None else values.to(cache_dtype)

    q_shape = (sum(query_lens), num_query_heads, head_size)
    return PoisonedBatch(
        q=torch.randn(q_shape, generator=generator, device=device).to(dtype),
        k_cache=cache(),
        v_cache=cache(),
        cu_seqlens_q=torch.tensor([0, *accumulate(query_lens)], dtype=torch.int32, device=device),
        seqused_k=torch.tensor(list(context_lens), dtype=torch.int32, device=device),
        block_table=table,
        query_lens=tuple(query_lens),
        context_lens=tuple(context_lens),
    )


def poison_workspace(batch_plan: Plan) -> None:
    fused = () if batch_plan.fused is None else (batch_plan.fused,)
    for part in (batch_plan, *batch_plan.parts, *fused):
        for tensor in part.workspace:
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)


def run_poisoned(batch: PoisonedBatch, batch_plan: Plan, **options: Any) -> Tensor:
    """Call ``run`` with an output and a workspace that hold NaN, so that unwritten elements show."""
    out = torch.full_like(batch.q, torch.nan)
    poison_workspace(batch_plan)
    return run(batch_plan, batch.q, batch.k_cache, batch.v_cache, out=out, **options)


def relative_error(out: Tensor, reference: Tensor) -> float:
    """Return the largest absolute difference over the largest absolute value; NaN if any output is NaN.

    The difference itself where all values are 0.
    """
    if reference.numel() == 0:
        return 0.0
    return float((out.double() - reference).abs().max()) / (float(reference.abs().max()) or 1.0)
