"""The devices that a run is given, and the names of their tables."""

import os
import re

import torch

from attn_kernels.tuning.errors import TuningError

# What rules assume where there is no GPU to ask.
ASSUMED: dict[str, str | int] = {"name": "NVIDIA H100", "arch": "sm_90", "multiprocessors": 132}
_VENDORS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel"}
_NOISE = {"instinct", "geforce", "radeon", "tesla", "graphics", "gpu"}


def devices_from(text: str) -> list[torch.device]:
    """`all`, `0,2` or `cpu`. Raises TuningError where there is no such device."""
    if text == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise TuningError("--gpus cpu runs kernels in Triton's interpreter: set TRITON_INTERPRET=1")
        return [torch.device("cpu")]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise TuningError(
            "no GPU here; --dry-run says what would be done, --replay TABLE searches a recorded table"
        )
    if text == "all":
        return [torch.device("cuda", index) for index in range(count)]
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise TuningError(f"--gpus {text!r:.40}: expected all, or numbers such as 0,1")
    numbers = [int(part) for part in text.split(",")]
    for number in numbers:
        if number >= count or numbers.count(number) > 1:
            raise TuningError(f"--gpus {text!r:.40}: expected different numbers below {count}")
    return [torch.device("cuda", number) for number in numbers]


def device_key(name: str) -> str:
    """`NVIDIA H100 80GB HBM3` -> `nvidia_h100`: vendor and model, as the folder of its table.

    The key that `treegen` gives the same name.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    vendor = next((_VENDORS[word] for word in words if word in _VENDORS), None)
    rest = [word for word in words if word not in _VENDORS and word not in _NOISE]
    numbered = next((i for i, word in enumerate(rest) if re.search(r"[0-9]", word)), None)
    if vendor is None or numbered is None:
        return "_".join(words)[:64] or "unknown"
    return "_".join([vendor, *rest[: numbered + 1]])[:64]
