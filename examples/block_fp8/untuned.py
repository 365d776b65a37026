"""Shapes of two models that `tune.py` has not seen, to judge the module by."""

import dataclasses

from tune import TUNING

QWEN_3_32B_OF_2 = [(5120, 5120), (5120, 4096), (25600, 5120), (5120, 12800)]
QWEN_3_8B = [(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)]
ROWS = [2, 24, 192, 1536]

UNTUNED = dataclasses.replace(
    TUNING, shapes=[{"M": rows, "N": n, "K": k} for n, k in (*QWEN_3_32B_OF_2, *QWEN_3_8B) for rows in ROWS]
)
del TUNING  # a file that is tuned defines one
