"""One launch of the planned kernel, and the registry of kernel variants."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from attn_kernels import checks
from attn_kernels.kernels import qblock
from attn_kernels.structures import Plan

Launcher = Callable[[Plan, Tensor, Tensor, Tensor, Tensor, float], None]

VARIANTS: dict[str, Launcher] = {"qblock": qblock.launch}


def run(
    plan: Plan,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    out: Tensor | None = None,
    softmax_scale: float | None = None,
) -> Tensor:
    """Attention of one layer over the paged KV cache, with exactly the plan's config.

    Causal and aligned at the end: query i of a sequence with n queries and L keys sees keys 0 .. L - n + i.

    Args:
        q: [num_query_tokens, num_query_heads, head_size].
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size].
        out: like q, written in place; allocated if None. All four may be strided in any dimension but
            the last.
        softmax_scale: a positive factor of the scores; ``head_size ** -0.5`` if None.

    Returns:
        out.

    Raises:
        TypeError: a wrong dtype. ValueError: a shape, device, stride, page id or scale that cannot be right.
    """
    checks.check_run(plan, q, k_cache, v_cache, out)
    if softmax_scale is None:
        softmax_scale = plan.head_size**-0.5
    elif not 0.0 < softmax_scale < math.inf:
        raise ValueError(f"softmax_scale is {softmax_scale}, but a positive finite number is needed")
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    if plan.num_query_tokens == 0:
        return out
    launcher = VARIANTS[plan.config.variant]
    if plan.device.type == "cpu":
        _prepare_interpreter()
        launcher(plan, q, k_cache, v_cache, out, softmax_scale)
    elif plan.device.index == torch.cuda.current_device():
        launcher(plan, q, k_cache, v_cache, out, softmax_scale)
    else:
        with torch.cuda.device(plan.device):
            launcher(plan, q, k_cache, v_cache, out, softmax_scale)
    return out


def _prepare_interpreter() -> None:
    if isinstance(qblock.qblock_kernel, JITFunction):
        raise ValueError("q is on cpu, but a GPU is needed (or TRITON_INTERPRET=1 before triton is imported)")
    from attn_kernels.interpreter import mend_bfloat16_dot

    mend_bfloat16_dot()
