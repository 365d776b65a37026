"""Choices as log lines, for ``ATTN_KERNELS_LOG``."""

import logging
from collections.abc import Callable

from attn_kernels.core.config import LaunchConfig, complete

# What tells choices apart beside the config: a model's heads and caches, not a step's lengths.
LAYOUT = ("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size")

logger = logging.getLogger("attn_kernels")
_seen: dict[tuple[object, ...], object] = {}


def logged(key: str, choose: Callable[..., LaunchConfig]) -> Callable[..., LaunchConfig]:
    """``choose`` that logs a config the first time that the module ``key`` chooses it for a head layout, with
    the batch's features."""
    _be_heard()

    def choose_and_log(**features: int) -> LaunchConfig:
        config = choose(**features)
        ticket = object()
        choice = (key, config, *map(features.get, LAYOUT))
        if _seen.setdefault(choice, ticket) is ticket:
            values = " ".join(f"{name}={value}" for name, value in features.items())
            logger.info("%s chose %s for %s", key, complete(config), values)
        return config

    return choose_and_log


def _be_heard() -> None:
    """Who set the variable wants to read the lines: on stderr, unless the program has handlers of its own."""
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
