"""A GPU, measured, looked up or read from a table, and its section of a spec."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import device_key

# Bytes of shared memory that a block may have: NVIDIA, CUDA C++ Programming Guide, technical specifications
# per compute capability; AMD, CDNA3 and RDNA3 instruction set architectures, LDS of a workgroup.
SHARED_MEMORY = {
    "sm_70": 98304,
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_87": 166912,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_103": 232448,
    "sm_120": 101376,
    "gfx90a": 65536,
    "gfx942": 65536,
    "gfx950": 163840,
    "gfx1100": 65536,
}
_PROBE = """
import json, torch
card = torch.cuda.get_device_properties(0)
arch = card.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{card.major}{card.minor}"
names = "shared_memory_per_block_optin", "shared_memory_per_block"
shared = next((getattr(card, n) for n in names if hasattr(card, n)), None)
print(json.dumps([card.name, arch, shared, card.multi_processor_count]))
"""
_PROBE_SECONDS = 120


@dataclass(frozen=True)
class Gpu:
    """A GPU, or the CPU, on which Triton's interpreter runs kernels."""

    name: str  # as the driver reports it
    arch: str
    shared_memory: int | None = None  # measured bytes a block; None: look it up
    multiprocessors: int | None = None

    @property
    def key(self) -> str:
        return "cpu" if self.arch == "cpu" else device_key(self.name)

    @property
    def vendor(self) -> str:
        if self.arch.startswith("sm_"):
            return "nvidia"
        return "amd" if self.arch.startswith("gfx") else self.key.partition("_")[0]


def gpu_here() -> Gpu:
    """The first GPU of this machine, read in another process. Raises InputError without torch or GPU."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
        name, arch, shared, multiprocessors = json.loads(asked.stdout)
    except (subprocess.SubprocessError, ValueError, OSError):
        what = "torch finds no GPU here; describe one: --name 'NVIDIA L40S' --arch sm_89"
        raise InputError("new-device", what) from None
    return Gpu(str(name), str(arch), None if shared is None else int(shared), int(multiprocessors))


def gpu_of(device: Mapping[str, Any]) -> Gpu:
    """The GPU that a table was measured on. device: as run.yaml describes it."""
    multiprocessors = device.get("multiprocessors")
    known = isinstance(multiprocessors, int) and 0 < multiprocessors < 1 << 31
    return Gpu(str(device["name"]), str(device.get("arch", "")), None, multiprocessors if known else None)


def device_section(gpu: Gpu) -> list[str]:
    """The lines below `devices:`, with comments."""
    if gpu.arch == "cpu":
        return ["  cpu:", "    vendor: cpu  # Triton's interpreter"]
    lines = [
        f"  {quoted(gpu.key)}:",
        f"    names: [{quoted(gpu.name)}]  # as the driver reports it; also longer names that begin so",
    ]
    if gpu.arch:
        arch = f"    arch: {quoted(gpu.arch)}  # the first device of an architecture serves its other GPUs"
        lines.append(arch)
    lines.append(f"    vendor: {quoted(gpu.vendor)}")
    shared = gpu.shared_memory or SHARED_MEMORY.get(gpu.arch)
    source = "measured by torch" if gpu.shared_memory else f"what {gpu.arch} has by its vendor's manual"
    limits = [] if shared is None else [f"      shared_memory: {shared}  # bytes a block; {source}"]
    if gpu.multiprocessors is not None:
        limits.append(f"      multiprocessors: {gpu.multiprocessors}")
    if shared is None:
        lines.append("    # Add to limits: shared_memory: ...  # bytes a block")
    return [*lines, *(["    limits:  # for expressions and `treegen check`"] if limits else []), *limits]


_NO_TEXT = {"yes", "no", "on", "off", "true", "false", "null"}
"""Words that YAML does not read as text."""


def quoted(text: str) -> str:
    """A YAML scalar of plain text. Raises InputError for other text."""
    if not text.isascii() or not text.isprintable() or len(text) > 200:
        raise InputError("device", f"{shown(text)} is not a plain name")
    plain = all(c.isalnum() or c in " _.()/-" for c in text) and text[:1].isalpha() and text == text.strip()
    return text if plain and text.lower() not in _NO_TEXT else json.dumps(text)
