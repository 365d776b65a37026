# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-incomplete-defs
"""Store a step's new keys and values in paged caches; imports no engine."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, OfLayer, OfPlan
from attn_kernels.launch import direct
from attn_kernels.launch.direct import ALIGNMENT, BoundLaunch, FilledLaunch, hooked, launch_filled


@triton.jit(do_not_specialize=("num_tokens",), do_not_specialize_on_alignment=("slots_ptr",))
def store_kernel(
    keys_ptr,
    values_ptr,
    k_cache_ptr,
    v_cache_ptr,
    slots_ptr,
    num_tokens,
    stride_keys,
    stride_values,
    stride_page,
    stride_slot,
    stride_head,
    NUM_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy ROWS tokens, which are rows of NUM_HEADS * HEAD_SIZE elements; COLUMNS is a power of two.

    A token's slot is negative if it has none.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    present = (rows < num_tokens)[:, None] & (columns < NUM_HEADS * HEAD_SIZE)[None, :]
    from_rows = rows.to(tl.int64)[:, None]
    slots = tl.load(slots_ptr + rows, mask=rows < num_tokens, other=-1)
    keys = tl.load(keys_ptr + from_rows * stride_keys + columns[None, :], mask=present)
    values = tl.load(values_ptr + from_rows * stride_values + columns[None, :], mask=present)
    present &= (slots >= 0)[:, None]
    places = (slots // BLOCK_SIZE) * stride_page + (slots % BLOCK_SIZE) * stride_slot
    inside = (columns // HEAD_SIZE).to(tl.int64) * stride_head + columns % HEAD_SIZE
    to = places[:, None] + inside[None, :]
    tl.store(k_cache_ptr + to, keys, mask=present)
    tl.store(v_cache_ptr + to, values, mask=present)


FEW = 256  # tokens; up to here a program copies one, so that more programs share the work
MANY_ELEMENTS = 4096  # that a program copies of the keys of more tokens
WARP_ELEMENTS = 256  # 16 bytes per thread
MULTIPLE = 16  # elements; Triton compiles the kernel for strides that are multiples of it
NAMES = ("keys", "values", "k_cache", "v_cache", "slots")


@dataclass(frozen=True)
class _Step:
    """What a launch needs of a step; it stands for a ``Plan``."""

    num_tokens: int
    rows: int  # tokens of a program
    device: torch.device


@dataclass
class _Launches:
    """The launches of all layers whose caches are alike."""

    bound: dict[Hashable, tuple[BoundLaunch, ...]] = field(
        default_factory=dict
    )  # empty: it cannot copy these
    filled: dict[Hashable, tuple[FilledLaunch, ...]] = field(default_factory=dict)  # by number of tokens too


_launches: dict[Hashable, _Launches] = {}  # by what caches look like


class Store:
    """Copies new keys and values to a layer's caches [num_blocks, block_size, num_kv_heads, head_size]."""

    def __init__(self, k_cache: Tensor, v_cache: Tensor) -> None:
        self._caches = k_cache, v_cache
        self._addresses = k_cache.data_ptr(), v_cache.data_ptr()
        look = (k_cache.stride(), v_cache.stride(), k_cache.shape[1:], k_cache.dtype, k_cache.device)
        offsets = [address % ALIGNMENT for address in self._addresses]
        self._launches = _launches.setdefault((*look, v_cache.dtype, *offsets), _Launches())

    def __call__(self, keys: Tensor, values: Tensor, slots: Tensor) -> bool:
        """Copy new keys and values to their slots if the kernel can; returns whether it did.

        It cannot where types differ, or where tensors or their strides are not aligned.

        Args:
            keys, values: [rows, num_kv_heads, head_size]; rows may be strided.
            slots: int64 [num_tokens], num_tokens <= rows: page id times block_size plus the place in it.
        """
        # A server runs this as often as ``run``.
        num_tokens = slots.shape[0]
        a, b = keys.data_ptr(), values.data_ptr()
        signature = (
            num_tokens,
            keys.stride(),
            values.stride(),
            keys.dtype,
            values.dtype,
            slots.dtype,
            (a | b) % ALIGNMENT,
            direct.generation,
        )
        filled = self._launches.filled.get(signature)
        if filled is None or hooked():
            return self._first(keys, values, slots, signature)
        k_cache, v_cache = self._caches
        addresses = a, b, *self._addresses, slots.data_ptr()
        launch_filled(keys.device.index, filled, addresses, (keys, values, k_cache, v_cache, slots))
        return True

    def _first(self, keys: Tensor, values: Tensor, slots: Tensor, signature: tuple[Any, ...]) -> bool:
        """Launch for the first time with this many tokens, or through Triton's dispatch."""
        tensors = dict(zip(NAMES, (keys, values, *self._caches, slots), strict=True))
        num_tokens, few = slots.shape[0], slots.shape[0] <= FEW
        bound = self._launches.bound.get((few, signature[1:]))
        if bound is None:
            bound = _bind(few, **tensors)
            direct.remember(self._launches.bound, (few, signature[1:]), bound)
        if not bound:
            return False
        if num_tokens:
            step: Any = _Step(num_tokens, bound[0].launch.arguments[-2], keys.device)
            filled = direct.fill(step, bound)
            if filled is None:
                direct.launch_through_triton(step, bound, tensors)
                return True
            direct.remember(self._launches.filled, signature, filled)
            addresses = tuple(tensor.data_ptr() for tensor in tensors.values())
            launch_filled(keys.device.index, filled, addresses, tuple(tensors.values()))
        return True


