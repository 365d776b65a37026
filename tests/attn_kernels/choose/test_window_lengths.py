"""A layer with a window is chosen for as a batch of shorter contexts."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels import Lengths, Model, Parts
from attn_kernels.choose.choices import Choices
from attn_kernels.choose.mixed import SEPARATE, mixed_features
from attn_kernels.measure.batches import Batch, ScoreOptions

MODEL = Model(32, 8, 128, 16, torch.bfloat16)

sequences = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3000)), min_size=1, max_size=6)
windows = st.integers(1, 4000)


def lengths_of(pairs):
    """Lengths of sequences, from the query tokens and the cached tokens of each."""
    return Lengths.of([query for query, _ in pairs], [query + cached for query, cached in pairs])


@settings(max_examples=300)
@given(sequences, windows)
def test_invariants_of_the_spec_hold_in_every_window(pairs, window):
    whole = lengths_of(pairs)
    seen = whole.in_window(window)
    assert seen.num_query_tokens == whole.num_query_tokens
    assert seen.max_query_len <= min(window, seen.num_query_tokens) or seen.num_query_tokens == 0
    assert seen.max_query_len <= seen.max_seq_len <= seen.num_kv_tokens
    assert seen.num_query_tokens <= min(seen.num_kv_tokens, seen.num_seqs * seen.max_query_len)
    assert seen.num_kv_tokens <= seen.num_seqs * seen.max_seq_len
    assert seen.max_seq_len <= whole.max_seq_len
    with_queries = lengths_of([(max(1, query), cached) for query, cached in pairs])
    for hides_nothing in (with_queries.max_seq_len, 10**9):
        assert with_queries.in_window(hides_nothing) == with_queries


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_a_long_prompt_counts_as_pieces(pieces):
    prompt = Lengths.of([64 * pieces], [64 * pieces])
    seen = Lengths.of([64] * pieces, [64, *[127] * (pieces - 1)])
    assert prompt.in_window(64) == seen
    cached = Lengths.of([64 * pieces], [9000 + 64 * pieces])
    assert cached.in_window(64) == Lengths.of([64] * pieces, [127] * pieces)


@settings(max_examples=100)
@given(sequences, st.none() | windows)
def test_plans_and_tables_see_the_same_lengths(pairs, window):
    pairs = [(query + 1, cached) for query, cached in pairs]
    queries, contexts = tuple(q for q, _ in pairs), tuple(q + c for q, c in pairs)
    batch = Batch("any", "", queries, contexts, scores=ScoreOptions(window))
    seen = []
    choices = Choices(replace(MODEL, sliding_window=window), torch.device("cpu"), "nvidia_h200")
    choices.possible()  # finds the module
    choices._choose = lambda **lengths: seen.append(lengths) or SEPARATE
    choices.config(Lengths.of(queries, contexts))
    assert seen == [{name: batch.features[name] for name in Lengths._fields}]
    parts = batch.parts if window is None else Parts(*(part.in_window(window) for part in batch.parts))
    assert batch.mixed_features == mixed_features(parts, MODEL)
