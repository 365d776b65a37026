"""Shapes of a model that `tune.py` has not seen, to judge the module by."""

import dataclasses

from tune import TUNING

QWEN_2_5_14B = [(7168, 5120), (5120, 5120), (27648, 5120), (5120, 13824)]
ROWS = [3, 12, 40, 80, 160, 320, 640, 1280, 2560, 5120]

UNTUNED = dataclasses.replace(
    TUNING, shapes=[{"M": rows, "N": n, "K": k} for n, k in QWEN_2_5_14B for rows in ROWS]
)
del TUNING  # a file that is tuned defines one
