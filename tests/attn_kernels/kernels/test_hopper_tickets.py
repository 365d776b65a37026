"""How programs of the Hopper kernel share the splits of prompts, in Triton's interpreter, by brute force.

The interpreter runs no Gluon. So the tests run the module's own source with Triton's functions of the same
names, on schedules that the schedule's kernel writes.
"""

import inspect
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interpreted_gluon import interpreted
from schedules import scheduled, tiles_per_split

from attn_kernels.kernels import hopper_device, hopper_prompt_copies
from attn_kernels.kernels.schedule import SPLIT_KEYS_AT, SPLITTABLE_AT, Roles

KERNEL = """

@triton.jit
def draw_kernel(found_ptr, schedule_ptr, num_kv_heads, num_splits, window, ahead, TILE_SIZE: tl.constexpr):
    num_q_blocks = tl.load(schedule_ptr + 2)
    splittable = tl.load(schedule_ptr + 5)
    longest = tl.load(schedule_ptr + 4)
    splits = (tl.load(schedule_ptr + 3), num_splits)
    tickets = (schedule_ptr, schedule_ptr + 6, num_q_blocks, splittable, longest)
    batch = (tickets, num_kv_heads, splits, ahead)
    most = count_splits(splits, window, (longest + TILE_SIZE - 1) // TILE_SIZE, TILE_SIZE)
    num_tickets = (num_q_blocks + splittable * (most - 1)) * num_kv_heads
    number = 0
    for ticket in range(num_tickets):
        block, seq = load_q_block(batch, window, ticket, most, 0, TILE_SIZE)
        if block.num_tiles > 0:
            tl.store(found_ptr + 6 * number, seq)
            tl.store(found_ptr + 6 * number + 1, block.first_token)
            tl.store(found_ptr + 6 * number + 2, block.kv_head)
            tl.store(found_ptr + 6 * number + 3, block.first_key)
            tl.store(found_ptr + 6 * number + 4, block.num_tiles)
            tl.store(found_ptr + 6 * number + 5, block.split)
            number += 1
"""


@pytest.fixture(scope="module")
def draw_kernel(tmp_path_factory):
    body = inspect.getsource(hopper_device.last_seen.fn) + "\n\n"
    source = Path(hopper_prompt_copies.__file__).read_text()
    body += source[source.index("class PromptBlock") : source.index("@gluon.jit\ndef first_key")]
    return interpreted(tmp_path_factory.mktemp("tickets"), body + KERNEL).draw_kernel


prompts = st.lists(
    st.tuples(st.sampled_from((0, 1, 2, 5, 17, 33, 70)), st.sampled_from((-99, -7, 0, 30, 700, 5000, 9000))),
    min_size=1,
    max_size=4,
).filter(lambda sizes: any(query for query, _ in sizes))


@example([(70, 30)], 1, 100, 64, 1, None, None, 1 << 29)
@example([(70, -99)], 1, 100, 64, 1, None, None, None)
@settings(max_examples=60)
@given(
    prompts,
    st.sampled_from((1, 3)),
    st.sampled_from((4, 16, 100)),
    st.sampled_from((64, 128)),
    st.sampled_from((1, 2, 7)),
    st.sampled_from((None, None, 90)),
    st.sampled_from((None, 150, 2000)),
    st.sampled_from((None, 0, 40, 1 << 29)),
)
def test_every_key_of_every_q_block_is_computed_once(
    draw_kernel, sizes, num_kv_heads, heads, tile_size, num_splits, window, split_keys, ahead
):
    """As many splits as ``splits.split_range`` says, whatever the keys of a split.

    A Q-Block that sees no key has a tile.
    """
    starts = [0, *accumulate(query for query, _ in sizes)]
    context_lens = [max(0, query + cached) for query, cached in sizes]
    roles = Roles(block_q := 128 // heads, 0, 0)
    schedule = torch.tensor(
        scheduled(starts, starts, context_lens, roles, starts[-1], num_kv_heads, ahead is None)
    ).int()
    if split_keys is not None:
        schedule[SPLIT_KEYS_AT], schedule[SPLITTABLE_AT] = split_keys, schedule[2]
    found = torch.full((1 + 16 * num_kv_heads * len(schedule), 6), -7).int()
    draw_kernel[(1,)](found, schedule, num_kv_heads, num_splits, window, ahead, TILE_SIZE=tile_size)
    keys = schedule[SPLIT_KEYS_AT].item()
    expected = []
    for seq, ((query_len, _), num_keys) in enumerate(zip(sizes, context_lens, strict=True)):
        for first in range(0, query_len, block_q):
            seen = num_keys - query_len + min(first + block_q, query_len) + (ahead or 0)
            tiles = -(-max(1, min(seen, num_keys)) // tile_size)
            each = tiles_per_split(tiles, keys, tile_size, 1 if window else num_splits)
            for split, start in enumerate(range(0, tiles, each)):
                number = -1 if each >= tiles else split
                place = (start * tile_size, min(start + each, tiles), number)
                expected += [(seq, starts[seq] + first, head, *place) for head in range(num_kv_heads)]
    drawn = [tuple(row) for row in found.tolist() if row[0] != -7]
    assert sorted(drawn) == sorted(expected)
