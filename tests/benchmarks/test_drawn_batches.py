"""The drawn sets: sizes that a GPU holds, lengths within their limits, and the same lengths at every call."""

from collections import Counter

from attn_kernels.measure.batches import HeadLayout
from benchmarks.attention.batch_sets import select
from benchmarks.attention.drawn_batches import K, step, step_of_prompts

GIB = 1 << 30


def test_steps_cover_the_sizes_that_their_docstring_states() -> None:
    batches = select("steps")
    assert Counter(str(batch.layout) for batch in batches) == {
        "32/8/128": 13,
        "28/4/128": 6,
        "64/8/128": 5,
        "8/1/128": 5,
    }
    others = batches[7:]
    decodes = [batch.query_lens.count(1) for batch in others]
    chunks = {batch.query_lens[-1] for batch in others}
    assert (min(decodes), max(decodes)) == (4, 256)
    assert (min(chunks), max(chunks)) == (256, 4 * K)
    assert all(batch.kv_bytes <= 4 * GIB for batch in batches)
    assert all(len(batch.name) <= 23 for batch in batches)  # the width of a table's column


def test_decodes_come_first_and_lengths_stay_within_an_eighth_and_the_longest() -> None:
    batch = step(100, 8 * K, 512, 2 * K)
    assert batch.query_lens == (1,) * 100 + (512,)
    assert batch.context_lens[-1] == 2 * K
    drawn = batch.context_lens[:-1]
    assert K <= min(drawn) < 2 * K and 6 * K < max(drawn) <= 8 * K
    assert step(100, 8 * K, 512, 2 * K, HeadLayout(8, 1)).context_lens != batch.context_lens

    whole = step_of_prompts(3, 2, K)
    assert whole.query_lens[:3] == (1, 1, 1)
    assert whole.query_lens[3:] == whole.context_lens[3:]


def test_lengths_of_prompts_are_uneven_or_even_as_the_name_says() -> None:
    by_kind = Counter((batch.name.split()[0], len(set(batch.query_lens)) > 1) for batch in select("uneven"))
    assert by_kind == {("prompts", True): 4, ("prefill", False): 4}
