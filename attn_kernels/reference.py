"""Paged attention in plain torch and float64: what the kernels are compared with."""

import torch
from torch import Tensor


def paged_attention_reference(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cu_seqlens_q: Tensor,
    seqused_k: Tensor,
    block_table: Tensor,
    *,
    softmax_scale: float | None = None,
    max_scores: int = 2**25,
) -> Tensor:
    """Causal attention of every sequence in turn, on the device of ``q``.

    Args:
        q: [num_query_tokens, num_query_heads, head_size], any floating dtype.
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size].
        cu_seqlens_q: [num_seqs + 1]. seqused_k: [num_seqs]. block_table: [num_seqs, max_blocks_per_seq].
        softmax_scale: ``head_size ** -0.5`` if None.
        max_scores: scores held at a time, which bounds the memory: queries are done in chunks.

    Returns:
        float64, shaped as q. Query i of n, of a sequence with L keys, sees keys 0 .. L - n + i.
    """
    num_kv_heads, head_size = k_cache.shape[2:]
    queries_per_kv = q.shape[1] // num_kv_heads
    block_size = k_cache.shape[1]
    scale = head_size**-0.5 if softmax_scale is None else softmax_scale
    starts = cu_seqlens_q.tolist()
    out = torch.full(q.shape, torch.nan, dtype=torch.float64, device=q.device)
    for seq, context_len in enumerate(seqused_k.tolist()):
        start, end = starts[seq], starts[seq + 1]
        if start == end:
            continue
        pages = block_table[seq, : -(-context_len // block_size)].long()
        keys = k_cache[pages].flatten(0, 1)[:context_len].double().permute(1, 2, 0)
        values = v_cache[pages].flatten(0, 1)[:context_len].double().transpose(0, 1)
        positions = torch.arange(context_len, device=q.device)
        chunk = max(1, max_scores // (q.shape[1] * context_len))
        for first in range(start, end, chunk):
            last = min(first + chunk, end)
            # [kv heads, tokens x queries per KV head, head size]
            queries = q[first:last].double().view(-1, num_kv_heads, queries_per_kv, head_size).transpose(0, 1)
            scores = queries.flatten(1, 2) @ keys * scale
            limits = torch.arange(first, last, device=q.device) - end + context_len
            hidden = positions[None, :] > limits[:, None].repeat_interleave(queries_per_kv, 0)
            weights = scores.masked_fill_(hidden[None], -torch.inf).softmax(-1)
            attended = (weights @ values).view(num_kv_heads, -1, queries_per_kv, head_size).transpose(0, 1)
            out[first:last] = attended.flatten(1, 2)
    return out
