"""The device that launches go to, and environment variables that override choices of `tuned` kernels."""

import os
import re
import sys
from dataclasses import dataclass

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources, PTXASError

# A config that raises one of these cannot run here. Triton's autotuner passes over it, too.
DOES_NOT_FIT = (OutOfResources, PTXASError, CompileTimeAssertionFailure)
DEVICE = "TRITON_TUNE_DEVICE"
CONFIG = "TRITON_TUNE_CONFIG"
LOG = "TRITON_TUNE_LOG"
AUTOTUNE = "autotune"

_PARAMETER = re.compile(r"([A-Za-z_]\w*)=([0-9]{1,10})")
_FORM = "expected kernel:BLOCK_M=64,num_warps=4 or kernel:autotune; several are separated by ;"


def current_device() -> tuple[str, str, str]:
    """`(name, arch, vendor)` as `for_device` of a generated package takes them.

    The name is empty where torch is not loaded. In Triton's interpreter: `("cpu",) * 3`.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu", "cpu", "cpu"
    target = driver.active.get_current_target()
    torch = sys.modules.get("torch")  # which is not imported here
    name = str(torch.cuda.get_device_properties(torch.cuda.current_device()).name) if torch else ""
    if target.backend == "hip":
        return name, str(target.arch).split(":")[0], "amd"
    return name, f"sm_{target.arch}", "nvidia"


def device_number() -> int:
    """The number of the device that launches go to now."""
    return 0 if os.environ.get("TRITON_INTERPRET") == "1" else int(driver.active.get_current_device())


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
    log = os.environ.get(LOG, "")
    if log not in ("", "0", "1"):
        raise ValueError(f"{LOG} is {log!r}, but 0 or 1 is needed")
    config, autotune = None, False
    text = os.environ.get(CONFIG, "")
    for entry in filter(None, map(str.strip, text.split(";"))):
        name, colon, choice = (part.strip() for part in entry.partition(":"))
        parameters = [_PARAMETER.fullmatch(part.strip()) for part in choice.split(",")]
        if not colon or not name or (name == kernel and choice != AUTOTUNE and not all(parameters)):
            raise ValueError(f"{CONFIG} is {text!r}: {_FORM}")
        if name == kernel:
            autotune = choice == AUTOTUNE
            config = None if autotune else {match[1]: int(match[2]) for match in parameters if match}
    return Overrides(os.environ.get(DEVICE) or None, config, autotune, log == "1")
