"""The paged cache of transformers' continuous batching, in versions 5.17 to 5.23.

A cache keeps a layer's keys in a tensor [slots, num_kv_heads, head_size], and tells each token's slot. Since
5.18, layers of one kind have an allocator. Since 5.19, lengths have other names, and continuous batching
refuses any attention but its own.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor
from transformers.generation.continuous_batching import ContinuousBatchingManager

NAME = "attn_kernels"
PAGED = "attn_kernels_paged"  # what ``NAME`` becomes while batches are generated


class PagedLayer(NamedTuple):
    """A layer in a cache."""

    group: int  # of layers that share slots
    window: int | None
    page_size: int
    tensors: tuple[Tensor, Tensor] | None  # keys and values; None with a window


def paged_layer(cache: Any, layer: int) -> PagedLayer:
    """Find a layer in its cache."""
    if not hasattr(cache, "layer_to_allocator"):
        group, place = cache.layer_index_to_group_indices[layer]
        window = cache.sliding_windows[layer]
        if window != 1:  # which stands for no window there
            return PagedLayer(group, window, cache.block_size, None)
        tensors = cache.key_cache[place], cache.value_cache[place]
        return PagedLayer(group, None, cache.block_size, tensors)
    allocator = cache.layer_to_allocator[layer]
    if window := getattr(allocator, "sliding_window", None):
        return PagedLayer(allocator.index, window, allocator.tokens_per_page, None)
    k_pages, v_pages = allocator.get_cache_for_block_table(layer)
    tensors = k_pages.flatten(0, 1), v_pages.flatten(0, 1)
    return PagedLayer(allocator.index, None, allocator.tokens_per_page, tensors)


def store_and_read(
    cache: Any, layer: int, key: Tensor, value: Tensor, kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor]:
    """Store new keys and values [1, num_kv_heads, tokens, head_size] of a layer with a window.

    Returns all keys and values that its queries see: [tokens, num_kv_heads, head_size] each.
    """
    index = {name: kwargs[name] for name in ("read_index", "write_index")}
    if not hasattr(cache, "layer_to_allocator"):
        keys, values = cache.update(key_states=key, value_states=value, layer_idx=layer, **index)
        return keys, values
    if "max_length_k" in kwargs:  # since 5.19
        key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)
    allocator = cache.layer_to_allocator[layer]
    index = {name: indices[allocator.index] for name, indices in index.items()}
    keys, values = allocator.update(key, value, layer, **index)
    return keys, values


def longest(kwargs: Mapping[str, Any], side: str) -> Any:
    """The greatest length of queries (``side`` is "q") or keys ("k"), or one for each kind of layer."""
    name = f"max_length_{side}"
    return kwargs[name] if name in kwargs else kwargs[f"max_seqlen_{side}"]


def admit_attention() -> None:
    """Let continuous batching take models whose attention is ``attn_kernels``."""
    switch = ContinuousBatchingManager.switch_to_cb_friendly_attn

    def switch_others(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        chosen = model.config._attn_implementation
        if chosen == NAME:
            model.set_attn_implementation(PAGED)
            self._original_attn_impl = NAME  # which the manager restores at its end
        elif chosen != PAGED:
            switch(self, model, *args, **kwargs)

    ContinuousBatchingManager.switch_to_cb_friendly_attn = switch_others
