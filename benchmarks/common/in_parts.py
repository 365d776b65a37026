"""Mixed batches in two parts: the decodes that come first, and the prompts behind them."""

import dataclasses
from dataclasses import dataclass

import torch

from attn_kernels import Plan
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.tensors import BatchTensors, KVSet, launches_of, plan_for
from attn_kernels.measure.timing import Launch
from benchmarks.common.implementations import PreparedLaunches


def count_decodes(batch: Batch) -> int:
    """Count the decodes in front of a batch."""
    return batch.parts.decodes.num_seqs


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
        return BatchTensors(batch, *index, sets, tensors.softmax_scale, tensors.options)

    starts = tensors.cu_seqlens_q
    return (
        part(decodes, slice(count), starts[: count + 1], slice(tokens)),
        part(prompts, slice(count, None), starts[count:] - tokens, slice(tokens, None)),
    )


def configs_text(plan: Plan) -> str:
    """Return the config of a plan's one launch, or those of its parts."""
    parts = (plan,) if plan.fused is not None else plan.parts or (plan,)
    return " + ".join(str(part.config) for part in parts)


@dataclass(frozen=True)
class OursInParts:
    """Our kernels with `parts`: whatever `plan` chooses for a mixed batch."""

    name: str = "parts"

    def prepare(self, tensors: BatchTensors) -> PreparedLaunches:
        plan = plan_for(tensors, in_parts=True)
        return PreparedLaunches(launches_of(plan, tensors), lambda i: tensors.sets[i].out, configs_text(plan))


@dataclass(frozen=True)
class OursSeparate:
    """Two ordinary plans, one for each part, whose launches follow one another."""

    name: str = "separate"

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
