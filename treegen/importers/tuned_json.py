"""Import the tuned configs that vLLM and SGLang ship as JSON for fused MoE, quantised GEMM and Mamba.

A file's name holds sizes, GPU and data type, as in `E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8.json`.
Its content maps a number of tokens to the config that won, and the nearest number counts. It holds no time,
neither of the winners nor of others, and does not say which configs were tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    read_json,
)

_PART = re.compile(r"([A-Za-z_]+)=(\[[0-9, ]*\]|[^,=]+)(?:,|$)")
# By the sizes in a file's name: the kernel, and the feature that its keys are.
KERNELS = {
    ("E", "N"): ("fused_moe", "M"),
    ("N", "K"): ("block_scaled_gemm", "M"),
    ("headdim", "dstate"): ("selective_state_update", "effective_batch"),
}
DOWN = "_down"  # SGLang's suffix for the second projection of an expert, which is a launch of its own
UNQUANTISED = "unquantised"
_NOTES = "Only winners: the source has no times, and does not say which configs were tried."


def read(tool: str, path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners in a file of one of the two projects. Raises InputError."""
    stem = path.stem.removesuffix(DOWN)
    parts = dict(_PART.findall(stem))
    sizes = next((sizes for sizes in KERNELS if set(sizes) <= set(parts)), None)
    if sizes is None or "device_name" not in parts or _PART.sub("", stem):
        example = "E=8,N=3584,device_name=NVIDIA_H200.json or N=1536,K=7168,device_name=NVIDIA_H200.json"
        raise InputError(path, f"has no name of a tuned config of {tool}, such as {example}")
    kernel, along = KERNELS[sizes]
    kernel += f"_{parts['backend']}" if "backend" in parts else ""
    kernel += DOWN if path.stem.endswith(DOWN) else ""
    device = parts.pop("device_name").replace("_", " ")
    # The word for a missing part: weights are not quantised, or not in blocks.
    missing = {} if "headdim" in sizes else {"dtype": UNQUANTISED, "block_shape": "none"}
    words = {name: _word(value) for name, value in parts.items() if name not in sizes}
    fixed: dict[str, Value] = {**{name: _size(path, parts[name]) for name in sizes}, **missing, **words}
    content = read_json(path, tool)
    version = re.fullmatch(r"triton_([0-9]\w*)", path.parent.name)
    origin = {"tool": tool}
    if isinstance(content.get("triton_version"), str):
        origin["triton"] = content.pop("triton_version")
    rows = tuple(
        Measurement({along: _size(path, key), **fixed}, config_of(path, key, config), NO_TIME)
        for key, config in content.items()
    )
    if not rows:
        raise InputError(path, "holds no config")
    triton = version[1].replace("_", ".") if version else ""
    lookup = {along: "nearest"}
    yield Measurements(path, kernel, device, rows, origin, notes=_NOTES, triton=triton, lookup=lookup)


def _size(path: Path, text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,17}", text):
        raise InputError(path, f"has the size {shown(text)}, which is no integer above 0")
    return int(text)


def _word(text: str) -> str:
    """A part of a file's name; `[128, 128]` becomes `128x128`."""
    return "x".join(size.strip() for size in text.strip("[]").split(",")) if text.startswith("[") else text
