"""The Hopper kernel without a Hopper GPU: what it refuses, how it views caches, and the fallback."""

import dataclasses
from itertools import product

import pytest
import torch
from kernel_cases import random_batch, shifted, strided
from launch_recorder import far
from launch_recorder import layer_of as tensors_of
from programs import printed

from attn_kernels import Config, Parts
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Layer
from attn_kernels.kernels import hopper, hopper_limits
from attn_kernels.kernels.hopper_limits import asked_by
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.offline.resources import SHARED_LIMITS

DESCRIPTORS = Config("qblock", 128, 64, num_warps=8, num_stages=2, tma=1)
DECODES = Config("stream_k", 16, 64, num_stages=2, tma=1)
BOTH = Config("pod", 128, 64, num_stages=3)
DECLARED = [config for variant in VARIANTS.values() for config in variant.configs() if asked_by(config)]


def layer_of(batch, **changes):
    scores = {"softmax_scale": 0.1, "softcap": 0.0, "k_scale": 1.0, "v_scale": 1.0}
    absent = dict.fromkeys(("sliding_window", "alibi_slopes", "sinks"))
    return Layer(**(tensors_of(batch) | scores | absent | changes))


def plan_of(batch, config):
    """The plan of a config's launch; that of both parts where it computes mixed batches."""
    if config.variant != "pod":
        return batch.plan(config=config)
    return batch.plan(config=config, parts=Parts.of(batch.query_lens, batch.context_lens)).fused


def unsupported_reason(
    head_size=64, block_size=16, ratio=4, config=DESCRIPTORS, change=lambda batch: {}, kv_heads=1
):
    batch = random_batch(((3, 9), (20, 40)), ratio, kv_heads, head_size, block_size=block_size)
    return hopper_limits.unsupported_reason(plan_of(batch, config), layer_of(batch, **change(batch)))


