"""The data that one step's layers share, the data of one layer, and a variant's launches for both."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn_kernels.core.batch import Batch
from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model


# Not frozen, because a frozen one takes three times as long to construct, at every step.
@dataclass(slots=True, eq=False, weakref_slot=True)
class Plan:
    """The data that all layers of one step share. It changes only if its config turns out not to fit."""

    batch: Batch = field(repr=False)  # of the whole step
    model: Model
    device: torch.device
    config: Config  # with parts, that of the prompts
    lengths: Lengths  # of what this plan launches: the batch, or a part of it
    cu_seqlens_q: Tensor = field(repr=False)  # likewise
    launch_cache: dict[Hashable, Any] = field(repr=False)  # by signature; shared by plans of config and model
    part: int = 0  # of a mixed batch: 0 or 1, or 2 for both in one launch
    num_splits: int = 1  # into which contexts are split at most (``kernels.splits``)
    split_keys: int = 1  # keys of each
    # What the variant needs beside the batch; layers use it one after another.
    workspace: tuple[Tensor, ...] = field(default=(), repr=False)
    launches: dict[Hashable, Any] = field(
        default_factory=dict, repr=False
    )  # by signature; of this plan alone
    # The plans of a mixed batch's decodes and of its prompts. A layer makes the launches of both, in this
    # order. Empty where one config serves the whole batch.
    parts: tuple["Plan", ...] = ()
    # The plan of one launch for both parts. Layers that its kernel cannot compute make those of ``parts``.
    fused: "Plan | None" = None
    # Plans the batch again without a config that raised an error; None where the caller chose the config.
    again: Callable[[Config, Exception], "Plan"] | None = field(default=None, repr=False)
    replacement: "Plan | None" = field(default=None, repr=False)  # the plan from ``again``, launched instead
    handle: Tensor | None = field(default=None, init=False, repr=False)  # lets an operator find the plan


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The tensors and the score options of one call of ``run``, which describes them."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    out: Tensor
    softmax_scale: float
    sliding_window: int | None
    softcap: float
    alibi_slopes: Tensor | None
    sinks: Tensor | None
    k_scale: float | Tensor
    v_scale: float | Tensor
    lse: Tensor | None = None
    bidirectional_ranges: Tensor | None = None
    ahead: int | None = None  # keys that a query sees behind its own; None in causal attention


class OfLayer(NamedTuple):
    """A kernel argument that is a tensor of the layer."""

    name: str
    view: torch.dtype | None = None  # a dtype of the same size as which the kernel reads it


class Described(NamedTuple):
    """A kernel argument that is a tensor descriptor of a tensor of the layer."""

    name: str
    describe: Callable[[Tensor], Any]


class OfPlan(NamedTuple):
    """A kernel argument that ``value`` reads from the plan: a tensor or an integer."""

    value: Callable[[Plan], Any]


def always(plan: Plan) -> bool:
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel launch of all layers of one signature, whatever the batch."""

    kernel: Any  # what ``triton.jit`` made
    grid: Callable[[Plan], tuple[int, ...]]  # programs in each of one to three dimensions
    arguments: tuple[Any, ...]  # by position; OfLayer, Described and OfPlan are replaced at each launch
    options: Mapping[str, int | bool]  # Triton's
    needed: Callable[[Plan], bool] = always  # whether a plan's batch has work for it
