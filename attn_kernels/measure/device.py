"""What a figure depends on beside the kernels: the device, its driver, the versions, the source."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import torch

from attn_kernels.choose.heuristic import describe_device
from attn_kernels.measure.tensors import cache_bytes

# What decides a kernel's machine code, grid and arguments; not how they are handed to Triton or to the GPU,
# which costs time on the CPU alone.
KERNEL_SOURCES = ("kernels/**/*.py", "core/config.py")


def driver_version() -> str:
    """Of the NVIDIA driver; "unknown" where nvidia-smi is missing."""
    if not shutil.which("nvidia-smi"):
        return "unknown"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    words = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return words[0] if words else "unknown"


def device_facts(device: torch.device) -> dict[str, str | int]:
    """name, arch, multiprocessors, memory_bytes and cache_bytes (last level) of a device."""
    name, arch, _ = describe_device(device)
    if device.type == "cpu":
        return {"name": "cpu (Triton interpreter)", "arch": arch, "multiprocessors": 1, "memory_bytes": 0}
    card = torch.cuda.get_device_properties(device)
    return {
        "name": name,
        "arch": arch,
        "multiprocessors": card.multi_processor_count,
        "memory_bytes": card.total_memory,
        "cache_bytes": cache_bytes(device),
    }


def hash_of(root: Path, files: list[Path]) -> str:
    """Twelve digits that change when a file's path below `root` or its text does."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def kernel_source_hash() -> str:
    """Of the kernels, and of what describes their launches."""
    root = Path(__file__).resolve().parents[1]
    return hash_of(root, [path for pattern in KERNEL_SOURCES for path in root.glob(pattern)])