OPTIONS = {
    "window": lambda batch: {"sliding_window": 5},
    "softcap": lambda batch: {"softcap": 5.0},
    "sinks": lambda batch: {"sinks": torch.ones(8)},
    "alibi": lambda batch: {"alibi_slopes": torch.ones(8)},
    "scales": lambda batch: {"k_scale": torch.ones(1), "v_scale": 2.0},
    "lse": lambda batch: {"lse": torch.empty(8, len(batch.q))},
    "ranges": lambda batch: {"bidirectional_ranges": torch.zeros(2, 1, 2).int()},
    "fp8": lambda batch: {
        name: getattr(batch, name).to(torch.float8_e4m3fn) for name in ("k_cache", "v_cache")
    },
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("config", [DESCRIPTORS, DECODES, BOTH], ids=str)
def test_options_of_a_layer(config, option):
    why = unsupported_reason(head_size=128, config=config, change=OPTIONS[option])
    assert why is None if option in hopper_limits.OPTIONS[config.variant] else f"lacks {option}" in why


@pytest.mark.parametrize("fp8_queries, terms", [(False, 2), (True, 1)])
def test_fp8_queries_are_one_number_or_a_sum_of_two(fp8_queries, terms):
    """The option compiles another kernel, of plans whose models differ, and needs fp8 caches."""
    model = Model(8, 2, 64, 16, torch.bfloat16, torch.float8_e4m3fn, fp8_queries=fp8_queries)
    chosen = hopper_limits.constants(DESCRIPTORS, 64, 16, 4, 1, model.fp8_queries)
    assert chosen.query_terms == terms
    assert (model == dataclasses.replace(model, fp8_queries=True)) == fp8_queries
    for cache_dtype in (None, torch.bfloat16):
        with pytest.raises(ValueError, match="fp8_queries is True"):
            dataclasses.replace(model, cache_dtype=cache_dtype, fp8_queries=True)


OF_EVERY_ROLE = [
    ({"head_size": 72}, "head size"),
    ({"block_size": 24}, "page size"),
    ({"change": lambda batch: {"q": shifted(batch.q)}}, "begin"),
    ({"change": lambda batch: {"out": strided(batch.q, 2, 3)}}, "rows"),
    ({"change": lambda batch: {"v_cache": far(batch.v_cache, 0, batch.v_cache.stride(0) + 8)}}, "slots"),
]
REASONS = [
    (DESCRIPTORS, {"ratio": 129}, "query heads"),
    (DESCRIPTORS._replace(tile_size=128), {"head_size": 256}, "shared memory"),
    (DECODES, {"ratio": 17}, "query heads"),
    (DECODES, {"kv_heads": 2}, "KV heads"),
    (BOTH, {"ratio": 65}, "query heads"),
    (BOTH, {"head_size": 256}, "shared memory"),
    (BOTH, {"kv_heads": 2}, "KV heads"),
    *((config, *pair) for config, pair in product((DESCRIPTORS, DECODES, BOTH), OF_EVERY_ROLE)),
]


@pytest.mark.parametrize("config, arguments, reason", REASONS)
def test_reasons_against_a_layer(config, arguments, reason):
    assert reason in unsupported_reason(config=config, **arguments)


@pytest.mark.parametrize("order", ["slots", "heads", "interleaved"])
def test_a_view_of_a_cache_finds_every_element(order):
    blocks, page_size, heads, size = 5, 16, 3, 64
    if order == "slots":
        cache = torch.empty(blocks, page_size, heads, size, dtype=torch.float16)
    elif order == "heads":
        cache = torch.empty(blocks, heads, page_size, size, dtype=torch.float16).transpose(1, 2)
    else:  # K and V of a page beside each other
        cache = torch.empty(blocks, 2, page_size, heads, size, dtype=torch.float16)[:, 0]
    view = hopper.cache_view(cache, 16, 64)
    page_rows, head_rows, head_columns = hopper.cache_steps(cache)
    for page, slot, head in ((0, 0, 0), (4, 15, 2), (3, 7, 1)):
        row = page * page_rows + head * head_rows + slot
        column = head * head_columns
        assert row < view.shape[0]
        assert column + size <= view.shape[1]
        assert row * view.strides[0] + column == (
            page * cache.stride(0) + slot * cache.stride(1) + head * cache.stride(2)
        )


def test_a_tile_without_room_for_the_heads_has_no_role():
    """The schedule divides by a role's query tokens, whatever the layer."""
    roles = {heads: hopper_limits.roles_of(DECODES, heads) for heads in (4, 16, 17, 32)}
    assert [roles[heads].decode_tile > 0 for heads in roles] == [True, True, False, False]
    assert (roles[4].decode_block_q, roles[16].decode_block_q) == (4, 1)
    assert hopper_limits.roles_of(DESCRIPTORS, 200).prompt_block_q == 0


@pytest.mark.parametrize("config", DECLARED, ids=str)
def test_what_serves_fits_shared_memory(config):
    """And a config serves some shape; the bytes are those of the kernel's allocations."""
    served = set()
    for head_size, block_size, heads in product(
        hopper_limits.HEAD_SIZES, (16, 48, 256), (1, 4, 7, 16, 64, 128)
    ):
        if hopper_limits.unsupported_shape(config, head_size, block_size, heads) is not None:
            continue
        chosen = hopper_limits.constants(config, head_size, block_size, heads)
        rows, tile = chosen.rows, chosen.decode_tile
        in_prompts = 2 * chosen.stages * chosen.tile_size * head_size
        in_prompts += 128 * head_size if chosen.tile_size else 0
        in_decodes = chosen.slots * tile * 64 + rows * head_size + rows * tile
        assert 2 * (in_prompts + in_decodes) + 1024 <= SHARED_LIMITS["sm_90"]
        assert rows == 0 or (rows >= heads and chosen.slots > 2 * head_size // 64)
        assert block_size % chosen.box == 0
        assert all(size % chosen.box == 0 for size in (chosen.tile_size, tile))
        roles = hopper_limits.roles_of(config, heads)
        assert bool(roles.prompt_block_q) == (config.variant != "stream_k")
        assert bool(roles.decode_block_q) == bool(roles.decode_tile) == (config.variant != "qblock")
        assert roles.decode_block_q * heads <= rows and roles.prompt_block_q * heads <= 128
        served.add((head_size, heads))
    assert served >= {(64, 4), (128, 4), (128, 7)}


def test_attn_kernels_needs_no_gluon():
    """Gluon is experimental: the other kernels work with a Triton that lacks it."""
    code = (
        "import sys; sys.modules['triton.experimental'] = None\n"
        "import torch, attn_kernels\n"
        "from attn_kernels.kernels import hopper_launch\n"
        "assert hopper_launch.hopper_for(torch.device('cpu')) is None\n"
    )
    printed("-c", code)
