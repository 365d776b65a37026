"""Plans of steps that attend in two passes over different keys; imports no engine.

In the first pass, every query sees every key. The second is over the step's own keys. Layers merge both.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.engines.planner import Planner, StepMetadata, over_own_keys, with_own_keys
from attn_kernels.planning.workspace import Workspace


class TwoPlans(NamedTuple):
    """The plans of both passes."""

    first: Plan
    second: Plan
    first_is_causal: bool  # where no sequence has two queries, of which the first would see fewer keys

    @property
    def lengths(self) -> Lengths:
        return self.second.lengths


def passes_of(
    model: Model, ranks: int, features: Collection[frozenset[str]]
) -> list[tuple[Model, list[frozenset[str]]]]:
    """The model of each pass, and the features of its launches, for layers with these features."""
    second = [kind - {"scales"} | {"lse"} for kind in features]
    first = [kind - {"sinks", "float32_sinks"} | {"lse"} for kind in features]
    first += [kind | {"noncausal"} for kind in first]
    every_head = replace(model, num_query_heads=model.num_query_heads * ranks)
    return [(every_head, first), (over_own_keys(model), second)]


class SharePlanner:
    """Plans steps whose caches hold one rank's share of the keys (decode context parallelism).

    Of every ``ranks`` runs of ``interleave`` keys, a rank keeps one. The first pass has the query heads of
    all ranks and the keys before the step's own; the second has the step's own, one per page. Each pass has
    scratch memory of its own.
    """

    def __init__(self, model: Model, shared: Workspace, ranks: int, rank: int, interleave: int) -> None:
        self.model = model
        self.first, self.second = (Planner(of_pass, shared) for of_pass, _ in passes_of(model, ranks, ()))
        self.ranks, self.rank, self.interleave = ranks, rank, interleave

    def share_of(self, lens: Tensor) -> Tensor:
        """How many of each sequence's first keys the rank keeps."""
        turn = self.ranks * self.interleave
        of_last_turn = (lens % turn - self.rank * self.interleave).clamp(0, self.interleave)
        return lens // turn * self.interleave + of_last_turn

    def plan(self, step: StepMetadata) -> TwoPlans:
        """Plan a step; never waits for the device, and a graph can hold what this computes."""
        second, bounds = with_own_keys(step), step.seq_lens_cpu_upper_bound
        if bounds is not None:
            new = step.query_start_loc_cpu[: len(step.seq_lens) + 1].diff()
            bounds = self.share_of(bounds[: len(new)] - new)
        causal = int(step.max_query_len) == 1
        first = replace(
            step,
            seq_lens=self.share_of((step.seq_lens - second.seq_lens).clamp(min=0)),
            seq_lens_cpu_upper_bound=bounds,
            max_seq_len=-(-int(step.max_seq_len) // (self.ranks * self.interleave)) * self.interleave,
            causal=causal,
        )
        return TwoPlans(self.first.plan(first), self.second.plan(second), causal)
