"""The GPU of a table, and its section of a spec, with limits of the table or looked up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from treegen.core.errors import InputError, shown
from treegen.core.files import device_key
from treegen.read.words import DEVICE, KERNEL
from tuning_table.section import Word

# Bytes of shared memory that a block may have: NVIDIA, CUDA C++ Programming Guide, technical specifications
# per compute capability; AMD, CDNA3 and RDNA3 instruction set architectures, LDS of a workgroup.
_BYTES = {
    65536: "sm_75 gfx90a gfx942 gfx1100",
    98304: "sm_70",
    101376: "sm_86 sm_89 sm_120",
    163840: "gfx950",
    166912: "sm_80 sm_87",
    232448: "sm_90 sm_100 sm_103",
}
SHARED_MEMORY = {arch: size for size, archs in _BYTES.items() for arch in archs.split()}


@dataclass(frozen=True)
class Gpu:
    """A GPU, or the CPU, on which Triton's interpreter runs kernels."""

    name: str  # as the driver reports it
    arch: str
    multiprocessors: int | None = None  # None: unknown
    given_key: str = ""  # of a table whose GPU shares the key that follows from its name

    @property
    def key(self) -> str:
        return "cpu" if self.arch == "cpu" else self.given_key or device_key(self.name)

    @property
    def vendor(self) -> str:
        if self.arch.startswith("sm_"):
            return "nvidia"
        return "amd" if self.arch.startswith("gfx") else self.key.partition("_")[0]


def gpu_of(device: Mapping[str, Any]) -> Gpu:
    """The GPU that a table was measured on. device: as run.yaml describes it."""
    count = device.get("multiprocessors")
    multiprocessors = count if isinstance(count, int) and 0 < count < 1 << 31 else None
    return Gpu(str(device["name"]), str(device.get("arch", "")), multiprocessors, str(device.get("key", "")))


def device_section(gpu: Gpu) -> list[str]:
    """The lines below `devices:`, with comments."""
    lines = [f"  {quoted(gpu.key)}:"]
    if gpu.arch == "cpu":
        lines.append("    vendor: cpu  # Triton's interpreter")
    else:
        lines.append(described("names", f"[{quoted(gpu.name)}]", DEVICE))
        if gpu.arch:
            lines.append(described("arch", quoted(gpu.arch), DEVICE))
        lines.append(f"    vendor: {quoted(gpu.vendor)}")
    limits = []
    if gpu.arch in SHARED_MEMORY:
        source = f"bytes per block; what {gpu.arch} has by its vendor's manual"
        limits.append(f"      shared_memory: {SHARED_MEMORY[gpu.arch]}  # {source}")
    if gpu.multiprocessors is not None:
        limits.append(f"      multiprocessors: {gpu.multiprocessors}")
    return [*lines, described("limits", "", DEVICE), *limits] if limits else lines


def described(key: str, value: str = "", words: Mapping[str, Word] = KERNEL, depth: int = 4) -> str:
    """The line of a word of the spec, with its meaning. key: of a line that is left out, after `# `."""
    return f"{' ' * depth}{key}:{' ' * bool(value)}{value}  # {words[key.removeprefix('# ')].meaning}"


def quoted(text: str) -> str:
    """A YAML scalar of plain text. Raises InputError for other text."""
    if not text.isascii() or not text.isprintable() or len(text) > 200:
        raise InputError("device", f"{shown(text)} is not a plain name")
    plain = re.fullmatch(r"[A-Za-z][\w ./()-]*(?<! )", text, re.ASCII)
    return text if plain and yaml.safe_load(text) == text else json.dumps(text)  # `on` would be true
