"""The tensors of a `verify` case: all that a launch must not read or must overwrite holds NaN."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import attn_kernels
from attn_kernels import Config, Lengths, Parts
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.checking import FP8_TOLERANCE, TOLERANCE, Check, Expected, check
from attn_kernels.testing.poisoned import GARBAGE_PAGE, PoisonedBatch, make_batch, poison_workspace
from verification.cases import PartConfigs, VerifyCase
from verification.features import FP8, with_strides

FALLBACK = Config("qblock", 64, 32)  # of both parts, where one kernel cannot compute them
MEMORY_SHARE = 0.8  # of the free memory, for two huge caches


class NoMemory(Exception):
    """The case does not fit into the device's memory."""


@dataclass(frozen=True, eq=False)
class PoisonedCase:
    """A case's tensors and score options."""

    case: VerifyCase
    tensors: PoisonedBatch
    options: dict[str, Any]
    whole: PoisonedBatch  # `tensors` with the keys before all windows

    def expect(self) -> Expected:
        """Return the float64 reference of every row."""
        rows = torch.arange(self.case.batch.num_query_tokens, device=self.tensors.q.device)
        tolerance = FP8_TOLERANCE if self.case.features.fp8 else TOLERANCE[self.case.batch.dtype]
        return Expected(rows, self.whole.reference(**self.options), tolerance)

    def launch(self, config: Config | PartConfigs | None) -> tuple[Tensor, Config | PartConfigs]:
        """Launch with an output and a workspace of NaN; return the output and what was launched."""
        if isinstance(config, PartConfigs):
            plan = self.tensors.plan_in_parts(*config, parts_of(self.case.batch))
        elif config is not None and needs_parts(config):
            plan = self.tensors.plan_in_parts(FALLBACK, FALLBACK, parts_of(self.case.batch), config)
        else:
            parts = None if config else Parts.of(self.case.batch.query_lens, self.case.batch.context_lens)
            model = dataclasses.replace(self.tensors.model, sliding_window=self.case.features.window)
            plan = self.tensors.plan(config=config, parts=parts, model=model)
        poison_workspace(plan)
        used = self.tensors
        out = torch.full_like(used.q, torch.nan, memory_format=torch.contiguous_format)
        out = with_strides(out, self.case.features.strides)
        caches = (used.k_cache, used.v_cache)
        attn_kernels.run(plan, used.q, *caches, out=out, **self.options)
        in_series = plan.parts and plan.fused is None
        return out, PartConfigs(*(part.config for part in plan.parts)) if in_series else plan.config

    def check(
        self, config: Config | PartConfigs | None, expected: Expected
    ) -> tuple[Check, Config | PartConfigs]:
        """Launch and compare with the reference; return also what was launched."""
        out, launched = self.launch(config)
        return check(out, expected), launched


def parts_of(batch: Batch) -> Parts:
    """The batch's parts; wrong ones, of half the sequences each, where one would be empty."""
    parts = Parts.of(batch.query_lens, batch.context_lens)
    if all(part.num_query_tokens for part in parts):
        return parts
    half = batch.num_seqs // 2
    decodes, prompts = (
        Lengths.of(batch.query_lens[part], batch.context_lens[part])
        for part in (slice(half), slice(half, None))
    )
    return Parts(decodes._replace(max_query_len=min(decodes.max_query_len, MAX_DRAFT)), prompts)


def poisoned(
    batch: Batch, device: torch.device, seed: int, cache_dtype: torch.dtype | None = None
) -> PoisonedBatch:
    """Make the tensors of a batch; ``cache_dtype`` as ``make_batch`` takes it."""
    layout = batch.layout
    return make_batch(
        batch.query_lens,
        batch.context_lens,
        num_query_heads=layout.num_query_heads,
        num_kv_heads=layout.num_kv_heads,
        head_size=layout.head_size,
        block_size=batch.block_size,
        dtype=batch.dtype,
        cache_dtype=cache_dtype,
        device=device,
        seed=seed,
    )


def load(case: VerifyCase, device: torch.device) -> PoisonedCase:
    """Make a case's tensors; raises NoMemory if `far` caches do not fit."""
    batch, layout, features = case.batch, case.batch.layout, case.features
    tensors = poisoned(batch, device, case.seed, FP8 if features.fp8 else None)
    if case.far:
        tensors = move_far(tensors, case.far)
    q = with_strides(tensors.q * case.query_scale, features.strides)
    tensors = dataclasses.replace(tensors, q=q)
    options, whole = features.options(layout, batch.dtype, device), tensors
    if features.window is not None:
        tensors = hide(whole, features.window)
    return PoisonedCase(case, tensors, options, whole)


def hide(tensors: PoisonedBatch, window: int) -> PoisonedBatch:
    """Put NaN on all keys before a sequence's first window, and a wrong id on pages of such keys alone."""
    k_cache, v_cache, table = (
        tensor.clone() for tensor in (tensors.k_cache, tensors.v_cache, tensors.block_table)
    )
    block_size = k_cache.shape[1]
    as_bytes = k_cache.element_size() == 1
    for seq, (queries, context) in enumerate(zip(tensors.query_lens, tensors.context_lens, strict=True)):
        first = max(0, context - queries - window + 1) if queries else 0
        keys = torch.arange(first, device=table.device)
        pages = table[seq, keys // block_size].long()
        for cache in (k_cache, v_cache):
            if as_bytes:
                cache.view(torch.uint8)[pages, keys % block_size] = 0x7F  # NaN
            else:
                cache[pages, keys % block_size] = torch.nan
        if table.is_cuda:  # a plan checks the tables of a CPU
            table[seq, : first // block_size] = GARBAGE_PAGE
    return dataclasses.replace(tensors, k_cache=k_cache, v_cache=v_cache, block_table=table)


def move_far(tensors: PoisonedBatch, elements: int) -> PoisonedBatch:
    """Move the pages to the end of caches that have at least `elements` elements; all others are NaN."""
    cache, device = tensors.k_cache, tensors.q.device
    num_blocks = -(-elements // cache[0].numel())
    moved = max(0, num_blocks - cache.shape[0])
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        if 2 * moved * cache[0].nbytes > MEMORY_SHARE * free:
            raise NoMemory(f"two caches of {moved * cache[0].nbytes >> 20} MiB")

    def far(cache: Tensor) -> Tensor:
        whole = torch.empty(moved + cache.shape[0], *cache.shape[1:], dtype=cache.dtype, device=device)
        if cache.dtype == FP8:
            whole.view(torch.uint8).fill_(0x7F)  # NaN
        else:
            whole.fill_(torch.nan)
        whole[moved:].copy_(cache)
        return whole

    table = tensors.block_table
    return dataclasses.replace(
        tensors,
        k_cache=far(tensors.k_cache),
        v_cache=far(tensors.v_cache),
        block_table=torch.where(table == GARBAGE_PAGE, table, table + moved),
    )
