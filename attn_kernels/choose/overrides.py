"""Environment variables that override choices; read once a process, at its first choice."""

import os
from dataclasses import dataclass
from functools import cache

from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import check_config

DEVICE = "ATTN_KERNELS_DEVICE"
CONFIG = "ATTN_KERNELS_CONFIG"
LOG = "ATTN_KERNELS_LOG"


@dataclass(frozen=True)
class Overrides:
    """The variables' values."""

    device_key: str | None = None  # the generated module that chooses, whatever the GPU
    config: Config | None = None  # the choice for every batch
    log: bool = False  # whether each distinct choice is logged


@cache
def overrides() -> Overrides:
    """Read the variables; an empty one counts as unset. Raises ValueError."""
    device_key, config, log = (os.environ.get(name, "") for name in (DEVICE, CONFIG, LOG))
    if device_key and config:
        raise ValueError(
            f"{DEVICE} is {device_key!r} and {CONFIG} is {config!r}, but only one of them can choose"
        )
    if log not in ("", "0", "1"):
        raise ValueError(f"{LOG} is {log!r}, but 0 or 1 is needed")
    return Overrides(device_key or None, _config(config) if config else None, log == "1")


def _config(text: str) -> Config:
    try:
        config = Config.parse(text)
        check_config(config)
    except ValueError as error:
        raise ValueError(f"{CONFIG} is {text!r}, which is no config: {error}") from None
    return config
