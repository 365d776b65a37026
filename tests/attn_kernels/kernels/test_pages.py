"""Single device functions whose mistakes the kernels' results would not show."""

import pytest
import torch
import triton
import triton.language as tl
from kernel_cases import FP8, make_config, number, random_batch

from attn_kernels.kernels import arguments, online_softmax
from attn_kernels.kernels.online_softmax import decode_e4m3, load_page_ids
from attn_kernels.testing.poisoned import run_poisoned

TILE = 32


@triton.jit
def store_page_ids(out_ptr, table_ptr, tile_start, first_key, last_key, const: tl.constexpr):
    TILE_SIZE: tl.constexpr = const.tile_size
    page_ids = load_page_ids(table_ptr, tile_start, first_key, last_key, const)
    tl.store(out_ptr + tl.arange(0, TILE_SIZE), page_ids + tl.zeros([TILE_SIZE], dtype=tl.int32))


@triton.jit
def store_decoded(out_ptr, bytes_ptr, COUNT: tl.constexpr):
    index = tl.arange(0, COUNT)
    tl.store(out_ptr + index, decode_e4m3(tl.load(bytes_ptr + index), out_ptr.dtype.element_ty))


@pytest.mark.parametrize("page_size", [1, 8, 24, 32, 64])
@pytest.mark.parametrize(
    "first_key, last_key", [(0, 0), (0, 31), (0, 32), (0, 50), (20, 63), (33, 64), (64, 95), (95, 95)]
)
def test_page_ids_are_read_from_the_first_to_the_last_key_only(page_size, first_key, last_key):
    table = torch.full((300,), -1, dtype=torch.int32)
    owned = torch.arange(first_key // page_size, last_key // page_size + 1)
    table[owned] = 100 + owned.to(torch.int32)
    config = make_config("qblock", tile_size=TILE)
    shape = {"head_size": 16, "block_size": page_size, "gqa_group_size": 1}
    const = arguments.launch_constants(
        config, "nvidia", (16,), (16,) * 6, 2, **shape, windowed=first_key > 0
    )[2]
    begin = first_key // TILE * TILE
    for tile_start in range(begin, last_key + 2 * TILE, TILE):  # the kernel looks one tile ahead
        out = torch.zeros(TILE, dtype=torch.int32)
        store_page_ids[(1,)](out, table, tile_start, first_key, last_key, const)
        keys = torch.arange(tile_start, tile_start + TILE).clamp(first_key, last_key)
        if page_size % TILE == 0:
            keys = keys[:1].expand(TILE)
        assert torch.equal(out, table[keys // page_size]), tile_start
        assert (out >= 100).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_fp8_number_is_decoded_from_its_bits(dtype):
    encoded = torch.arange(256, dtype=torch.uint8)
    out = torch.full((256,), 7.0, dtype=dtype)
    store_decoded[(1,)](out, encoded, 256)
    expected = encoded.view(FP8).to(dtype)
    nan = torch.isnan(expected)
    assert nan.sum() == 2
    assert torch.equal(out[~nan], expected[~nan])
    assert torch.equal(out[nan].abs(), torch.full((2,), 480.0, dtype=dtype))


@pytest.mark.parametrize(
    "hip, capability, expected",
    [(None, (8, 6), False), (None, (8, 9), True), (None, (9, 0), True), ("6.2", (9, 4), True)],
)
def test_which_devices_convert_fp8(hip, capability, expected, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    arguments.converts_e4m3.cache_clear()
    assert arguments.converts_e4m3(torch.device("cuda", 0)) is expected
    assert arguments.converts_e4m3(torch.device("cpu"))
    arguments.converts_e4m3.cache_clear()


IMAGE = {"bidirectional_ranges": torch.tensor([[(16, 47)]], dtype=torch.int32)}
WINDOWS = [
    (4, [(96, 100, 1)]),
    (5, [(80, 96, 1), (96, 100, 1)]),
    (37, [(48, 64, 1), (64, 96, 0), (96, 100, 1)]),
]


@pytest.mark.parametrize(
    "query_len, context_len, options, tiles",
    [
        *((1, 100, {"sliding_window": window}, tiles) for window, tiles in WINDOWS),
        (1, 100, {}, [(0, 64, 0), (64, 96, 0), (96, 100, 1)]),  # two splits
        (20, 40, {"causal": False}, 2 * [(0, 32, 0), (32, 40, 1)]),
        # A Q-Block of an image reads it to its end, and others read no key behind their own.
        (64, 64, IMAGE, [(0, 48, 0), (48, 64, 1), (0, 48, 0), (0, 48, 0), (0, 16, 1)]),
    ],
)
def test_only_tiles_that_some_row_sees_are_visited_and_masked_unless_all_rows_do(
    query_len, context_len, options, tiles, monkeypatch
):
    visited = []
    original = online_softmax.attend_tiles

    def record(*arguments):
        start, stop, masked = map(number, arguments[4:7])
        if start < stop:
            visited.append((start, stop, masked))
        return original(*arguments)

    monkeypatch.setattr(online_softmax, "attend_tiles", record)
    batch = random_batch(((query_len,), (context_len,)), ratio=1, head_size=16)
    run_poisoned(batch, batch.plan(config=make_config()), **options)
    assert visited == tiles
