"""What the vLLM backend supports, and why it refuses the rest; views of vLLM's caches. Imports no vLLM."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from attn_kernels.core.checks import DTYPES, MAX_HEAD_SIZE
from attn_kernels.engines.planner import StepMetadata

PAGE_MULTIPLE = 16  # tokens
HEAD_MULTIPLE = 8  # elements: 16 bytes, on which compiling ahead relies
CACHE_DTYPES = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3")  # vLLM's words
FP8_WORDS = ("fp8", "fp8_e4m3")
MIN_CAPABILITY = (8, 0)

# vLLM's own words for what it found unsupported, and what is needed instead, from its configuration.
NEEDED: Mapping[str, tuple[str, str]] = {
    "head_size not supported": (
        "head_size",
        f"a multiple of {HEAD_MULTIPLE} up to {MAX_HEAD_SIZE} is needed",
    ),
    "dtype not supported": ("dtype", "torch.float16 or torch.bfloat16 is needed"),
    "kv_cache_dtype not supported": ("kv_cache_dtype", f"one of {', '.join(CACHE_DTYPES)} is needed"),
    "block_size not supported": ("block_size", f"a multiple of {PAGE_MULTIPLE} is needed"),
    "compute capability not supported": (
        "device_capability",
        f"{MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or newer is needed",
    ),
}


# What a step's metadata takes from vLLM's under the same name.
OWN_NAMES = {"block_table", "for_capture", "planners", "plans", "mm_prefix_range_tensor"}
SAME_NAMES = [field.name for field in fields(StepMetadata) if field.name not in OWN_NAMES]


def head_size_fits(head_size: int) -> bool:
    return 0 < head_size <= MAX_HEAD_SIZE and head_size % HEAD_MULTIPLE == 0


def cache_dtype_fits(kv_cache_dtype: str | None, fp8: torch.dtype = torch.float8_e4m3fn) -> bool:
    """Return whether a cache of this word of vLLM is supported, where ``fp8`` is the platform's type."""
    if kv_cache_dtype in FP8_WORDS:
        return fp8 == torch.float8_e4m3fn
    return kv_cache_dtype is None or kv_cache_dtype in CACHE_DTYPES


def refusals(reasons: list[str], given: Mapping[str, Any]) -> list[str]:
    """Name the value and what is needed in the reasons of vLLM's ``validate_configuration``."""
    lines = []
    for reason in reasons:
        name, needed = NEEDED.get(reason, ("", ""))
        lines.append(f"{name} is {_shown(given[name])}, but {needed}" if name in given else reason)
    return [f"attn_kernels: {line}" for line in lines]


def _shown(value: Any) -> str:
    major, minor = getattr(value, "major", None), getattr(value, "minor", None)
    return str(value) if major is None or minor is None else f"{major}.{minor}"


def check_spec(spec: Any, dtype: torch.dtype) -> None:
    """Check vLLM's description of a group's cache. Raises ValueError about what is not supported."""
    if dtype not in DTYPES:
        raise ValueError(f"attn_kernels: dtype is {dtype}, but torch.float16 or torch.bfloat16 is needed")
    if not head_size_fits(spec.head_size):
        needed = NEEDED["head_size not supported"][1]
        raise ValueError(f"attn_kernels: head_size is {spec.head_size}, but {needed}")
    of_values = getattr(spec, "head_size_v", None)
    if of_values not in (None, spec.head_size):
        raise ValueError(
            f"attn_kernels: head_size_v is {of_values}, but that of keys, {spec.head_size}, is needed"
        )


def check_parallel(parallel: Any) -> None:
    """Check vLLM's parallel configuration. Raises ValueError about context parallelism."""
    only = {"prefill_context_parallel_size": 1, "dcp_comm_backend": "ag_rs", "dcp_q_replicate": False}
    for name, needed in only.items():
        value = getattr(parallel, name, None) or needed
        if value != needed:
            raise ValueError(f"attn_kernels: {name} is {value}, but {needed} is needed")


def check_shares(ranks: int, impl: Any, **options: Any) -> None:
    """Check a layer whose contexts are divided among ranks. Raises ValueError about what it cannot have."""
    where, size = f"with decode_context_parallel_size {ranks}", impl.head_size
    for name in ("sliding_window", "alibi_slopes", "kv_sharing_target_layer_name"):
        options[name] = getattr(impl, name) is not None
    for name, given in options.items():
        if given:
            raise ValueError(f"attn_kernels: {name} is given, but {where} it is not supported")
    if size & (size - 1):  # vLLM's kernel that corrects outputs takes no other
        raise ValueError(f"attn_kernels: head_size is {size}, but {where} a power of two is needed")


def image_ranges(
    ranges: Mapping[int, Sequence[tuple[int, int]]] | None, starts: Tensor, seq_lens: Tensor | None
) -> list[list[tuple[int, int]]]:
    """Return each request's ranges in which a query of the step sees a later key, padded to one length.

    vLLM leaves out ranges longer than the sliding window, or lets the window hide their keys, so all are
    ranges as ``run`` takes them.

    Args:
        ranges: vLLM's ``mm_req_doc_ranges``: first and last position, by request.
        starts: of the queries, int32 [num_reqs + 1], on the CPU. seq_lens: int32 [num_reqs], on the CPU;
            None if only the device knows them.
    """
    kept: list[list[tuple[int, int]]] = [[] for _ in starts[1:]]
    for request, own in (ranges or {}).items():
        first, last = 0, max((end for _, end in own), default=0)
        if seq_lens is not None:
            last = int(seq_lens[request]) - 1
            first = last + 1 - int(starts[request + 1] - starts[request])
        kept[request] = [(start, end) for start, end in own if end > max(start, first) and start < last]
    most = max(map(len, kept), default=0)
    return [[*own, *[(0, 0)] * (most - len(own))] for own in kept] if most else []


def cache_views(kv_cache: Tensor, head_size: int, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Return keys and values, each [num_blocks, block_size, num_kv_heads, head_size].

    Args:
        kv_cache: [num_blocks, 2, block_size, num_kv_heads, head_size], as vLLM 0.24 has it, or
            [num_blocks, num_kv_heads, block_size, 2 * head_size], as vLLM 0.33 has it; of any strides.
        dtype: of the same size, as which to view the elements; their own if None.
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
