"""Shapes of models that tune.py does not have."""

import dataclasses

from tune import TINY, TUNING

MATRICES = [
    *((6144, 4096), (28672, 4096), (4096, 14336)),  # Llama 3 8B
    *((4608, 3584), (37888, 3584), (3584, 18944)),  # Qwen 2.5 7B
    *((1152, 896), (9728, 896), (896, 4864)),  # Qwen 2.5 0.5B
    *((6144, 5120), (5120, 4096), (5120, 32768)),  # Mistral Small 24B
    *((2112, 7168), (4096, 7168), (7168, 2048)),  # DeepSeek-V3
]
ROWS = [1, 5, 16, 24, 33, 64, 100, 129, 200, 256, 400, 777, 1000, 2048, 4095]
SHAPES = [
    {"M": rows, "N": n, "K": k} for number, (n, k) in enumerate(MATRICES) for rows in ROWS[number % 5 :: 5]
]
SMALL = [{"M": 3, "N": 32, "K": 48}, {"M": 33, "N": 48, "K": 48}]
UNTUNED = dataclasses.replace(TUNING, shapes=SMALL if TINY else SHAPES)
del TUNING
