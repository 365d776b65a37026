"""Paged attention in one call, with the argument names of FlashAttention's ``flash_attn_varlen_func``."""

import torch
from torch import Tensor
from torch.compiler import is_compiling

from attn_kernels.core.checks import FP8, MAX_TOKENS, check_tensor
from attn_kernels.core.layer_checks import check_no_gradient
from attn_kernels.core.model import Model
from attn_kernels.launch.operators import define, number_and_tensor
from attn_kernels.launch.run import GRADIENT_NAMES, run
from attn_kernels.planning.plan import plan


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: Tensor,
    max_seqlen_k: int,
    *,
    seqused_k: Tensor,
    block_table: Tensor,
    softmax_scale: float | None = None,
    causal: bool = True,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    s_aux: Tensor | None = None,
    k_descale: float | Tensor = 1.0,
    v_descale: float | Tensor = 1.0,
    out: Tensor | None = None,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Call ``plan`` and ``run`` for one layer. Where layers share a batch, calling them apart is cheaper.

    In a graph of ``torch.compile`` and ``torch.export`` this is the operator ``attn_kernels::varlen``.

    Args:
        q: [num_query_tokens, num_query_heads, head_size]; ``out`` likewise.
        k, v: paged caches [num_blocks, block_size, num_kv_heads, head_size].
        max_seqlen_q, max_seqlen_k: the longest query and context of the batch, in tokens.
        cu_seqlens_q: int32 [num_seqs + 1]. seqused_k: int32 [num_seqs].
        block_table: int32 [num_seqs, max_blocks_per_seq].
        causal, window_size: number of keys that a query sees before its own and after it; -1 means all. In
            causal attention, 0 and -1 are the same after it.
        softcap, alibi_slopes: as ``run``. s_aux: its ``sinks``. k_descale, v_descale: its scales.
        return_softmax_lse: return the output and the ``lse`` of ``run``.

    Raises:
        TypeError, ValueError, NotImplementedError: as ``plan`` and ``run``.
    """
    if not (
        isinstance(window_size, tuple)
        and [type(keys) for keys in window_size] == [int, int]
        and min(window_size) >= -1
    ):
        raise ValueError(f"window_size is {window_size!r}, but a tuple of two integers is needed, -1 for all")
    if causal and window_size[1] > 0:
        raise ValueError(f"window_size is {window_size}, but in causal attention no query sees a later key")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor)
    for name, scale in (("k_descale", k_descale), ("v_descale", v_descale)):
        if isinstance(scale, Tensor) and scale.numel() != 1:
            needed = "one element is needed: a scale for all sequences and heads"
            raise ValueError(f"{name} has shape {tuple(scale.shape)}, but {needed}")
    if q.ndim != 3:
        needed = "(num_query_tokens, num_query_heads, head_size)"
        raise ValueError(f"q has shape {tuple(q.shape)}, but {needed} is needed")
    if k.ndim != 4:
        needed = "(num_blocks, block_size, num_kv_heads, head_size)"
        raise ValueError(f"k has shape {tuple(k.shape)}, but {needed} is needed: a paged cache")
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = None
    if return_softmax_lse:
        lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    if is_compiling() and torch.is_grad_enabled():  # an operator calls ``run`` without
        check_no_gradient((q, k, v, out, alibi_slopes, s_aux, k_descale, v_descale), GRADIENT_NAMES[:8])
    attend = torch.ops.attn_kernels.varlen if is_compiling() else _attend
    attend(
        *(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, seqused_k, block_table, out, lse),
        *(softmax_scale, causal, *window_size, softcap, alibi_slopes, s_aux),
        *(*number_and_tensor(k_descale), *number_and_tensor(v_descale)),
    )
    return out if lse is None else (out, lse)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    max_seqlen_q: int,
    cu_seqlens_q: Tensor,
    max_seqlen_k: int,
    seqused_k: Tensor,
    block_table: Tensor,
    out: Tensor,
    lse: Tensor | None,
    softmax_scale: float | None,
    causal: bool,
    left: int,
    right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    s_aux: Tensor | None,
    k_descale: float,
    k_descale_tensor: Tensor | None,
    v_descale: float,
    v_descale_tensor: Tensor | None,
) -> None:
    num_query_tokens, num_query_heads, head_size = q.shape
    cache_dtype = FP8 if k.dtype == FP8 else None  # run checks the caches' dtypes
    window = None if left == -1 else left + 1
    model = Model(
        num_query_heads, k.shape[2], head_size, k.shape[1], q.dtype, cache_dtype, window, causal=causal
    )
    batch = plan(
        cu_seqlens_q,
        seqused_k,
        block_table,
        model,
        num_query_tokens=num_query_tokens,
        max_query_len=max_seqlen_q,
        max_seq_len=max_seqlen_k,
    )
    run(
        batch,
        q,
        k,
        v,
        out=out,
        softmax_scale=softmax_scale,
        sliding_window=window,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        sinks=s_aux,
        k_scale=k_descale if k_descale_tensor is None else k_descale_tensor,
        v_scale=v_descale if v_descale_tensor is None else v_descale_tensor,
        lse=lse,
        causal=causal,
        keys_after=None if causal else MAX_TOKENS if right == -1 else right,
    )


define("varlen", torch.library.infer_schema(_attend, mutates_args=("out", "lse")), _attend)
