"""Environment variables that override choices of `tuned` kernels; read at a kernel's first launch."""

import os
import re
from dataclasses import dataclass

DEVICE = "TRITON_TUNE_DEVICE"
CONFIG = "TRITON_TUNE_CONFIG"
LOG = "TRITON_TUNE_LOG"
AUTOTUNE = "autotune"

_PARAMETER = re.compile(r"([A-Za-z_]\w*)=([0-9]{1,10})")
_FORM = "expected kernel:BLOCK_M=64,num_warps=4 or kernel:autotune; several are separated by ;"


@dataclass(frozen=True)
class Overrides:
    """The variables' values for one kernel."""

    device_key: str | None = None  # the generated module that chooses, whatever the GPU
    config: dict[str, int] | None = None  # the launch parameters of every launch
    autotune: bool = False  # whether Triton's autotuner chooses
    log: bool = False  # whether each distinct choice is printed to stderr


def read_overrides(kernel: str) -> Overrides:
    """Read the variables; an empty one counts as unset. Raises ValueError.

    kernel: the name of the generated package.
    """
    device_key, log = os.environ.get(DEVICE, ""), os.environ.get(LOG, "")
    if log not in ("", "0", "1"):
        raise ValueError(f"{LOG} is {log!r}, but 0 or 1 is needed")
    config, autotune = None, False
    text = os.environ.get(CONFIG, "")
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, colon, choice = (part.strip() for part in entry.partition(":"))
        if not colon or not name:
            raise ValueError(f"{CONFIG} is {text!r}: {_FORM}")
        if name == kernel:
            autotune = choice == AUTOTUNE
            config = None if autotune else _parameters(choice, text)
    return Overrides(device_key or None, config, autotune, log == "1")


def _parameters(choice: str, text: str) -> dict[str, int]:
    found = [_PARAMETER.fullmatch(part.strip()) for part in choice.split(",")]
    if not all(found):
        raise ValueError(f"{CONFIG} is {text!r}: {_FORM}")
    return {match[1]: int(match[2]) for match in found if match}
