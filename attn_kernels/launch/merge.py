"""Attention over two disjoint sets of keys, merged from the outputs and log-sum-exps of both."""

import math
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.compiler import is_compiling

from attn_kernels.core import layer_checks
from attn_kernels.core.checks import DTYPES, check_data, check_device, check_tensor
from attn_kernels.kernels.arguments import VECTOR_BYTES, head_padded
from attn_kernels.kernels.merge import OPTIONS, merge_kernel
from attn_kernels.launch import direct
from attn_kernels.launch.operators import define

GRADIENT_NAMES = ("out_a", "out_b", "out", "lse_a", "lse_b", "lse")


def merge_attention_states(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    *,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of the same queries over the keys of a and of b together, from what ``run`` gave for each.

    Args:
        out_a, out_b: [num_query_tokens, num_query_heads, head_size], float16 or bfloat16, strided in any
            dimension but the last.
        lse_a, lse_b: float32 [num_query_heads, num_query_tokens], as of ``run``. Heads may be strided. -inf
            or inf means that a query saw no key; then its output there is not read.
        out, lse: likewise, written in place; allocated if None. They may be inputs, but not other views of
            their memory.

    Returns:
        out and lse. A query that saw no key of either has zeros and -inf.

    Raises:
        TypeError: a wrong type or dtype. ValueError: a wrong shape, device or stride; an output that overlaps
        an input. NotImplementedError: a gradient that is required.
    """
    check_tensor("out_a", out_a)
    check_device("out_a", out_a.device)
    if out_a.ndim != 3 or out_a.dtype not in DTYPES:
        needed = "[num_query_tokens, num_query_heads, head_size] of torch.float16 or torch.bfloat16"
        error = ValueError if out_a.ndim != 3 else TypeError
        raise error(f"out_a is {out_a.dtype} {list(out_a.shape)}, but {needed} is needed")
    num_tokens, num_heads, _ = out_a.shape
    if out is None:
        out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
    if lse is None:
        lse = torch.empty(num_heads, num_tokens, dtype=torch.float32, device=out_a.device)
    if torch.is_grad_enabled():
        layer_checks.check_no_gradient((out_a, out_b, out, lse_a, lse_b, lse), GRADIENT_NAMES)
    merge = torch.ops.attn_kernels.merge if is_compiling() else _merge
    merge(out_a, lse_a, out_b, lse_b, out, lse)
    return out, lse


def _merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor) -> None:
    num_tokens, num_heads, head_size = out_a.shape
    outs = {"out_a": out_a, "out_b": out_b, "out": out}
    lses = {"lse_a": lse_a, "lse_b": lse_b, "lse": lse}
    for name, tensor in outs.items():
        check_data(name, tensor, tuple(out_a.shape), (out_a.dtype,), out_a.device, "out_a is on")
    for name, tensor in lses.items():
        check_data(name, tensor, (num_heads, num_tokens), (torch.float32,), out_a.device, "out_a is on")
    if out.numel() == 0:
        return
    inputs = {name: tensor for name, tensor in (outs | lses).items() if name not in ("out", "lse")}
    for name, written in (("out", out), ("lse", lse)):
        layer_checks.check_own_memory(name, written)
        for other, tensor in inputs.items():
            if (tensor.data_ptr(), tensor.stride()) != (written.data_ptr(), written.stride()):
                layer_checks.check_apart(name, written, other, tensor)
    layer_checks.check_apart("out", out, "lse", lse)
    strides = [stride for tensor in outs.values() for stride in tensor.stride()[:2]]
    unit = math.gcd(VECTOR_BYTES // out.element_size(), *strides)
    arguments = [
        *(out, out_a, out_b, lse, lse_a, lse_b),
        *(stride // unit for stride in strides),
        *(tensor.stride(0) for tensor in lses.values()),
        *(head_size, head_padded(head_size), unit),
    ]
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        direct.launch_kernel(merge_kernel, (num_tokens, num_heads), arguments, OPTIONS)


define("merge", torch.library.infer_schema(_merge, mutates_args=("out", "lse")), _merge)
