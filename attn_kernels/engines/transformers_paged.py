"""Attention for transformers' continuous batching: models with ``attn_kernels`` take it there.

Layers without a window have whole blocks of slots, which are the pages of the kernels. Layers with a window
write over the slots of old tokens, so their keys are copied into pages at each step.

The cache keeps a layer's keys in a tensor [slots, num_kv_heads, head_size], and tells each token's slot, in
versions 5.17 to 5.24. Since 5.18, layers of one kind have an allocator. Since 5.19, lengths have other names,
and continuous batching refuses any attention but its own. Since 5.24, layers give the cache their keys before
they call attention, which no longer gets the cache.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface
from transformers.generation.continuous_batching import ContinuousBatchingManager, PagedAttentionCache

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Plan
from attn_kernels.engines.transformers_sequences import STARTS, check_arguments, pages_of_copies
from attn_kernels.launch.run import run
from attn_kernels.planning.plan import plan

# What continuous batching passes to each layer.
PASSED = frozenset(
    {
        *(*STARTS, "max_seqlen_q", "max_seqlen_k", "is_causal"),
        *("cache", "read_index", "write_index", "logits_indices", "logits_processor_args"),
    }
)
NAME = "attn_kernels"
PAGED = "attn_kernels_paged"  # what ``NAME`` becomes while batches are generated
PREFIXED = "paged|attn_kernels"  # a name of its own up to transformers 5.18
PAGE_SIZE = 16  # of copies


class PagedLayer(NamedTuple):
    """A layer in a cache."""

    group: int  # of layers that share slots
    window: int | None
    page_size: int  # of its blocks, or of copies
    tensors: tuple[Tensor, Tensor] | None  # keys and values; None with a window


def paged_layer(cache: Any, layer: int) -> PagedLayer:
    """Find a layer in its cache."""
    if not hasattr(cache, "layer_to_allocator"):
        group, place = cache.layer_index_to_group_indices[layer]
        window = cache.sliding_windows[layer]
        if window != 1:  # which stands for no window there
            return PagedLayer(group, window, PAGE_SIZE, None)
        tensors = cache.key_cache[place], cache.value_cache[place]
        return PagedLayer(group, None, cache.block_size, tensors)
    allocator = cache.layer_to_allocator[layer]
    if window := getattr(allocator, "sliding_window", None):
        return PagedLayer(allocator.index, window, PAGE_SIZE, None)
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
    update = PagedAttentionCache.update
    if "kwargs" not in signature(update).parameters:  # before 5.19
        return

    def pass_cache(
        self: Any, key_states: Tensor, value_states: Tensor, layer_idx: int, kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        if self.config._attn_implementation != PAGED:
            return update(self, key_states, value_states, layer_idx, kwargs)  # type: ignore[no-any-return, unused-ignore]
        kwargs["cache"] = self
        return key_states, value_states

    PagedAttentionCache.update = pass_cache


@dataclass(slots=True)
class LayerGroup:
    """What the layers of one group share in a step."""

    plan: Plan
    copied: Tensor | None  # of each slot in the pages of copies, the token; None without copies


# What the layers of a step share, by group, heads, type and whether a graph is captured.
# A step ends when transformers drops its tensor of sequence starts.
_steps: MutableMapping[Tensor, dict[tuple[object, ...], LayerGroup]] = WeakTensorKeyDictionary()
# A captured graph reads what its plan holds, so that lives as long as the cache.
_captured: MutableMapping[Any, list[LayerGroup]] = WeakKeyDictionary()


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Store a layer's new keys and values in the cache and compute its attention.

    Args:
        query: [1, num_query_heads, tokens, head_size], float16 or bfloat16: sequences one after another.
        key, value: [1, num_kv_heads, tokens, head_size] of the same dtype.
        scaling, softcap, s_aux: ``softmax_scale``, ``softcap`` and ``sinks`` of ``run``.
        kwargs: what continuous batching passes: the cache, lengths and indices.

    Returns:
        The output [1, tokens, num_query_heads, head_size], and None in place of weights.

    Raises:
        NotImplementedError: a mask, dropout or an unknown argument; a call outside of continuous batching.
        TypeError, ValueError: as ``plan`` and ``run``.
    """
    cache = kwargs.get("cache")
    if cache is None:
        raise NotImplementedError("the cache of continuous batching is needed; use 'attn_kernels' elsewhere")
    if dropout or attention_mask is not None:
        given = f"dropout is {dropout}" if dropout else "attention_mask is given"
        raise NotImplementedError(f"{given}, but continuous batching supports neither dropout nor masks")
    check_arguments(kwargs, PASSED)
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    group, window, page_size, tensors = paged_layer(cache, layer)
    _, num_heads, tokens, head_size = query.shape
    model = Model(num_heads, key.shape[1], head_size, page_size, query.dtype, None, window)

    capturing = query.is_cuda and torch.cuda.is_current_stream_capturing()
    step = _steps.setdefault(kwargs["cu_seq_lens_q"], {})
    at = (group, model, capturing)
    if at not in step:
        step[at] = _group(kwargs, group, model, tokens)
        if capturing:
            _captured.setdefault(cache, []).append(step[at])
    shared = step[at]

    if tensors is not None:
        k_cache, v_cache = tensors
        slots = kwargs["write_index"][group]
        k_cache.index_copy_(0, slots, key[0].transpose(0, 1))
        v_cache.index_copy_(0, slots, value[0].transpose(0, 1))
    else:
        all_keys, all_values = store_and_read(cache, layer, key, value, kwargs)
        k_cache, v_cache = all_keys[shared.copied], all_values[shared.copied]
    rows = query[0].transpose(0, 1).contiguous()
    # Rows that pad a step are in no sequence, so nothing is written there.
    out = torch.zeros_like(rows) if shared.plan.batch.for_capture else torch.empty_like(rows)
    run(
        shared.plan,
        rows,
        k_cache.view(-1, page_size, *k_cache.shape[1:]),
        v_cache.view(-1, page_size, *v_cache.shape[1:]),
        out=out,
        softmax_scale=scaling,
        sliding_window=window,
        softcap=softcap or 0.0,
        sinks=s_aux,
    )
    return out[None], None


