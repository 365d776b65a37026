"""What `triton-tune tune.py` measures: the matrix products of a few language models."""

import torch
from matmul import matmul, matmul_kernel

from triton_tune import Tuning

# (N, K) of a layer's weights: query, key and value; output; gate and up; down.
LLAMA_3_8B = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
LLAMA_3_70B_OF_8 = [(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)]  # a GPU of eight
QWEN_2_5_7B = [(4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)]
ROWS = [1, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192]


def arguments(M: int, N: int, K: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random matrices; the tuner sets the device."""
    return torch.randn(M, K, dtype=torch.bfloat16), torch.randn(K, N, dtype=torch.bfloat16)


TUNING = Tuning(
    kernel=matmul_kernel,
    name="matmul",
    call=matmul,
    arguments=arguments,
    reference=torch.matmul,
    shapes=[
        {"M": rows, "N": n, "K": k}
        for n, k in (*LLAMA_3_8B, *LLAMA_3_70B_OF_8, *QWEN_2_5_7B)
        for rows in ROWS
    ],
)
