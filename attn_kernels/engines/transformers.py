"""Attention for Hugging Face transformers: importing this module registers it as ``attn_kernels``.

Transformers keeps keys as [num_seqs, num_kv_heads, slots, head_size]. Strides make pages of PAGE_SIZE slots
of them where they can; otherwise each layer copies its keys and values into pages.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.engines import transformers_paged as transformers_paged  # registers itself
from attn_kernels.engines.transformers_cache import NAME
from attn_kernels.engines.transformers_mask import Step, step_mask, step_of
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan

PAGE_SIZE = 16  # kernels compile for it, so it must not depend on the number of keys


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute one layer; the signature is that of transformers' attention functions.

    The window is that of the mask, as in transformers' eager attention. Outputs of queries that are left
    padding are zeros.

    Args:
        module: the layer.
        query: [num_seqs, num_query_heads, queries, head_size], float16 or bfloat16.
        key, value: [num_seqs, num_kv_heads, slots, head_size] of the same dtype.
        attention_mask: the result of ``step_mask`` for this step.
        dropout: must be 0.
        scaling, softcap, s_aux: ``softmax_scale``, ``softcap`` and ``sinks`` of ``run``.
        is_causal: must not be False.

    Returns:
        The output [num_seqs, queries, num_query_heads, head_size], and None in place of weights.

    Raises:
        NotImplementedError: a mask or an argument that is not supported.
        TypeError, ValueError: as ``plan`` and ``run``; or keys that do not belong to the step.
    """
    _check_supported(dropout, is_causal, kwargs)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value)):
        raise NotImplementedError("query, key or value requires a gradient, but torch.no_grad() is needed")
    step = step_of(attention_mask)
    num_seqs, num_heads, queries, head_size = query.shape
    got = (num_seqs, queries, *(tensor.shape[2] for tensor in (key, value)))
    needed = (step.num_seqs, step.query_len, step.key_len, step.key_len)
    if got != needed:
        raise ValueError(f"sequences, queries, keys and values are {got}, but the mask is of {needed}")
    model = Model(num_heads, key.shape[1], head_size, PAGE_SIZE, query.dtype, None, step.window)

    pages_apart = 0 if step.first_slots else _pages_apart(key)
    if pages_apart and pages_apart == _pages_apart(value):
        k_cache, v_cache = _view(key, pages_apart), _view(value, pages_apart)
    else:
        pages_apart = -(-step.longest // PAGE_SIZE)
        k_cache, v_cache = _copy(step, key, pages_apart), _copy(step, value, pages_apart)
    batch = step.plans.get((model, pages_apart))
    if batch is None:
        batch = step.plans[model, pages_apart] = _plan(step, model, pages_apart, query.device)

    rows = query.transpose(1, 2).reshape(num_seqs * queries, num_heads, head_size)
    out = torch.empty_like(rows, memory_format=torch.contiguous_format)
    q, result = rows, out
    if step.padded_queries:
        tokens = _tokens(step, query.device)
        q, result = rows[tokens], torch.empty_like(rows[tokens])
    run(
        batch,
        q,
        k_cache,
        v_cache,
        out=result,
        softmax_scale=scaling,
        sliding_window=step.window,
        softcap=softcap or 0.0,
        sinks=s_aux,
    )
    if step.padded_queries:
        out.zero_()[tokens] = result
    return out.view(num_seqs, queries, num_heads, head_size), None


def _check_supported(dropout: float, is_causal: bool | None, others: dict[str, Any]) -> None:
    if dropout:
        raise NotImplementedError(f"dropout is {dropout}, but 0 is needed")
    if is_causal is False:
        raise NotImplementedError("is_causal is False, but only causal attention is supported")
    for name in ("position_bias", "cache", "output_attentions"):
        if others.get(name) is not None and others[name] is not False:
            raise NotImplementedError(f"{name} is given, but it is not supported")


def _pages_apart(keys: Tensor) -> int:
    """Pages from one sequence to the next where strides make pages of the tensor; 0 where they cannot."""
    seq, head, slot, element = keys.stride()
    num_seqs, num_heads, slots, _ = keys.shape
    if slots % PAGE_SIZE or element != 1 or slot == 0 or (head == 0 and num_heads > 1):
        return 0
    if num_seqs == 1:
        return slots // PAGE_SIZE
    apart, rest = divmod(seq, PAGE_SIZE * slot)
    return 0 if rest else apart


def _view(keys: Tensor, pages_apart: int) -> Tensor:
    """The tensor as [pages, PAGE_SIZE, num_kv_heads, head_size]; the last page ends where the tensor does."""
    _, head, slot, element = keys.stride()
    num_seqs, num_heads, slots, head_size = keys.shape
    pages = (num_seqs - 1) * pages_apart + slots // PAGE_SIZE
    return keys.as_strided((pages, PAGE_SIZE, num_heads, head_size), (PAGE_SIZE * slot, slot, head, element))


def _copy(step: Step, keys: Tensor, pages: int) -> Tensor:
    """Copy each sequence's keys, from its first on, into pages; the last keys fill the last page."""
    if "slots" not in step.indices:
        slots = torch.arange(pages * PAGE_SIZE, device=keys.device).expand(step.num_seqs, -1)
        if step.first_slots:
            slots = slots + torch.tensor(step.first_slots, device=keys.device)[:, None]
        step.indices["slots"] = slots.clamp(max=step.key_len - 1)
        step.indices["seqs"] = torch.arange(step.num_seqs, device=keys.device)[:, None]
    copied = keys.transpose(1, 2)[step.indices["seqs"], step.indices["slots"]]
    return copied.reshape(step.num_seqs * pages, PAGE_SIZE, keys.shape[1], keys.shape[3])


def _tokens(step: Step, device: torch.device) -> Tensor:
    """The queries that are no padding, as rows of all queries."""
    if "tokens" not in step.indices:
        padding = torch.tensor(step.padded_queries, device=device)[:, None]
        kept = torch.arange(step.query_len, device=device) >= padding
        step.indices["tokens"] = kept.flatten().nonzero().flatten()
    return step.indices["tokens"]


def _plan(step: Step, model: Model, pages_apart: int, device: torch.device) -> Plan:
    """Plan the step; synchronises only if it has left padding."""
    count = step.num_seqs
    pages = -(-step.longest // PAGE_SIZE)
    seqs = torch.arange(count, dtype=torch.int32, device=device)[:, None]
    table = seqs * pages_apart + torch.arange(pages, dtype=torch.int32, device=device)
    query_lens = [step.query_len - padded for padded in step.padded_queries or [0] * count]
    num_kv_tokens = None
    if isinstance(step.end, Tensor):
        seqused_k = step.end.to(device, torch.int32).reshape(1).expand(count).contiguous()
    else:
        num_kv_tokens = count * step.end - sum(step.first_slots)
        seqused_k = torch.full((count,), step.end, dtype=torch.int32, device=device)
        if step.first_slots:
            seqused_k -= torch.tensor(step.first_slots, dtype=torch.int32, device=device)
    if step.padded_queries:
        lens = torch.tensor([0, *query_lens], device=device)
        cu_seqlens_q = lens.cumsum(0, dtype=torch.int32)
    else:
        cu_seqlens_q = torch.arange(count + 1, dtype=torch.int32, device=device) * step.query_len
    return plan(
        cu_seqlens_q,
        seqused_k,
        table,
        model,
        num_query_tokens=sum(query_lens),
        max_query_len=max(query_lens),
        max_seq_len=step.longest,
        num_kv_tokens=num_kv_tokens,
    )


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, step_mask)
