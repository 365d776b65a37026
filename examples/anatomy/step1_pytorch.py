"""Step 1: PyTorch with a paged cache, as a first server has it.

For each sequence: gather its pages, copy each KV head for the query heads of its group, and compute
softmax(Q K^T) V with all scores in memory: float32 [query heads, query tokens, keys].
"""

import torch
from torch import Tensor

from examples.anatomy.common import Batch


def attention(b: Batch) -> Tensor:
    shape, first = b.shape, 0
    for seq, (query_len, seq_len) in enumerate(zip(b.host_query_lens, b.host_seq_lens, strict=True)):
        pages = b.block_tables[seq, : -(-seq_len // shape.block_size)].long()
        k, v = (  # [query heads, keys, head size]
            cache[pages].flatten(0, 1)[:seq_len].transpose(0, 1).repeat_interleave(shape.group, 0)
            for cache in (b.k_cache, b.v_cache)
        )
        q = b.q[first : first + query_len].transpose(0, 1)
        scores = (q @ k.transpose(1, 2)).float() * shape.head_size**-0.5
        last = torch.arange(seq_len - query_len, seq_len, device=q.device)
        scores.masked_fill_(torch.arange(seq_len, device=q.device) > last[:, None], -torch.inf)
        b.out[first : first + query_len] = (scores.softmax(-1).to(v.dtype) @ v).transpose(0, 1)
        first += query_len
    return b.out
