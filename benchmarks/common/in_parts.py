"""Mixed batches in two parts: the decodes that come first, and the prompts behind them."""

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

import attn_kernels
from attn_kernels import Plan
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import BatchTensors, KVSet, launches_of, plan_for, stand_in
from attn_kernels.measure.timing import Launch
from benchmarks.common.implementations import NotApplicable, PreparedLaunches

MOST_DECODE_TOKENS = 8  # query tokens of a decode with its drafts, as in Parts


def count_decodes(batch: Batch) -> int:
    """Count the leading sequences of at most MOST_DECODE_TOKENS query tokens."""
    lens = enumerate(batch.query_lens)
    return next((i for i, length in lens if length > MOST_DECODE_TOKENS), batch.num_seqs)


def is_mixed(batch: Batch) -> bool:
    """Tell whether a batch has decodes first and prompts behind them."""
    return 0 < count_decodes(batch) < batch.num_seqs


def split(batch: Batch) -> tuple[Batch, Batch]:
    """Return the decodes and the prompts of a mixed batch, each as a batch of its own."""
    count = count_decodes(batch)

    def part(kind: str, seqs: slice) -> Batch:
        queries, contexts = batch.query_lens[seqs], batch.context_lens[seqs]
        name = f"{batch.name}, {kind}"
        return dataclasses.replace(batch, name=name, kind=kind, query_lens=queries, context_lens=contexts)

    return part("decode", slice(count)), part("prefill", slice(count, None))


def split_tensors(tensors: BatchTensors) -> tuple[BatchTensors, BatchTensors]:
    """Return the tensors of both parts: views of q, out and the block table, and the whole caches."""
    decodes, prompts = split(tensors.batch)
    count, tokens = decodes.num_seqs, decodes.num_query_tokens

    def part(batch: Batch, seqs: slice, starts: torch.Tensor, rows: slice) -> BatchTensors:
        sets = tuple(KVSet(kv.q[rows], kv.k_cache, kv.v_cache, kv.out[rows]) for kv in tensors.sets)
        index = (starts.contiguous(), tensors.seqused_k[seqs], tensors.block_table[seqs])
        return BatchTensors(batch, *index, sets, tensors.softmax_scale)

    starts = tensors.cu_seqlens_q
    return (
        part(decodes, slice(count), starts[: count + 1], slice(tokens)),
        part(prompts, slice(count, None), starts[count:] - tokens, slice(tokens, None)),
    )


def parts_class() -> Any:
    """Return `attn_kernels.Parts`; raises NotApplicable where the package has none."""
    parts = getattr(attn_kernels, "Parts", None)
    if parts is None:
        raise NotApplicable("this attn_kernels has no Parts")
    return parts


def parts_of(query_lens: tuple[int, ...], context_lens: tuple[int, ...]) -> Any:
    """Return the `Parts` of a batch; raises NotApplicable where the package has none."""
    return parts_class().of(query_lens, context_lens)


def parts_of_maxima(decodes: tuple[int, ...], prompts: tuple[int, ...]) -> Any:
    """Return the `Parts` of the maxima of each part, in the order of `Lengths`; raises as `parts_of`."""
    parts, lengths = parts_class(), getattr(attn_kernels, "Lengths")  # noqa: B009
    return parts(lengths(*decodes), lengths(*prompts))


def plan_in_parts(tensors: BatchTensors) -> Plan:
    """Plan a mixed batch with `parts`; raises NotApplicable without Parts."""
    batch = tensors.batch
    options: dict[str, Any] = {"parts": parts_of(batch.query_lens, batch.context_lens)}
    return attn_kernels.plan(
        tensors.cu_seqlens_q,
        tensors.seqused_k,
        tensors.block_table,
        batch.model,
        num_query_tokens=batch.num_query_tokens,
        num_kv_tokens=batch.num_kv_tokens,
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
        **options,
    )


def configs_text(plan: Plan) -> str:
    """Return the plan's config, or those of its parts."""
    parts: tuple[Plan, ...] = getattr(plan, "parts", ()) or (plan,)
    return " + ".join(str(part.config) for part in parts)


@dataclass(frozen=True)
class OursInParts:
    """Our kernels with `parts`: whatever `plan` chooses for a mixed batch."""

    name: str = "parts"

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        plan = plan_in_parts(tensors)
        return PreparedLaunches(launches_of(plan, tensors), lambda i: tensors.sets[i].out, configs_text(plan))


@dataclass(frozen=True)
class OursInSeries:
    """Two ordinary plans, one for each part, whose launches follow one another."""

    name: str = "series"

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        parts = split_tensors(tensors)
        plans = [plan_for(part) for part in parts]
        pairs = zip(*(launches_of(plan, part) for plan, part in zip(plans, parts, strict=True)), strict=True)

        def both(decodes: Launch, prompts: Launch) -> Launch:
            def go() -> None:
                decodes()
                prompts()

            return go

        configs = " + ".join(str(plan.config) for plan in plans)
        return PreparedLaunches([both(*pair) for pair in pairs], lambda i: tensors.sets[i].out, configs)


@dataclass(frozen=True)
class PartsJob:
    """A launch with `parts` over one page, which compiles what the batch needs."""

    batch: Batch

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({("parts", self.batch)})  # only `plan` knows which batches share kernels

    @property
    def cost(self) -> int:
        return 1 << 59

    @property
    def group(self) -> None:
        return None

    def run(self, device: torch.device) -> None:
        try:
            OursInParts().prepare(stand_in(self.batch, device)).launches[0]()
        except NotApplicable:  # the run itself says so
            return