def _bind(
    few: bool, keys: Tensor, values: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor
) -> tuple[BoundLaunch, ...]:
    heads, size = k_cache.shape[2:]
    strides = keys.stride(0), values.stride(0), *k_cache.stride()[:3]
    addresses = [tensor.data_ptr() for tensor in (keys, values, k_cache, v_cache)]
    types = {tensor.dtype for tensor in (keys, values, k_cache, v_cache)}
    if (
        len(types) > 1
        or slots.dtype != torch.int64
        or (keys.stride()[1:], values.stride()[1:]) != ((size, 1), (size, 1))
        or k_cache.stride() != v_cache.stride()
        or k_cache.stride(3) != 1
        or any(stride % MULTIPLE for stride in (*strides, size))
        or any(address % ALIGNMENT for address in addresses)
    ):
        return ()
    columns = triton.next_power_of_2(heads * size)
    tokens = 1 if few else max(1, MANY_ELEMENTS // columns)
    constants = heads, size, k_cache.shape[1], tokens, columns
    arguments = (*map(OfLayer, NAMES), OfPlan(attrgetter("num_tokens")), *strides, *constants)
    options = {"num_warps": min(8, max(1, tokens * columns // WARP_ELEMENTS))}
    launch = Launch(store_kernel, lambda step: (-(-step.num_tokens // step.rows),), arguments, options)  # type: ignore[attr-defined]
    tensors = dict(zip(NAMES, (keys, values, k_cache, v_cache, slots), strict=True))
    return (BoundLaunch(launch, tensors),)


@dataclass(frozen=True)
class StoreLaunch:
    """Launches that compile and load the kernels of layers of a model; a ``Job``."""

    model: Model
    cost = 1

    @property
    def needs(self) -> frozenset[Hashable]:
        return frozenset({self})

    def run(self, device: torch.device) -> None:
        model = self.model
        shape = model.num_kv_heads, model.head_size
        cache = torch.zeros(1, model.block_size, *shape, dtype=model.dtype, device=device)
        store = Store(cache, cache)
        for num_tokens in (1, FEW + 1):
            new = torch.zeros(num_tokens, *shape, dtype=model.dtype, device=device)
            store(new, new, torch.full((num_tokens,), -1, dtype=torch.int64, device=device))
