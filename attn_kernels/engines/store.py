"""Store a step's new keys and values in paged caches; imports no engine."""

from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
import triton
from torch import Tensor

from attn_kernels.core.structures import Launch, OfLayer, OfPlan
from attn_kernels.engines.store_kernel import store_kernel
from attn_kernels.launch import direct
from attn_kernels.launch.direct import ALIGNMENT, BoundLaunch, FilledLaunch, hooked, launch_filled

FEW = 256  # tokens; up to here a program copies one, so that more programs share the work
MANY_ELEMENTS = 4096  # that a program copies of the keys of more tokens
WARP_ELEMENTS = 256  # 16 bytes a thread
MULTIPLE = 16  # elements; Triton compiles the kernel for strides that are multiples of it
NAMES = ("keys", "values", "k_cache", "v_cache", "slots")

_bound: dict[Hashable, tuple[BoundLaunch, ...]] = {}  # by what is compiled for; empty if this kernel cannot
_filled: dict[Hashable, tuple[FilledLaunch, ...]] = {}  # by that and the number of tokens


@dataclass(frozen=True)
class _Step:
    """What a launch needs of a step; it stands for a ``Plan``."""

    num_tokens: int
    rows: int  # tokens of a program
    device: torch.device


def store(keys: Tensor, values: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> bool:
    """Copy new keys and values to their slots if this kernel can; returns whether it did.

    It cannot where types differ, or where tensors or their strides are not aligned.

    Args:
        keys, values: [rows, num_kv_heads, head_size]; rows may be strided.
        k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_size] of the same dtype, strided alike.
        slots: int64 [num_tokens], num_tokens <= rows: page id times block_size plus the place in the page.
            Tokens with a negative slot are left out.
    """
    num_tokens = slots.shape[0]
    key = (
        num_tokens <= FEW,
        keys.shape[1:],
        k_cache.shape[1:],
        keys.stride(),
        values.stride(),
        k_cache.stride(),
        v_cache.stride(),
        keys.dtype,
        k_cache.dtype,
        slots.dtype,
        keys.device,
        direct.generation,
    )
    tensors = keys, values, k_cache, v_cache, slots
    addresses = tuple(tensor.data_ptr() for tensor in tensors)
    a, b, c, d, _ = addresses
    if (a | b | c | d) % ALIGNMENT:
        return False
    filled = _filled.get((num_tokens, key))
    if filled is not None and not hooked():
        launch_filled(keys.device.index, filled, addresses, tensors)
        return True
    bound = _bound.get(key)
    if bound is None:
        bound = _bind(*tensors)
        direct.remember(_bound, key, bound)
    if not bound:
        return False
    if num_tokens == 0:
        return True
    step: Any = _Step(num_tokens, bound[0].launch.arguments[-2], keys.device)
    filled = direct.fill(step, bound)
    if filled is None:
        direct.launch_through_triton(step, bound, dict(zip(NAMES, tensors, strict=True)))
        return True
    direct.remember(_filled, (num_tokens, key), filled)
    launch_filled(keys.device.index, filled, addresses, tensors)
    return True


def _bind(
    keys: Tensor, values: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
) -> tuple[BoundLaunch, ...]:
    """The launch for tensors of this signature; empty if the kernel cannot copy them."""
    heads, size = keys.shape[1:]
    strides = keys.stride(0), values.stride(0), *k_cache.stride()[:3]
    rows = keys.stride()[1:], values.stride()[1:]
    alike = keys.dtype == values.dtype == k_cache.dtype == v_cache.dtype and slots.dtype == torch.int64
    if (
        not alike
        or rows != ((size, 1), (size, 1))
        or k_cache.stride() != v_cache.stride()
        or k_cache.stride(3) != 1
        or any(stride % MULTIPLE for stride in (*strides, size))
    ):
        return ()
    columns = triton.next_power_of_2(heads * size)
    tokens = 1 if slots.shape[0] <= FEW else max(1, MANY_ELEMENTS // columns)
    constants = heads, size, k_cache.shape[1], tokens, columns
    arguments = (*map(OfLayer, NAMES), OfPlan(attrgetter("num_tokens")), *strides, *constants)
    options = {"num_warps": min(8, max(1, tokens * columns // WARP_ELEMENTS))}
    launch = Launch(store_kernel, _grid, arguments, options)
    return (BoundLaunch(launch, dict(zip(NAMES, (keys, values, k_cache, v_cache, slots), strict=True))),)


def _grid(step: Any) -> tuple[int]:
    return (-(-step.num_tokens // step.rows),)


def compile_store(
    device: torch.device, dtype: torch.dtype, num_heads: int, head_size: int, block_size: int
) -> None:
    """Compile and load the kernels that layers with such caches launch."""
    for num_tokens in (1, FEW + 1):
        new = torch.zeros(num_tokens, num_heads, head_size, dtype=dtype, device=device)
        cache = torch.zeros(1, block_size, num_heads, head_size, dtype=dtype, device=device)
        slots = torch.full((num_tokens,), -1, dtype=torch.int64, device=device)
        store(new, new, cache, cache, slots)
