"""Facts about devices, on which measured times depend."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

import torch

from triton_tune.core.errors import TuningError

# The GPU that rules assume where there is none.
ASSUMED: dict[str, str | int] = {"name": "NVIDIA H100", "arch": "sm_90", "multiprocessors": 132}
HIDDEN_CACHE_BYTES = 256 << 20  # an MI300X's last level, behind the 4 MB of L2 per die that torch reports


def describe_device(device: torch.device) -> tuple[str, str, str]:
    """Return ``(name, arch, vendor)``, e.g. ``("NVIDIA H100 80GB HBM3", "sm_90", "nvidia")``.

    AMD: ``("AMD Instinct MI300X", "gfx942", "amd")``. The CPU, where Triton's interpreter runs kernels:
    ``("cpu",) * 3``.
    """
    if device.type == "cpu":
        return "cpu", "cpu", "cpu"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return properties.name, properties.gcnArchName.split(":")[0], "amd"
    return properties.name, f"sm_{properties.major}{properties.minor}", "nvidia"


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
        "memory_bytes": memory_bytes(device),
        "cache_bytes": cache_bytes(device),
    }


def facts_of(devices: Sequence[torch.device]) -> dict[str, str | int]:
    """`device_facts` of GPUs that measure together. Raises TuningError if they are of different models."""
    facts = [device_facts(device) for device in devices]
    names = dict.fromkeys(str(fact["name"]) for fact in facts)
    if len(names) > 1:
        what = f"the GPUs are of different models ({', '.join(names)}), and a table is of one model"
        raise TuningError(f"{what}: choose with --gpus")
    return facts[0]


def cache_bytes(device: torch.device) -> int:
    """The size in bytes of the last-level cache, which a cold measurement must flush."""
    if device.type != "cuda":
        return 0
    if torch.version.hip:
        return HIDDEN_CACHE_BYTES
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def memory_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0


def devices_from(text: str) -> list[torch.device]:
    """The devices that `all`, `0,2` or `cpu` stands for. Raises TuningError if there is no such device."""
    if text == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise TuningError("--gpus cpu runs kernels in Triton's interpreter: set TRITON_INTERPRET=1")
        return [torch.device("cpu")]
    if text != "all" and not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise TuningError(f"--gpus {text!r:.40}: expected all, or numbers such as 0,1")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        remedy = "--dry-run describes the run, and TRITON_INTERPRET=1 with --gpus cpu runs it on the CPU"
        raise TuningError(f"--gpus {text}: no GPU here; {remedy}")
    numbers = list(range(count)) if text == "all" else [int(part) for part in text.split(",")]
    if max(numbers) >= count or len(set(numbers)) < len(numbers):
        raise TuningError(f"--gpus {text!r:.40}: expected different numbers below {count}")
    return [torch.device("cuda", number) for number in numbers]
