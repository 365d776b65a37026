"""Regions and changes of configs in words, phrase by phrase."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from treegen_builders import device_and_kernel

from treegen.core.spec import Config, KernelSpec, Regime
from treegen.core.tree import Region
from treegen.review.printing import change_words, region_words

REGIMES = {
    "decode": Regime("rows", None, 1),
    "prompts": Regime("rows", 2, None),
    "long prompts": Regime("rows", 100, None),
}
VALUES = {"dtype": {0: "bf16", 1: "fp16", 2: "fp8"}}


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    _, found = device_and_kernel(tmp_path)
    return replace(
        found, words={"columns": "row length", "block": "elements"}, regimes=REGIMES, values=VALUES
    )


@pytest.mark.parametrize(
    ("region", "words"),
    [
        ({}, "all shapes"),
        ({"rows": (None, None)}, "all shapes"),
        ({"rows": (None, 1)}, "decode"),
        ({"rows": (2, None)}, "prompts"),
        ({"rows": (2, 8)}, "prompts, rows up to 8"),
        ({"rows": (5, 8)}, "prompts, rows 5 to 8"),
        ({"rows": (100, None)}, "prompts, long prompts"),
        ({"rows": (None, 0)}, "decode, rows up to 0"),
        ({"rows": (1, 2)}, "rows 1 to 2"),
        ({"columns": (1025, 4096)}, "row length 1,025 to 4,096"),
        ({"heads": (17, 17), "columns": (-2000, None)}, "row length over -2,001, heads 17"),
        ({"dtype": (0, 1)}, "dtype bf16 or fp16"),
        (
            {"area": (None, 64), "columns": (3, None), "rows": (None, 1)},
            "decode, row length over 2, area up to 64",
        ),
        ({"area (old)": (None, 64), "area": (9, None)}, "area over 8, area (old) up to 64"),
        ({"nobody knows": (3, 4)}, "nobody knows 3 to 4"),
    ],
)
def test_regions(kernel: KernelSpec, region: Region, words: str) -> None:
    assert region_words(region, kernel) == words


def _config(variant: str = "plain", **parameters: int) -> Config:
    return Config(variant, tuple(parameters.items()))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (_config(block=64, warps=4), _config(block=128, warps=8), "64 -> 128 elements, 4 -> 8 warps"),
        (_config(block=64), _config("split", block=32), "plain -> split, 64 -> 32 elements"),
        (_config(block=64), _config(block=64, warps=4), "none -> 4 warps"),
        (_config(block=64, stages=2), _config(block=64), "2 -> none stages"),
        (_config(block=64), _config(block=64), ""),
    ],
)
def test_changes(kernel: KernelSpec, old: Config, new: Config, words: str) -> None:
    assert change_words(old, new, kernel) == words
