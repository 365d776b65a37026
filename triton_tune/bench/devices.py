"""The devices that a run measures on."""

import os
import re

import torch

from triton_tune.core.errors import TuningError

# The GPU that rules assume where there is none.
ASSUMED: dict[str, str | int] = {"name": "NVIDIA H100", "arch": "sm_90", "multiprocessors": 132}


def devices_from(text: str, without: str) -> list[torch.device]:
    """The devices that `all`, `0,2` or `cpu` stands for. Raises TuningError if there is no such device.

    without: what the command can do without a GPU.
    """
    if text == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise TuningError("--gpus cpu runs kernels in Triton's interpreter: set TRITON_INTERPRET=1")
        return [torch.device("cpu")]
    if text != "all" and not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise TuningError(f"--gpus {text!r:.40}: expected all, or numbers such as 0,1")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        what = f"no GPU here; {without}"
        raise TuningError(what if text == "all" else f"--gpus {text}: {what}")
    if text == "all":
        return [torch.device("cuda", index) for index in range(count)]
    numbers = [int(part) for part in text.split(",")]
    for number in numbers:
        if number >= count or numbers.count(number) > 1:
            raise TuningError(f"--gpus {text!r:.40}: expected different numbers below {count}")
    return [torch.device("cuda", number) for number in numbers]
