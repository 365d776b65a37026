"""The kernel that merges attention over two sets of keys: FlashInfer's ``merge_state`` (arXiv 2501.01005).

The method is that of section 2.2 there, and of vLLM's ``merge_attn_states``.
"""

import triton
import triton.language as tl

from attn_kernels.kernels.arguments import JIT_OPTIONS

OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}  # a program merges one row


@triton.jit
def as_empty(lse):
    """Where there was no key, FlashAttention 3 writes -inf and FlashAttention 2 writes inf."""
    return tl.where(lse == float("inf"), float("-inf"), lse)


@triton.jit(**JIT_OPTIONS)
def merge_kernel(
    out_ptr, out_a_ptr, out_b_ptr, lse_ptr, lse_a_ptr, lse_b_ptr,
    stride_a_token, stride_a_head, stride_b_token, stride_b_head, stride_out_token, stride_out_head,
    stride_lse_a, stride_lse_b, stride_lse,
    HEAD_SIZE: tl.constexpr, HEAD_PADDED: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Merge one query token and head; strides of outputs are in UNIT elements.

    Everything is read before anything is written, so outputs may be the inputs.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    lse_a = as_empty(tl.load(lse_a_ptr + head * stride_lse_a + token))
    lse_b = as_empty(tl.load(lse_b_ptr + head * stride_lse_b + token))
    largest = tl.maximum(lse_a, lse_b)
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    weight_a = tl.exp(lse_a - largest)
    weight_b = tl.exp(lse_b - largest)
    total = weight_a + weight_b
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    columns = tl.arange(0, HEAD_PADDED)
    # A zero weight does not hide a NaN.
    mask_a = columns < tl.where(weight_a > 0.0, HEAD_SIZE, 0)
    mask_b = columns < tl.where(weight_b > 0.0, HEAD_SIZE, 0)
    out_a_ptr += (token * stride_a_token + head * stride_a_head) * UNIT
    out_b_ptr += (token * stride_b_token + head * stride_b_head) * UNIT
    out_ptr += (token * stride_out_token + head * stride_out_head) * UNIT
    out_a = tl.load(out_a_ptr + columns, mask=mask_a, other=0.0).to(tl.float32)
    out_b = tl.load(out_b_ptr + columns, mask=mask_b, other=0.0).to(tl.float32)
    merged = out_a * (weight_a / total) + out_b * (weight_b / total)
    tl.store(out_ptr + columns, merged.to(out_ptr.dtype.element_ty), mask=columns < HEAD_SIZE)
    tl.store(lse_ptr + head * stride_lse + token, tl.where(empty, float("-inf"), largest + tl.log(total)))
