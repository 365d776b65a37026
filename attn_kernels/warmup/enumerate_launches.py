"""The launches that batches of a model can lead to."""

from collections.abc import Callable, Iterable
from itertools import product

import torch

from attn_kernels.core import checks
from attn_kernels.core.config import LaunchConfig, complete
from attn_kernels.kernels.config_check import check_config
from attn_kernels.warmup.dummy_launch import FEATURES, DummyLaunch, Heads
from attn_kernels.warmup.reachable import reachable


def enumerate_launches(
    chooses: Iterable[Callable[..., LaunchConfig]],
    head_layouts: Iterable[tuple[int, int, int]],
    *,
    dtype: torch.dtype,
    cache_dtypes: Iterable[torch.dtype | None] = (None,),
    block_sizes: Iterable[int] = (16,),
    features: Iterable[Iterable[str]] = ((),),
    configs: Iterable[LaunchConfig] = (),
    sizes: tuple[bool, ...] = (False,),
    device_key: str | None = None,
) -> list[DummyLaunch]:
    """Launches with every config of ``configs`` and that one of ``chooses`` can return for a layout.

    ``sizes``: whether caches take more than 2 GiB. The others are as ``compile_ahead`` takes them.
    """
    chooses = list(chooses)
    layouts, caches = list(map(_heads, head_layouts)), [_cache_dtype(each, dtype) for each in cache_dtypes]
    kinds = [_words(words) for words in features]
    given = [complete(config) for config in configs]
    for config in given:
        check_config(config)
    found = []
    for heads, block_size, cache_dtype in product(layouts, block_sizes, caches):
        checks.check_int("block_size", block_size, 1)
        known = {**heads._asdict(), "block_size": block_size, "kv_element_size": cache_dtype.itemsize}
        chosen = [complete(config) for choose in chooses for config in reachable(choose, **known)]
        for config, words, large in product(dict.fromkeys(chosen + given), kinds, sizes):
            key = device_key if config.device_segments else None
            found.append(DummyLaunch(config, heads, block_size, dtype, cache_dtype, words, large, key))
    return found


def _heads(layout: tuple[int, int, int]) -> Heads:
    if not isinstance(layout, tuple) or len(layout) != 3:
        needed = "(num_query_heads, num_kv_heads, head_size)"
        raise ValueError(f"head_layouts holds {layout!r}, but {needed} is needed")
    checks.check_heads(*layout)
    return Heads(*layout)


def _cache_dtype(cache_dtype: torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    checks.check_dtype(dtype)
    checks.check_cache_dtype(cache_dtype, dtype)
    return cache_dtype or dtype


def _words(words: Iterable[str]) -> frozenset[str]:
    if isinstance(words, str):
        raise TypeError(f"features holds {words!r}, but a kind of layer is needed, such as ({words!r},)")
    kind = frozenset(words)
    for word in kind - set(FEATURES):
        raise ValueError(f"features holds {word!r}, but the features are: {', '.join(FEATURES)}")
    return kind
