"""Import the tuned configs that vLLM and SGLang ship as JSON, for fused MoE and for block-quantised GEMM.

A file's name holds sizes, GPU and data type, as in `E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8.json`.
Its content maps a number of tokens (M) to the config that won. It holds no time, neither of the winners nor
of others, and does not say which configs were tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    files_of,
    flattened,
    read_json,
    value_of,
)
from treegen.importers.tables import merged

_PART = re.compile(r"([A-Za-z_]+)=(\[[^\]]*\]|[^,]*)(?:,|$)")
KERNELS = {("E", "N"): "fused_moe", ("N", "K"): "block_scaled_gemm"}  # by the sizes in a file's name
DOWN = "_down"  # SGLang's suffix for the second projection of an expert, which is a launch of its own
_NOTES = "Only winners: the source has no times, and does not say which configs were tried."
_TIMING = "unknown: the source names winners without their times, so each cell is 1"


def reader_of(format_name: str, tool: str) -> Callable[[Path, ImportOptions], list[Measurements]]:
    """The reader of one of the two projects; their files are alike."""

    def read(source: Path, options: ImportOptions) -> list[Measurements]:
        return merged(
            _read_file(path, options, format_name, tool) for path in files_of(source, "*=*.json", tool)
        )

    return read


def _read_file(path: Path, options: ImportOptions, format_name: str, tool: str) -> Measurements:
    parts = dict(_PART.findall(path.stem.removesuffix(DOWN)))
    kernel = next((name for sizes, name in KERNELS.items() if set(sizes) <= set(parts)), None)
    if kernel is not None and path.stem.endswith(DOWN):
        kernel += DOWN
    if kernel is None or "device_name" not in parts:
        example = "E=8,N=3584,device_name=NVIDIA_H200.json or N=1536,K=7168,device_name=NVIDIA_H200.json"
        raise InputError(path, f"has no name of a tuned config of {tool}, such as {example}")
    device = options.device or parts.pop("device_name").replace("_", " ")
    parts.pop("device_name", None)
    # The word for a missing part: weights are not quantised, or not in blocks.
    fixed: dict[str, Value] = {"dtype": "unquantised", "block_shape": "none"}
    fixed |= {name: _word(value) for name, value in parts.items()}
    origin: dict[str, str] = {"tool": tool}
    rows = []
    for tokens, config in read_json(path, tool).items():
        if tokens == "triton_version" and isinstance(config, str):
            origin["triton"] = config
            continue
        if not re.fullmatch("[0-9]{1,18}", tokens) or not isinstance(config, dict):
            raise InputError(
                path, f"maps {shown(tokens)} to {shown(config)}; a number of tokens to a config is needed"
            )
        rows.append(Measurement({"M": int(tokens), **fixed}, flattened(config), NO_TIME))
    if not rows:
        raise InputError(path, "holds no config")
    return Measurements(
        format_name, path, kernel, device, Cells.WINNERS, tuple(rows), _TIMING, _NOTES, origin
    )


def _word(text: str) -> Value:
    """A part of a file's name; `[128, 128]` becomes `128x128`."""
    if text.startswith("["):
        return "x".join(size.strip() for size in text.strip("[]").split(","))
    return value_of(text)
