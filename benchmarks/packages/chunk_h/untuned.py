"""Shapes of models that tune.py does not have."""

import dataclasses

from tune import TINY, TUNING

MODELS = [
    ("gk", 4, 128, 256),  # GLA 340M
    ("gk", 4, 256, 512),  # GLA 1.3B
    ("gk", 16, 128, 128),  # HGRN2 1.3B
    ("gk", 40, 64, 64),  # RWKV6 3B
    ("gamma", 8, 256, 512),  # RetNet 1.3B
    ("gamma", 64, 128, 128),  # MiniMax-01, lightning attention
    ("g", 64, 128, 64),  # Mamba2 1.3B
    ("gv", 4, 512, 64),  # GSA 1.3B, over keys
    ("gk", 4, 64, 512),  # GSA 1.3B, over values
]
BATCHES = [(1, 300), (1, 2048), (2, 4000), (8, 1000), (4, 777), (1, 4096), (3, 128), (8, 2048)]
SHAPES = [
    {"decay": decay, "B": b, "T": t, "H": h, "K": k, "V": v}
    for number, (decay, h, k, v) in enumerate(MODELS)
    for b, t in BATCHES[number % 2 :: 2]
]
SMALL = [
    {"decay": decay, "B": 1, "T": t, "H": 1, "K": 16, "V": 16} for decay, t in (("gk", 70), ("gamma", 65))
]
UNTUNED = dataclasses.replace(TUNING, shapes=SMALL if TINY else SHAPES)
del TUNING
