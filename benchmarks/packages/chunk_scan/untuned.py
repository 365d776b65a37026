"""Shapes of models that tune.py does not have."""

import dataclasses

from tune import TINY, TUNING

MODELS = [
    (24, 64, 128, 1, 256),  # Mamba2 130M
    (32, 64, 128, 1, 256),  # Mamba2 370M
    (48, 64, 128, 1, 256),  # Mamba2 780M
    (64, 64, 128, 1, 256),  # Mamba2 1.3B, Zamba2 1.2B
    (80, 64, 128, 1, 256),  # Mamba2 2.7B
    (128, 64, 128, 8, 256),  # Codestral Mamba 7B
    (80, 64, 64, 1, 256),  # Zamba2 2.7B
    (112, 64, 64, 2, 256),  # Zamba2 7B
    (128, 64, 128, 8, 128),  # Nemotron-H 8B
    (256, 64, 256, 8, 128),  # Nemotron-H 56B
    (128, 80, 128, 8, 128),  # Nemotron Nano 9B v2
]
BATCHES = [(1, 100), (1, 1024), (4, 2048), (1, 3000), (2, 777), (1, 8192), (3, 257), (2, 4096)]
NAMES = ("batch", "seqlen", "heads", "size", "states", "groups", "chunk")
SHAPES = [
    dict(zip(NAMES, (*batch, *model), strict=True))
    for number, model in enumerate(MODELS)
    for batch in BATCHES[number % 2 :: 2]
]
SMALL = [
    dict(zip(NAMES, sizes, strict=True)) for sizes in ((1, 33, 4, 16, 16, 1, 32), (1, 20, 4, 16, 16, 1, 16))
]
UNTUNED = dataclasses.replace(TUNING, shapes=SMALL if TINY else SHAPES)
del TUNING
