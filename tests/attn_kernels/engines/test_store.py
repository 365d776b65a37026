"""Storing keys and values in paged caches: every slot against a copy by torch, and all others untouched."""

import random

import pytest
import torch

from attn_kernels.core.model import Model
from attn_kernels.engines import store as module
from attn_kernels.engines.store import FEW, Store

PAGES = 24


def caches(layout, pages, block, heads, size, dtype):
    """Keys and values of NaN in one tensor, as engines lay them out."""
    if layout == "apart":
        return [torch.full((pages, block, heads, size), torch.nan, dtype=dtype) for _ in range(2)]
    if layout == "heads first":
        both = torch.full((pages, 2, heads, block, size), torch.nan, dtype=dtype).transpose(2, 3)
    else:
        both = torch.full((pages, 2, block, heads, size), torch.nan, dtype=dtype)
    return list(both.unbind(1))


@pytest.mark.parametrize("seed", range(12))
def test_each_token_is_stored_in_its_slot(seed):
    draw = random.Random(seed)
    heads, size = draw.choice((1, 2, 3, 8)), draw.choice((16, 64, 80, 128))
    block, dtype = draw.choice((16, 32)), draw.choice((torch.bfloat16, torch.float16))
    tokens, rows = draw.choice((1, 5, 17, FEW, FEW + 3)), draw.randint(0, 4)
    query = draw.choice((0, heads * size))  # queries in the same rows
    torch.manual_seed(seed)
    fused = torch.randn(tokens + rows, query + 2 * heads * size).to(dtype)
    keys, values = (part.unflatten(1, (heads, size)) for part in fused[:, query:].split(heads * size, dim=1))
    k_cache, v_cache = caches(draw.choice(("apart", "heads first", "both")), PAGES, block, heads, size, dtype)
    free = list(range(PAGES * block))
    draw.shuffle(free)
    slots = [draw.choice((slot, slot, -1)) for slot in free[:tokens]]
    assert Store(k_cache, v_cache)(keys, values, torch.tensor(slots, dtype=torch.int64))
    for new, cache in ((keys, k_cache), (values, v_cache)):
        expected = torch.full_like(cache, torch.nan)
        for row, slot in zip(new, slots, strict=False):
            if slot >= 0:
                expected[slot // block, slot % block] = row
        assert torch.equal(cache.isnan(), expected.isnan())
        assert torch.equal(cache.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("what", ["type", "head size", "rows", "address", "slots", "strides"])
def test_what_the_kernel_cannot_copy_is_left_untouched(what):
    size = 24 if what == "head size" else 16
    k_cache, v_cache = caches("apart", 2, 16, 2, size, torch.bfloat16)
    wide = torch.zeros(4, 5 * size + (8 if what == "rows" else 0), dtype=torch.bfloat16)
    start = 4 if what == "address" else 0
    keys = wide[:, start : start + 2 * size].unflatten(1, (2, size))
    if what == "type":
        keys = keys.half()
    if what == "strides":
        v_cache = v_cache.transpose(1, 2).contiguous().transpose(1, 2)
    slots = torch.arange(4, dtype=torch.int32 if what == "slots" else torch.int64)
    assert not Store(k_cache, v_cache)(keys, keys, slots)
    assert k_cache.isnan().all() and v_cache.isnan().all()


def test_a_cache_at_an_odd_address_takes_no_launch_of_another():
    module._launches.clear()
    new, slots = torch.zeros(4, 2, 16, dtype=torch.bfloat16), torch.arange(4)
    memory = torch.zeros(2, 2 * 16 * 2 * 16 + 8, dtype=torch.bfloat16)
    for start, copies in ((0, True), (4, False), (0, True)):
        k_cache, v_cache = (part[start : start + 1024].view(2, 16, 2, 16) for part in memory)
        assert Store(k_cache, v_cache)(new, new, slots) is copies


def test_launches_are_kept_for_all_layers_alike():
    module._launches.clear()
    new = torch.zeros(9, 2, 16, dtype=torch.bfloat16)
    for _ in range(3):
        k_cache, v_cache = caches("apart", 2, 16, 2, 16, torch.bfloat16)
        for tokens in (1, 2, 9):
            assert Store(k_cache, v_cache)(new, new, torch.arange(tokens))
    (launches,) = module._launches.values()
    assert len(launches.bound) == 1
    module.StoreLaunch(Model(2, 2, 16, 16, new.dtype)).run(new.device)
    assert len(launches.bound) == 2  # of few tokens and of many
