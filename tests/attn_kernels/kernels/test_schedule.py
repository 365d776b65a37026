"""The schedule of the Hopper kernel, in the interpreter, against brute force."""

import heapq
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from schedules import COUNTERS, MULTIPROCESSORS, UNTOUCHED, scheduled, tiles_per_split

from attn_kernels.kernels.schedule import CHUNK, Q_BLOCKS, SPLIT_COST, SPLIT_KEYS_AT, SPLITTABLE_AT, Roles

UNSPLIT = 1 << 30
ROLES = Roles(prompt_block_q=18, decode_block_q=4, decode_tile=64)


def expected_q_blocks(cu_prompts, context_lens, block_q, causal=True):
    """The fields of every Q-Block and its cost, the longest first; of about one length, the last first."""
    found = []
    for seq, context_len in enumerate(context_lens):
        start, stop = cu_prompts[seq : seq + 2]
        for first in range(0, stop - start, block_q):
            num_queries = min(block_q, stop - start - first)
            first_limit = context_len - (stop - start) + first
            cost = max(1, first_limit + num_queries if causal else context_len)
            number = (start - cu_prompts[0]) // block_q + seq + first // block_q
            octave = cost.bit_length() - 1
            grade = (octave, 4 * cost >> octave)
            found.append((grade, number, [seq, start + first, num_queries, first_limit, context_len], cost))
    return [(entry, cost) for *_, entry, cost in sorted(found, reverse=True)]


