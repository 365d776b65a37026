"""The key and value caches of a layer as views of what vLLM allocates; imports no vLLM."""

import torch
from torch import Tensor


def cache_views(kv_cache: Tensor, head_size: int, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return keys and values, each [num_blocks, block_size, num_kv_heads, head_size].

    Args:
        kv_cache: [num_blocks, 2, block_size, num_kv_heads, head_size], as vLLM 0.24 has it, or
            [num_blocks, num_kv_heads, block_size, 2 * head_size], as vLLM 0.33 has it; of any strides.
        head_size: elements.
        dtype: of the same size, as which to view the elements; their own if None.

    Raises ValueError about any other shape.
    """
    shape = tuple(kv_cache.shape)
    if len(shape) == 5 and shape[1] == 2 and shape[4] == head_size:
        caches = kv_cache.unbind(1)
    elif len(shape) == 4 and shape[3] == 2 * head_size:
        both = kv_cache.transpose(1, 2)
        caches = both[..., :head_size], both[..., head_size:]
    else:
        needed = "(blocks, 2, block size, heads, head size) or (blocks, heads, block size, 2 * head size)"
        raise ValueError(
            f"kv_cache has shape {shape}, but {needed} is needed, with a head size of {head_size}"
        )
    keys, values = (_canonical(cache if dtype is None else cache.view(dtype)) for cache in caches)
    return keys, values


def _canonical(cache: Tensor) -> Tensor:
    """The same view with a stride that is worth compiling for where there is one head: torch allows any."""
    num_heads, head_size = cache.shape[2:]
    if num_heads > 1:
        return cache
    page, slot, _, element = cache.stride()
    return cache.as_strided(cache.shape, (page, slot, head_size, element))
