"""Which ptxas new processes use, so that their keys of Triton's cache are this process's.

A key holds the version of ptxas, which a process reads once. Inductor later names PyTorch's ptxas in a
variable. A new process inherits the variable and reads another version, so this process would find nothing
that the new one compiles.
"""

import os
import subprocess

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

VARIABLE = "TRITON_PTXAS_PATH"


def differs_from_keys(device: torch.device) -> bool:
    """Return whether the variable names a ptxas of another version than this process has in its keys."""
    path = os.environ.get(VARIABLE)
    if path is None or device.type != "cuda" or torch.version.hip:
        return False
    try:
        version = subprocess.check_output([path, "--version"], text=True)
    except (OSError, subprocess.CalledProcessError):  # Triton takes its own
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return version not in make_backend(GPUTarget("cuda", 10 * major + minor, 32)).hash()
