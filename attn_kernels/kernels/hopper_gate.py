"""Access to the Hopper kernel, which is there only where Triton's Gluon supports it."""

import importlib
from functools import cache
from types import ModuleType

import torch


@cache
def hopper_module() -> ModuleType | None:
    """The module ``hopper``; None where Triton's Gluon does not support it."""
    try:
        return importlib.import_module("attn_kernels.kernels.hopper")
    except (ImportError, AttributeError):  # Gluon is experimental: its names come and go
        return None


@cache
def hopper_for(device: torch.device) -> ModuleType | None:
    """The module ``hopper`` where it can be used: on Hopper GPUs."""
    hopper = hopper_module()
    return hopper if hopper is not None and hopper.serves(device) else None
