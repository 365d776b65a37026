"""Environment variables that override choices or log them; read once per process, at its first choice."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from attn_kernels.core.config import Config, LaunchConfig, complete
from attn_kernels.core.model import Model
from attn_kernels.kernels.registry import check_config

DEVICE = "ATTN_KERNELS_DEVICE"
CONFIG = "ATTN_KERNELS_CONFIG"
LOG = "ATTN_KERNELS_LOG"

logger = logging.getLogger("attn_kernels")
_logged: dict[tuple[object, ...], object] = {}


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


def logged(key: str, choose: Callable[..., LaunchConfig], model: Model) -> Callable[..., LaunchConfig]:
    """Return ``choose``, or if the variable asks for it, a function that also logs each distinct choice once.

    Choices are distinct by module, config and the model's features, not by a step's lengths.
    """
    if not overrides().log:
        return choose
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():  # the program has none of its own
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)

    def choose_and_log(**features: int) -> LaunchConfig:
        config = choose(**features)
        ticket = object()
        # setdefault lets one of several threads in, without a lock that a fork could copy while it is held.
        if _logged.setdefault((key, config, *model.features.values()), ticket) is ticket:
            values = " ".join(f"{name}={value}" for name, value in (features | model.features).items())
            logger.info("%s chose %s for %s", key, complete(config), values)
        return config

    return choose_and_log
