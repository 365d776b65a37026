"""Import the tuned configs that vLLM and SGLang ship as JSON for fused MoE, quantised GEMM and Mamba.

A file's name holds sizes, GPU and data type, as in `E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8.json`.
Its content maps a number of tokens to the config that won, and the nearest number counts. It holds no time,
neither of the winners nor of others, and does not say which configs were tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    files_of,
    read_each,
    read_json,
)
from treegen.importers.tables import merged

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
_TIMING = "unknown: the source names winners without their times, so each cell is 1"


def reader_of(format_name: str, tool: str) -> Callable[[Path, ImportOptions], list[Measurements]]:
    """The reader of one of the two projects; their files are alike."""

    def read(source: Path, options: ImportOptions) -> list[Measurements]:
        layers: dict[object, Path] = {}
        read_one = partial(_read_file, format_name=format_name, tool=tool, layers=layers)
        return merged(read_each(files_of(source, "*=*.json", tool), read_one))

    return read


def _read_file(path: Path, format_name: str, tool: str, layers: dict[object, Path]) -> list[Measurements]:
    """layers: the file of each layer that was read before."""
    stem = path.stem.removesuffix(DOWN)
    parts = dict(_PART.findall(stem))
    sizes = next((sizes for sizes in KERNELS if set(sizes) <= set(parts)), None)
    if sizes is None or "device_name" not in parts or _PART.sub("", stem):
        example = "E=8,N=3584,device_name=NVIDIA_H200.json or N=1536,K=7168,device_name=NVIDIA_H200.json"
        raise InputError(path, f"has no name of a tuned config of {tool}, such as {example}")
    kernel, along = KERNELS[sizes]
    kernel += "".join(f"_{parts[name]}" for name in ("backend",) if name in parts)
    kernel += DOWN if path.stem.endswith(DOWN) else ""
    device = parts.pop("device_name").replace("_", " ")
    # The word for a missing part: weights are not quantised, or not in blocks.
    missing = {} if "headdim" in sizes else {"dtype": UNQUANTISED, "block_shape": "none"}
    words = {name: _word(value) for name, value in parts.items() if name not in sizes}
    fixed: dict[str, Value] = {**dict.fromkeys(sizes), **missing, **words}
    for name in sizes:
        if not re.fullmatch("[1-9][0-9]{0,17}", parts[name]):
            raise InputError(path, f"has the size {name}={shown(parts[name])}, which is no integer above 0")
        fixed[name] = int(parts[name])
    version = re.fullmatch(r"triton_([0-9]\w*)", path.parent.name)
    triton = version[1].replace("_", ".") if version else ""
    if (other := layers.setdefault((kernel, device, triton, *sorted(fixed.items())), path)) != path:
        raise InputError(path, f"is of the same layer as {other}; remove one of them")
    origin: dict[str, str] = {"tool": tool}
    rows = []
    for key, config in read_json(path, tool).items():
        if key == "triton_version" and isinstance(config, str):
            origin["triton"] = config
            continue
        if not re.fullmatch("[1-9][0-9]{0,17}", key):
            raise InputError(path, f"has the key {shown(key)}, which is no size above 0")
        rows.append(Measurement({along: int(key), **fixed}, config_of(path, key, config), NO_TIME))
    if not rows:
        raise InputError(path, "holds no config")
    found = Measurements(
        format_name, path, kernel, device, Cells.WINNERS, tuple(rows), _TIMING, _NOTES, origin
    )
    return [replace(found, triton=triton, lookup={along: "nearest"})]


def _word(text: str) -> str:
    """A part of a file's name; `[128, 128]` becomes `128x128`."""
    return "x".join(size.strip() for size in text.strip("[]").split(",")) if text.startswith("[") else text
