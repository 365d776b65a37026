"""What `triton-tune tune.py` measures: the dense products of two models that are served in float8."""

import torch
from block_fp8 import BLOCK, block_fp8, block_fp8_kernel

from triton_tune import Tuning

FLOAT8 = torch.float8_e4m3fn
# (N, K) of the weights that a GPU holds, from the models' published configurations.
DEEPSEEK_V3 = [(24576, 1536), (32768, 512), (7168, 16384), (36864, 7168), (7168, 18432)]
DEEPSEEK_V3_OF_8 = [(2112, 7168), (3072, 1536), (4096, 512), (7168, 2048), (4608, 7168), (7168, 2304)]
DEEPSEEK_V3_OF_8 += [(512, 7168), (7168, 256)]
QWEN_3_14B = [(7168, 5120), (5120, 5120), (34816, 5120), (5120, 17408)]
ROWS = [1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]


def arguments(M: int, N: int, K: int) -> dict[str, torch.Tensor]:
    """Random matrices and scales; the tuner sets the device."""
    blocks = K // BLOCK
    return {
        "a": torch.randn(M, K).to(FLOAT8),
        "b": torch.randn(N, K).to(FLOAT8),
        "a_scale": 0.5 + torch.rand(M, blocks),
        "b_scale": 0.5 + torch.rand(-(-N // BLOCK), blocks),
    }


def reference(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """The product of the matrices that the scales restore, in bfloat16."""
    wide_a = a.float() * a_scale.repeat_interleave(BLOCK, dim=1)
    wide_b = b.float() * b_scale.repeat_interleave(BLOCK, dim=0)[: len(b)].repeat_interleave(BLOCK, dim=1)
    return wide_a.bfloat16() @ wide_b.bfloat16().T


TUNING = Tuning(
    kernel=block_fp8_kernel,
    name="block_fp8",
    call=block_fp8,
    arguments=arguments,
    reference=reference,
    shapes=[
        {"M": rows, "N": n, "K": k}
        for n, k in (*DEEPSEEK_V3, *DEEPSEEK_V3_OF_8, *QWEN_3_14B)
        for rows in ROWS
    ],
    constants=["N", "K"],  # of a layer's weights
)
