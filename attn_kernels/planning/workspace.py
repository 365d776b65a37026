"""Scratch memory, allocated once for stated maxima."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from attn_kernels.choose.choices import checked, choices_for, with_kernel
from attn_kernels.core import checks
from attn_kernels.core.config import LaunchConfig
from attn_kernels.core.model import Model, models_of
from attn_kernels.kernels.arguments import head_padded
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import BLOCK_M, Roles
from attn_kernels.kernels.splits import MAX_SPLITS_OF_FEW
from attn_kernels.kernels.variant import Fragments, Partials, Scratch


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class Workspace(Scratch):
    """The scratch memory of plans that follow one another; it never grows.

    Plans that share one may not be in use at the same time: making a plan overwrites the results of the plan
    before. That holds inside a captured graph as well, in the order of the capture.
    """

    max_num_seqs: int
    max_head_size: int
    max_fragment_rows: int  # programs times ``block_m`` of any ``stream_k`` config; 0 where there is none
    # One of each for either part of a mixed batch; other plans use the first.
    _split_keys: tuple[Tensor, Tensor] = field(repr=False)
    _cu_parts: tuple[Tensor, Tensor] = field(repr=False)
    _schedules: tuple[Tensor, Tensor, Tensor] = field(repr=False)  # the last of both parts in one launch
    _partials: Partials = field(repr=False)
    _fragments: Fragments = field(repr=False)

    @classmethod
    def for_maxima(
        cls,
        device: torch.device | str,
        models: Model | Iterable[Model],
        *,
        max_query_tokens: int,
        max_num_seqs: int,
        configs: Iterable[LaunchConfig] = (),
        device_key: str | None = None,
    ) -> Self:
        """Allocate for every plan up to these sizes.

        Args:
            models: the model, or one for each kind of layer where layers differ.
            max_query_tokens: the most query tokens of a batch whose contexts are fully split. Batches may
                have more, but their contexts are then split into fewer parts.
            max_num_seqs: sequences of a batch.
            configs: those that ``plan`` is given, beside what it chooses itself.
            device_key: the generated module that chooses, if ``plan`` is given one.

        Raises:
            TypeError, ValueError: a wrong size, device or key.
        """
        checks.check_int("max_query_tokens", max_query_tokens, 1)
        checks.check_int("max_num_seqs", max_num_seqs, 1)
        device, models = torch.device(device), models_of(models)
        choices = choices_for(models[0], device, device_key)
        launched = [*with_kernel(map(checked, configs)), *choices.for_any_model()]
        fragments = [VARIANTS[config.variant].fragment_rows(config, device) for config in launched]
        fragment_rows = max(fragments, default=0)
        num_query_heads = max(model.num_query_heads for model in models)
        head_size = max(model.head_size for model in models)
        head = head_padded(head_size)
        fresh = Scratch(device)
        max_partials = min(fresh.max_partials, max_query_tokens * num_query_heads * MAX_SPLITS_OF_FEW)
        max_partials = max_partials if 0 in fragments else 1
        # The most that any config's roles need.
        roles = Roles(max(1, BLOCK_M // max(model.gqa_group_size for model in models)), 1, 1)
        schedule_length = roles.length(max_query_tokens, max_num_seqs)
        cu_parts = fresh.cu_parts(max_num_seqs)
        first, second, both = (fresh.schedule(schedule_length) for _ in range(3))
        return cls(
            device=cu_parts[0].device,
            max_partials=max_partials,
            max_num_seqs=max_num_seqs,
            max_head_size=head_size,
            max_fragment_rows=fragment_rows,
            _split_keys=(fresh.split_keys(), fresh.split_keys()),
            _cu_parts=cu_parts,
            _schedules=(first, second, both),
            _partials=fresh.partials(1, max_partials, head),
            _fragments=fresh.fragments(fragment_rows, 1, head),
        )

    def sibling(self) -> Self:
        """Return a workspace for plans whose layers take turns with those of this one's plans.

        It shares the memory for partial results and fragments, which one layer uses at a time. What is
        computed once per plan is kept apart.
        """
        per_plan = ("_split_keys", "_cu_parts", "_schedules")
        own: dict[str, Any] = {name: tuple(map(torch.zeros_like, getattr(self, name))) for name in per_plan}
        return replace(self, **own)

    def schedule(self, length: int, part: int = 0) -> Tensor:
        """Return the shared schedule, sized for the maxima, or a new one if a plan needs a longer one."""
        schedule = self._schedules[part]
        return schedule if length <= len(schedule) else Scratch.schedule(self, length)

    def cu_parts(self, num_seqs: int) -> tuple[Tensor, Tensor]:
        """Return the shared tensors. This and all below raise ValueError if a plan exceeds the maxima."""
        _check("num_seqs", num_seqs, "max_num_seqs", self.max_num_seqs)
        return self._cu_parts

    def partials(self, num_rows: int, num_splits: int, head_padded: int) -> Partials:
        self._check_head(head_padded)
        return self._partials

    def split_keys(self, part: int = 0) -> Tensor:
        return self._split_keys[part]

    def fragments(self, programs: int, block_m: int, head_padded: int) -> Fragments:
        rows = programs * block_m
        _check("stream_k's programs * block_m", rows, "configs of at most", self.max_fragment_rows)
        self._check_head(head_padded)
        return self._fragments

    def _check_head(self, columns: int) -> None:
        _check("head_size", columns, "head_size", head_padded(self.max_head_size))


def _check(name: str, needed: int, limit: str, maximum: int) -> None:
    if needed > maximum:
        raise ValueError(
            f"{name} is {needed}, but the workspace was made for {limit} {maximum} and never grows"
        )
