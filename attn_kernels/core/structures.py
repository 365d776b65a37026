"""What one step's layers share, what one layer brings, and what a variant makes of both: launches."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.model import Model


@dataclass(slots=True, eq=False)  # frozen, it would take three times as long to make, at every step
class Plan:
    """What every layer of one step shares; nobody changes it."""

    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    device: torch.device
    num_seqs: int
    num_query_tokens: int
    num_kv_tokens: int
    max_query_len: int
    max_seq_len: int
    model: Model
    config: Config
    max_page_id: int | None  # the largest in use; None if contents were not checked
    workspace: tuple[Tensor, ...]  # what the variant needs beside the batch; layers use it one after another
    launch_cache: dict[Hashable, Any] = field(
        repr=False
    )  # by signature; all plans of config and model share it
    for_capture: bool = False  # the lengths are upper bounds: a graph is replayed for smaller batches
    segments_function: Any = None  # a generated Triton function, asked on the GPU how many segments are used
    launches: dict[Hashable, Any] = field(default_factory=dict, repr=False)  # filled in for this plan


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The tensors and the score options of one launch, as ``run`` describes them."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    out: Tensor
    k_new: Tensor | None
    v_new: Tensor | None
    softmax_scale: float
    sliding_window: int | None
    softcap: float
    alibi_slopes: Tensor | None
    sinks: Tensor | None
    k_scale: float | Tensor
    v_scale: float | Tensor


class OfLayer(NamedTuple):
    """A kernel argument that is a tensor of the layer; ``view``: seen as another dtype of the same size."""

    name: str
    view: torch.dtype | None = None


class Described(NamedTuple):
    """A kernel argument that describes a tensor of the layer: a tensor descriptor, made by ``describe``."""

    name: str
    describe: Callable[[Tensor], Any]


class OfPlan(NamedTuple):
    """A kernel argument that ``value`` reads from the plan: a tensor or an integer."""

    value: Callable[[Plan], Any]


def always(plan: Plan) -> bool:
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One kernel launch of every layer of one signature, whatever the batch.

    Attributes:
        kernel: what ``triton.jit`` made.
        grid: programs in each of one to three dimensions, for a plan.
        arguments: by position; whatever is no ``OfLayer``, ``Described`` or ``OfPlan`` stands for itself.
        options: Triton's.
        needed: whether a plan's batch has any work for it.
    """

    kernel: Any
    grid: Callable[[Plan], tuple[int, ...]]
    arguments: tuple[Any, ...]
    options: Mapping[str, int | bool]
    needed: Callable[[Plan], bool] = always
