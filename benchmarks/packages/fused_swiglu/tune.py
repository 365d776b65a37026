"""The gathered up projection of experts, with SwiGLU, in Liger Kernel."""

import liger_kernel.ops.fused_moe_kernels as package
import torch
import triton
from liger_kernel.ops.fused_moe import BLOCK_M_TOKEN as BLOCK_M
from torch.nn.functional import pad

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning


def arguments(tokens, experts, chosen, hidden, size):
    """As the package sorts what tokens choose by expert, in tiles of rows of one expert."""
    order = torch.rand(tokens, experts).topk(chosen, dim=1).indices.flatten().sort(stable=True)
    counts = order.values.bincount(minlength=experts)
    tiles, starts = (counts + BLOCK_M - 1) // BLOCK_M, pad(counts.cumsum(0), (1, 0))
    expert = torch.arange(experts).repeat_interleave(tiles)
    in_expert = torch.arange(len(expert)) - (tiles.cumsum(0) - tiles)[expert]
    integers = order.indices // chosen, starts, starts[expert] + BLOCK_M * in_expert, expert
    weights = torch.randn(experts, 2 * size, hidden, dtype=DTYPE) / hidden**0.5
    return torch.randn(tokens, hidden, dtype=DTYPE), weights, *(tensor.int() for tensor in integers)


def call(x, weights, tokens, starts, rows, experts):
    pairs, hidden, size = len(tokens), x.shape[1], weights.shape[1] // 2
    before, after = x.new_empty(pairs, 2 * size), x.new_empty(pairs, size)

    def grid(config):
        return len(rows), triton.cdiv(size, config["BLOCK_N"])

    package._fused_up_proj_swiglu_kernel[grid](
        x, weights, tokens, starts, rows, experts, before, after, H_dim=hidden, I_dim=size, BLOCK_M=BLOCK_M,
        stride_x_T=hidden, stride_x_H=1, stride_w_E=2 * size * hidden, stride_w_N=hidden, stride_w_K=1,
        stride_pre_TK=2 * size, stride_pre_N=1, stride_post_TK=size, stride_post_N=1,
    )  # fmt: skip
    return before, after


TUNING = Tuning(
    kernel=package._fused_up_proj_swiglu_kernel,
    name="fused_swiglu",
    call=call,
    arguments=arguments,
    features={
        "pairs": "post_act_ptr.shape[0]",
        "tiles": "tile_expert_ptr.shape[0]",
        "experts": "gate_up_proj_ptr.shape[0]",
    },
    **tuned("fused_swiglu"),
)