def expected_tiles(cu_decodes, context_lens, roles):
    tiles = [
        max(1, -(-context_len // roles.decode_tile))
        * -(-(cu_decodes[seq + 1] - cu_decodes[seq]) // roles.decode_block_q)
        for seq, context_len in enumerate(context_lens)
    ]
    return [0, *accumulate(tiles)]


def count_splits(cost, split_keys, tile_size):
    tiles = -(-cost // tile_size)
    return -(-tiles // tiles_per_split(tiles, split_keys, tile_size, tiles))


def check(query_lens, context_lens, num_decodes, roles, spare_tokens=0, causal=True):
    """The schedule of a batch whose leading sequences are decodes; ``spare_tokens``: of a graph's maxima."""
    starts = [0, *accumulate(query_lens)]
    places = range(len(starts))
    cu_decodes = [starts[min(place, num_decodes)] for place in places]
    cu_prompts = [starts[max(place, num_decodes)] for place in places]
    num_query_tokens = starts[-1] + spare_tokens
    found = scheduled(cu_prompts, cu_decodes, context_lens, roles, num_query_tokens, causal=causal)
    tiles_at = roles.tiles_at(num_query_tokens, len(context_lens))
    expected = [*COUNTERS, *[UNTOUCHED] * (len(found) - len(COUNTERS))]
    if roles.prompt_block_q:
        q_blocks = expected_q_blocks(cu_prompts, context_lens, roles.prompt_block_q, causal)
        longest = max((cost for _, cost in q_blocks), default=0)
        assert 1 <= found[SPLIT_KEYS_AT] <= max(1, longest) or found[SPLIT_KEYS_AT] == UNSPLIT
        keys, splittable = found[SPLIT_KEYS_AT], found[SPLITTABLE_AT]
        expected[2:Q_BLOCKS] = [len(q_blocks), keys, longest, splittable]
        assert all(cost > 0.8 * (keys - 128) for _, cost in q_blocks[:splittable])
        for tile_size in (64, 128):
            assert all(count_splits(cost, keys, tile_size) == 1 for _, cost in q_blocks[splittable:])
        fields = [number for entry, _ in q_blocks for number in entry]
        expected[Q_BLOCKS : Q_BLOCKS + len(fields)] = fields
        assert Q_BLOCKS + len(fields) <= tiles_at
    if roles.decode_tile:
        expected[tiles_at:-2] = expected_tiles(cu_decodes, context_lens, roles)
    assert found == expected, "nothing else is written"


lens = st.lists(
    st.tuples(st.sampled_from((0, 0, 1, 1, 2, 5, 30, 77, 200)), st.sampled_from((-50, 0, 0, 1, 50, 300))),
    min_size=1,
    max_size=12,
)
roles = st.builds(
    Roles, st.sampled_from((0, 1, 18, 32, 128)), st.sampled_from((1, 4, 16)), st.sampled_from((0, 64, 128))
)


@example([(1, 0), (0, 0), (1, 4), (1, 0), (1, -1)], 0, ROLES, 0, True)  # a query without keys has a Q-Block
@given(lens, st.integers(0, 12), roles, st.sampled_from((0, 1, 100)), st.booleans())
@settings(max_examples=60)
def test_schedules_are_those_of_brute_force(lens, num_decodes, roles, spare_tokens, causal):
    query_lens = [query for query, _ in lens]
    context_lens = [max(0, query + past) for query, past in lens]
    check(query_lens, context_lens, min(num_decodes, len(lens)), roles, spare_tokens, causal)


def test_more_than_a_program_counts_or_ranks_at_a_time():
    """Many sequences, and one long prompt between others, whose Q-Blocks go to several programs."""
    for num_decodes in (0, 300, 600):
        query_lens = [1 + i % 3 * (i % 7) for i in range(600)]
        context_lens = [length + i * 37 % 500 for i, length in enumerate(query_lens)]
        check(query_lens, context_lens, num_decodes, ROLES)
    for count in (CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5):
        query_lens = [1, 3, 18 * count, 40, 0, 18 * count - 7]
        check(query_lens, [length + 100 for length in query_lens], 2, ROLES)


def time_of(costs, keys):
    """How long 132 multiprocessors take, the longest Q-Blocks first; in keys."""
    splits = [-(-cost // keys) for cost in costs]
    ends = [0.0] * MULTIPROCESSORS
    for number in range(max(splits)):
        for cost, count in zip(costs, splits, strict=True):
            if number < count:
                heapq.heapreplace(ends, ends[0] + cost / count + SPLIT_COST)
    return max(ends)


prompts = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from((0, 500, 3000, 9000, 40_000, 120_000))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(prompts, st.sampled_from((1, 2, 4, 8)))
def test_prompts_are_split_where_it_pays(sizes, num_kv_heads):
    """Sizes: the Q-Blocks of each prompt, and the keys before it."""
    query_lens = [16 * blocks for blocks, _ in sizes]
    context_lens = [16 * blocks + cached for blocks, cached in sizes]
    starts = [0, *accumulate(query_lens)]
    roles = Roles(prompt_block_q=16, decode_block_q=0, decode_tile=0)
    keys = scheduled(starts, starts, context_lens, roles, starts[-1], num_kv_heads)[SPLIT_KEYS_AT]
    entries = expected_q_blocks(starts, context_lens, 16)
    costs = [cost for _, cost in entries for _ in range(num_kv_heads)]
    whole = time_of(costs, max(costs))
    if keys < max(costs):
        assert time_of(costs, keys) <= whole
    else:
        best = min(time_of(costs, -(-max(costs) // count)) for count in range(2, 17))
        assert best >= 0.7 * whole, "it would have paid"


@pytest.mark.parametrize("blocks, num_kv_heads, splits", [(32, 1, 4), (8, 8, 2), (32, 4, 1), (61, 4, 1)])
def test_equal_prompts_fill_one_wave(blocks, num_kv_heads, splits):
    """On 132 multiprocessors; 244 of 264 programs are full waves as well."""
    starts = [0, 16 * blocks]
    roles = Roles(prompt_block_q=16, decode_block_q=0, decode_tile=0)
    context = 32768
    keys = scheduled(starts, starts, [context], roles, starts[-1], num_kv_heads)[SPLIT_KEYS_AT]
    assert round(context / min(keys, context)) == splits
