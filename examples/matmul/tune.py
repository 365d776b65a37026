"""What `triton-tune tune.py` measures: the matrix products of a few language models."""

import torch
from matmul import matmul, matmul_kernel

from triton_tune import Tuning

# (N, K) of a layer's weights: query, key and value; output; gate and up; down.
MATRICES = [
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),  # Llama 3 8B
    *((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),  # Llama 3 70B, a GPU of eight
    *((2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168)),  # the same, a GPU of four
    *((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),  # Qwen 2.5 7B
    *((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),  # Gemma 2 9B
    *((5120, 3072), (3072, 3072), (16384, 3072), (3072, 8192)),  # Llama 3.2 3B
]
# Each matrix gets every fifth, from another one on: many row counts tell more than a few for all matrices.
ROWS = [
    *(1, 2, 4, 6, 8, 10, 14, 16, 20, 24, 28, 32, 36, 44, 48, 56, 64, 72, 88, 96, 104, 112, 120, 128, 144),
    *(168, 176, 192, 208, 224, 256, 272, 304, 336, 384, 432, 448, 512, 576, 608, 672, 704, 768, 896, 1024),
    *(1152, 1216, 1344, 1408, 1536, 1792, 2048, 2304, 2432, 2688, 3072, 3584, 4096, 6144, 8192),
]
STEP = 5


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
        for number, (n, k) in enumerate(dict.fromkeys(MATRICES))
        for rows in ROWS[number % STEP :: STEP]
    ],
    constants=["N", "K"],  # of a layer's weights
)
