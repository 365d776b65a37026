"""Validation of one layer's tensors and score options; host-only, never synchronises."""

from collections.abc import Iterable

import torch
from torch import Tensor

from attn_kernels.core.checks import FP8, INT32_LIMIT, check_bool, check_data, check_int, check_tensor
from attn_kernels.core.structures import Plan

LEAST, MOST = 1e-18, 1e20  # of a scale: the product of two of the least is not 0 in float32
MAX_SOFTCAP = 1000.0  # a score's error in float32 grows with it: 1e-4 here


def check_run(plan: Plan, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor) -> None:
    """Check the tensors of a layer: shapes, dtypes, devices, strides, page ids against the caches' size."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan is a {type(plan).__name__}, but what attn_kernels.plan returns is needed")
    query_shape = (plan.lengths.num_query_tokens, plan.model.num_query_heads, plan.model.head_size)
    dtype = plan.model.dtype
    for name, tensor in (("q", q), ("out", out)):
        check_data(name, tensor, query_shape, (dtype,), plan.device)
        token, head, _ = tensor.stride()
        rows = max(part.config.block_m for part in plan.parts or (plan,))
        heads = plan.model.gqa_group_size
        _check_offset(name, tensor, (rows - 1) * token + (heads - 1) * head)
    check_own_memory("out", out)
    check_tensor("k_cache", k_cache)
    num_blocks = k_cache.shape[0] if k_cache.ndim else 0
    cache_shape = (num_blocks, plan.model.block_size, plan.model.num_kv_heads, plan.model.head_size)
    cache_dtype = FP8 if k_cache.dtype == FP8 else dtype
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        check_data(name, cache, cache_shape, (cache_dtype,), plan.device)
        _check_offset(name, cache, plan.model.block_size * cache.stride(1))
    used = plan.batch.max_page_id
    if used is not None and used >= num_blocks:
        raise ValueError(f"block_table uses page id {used}, but k_cache holds only {num_blocks} pages")


def _check_offset(name: str, tensor: Tensor, offset: int) -> None:
    """Check an offset inside a page of keys or a tile of queries: it is int32 in the kernels."""
    if offset >= INT32_LIMIT:
        strides = tensor.stride()
        raise ValueError(f"{name} has strides {strides}, which reach past 2^31 elements inside one tile")


def check_scoring(
    plan: Plan,
    softmax_scale: float | None,
    sliding_window: int | None,
    softcap: float,
    causal: bool,
    keys_after: int | None,
    alibi_slopes: Tensor | None,
    sinks: Tensor | None,
    k_scale: float | Tensor,
    v_scale: float | Tensor,
    lse: Tensor | None,
    bidirectional_ranges: Tensor | None,
) -> None:
    """Check a layer's score options, scales and log-sum-exp."""
    if softmax_scale is not None:
        _check_positive("softmax_scale", softmax_scale)
    if sliding_window is not None:
        check_int("sliding_window", sliding_window, 1)
    check_bool("causal", causal)
    if keys_after is not None:
        check_int("keys_after", keys_after, 0)
        if causal and keys_after:
            raise ValueError(f"keys_after is {keys_after}, but causal is True: no query sees a later key")
    if softcap != 0.0:
        _check_positive("softcap", softcap)
        if softcap > MAX_SOFTCAP:
            raise ValueError(f"softcap is {softcap}, but at most {MAX_SOFTCAP} is supported, or 0 for none")
    heads = (plan.model.num_query_heads,)
    if alibi_slopes is not None:
        check_data("alibi_slopes", alibi_slopes, heads, (torch.float32,), plan.device)
    if sinks is not None:
        check_data("sinks", sinks, heads, (torch.float32, plan.model.dtype), plan.device)
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if isinstance(scale, Tensor):
            if scale.numel() != 1:
                raise ValueError(f"{name} has shape {tuple(scale.shape)}, but one element is needed")
            check_data(name, scale.flatten(), (1,), (torch.float32,), plan.device)
        else:
            _check_positive(name, scale)
    if lse is not None:
        check_data("lse", lse, (*heads, plan.lengths.num_query_tokens), (torch.float32,), plan.device)
        if not lse.is_contiguous():
            raise ValueError(f"lse has strides {lse.stride()}, but a contiguous tensor is needed")
    if bidirectional_ranges is not None:
        name, ranges = "bidirectional_ranges", bidirectional_ranges
        check_tensor(name, ranges)
        count = ranges.shape[1] if ranges.ndim == 3 else 1
        check_data(name, ranges, (plan.lengths.num_seqs, count, 2), (torch.int32,), plan.device)
        if not ranges.is_contiguous():
            raise ValueError(f"{name} has strides {ranges.stride()}, but contiguous memory is needed")


def _check_positive(name: str, value: float) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is a {type(value).__name__}, but a number is needed")
    if not LEAST <= value <= MOST:
        raise ValueError(f"{name} is {value}, but a number from {LEAST:g} to {MOST:g} is needed")


def check_own_memory(name: str, tensor: Tensor) -> None:
    steps = _steps(tensor)
    if tensor.numel() and any(step < _length(steps[place:]) for place, (step, _) in enumerate(steps, 1)):
        raise ValueError(f"{name} has strides {tensor.stride()}, but each row needs memory of its own")


def check_no_gradient(tensors: Iterable[object], names: Iterable[str]) -> None:
    """Refuse tensors that require a gradient, because none is computed."""
    for tensor, name in zip(tensors, names, strict=True):
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            raise NotImplementedError(f"{name} requires a gradient, but torch.no_grad() is needed")


def check_apart(name: str, written: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse an output that overlaps another tensor in memory, if it has any."""
    if written.data_ptr() and _meet(written.data_ptr() - other.data_ptr(), _steps(written), _steps(other)):
        raise ValueError(f"{name} overlaps {other_name} in memory, but memory of its own is needed")


def bytes_reached(tensor: Tensor) -> int:
    """Bytes from the beginning of a tensor to its end."""
    return _length(_steps(tensor))


Steps = list[tuple[int, int]]  # distances in bytes, the largest first, and how many places are so far apart


def _steps(tensor: Tensor) -> Steps:
    size = tensor.element_size()
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    return sorted([(1, size), *((size * step, count) for step, count in steps if count != 1)], reverse=True)


def _length(steps: Steps) -> int:
    return 1 + sum(step * (count - 1) for step, count in steps) if all(count for _, count in steps) else 0


def _meet(offset: int, steps: Steps, others: Steps) -> bool:
    """Whether bytes with these steps overlap others that begin ``offset`` bytes before them.

    Rows with equal strides may interleave without overlapping. With different strides, overlapping address
    ranges count as an overlap.
    """
    if not -_length(steps) < offset < _length(others):
        return False
    (step, _), *row = steps or [(0, 1)]
    (other_step, _), *other_row = others or [(0, 1)]
    if step != other_step or step < max(_length(row), _length(other_row)):
        return True
    return any(_meet(place, row, other_row) for place in (offset % step, offset % step - step))
