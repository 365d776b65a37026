"""Facts on which measured times depend: the device, its driver and the source of the kernels."""

import hashlib
import importlib
import shutil
import subprocess
from pathlib import Path

import torch

from attn_kernels.choose.heuristic import describe_device
from attn_kernels.measure.tensors import cache_bytes

# The files that determine a kernel's machine code, grid and arguments. Others only cost CPU time.
KERNEL_SOURCES = ("kernels/**/*.py", "core/config.py")


def driver_version() -> str:
    """The version of the NVIDIA driver; "unknown" without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return "unknown"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    words = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return words[0] if words else "unknown"


def device_facts(device: torch.device) -> dict[str, str | int]:
    """`device` of run.yaml: name, arch, multiprocessors, memory_bytes and cache_bytes (last level)."""
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
    """Twelve hex digits of a hash of the files' paths below `root` and their texts."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def kernel_source_hash() -> str:
    """`hash_of` the kernels and of what describes their launches."""
    root = Path(__file__).resolve().parents[1]
    return hash_of(root, [path for pattern in KERNEL_SOURCES for path in root.glob(pattern)])


def source_hash_with_choices() -> str:
    """As `kernel_source_hash`, and of the generated modules that choose for the parts of a mixed batch."""
    folder = Path(str(importlib.import_module("generated.unified_attention").__file__)).parent
    both = kernel_source_hash() + hash_of(folder, list(folder.glob("*.py")))
    return hashlib.sha256(both.encode()).hexdigest()[:12]
