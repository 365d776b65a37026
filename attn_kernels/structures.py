"""What one step's layers share: the plan that ``planning.plan`` makes and ``launch.run`` takes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attn_kernels.config import LaunchConfig


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What every layer of one step shares. ``max_page_id`` is known only if contents were checked."""

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
    config: LaunchConfig
    max_page_id: int | None

    @property
    def num_seqs(self) -> int:
        return self.seqused_k.shape[0]

    @property
    def queries_per_kv(self) -> int:
        return self.num_query_heads // self.num_kv_heads

    @property
    def device(self) -> torch.device:
        return self.cu_seqlens_q.device