def _group(kwargs: Mapping[str, Any], group: int, model: Model, tokens: int) -> LayerGroup:
    """Plan a step for the layers of a group; never synchronises with a GPU."""
    starts_q, starts_k = kwargs["cu_seq_lens_q"], kwargs["cu_seq_lens_k"]
    max_query_len, max_seq_len = longest(kwargs, "q"), longest(kwargs, "k")
    if isinstance(starts_k, dict):
        kind = "sliding_attention" if model.sliding_window else "full_attention"
        starts_k, max_seq_len = starts_k[kind], max_seq_len[kind]
    slots = kwargs["read_index"][group]
    if not slots.numel():  # no sequence has tokens in the cache, so all keys are new
        slots = kwargs["write_index"][group]
    num_kv_tokens = slots.shape[0]
    first, lens = starts_k[:-1].long(), starts_k.diff()
    pages = -(-max_seq_len // model.block_size)
    copied = None
    if model.sliding_window:
        table, copied = pages_of_copies(first, lens, pages, num_kv_tokens, model.block_size, num_kv_tokens)
    else:
        at = first[:, None] + torch.arange(pages, device=slots.device) * model.block_size
        table = (slots[at.clamp(max=num_kv_tokens - 1)] // model.block_size).to(torch.int32)
    made = plan(
        starts_q[:],  # another object: a plan that held the key of its own entry would never be dropped
        lens,
        table,
        model,
        num_query_tokens=tokens,
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
        num_kv_tokens=num_kv_tokens,
        # Steps for graphs are padded, so that any sequence may have all tokens; also before the capture, when
        # what a graph launches is compiled.
        for_capture=max_query_len == tokens > 1,
    )
    return LayerGroup(made, copied)


AttentionInterface.register(PREFIXED, paged_attention)
AttentionInterface.register(PAGED, paged_attention)
admit_attention()
