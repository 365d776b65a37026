"""Log lines of config choices, for ``ATTN_KERNELS_LOG``."""

import logging
from collections.abc import Callable

from attn_kernels.core.config import LaunchConfig, complete

# Choices count as distinct by module, config and these features, not by a step's lengths.
MODEL_FEATURES = ("num_query_heads", "num_kv_heads", "head_size", "block_size", "kv_element_size")

logger = logging.getLogger("attn_kernels")
_seen: dict[tuple[object, ...], object] = {}


def logged(key: str, choose: Callable[..., LaunchConfig]) -> Callable[..., LaunchConfig]:
    """Wrap ``choose`` of the module ``key``: log each distinct choice once, with the batch's features."""
    _configure_logger()

    def choose_and_log(**features: int) -> LaunchConfig:
        config = choose(**features)
        ticket = object()
        choice = (key, config, *map(features.get, MODEL_FEATURES))
        if _seen.setdefault(choice, ticket) is ticket:
            values = " ".join(f"{name}={value}" for name, value in features.items())
            logger.info("%s chose %s for %s", key, complete(config), values)
        return config

    return choose_and_log


def _configure_logger() -> None:
    """Let the lines appear: on stderr, unless the program has handlers of its own."""
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
