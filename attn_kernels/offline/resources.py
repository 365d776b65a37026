"""Limits of GPUs, and the resources that a compiled kernel needs."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# Bytes of shared memory that a block may have. NVIDIA: CUDA C++ Programming Guide, technical
# specifications per compute capability (163 KiB for 8.0, 227 KiB for 9.0). AMD: the 64 KiB of LDS of a
# compute unit, CDNA2 and CDNA3 ISA reference guides.
SHARED_LIMITS = {"sm_80": 166912, "sm_90": 232448, "gfx90a": 65536, "gfx942": 65536}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a compiled kernel; None where Triton's bundled tools do not report them.

    ``treegen check`` reads them by these names (docs/check.md).
    """

    shared_memory: int  # bytes of a block
    registers: int | None  # of a thread
    spills: int | None  # registers (4 bytes) that a thread keeps in memory


def measure(kernel: Any) -> Resources:
    """Read the Resources of a compiled kernel: from its cubin with cuobjdump, or from its AMD assembly."""
    shared = int(kernel.metadata.shared)
    if "amdgcn" in kernel.asm:
        fields = re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", kernel.asm["amdgcn"])
        counts = {name: int(count) for name, count in fields}
        return Resources(shared, counts.get("vgpr_count"), counts.get("vgpr_spill_count"))
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if not tool.exists():
        return Resources(shared, None, None)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    match = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    return Resources(shared, int(match[1]), int(match[2]) // 4) if match else Resources(shared, None, None)
