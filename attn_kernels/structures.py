"""What one step's layers share, and what one layer's launch takes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attn_kernels.config import Config


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What every layer of one step shares.

    ``max_page_id`` is known only if contents were checked. ``workspace`` holds the tensors that the config's
    variant needs beside the batch's own; layers use it one after the other.
    """

    cu_seqlens_q: Tensor
    seqused_k: Tensor
    block_table: Tensor
    num_query_tokens: int
    num_kv_tokens: int
    max_query_len: int
    max_seq_len: int
    num_query_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int
    dtype: torch.dtype
    config: Config
    max_page_id: int | None
    workspace: tuple[Tensor, ...] = ()

    @property
    def num_seqs(self) -> int:
        return self.seqused_k.shape[0]

    @property
    def queries_per_kv(self) -> int:
        return self.num_query_heads // self.num_kv_heads

    @property
    def device(self) -> torch.device:
        return self.cu_seqlens_q.device


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
