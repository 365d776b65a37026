"""Layers whose keys are those of several ranks, on one device."""

import dataclasses
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from attn_kernels import merge_attention_states, run
from attn_kernels.core.structures import Plan
from attn_kernels.engines.planner import StepMetadata
from attn_kernels.engines.two_passes import SharePlanner
from attn_kernels.planning.workspace import Workspace
from attn_kernels.testing.poisoned import PoisonedBatch, make_batch


def shard(batch: PoisonedBatch, rank: int, ranks: int, interleave: int) -> PoisonedBatch:
    """The same queries over one rank's keys: of each `ranks` runs of `interleave` keys, one is its own.

    A rank's keys lie together, in pages of its own. It may have none of a sequence.
    """
    page, num_kv_heads, head_size = batch.k_cache.shape[1:]
    own = [
        torch.tensor([key for key in range(length) if key // interleave % ranks == rank], dtype=torch.long)
        for length in batch.context_lens
    ]
    made = make_batch(
        batch.query_lens,
        list(map(len, own)),
        num_query_heads=batch.q.shape[1],
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=page,
        dtype=batch.q.dtype,
        cache_dtype=batch.k_cache.dtype,
        device=batch.q.device,
    )
    for seq, keys in enumerate(own):
        to = torch.arange(len(keys))
        source = batch.block_table[seq, keys // page].long(), keys % page
        target = made.block_table[seq, to // page].long(), to % page
        for whole, part in ((batch.k_cache, made.k_cache), (batch.v_cache, made.v_cache)):
            part.view(torch.uint8)[target] = whole.view(torch.uint8)[source]
    return dataclasses.replace(made, q=batch.q)


def step_of(query_lens: Sequence[int], context_lens: Sequence[int], **changes: Any) -> StepMetadata:
    """A step of these lengths, whose block table has 64 pages."""
    starts = torch.tensor([0, *accumulate(query_lens)], dtype=torch.int32)
    lens = torch.tensor(context_lens, dtype=torch.int32)
    known: dict[str, Any] = {
        "query_start_loc": starts,
        "seq_lens": lens,
        "block_table": torch.zeros(len(lens), 64, dtype=torch.int32),
        "slot_mapping": lens,  # read by no plan
        "query_start_loc_cpu": starts,
        "seq_lens_cpu_upper_bound": lens,
        "num_actual_tokens": sum(query_lens),
        "max_query_len": max(query_lens, default=0),
        "max_seq_len": max(context_lens, default=0),
        "for_capture": False,
        "planners": {},
    }
    return StepMetadata(**(known | changes))


def step_of_batch(batch: PoisonedBatch, **changes: Any) -> StepMetadata:
    tensors = {"query_start_loc": batch.cu_seqlens_q, "seq_lens": batch.seqused_k}
    tensors["block_table"] = batch.block_table
    return step_of(batch.query_lens, batch.context_lens, **(tensors | changes))


def new_keys_of(batch: PoisonedBatch) -> list[Tensor]:
    """The query tokens' keys and values in the caches, [tokens, KV heads, head size] each."""
    starts = batch.cu_seqlens_q.tolist()
    tokens = zip(starts, starts[1:], batch.seqused_k.tolist(), strict=False)
    places = [
        (seq, length - stop + token)
        for seq, (start, stop, length) in enumerate(tokens)
        for token in range(start, stop)
    ]
    seqs, positions = torch.tensor(places, device=batch.q.device).view(-1, 2).unbind(1)
    page = batch.model.block_size
    pages = batch.block_table[seqs, positions // page].long()
    return [
        cache.view(torch.uint8)[pages, positions % page].view(cache.dtype)
        for cache in (batch.k_cache, batch.v_cache)
    ]


def run_with_lse(plan: Plan, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """NaN shows what is not written."""
    out = torch.full(q.shape, torch.nan, dtype=q.dtype, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), torch.nan, device=q.device)
    return run(plan, q, k, v, out=out, lse=lse, **options), lse


class Ranks:
    """Decode context parallelism of a batch: what each rank computes; merges stand for what they send."""

    def __init__(
        self, batch: PoisonedBatch, ranks: int, interleave: int, *, for_capture: bool = False, **options: Any
    ) -> None:
        self.batch, self.count, self.options = batch, ranks, options
        self.heads = batch.q.shape[1] // ranks
        self.shards = [shard(batch, rank, ranks, interleave) for rank in range(ranks)]
        self.new = [
            torch.empty_like(batch.q[:, : cache.shape[2]]) for cache in (batch.k_cache, batch.v_cache)
        ]
        self.take_new_keys()
        # As narrow as vLLM's, whatever the queries.
        wide = -(-max(batch.context_lens) // (ranks * batch.model.block_size))
        tables = [
            part.block_table[:, : max(wide, interleave // batch.model.block_size)] for part in self.shards
        ]
        self.steps = [step_of_batch(batch, block_table=table, for_capture=for_capture) for table in tables]
        maxima = {"max_query_tokens": len(batch.q), "max_num_seqs": len(batch.query_lens)}
        shared = Workspace.for_maxima(batch.q.device, batch.model, **maxima)
        model = dataclasses.replace(batch.model, num_query_heads=self.heads)
        self.planners = [SharePlanner(model, shared, ranks, rank, interleave) for rank in range(ranks)]
        self.plans: list[Any] = []

    def take_new_keys(self) -> None:
        """Copy the query tokens' own keys and values out of the caches, in the queries' type."""
        for new, rows, name in zip(self.new, new_keys_of(self.batch), ("k", "v"), strict=True):
            new.copy_(rows.double() * self.options.get(f"{name}_scale", 1.0))

    def attend(self) -> Tensor:
        """All heads, as the ranks compute them one after another."""
        options, q = self.options, self.batch.q
        self.plans = [planner.plan(step) for planner, step in zip(self.planners, self.steps, strict=True)]
        before: tuple[Tensor, ...] = ()
        for plans, part in zip(self.plans, self.shards, strict=True):
            first = options | {"sinks": None, "causal": plans.first_is_causal}
            state = run_with_lse(plans.first, q, part.k_cache, part.v_cache, **first)
            before = merge_attention_states(*before, *state) if before else state
        outs = []
        for rank, plans in enumerate(self.plans):
            heads = slice(rank * self.heads, (rank + 1) * self.heads)
            own = [new.unsqueeze(1) for new in self.new]
            second = {name: value for name, value in options.items() if name not in ("k_scale", "v_scale")}
            if second.get("sinks") is not None:
                second["sinks"] = second["sinks"][heads].contiguous()
            state = run_with_lse(plans.second, q[:, heads].contiguous(), *own, **second)
            outs.append(merge_attention_states(before[0][:, heads], before[1][heads], *state)[0])
        return torch.cat(outs, 1)
