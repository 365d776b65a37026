"""The schedule of the Hopper kernel, in the interpreter, against brute force."""

from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.core.structures import OfPlan
from attn_kernels.kernels.schedule import CHUNK, Q_BLOCKS, Roles, bind_schedule

UNTOUCHED = -7
COUNTERS = [5, 9]  # zeros in use; other numbers show that nothing writes them
ROLES = Roles(prompt_block_q=18, decode_block_q=4, decode_tile=64)


def expected_q_blocks(cu_prompts, context_lens, block_q):
    """Sequence and first query of every Q-Block, the longest first, and equals by their numbers."""
    found = []
    for seq, context_len in enumerate(context_lens):
        start, stop = cu_prompts[seq : seq + 2]
        for first in range(0, stop - start, block_q):
            cost = max(1, context_len - (stop - start) + min(first + block_q, stop - start))
            number = (start - cu_prompts[0]) // block_q + seq + first // block_q
            found.append((-cost, number, [seq, first]))
    return [entry for _, _, entry in sorted(found)]


def expected_tiles(cu_decodes, context_lens, roles):
    tiles = [
        max(1, -(-context_len // roles.decode_tile))
        * -(-(cu_decodes[seq + 1] - cu_decodes[seq]) // roles.decode_block_q)
        for seq, context_len in enumerate(context_lens)
    ]
    return [0, *accumulate(tiles)]


def scheduled(cu_prompts, cu_decodes, context_lens, roles, num_query_tokens):
    """What the kernel writes, and two elements behind it."""
    plan = SimpleNamespace(
        num_seqs=len(context_lens),
        num_query_tokens=num_query_tokens,
        seqused_k=torch.tensor(context_lens, dtype=torch.int32),
    )
    schedule = torch.full((roles.length(num_query_tokens, plan.num_seqs) + 2,), UNTOUCHED).int()
    schedule[:2] = torch.tensor(COUNTERS)
    tensors = (schedule, *(torch.tensor(starts, dtype=torch.int32) for starts in (cu_prompts, cu_decodes)))
    launch = bind_schedule(roles, *(OfPlan(lambda plan, tensor=tensor: tensor) for tensor in tensors))
    arguments = [one.value(plan) if isinstance(one, OfPlan) else one for one in launch.arguments]
    launch.kernel[launch.grid(plan)](*arguments)
    return schedule.tolist()


def check(query_lens, context_lens, num_decodes, roles, spare_tokens=0):
    """The schedule of a batch whose leading sequences are decodes; ``spare_tokens``: of a graph's maxima."""
    starts = [0, *accumulate(query_lens)]
    places = range(len(starts))
    cu_decodes = [starts[min(place, num_decodes)] for place in places]
    cu_prompts = [starts[max(place, num_decodes)] for place in places]
    num_query_tokens = starts[-1] + spare_tokens
    found = scheduled(cu_prompts, cu_decodes, context_lens, roles, num_query_tokens)
    tiles_at = roles.tiles_at(num_query_tokens, len(context_lens))
    expected = [*COUNTERS, *[UNTOUCHED] * (len(found) - len(COUNTERS))]
    if roles.prompt_block_q:
        q_blocks = expected_q_blocks(cu_prompts, context_lens, roles.prompt_block_q)
        expected[2] = len(q_blocks)
        expected[Q_BLOCKS : Q_BLOCKS + 2 * len(q_blocks)] = [value for entry in q_blocks for value in entry]
        assert Q_BLOCKS + 2 * len(q_blocks) <= tiles_at
    if roles.decode_tile:
        expected[tiles_at:-2] = expected_tiles(cu_decodes, context_lens, roles)
    assert found == expected, "nothing else is written"


lens = st.lists(
    st.tuples(st.sampled_from((0, 0, 1, 1, 2, 5, 30, 77, 200)), st.sampled_from((0, 0, 1, 50, 300))),
    min_size=1,
    max_size=12,
)
roles = st.builds(
    Roles, st.sampled_from((0, 1, 18, 32, 128)), st.sampled_from((1, 4, 16)), st.sampled_from((0, 64, 128))
)


@given(lens, st.integers(0, 12), roles, st.sampled_from((0, 1, 100)))
@settings(max_examples=60, deadline=None)
def test_schedules_are_those_of_brute_force(lens, num_decodes, roles, spare_tokens):
    query_lens = [query for query, _ in lens]
    context_lens = [query + past for query, past in lens]
    check(query_lens, context_lens, min(num_decodes, len(lens)), roles, spare_tokens)


@pytest.mark.parametrize("num_decodes", [0, 255, 256, 257, 300, 600])
def test_more_sequences_than_the_kernel_counts_at_a_time(num_decodes):
    query_lens = [1 + i % 3 * (i % 7) for i in range(600)]
    check(query_lens, [length + i * 37 % 500 for i, length in enumerate(query_lens)], num_decodes, ROLES)


def test_a_query_without_keys_has_a_q_block():
    """As a rank of context parallelism has none of a short sequence."""
    check([1, 0, 1, 1, 1], [0, 0, 5, 1, 0], 0, ROLES)


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_more_q_blocks_than_one_program_ranks(count):
    """One long prompt between others, whose Q-Blocks go to several programs."""
    query_lens = [1, 3, 18 * count, 40, 0, 18 * count - 7]
    check(query_lens, [length + 100 for length in query_lens], 2, ROLES)
