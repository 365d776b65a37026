"""Paged attention in plain torch and float64: the reference of every kernel."""

from collections.abc import Iterator

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
    sliding_window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: float | Tensor = 1.0,
    v_scale: float | Tensor = 1.0,
    lse: Tensor | None = None,
    bidirectional_ranges: Tensor | None = None,
    causal: bool = True,
    keys_after: int | None = None,
    max_scores: int = 2**25,
) -> Tensor:
    """Compute attention sequence by sequence, in float64, on the device of ``q``.

    Args:
        q: [num_query_tokens, num_query_heads, head_size], any floating dtype.
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size], any floating dtype.
        cu_seqlens_q: [num_seqs + 1]. seqused_k: [num_seqs]. block_table: [num_seqs, max_blocks_per_seq].
        softmax_scale, sliding_window, softcap, alibi_slopes, sinks, k_scale, v_scale, lse,
            bidirectional_ranges, causal, keys_after: as ``attn_kernels.run``; ``lse`` may be float64.
        max_scores: scores held at a time. Queries are done in chunks, to bound the memory.

    Returns:
        float64, shaped as q. Query i of n, of a sequence with L keys, sees keys 0 .. L - n + i, or the last
        ``sliding_window`` of those; and later keys of ranges that it lies in, or all if not ``causal``.
    """
    num_heads = q.shape[1]
    scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
    out = torch.full(q.shape, torch.nan, dtype=torch.float64, device=q.device)
    ahead = 0 if causal else keys_after
    if ahead is None:
        ahead = 2**31 if sliding_window is None else sliding_window - 1
    ranges = [()] * len(seqused_k) if bidirectional_ranges is None else bidirectional_ranges.tolist()
    for seq, tokens, keys, values in _sequences(k_cache, v_cache, cu_seqlens_q, seqused_k, block_table):
        keys = (keys.double() * k_scale).permute(1, 2, 0)  # [kv heads, head size, keys]
        values = (values.double() * v_scale).transpose(0, 1)
        context_len = keys.shape[2]
        positions = torch.arange(context_len, device=q.device)
        chunk = max(1, max_scores // max(1, num_heads * context_len))
        for first in range(tokens.start, tokens.stop, chunk):
            last = min(first + chunk, tokens.stop)
            # [kv heads, queries per KV head x queries, head size]
            queries = q[first:last].double().transpose(0, 1).reshape(len(keys), -1, q.shape[2])
            scores = (queries @ keys * scale).view(num_heads, last - first, context_len)
            query_positions = torch.arange(first, last, device=q.device) - tokens.stop + context_len
            distances = positions[None, :] - query_positions[:, None]
            if softcap:
                scores = (scores / softcap).tanh_() * softcap
            if alibi_slopes is not None:
                bias = distances if causal else -distances.abs()
                scores += alibi_slopes.double()[:, None, None] * bias
            hidden = distances > ahead
            for start, end in ranges[seq]:
                inside = (query_positions >= start) & (query_positions <= end)
                hidden &= ~(inside[:, None] & (positions >= start) & (positions <= end))
            if sliding_window is not None:
                hidden |= distances <= -sliding_window
            scores.masked_fill_(hidden, -torch.inf)
            if sinks is not None:
                column = sinks.double()[:, None, None].expand(-1, last - first, 1)
                scores = torch.cat([scores, column], -1)
            if lse is not None:
                lse[:, first:last] = scores.logsumexp(-1)
            weights = scores.softmax(-1).masked_fill(scores.isneginf().all(-1, keepdim=True), 0.0)
            weights = weights[:, :, :context_len].reshape(*queries.shape[:2], context_len)
            attended = weights @ values
            out[first:last] = attended.view(num_heads, last - first, -1).transpose(0, 1)
    return out


def _sequences(
    k_cache: Tensor, v_cache: Tensor, cu_seqlens_q: Tensor, seqused_k: Tensor, block_table: Tensor
) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
    block_size = k_cache.shape[1]
    starts = cu_seqlens_q.tolist()
    for seq, context_len in enumerate(seqused_k.tolist()):
        tokens = slice(starts[seq], starts[seq + 1])
        if tokens.start == tokens.stop:
            continue
        pages = block_table[seq, : -(-context_len // block_size)].long()
        yield seq, tokens, _rows(k_cache, pages)[:context_len], _rows(v_cache, pages)[:context_len]


def _rows(cache: Tensor, pages: Tensor) -> Tensor:
    if cache.element_size() == 1:
        # As bytes, since torch cannot gather fp8 on every device.
        return cache.view(torch.uint8)[pages].view(cache.dtype).flatten(0, 1)
    return cache[pages].flatten(0, 1)
