"""The shapes that models.yaml names for a kernel, to tune for and to judge by."""

import os
from pathlib import Path
from typing import Any

import torch
import yaml

TINY = os.environ.get("TRITON_INTERPRET") == "1"
DTYPE = torch.float16 if TINY else torch.bfloat16  # the interpreter's products of bfloat16 are wrong


def _entry(kernel: str) -> dict[str, Any]:
    entry = yaml.safe_load(Path(__file__).with_name("models.yaml").read_text())[kernel]
    return {**entry, **entry["tiny"], "num_shapes": 4, "every": 1} if TINY else entry


def tuned(kernel: str) -> dict[str, Any]:
    """What a kernel's Tuning says of shapes, and that right is what most configs agree on."""
    entry = _entry(kernel)
    ranges = {name: tuple(ends) for name, ends in entry["ranges"].items()}
    models = {tuple(entry["model"]): [tuple(model) for model in entry["tuned"]]}
    return {"shapes": {**ranges, **models}, "num_shapes": entry["num_shapes"], "reference": None}


def judged(kernel: str) -> list[dict[str, Any]]:
    """Shapes of models that are not tuned."""
    entry = _entry(kernel)
    names, batches, every = (*entry["batch"], *entry["model"]), entry["batches"], entry["every"]
    models = enumerate(entry["judged"])
    shapes = [(*batch, *model) for number, model in models for batch in batches[number % every :: every]]
    return [dict(zip(names, shape, strict=True)) for shape in shapes]
