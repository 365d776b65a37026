"""The device that launches go to, without importing torch."""

import os
import sys

from triton.runtime.driver import driver


def current_device() -> tuple[str, str, str]:
    """`(name, arch, vendor)` as `for_device` of a generated package takes them.

    The name is empty where torch is not loaded. In Triton's interpreter: `("cpu",) * 3`.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu", "cpu", "cpu"
    target = driver.active.get_current_target()
    torch = sys.modules.get("torch")
    name = str(torch.cuda.get_device_properties(torch.cuda.current_device()).name) if torch else ""
    if target.backend == "hip":
        return name, str(target.arch).split(":")[0], "amd"
    return name, f"sm_{target.arch}", "nvidia"


def device_number() -> int:
    """The number of the device that launches go to now."""
    return 0 if os.environ.get("TRITON_INTERPRET") == "1" else int(driver.active.get_current_device())
