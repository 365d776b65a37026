"""One launch of the planned variant."""

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from attn_kernels import checks
from attn_kernels.structures import Layer, Plan
from attn_kernels.variants import VARIANTS


def run(
    plan: Plan,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    out: Tensor | None = None,
    k_new: Tensor | None = None,
    v_new: Tensor | None = None,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: float | Tensor = 1.0,
    v_scale: float | Tensor = 1.0,
) -> Tensor:
    """Attention of one layer over the paged KV cache, with exactly the plan's config.

    Causal and aligned at the end: query i of a sequence with n queries and L keys sees keys 0 .. L - n + i,
    or the last ``sliding_window`` of those. A score is ``softmax_scale * q @ k``, then soft-capped, then
    biased.

    Args:
        q: [num_query_tokens, num_query_heads, head_size].
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size], of q's dtype or
            ``torch.float8_e4m3fn``; they hold the query tokens' keys and values as well.
        out: like q, written in place; allocated if None. These and the next may be strided in any dimension
            but the last.
        k_new, v_new: [num_query_tokens, num_kv_heads, head_size] of q's dtype, the query tokens' own keys and
            values: ``prefix_prefill`` and the prefill kernel of ``split`` read them from here if given, all
            others from the cache.
        softmax_scale: a positive factor of the scores; ``head_size ** -0.5`` if None.
        sliding_window: how many keys a query sees, its own included; None means all.
        softcap: scores become ``softcap * tanh(score / softcap)`` (Gemma 2); 0 means none; at most 1000.
        alibi_slopes: float32 [num_query_heads]; adds ``slope * (key position - query position)`` (Press et
            al., arXiv 2108.12409).
        sinks: [num_query_heads], float32 or of q's dtype: a score per head that takes part in the softmax
            without a value (attention sinks as in gpt-oss).
        k_scale, v_scale: what the cached keys and values are multiplied by, positive: a number, or a float32
            tensor of one element on the device, which is not read on the host.

    Returns:
        out.

    Raises:
        TypeError: a wrong dtype. ValueError: a shape, device, stride, page id or number that cannot be right.
    """
    checks.check_run(plan, q, k_cache, v_cache, out, k_new, v_new)
    checks.check_scoring(plan, softmax_scale, sliding_window, softcap, alibi_slopes, sinks, k_scale, v_scale)
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if plan.num_query_tokens == 0:
        return out
    layer = Layer(
        q=q,
        k_cache=k_cache,
        v_cache=v_cache,
        out=out,
        k_new=k_new,
        v_new=v_new,
        softmax_scale=plan.head_size**-0.5 if softmax_scale is None else softmax_scale,
        sliding_window=sliding_window,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    variant = VARIANTS[plan.config.variant]
    _prepare(variant.kernels[0], plan.device)
    if plan.device.type == "cpu" or plan.device.index == torch.cuda.current_device():
        variant.launch(plan, layer)
    else:
        with torch.cuda.device(plan.device):
            variant.launch(plan, layer)
    return out


def _prepare(kernel: object, device: torch.device) -> None:
    if isinstance(kernel, JITFunction):
        if device.type == "cpu":
            needed = "a GPU is needed (or TRITON_INTERPRET=1 before triton is imported)"
            raise ValueError(f"q is on cpu, but {needed}")
        return
    from attn_kernels.interpreter import mend_bfloat16_dot

    mend_bfloat16_dot()
