"""Plans of steps that attend in two passes over different keys; imports no engine.

In the first pass, every query sees every key. The second is causal, over the other keys. Layers merge both.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.engines.planner import Planner, StepMetadata
from attn_kernels.planning.workspace import Workspace

FAR = 2**30  # past every position, also before 0: a sequence may have more queries than keys of a pass


class TwoPlans(NamedTuple):
    """The plans of both passes."""

    first: Plan
    second: Plan
    ranges: Tensor | None  # ``bidirectional_ranges`` of the first; None where no sequence has two queries

    @property
    def num_query_tokens(self) -> int:
        return self.second.num_query_tokens


def passes_of(
    model: Model, ranks: int, features: Collection[frozenset[str]]
) -> list[tuple[Model, list[frozenset[str]]]]:
    """The model of each pass, and the features of its launches, for layers with these features."""
    second = [kind - {"scales"} | {"lse"} for kind in features]
    first = [kind - {"sinks", "float32_sinks"} | {"lse"} for kind in features]
    first += [kind | {"ranges"} for kind in first]
    every_head = replace(model, num_query_heads=model.num_query_heads * ranks)
    return [(every_head, first), (replace(model, block_size=1, cache_dtype=None), second)]


class SharePlanner:
    """Plans steps whose caches hold one rank's share of the keys (decode context parallelism).

    Of every ``ranks`` runs of ``interleave`` keys, a rank keeps one. The first pass has the query heads of
    all ranks and the keys before the step's own; the second has the step's own, one a page. Each pass has
    scratch memory of its own.
    """

    def __init__(self, model: Model, shared: Workspace, ranks: int, rank: int, interleave: int) -> None:
        self.model = model
        self.first, self.second = (Planner(of_pass, shared) for of_pass, _ in passes_of(model, ranks, ()))
        self.ranks, self.rank, self.interleave = ranks, rank, interleave
        memory = self.first.workspace
        every_key = torch.tensor([[[-FAR, FAR]]], dtype=torch.int32, device=memory.device)
        self._every_key = every_key.repeat(memory.max_num_seqs, 1, 1)

    def share_of(self, lens: Tensor) -> Tensor:
        """How many of each sequence's first keys the rank keeps."""
        turn = self.ranks * self.interleave
        of_last_turn = (lens % turn - self.rank * self.interleave).clamp(0, self.interleave)
        return lens // turn * self.interleave + of_last_turn

    def plan(self, step: StepMetadata) -> TwoPlans:
        """Plan a step; never waits for the device, and a graph can hold what this computes."""
        count, longest = len(step.seq_lens), int(step.max_query_len)
        new, new_cpu = step.query_start_loc.diff(), step.query_start_loc_cpu[: count + 1].diff()
        bounds = step.seq_lens_cpu_upper_bound
        first = replace(
            step,
            seq_lens=self.share_of((step.seq_lens - new).clamp(min=0)),
            seq_lens_cpu_upper_bound=None if bounds is None else self.share_of(bounds[:count] - new_cpu),
            # A prompt may have more queries than a row has room for a rank's keys.
            block_table=step.block_table if longest == 1 else step.block_table.repeat(1, self.ranks),
            max_seq_len=-(-int(step.max_seq_len) // (self.ranks * self.interleave)) * self.interleave,
        )
        places = torch.arange(longest, dtype=torch.int32, device=new.device)
        second = replace(
            step,
            seq_lens=new,
            seq_lens_cpu_upper_bound=new_cpu,
            block_table=step.query_start_loc[:-1, None] + places,
            max_seq_len=longest,
        )
        ranges = self._every_key[:count] if longest > 1 else None
        return TwoPlans(self.first.plan(first), self.second.plan(second), ranges)
