"""Scenario sets of mixed_attention: what they cover, which bounds they keep, and that they stay."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.measure.roofline import work
from attn_kernels.tuning.scenarios.scenario import digest, shape_of
from attn_kernels.tuning.scenarios.serving import SETS, SHAPES, is_held_out
from attn_kernels.tuning.scenarios.steps import STEP_SETS, STEP_SHAPES

few_seeds = settings(max_examples=10, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(
    ("name", "golden"),
    [("steps", "5fd765fef2cd"), ("untuned_steps", "53fff21772e0"), ("tiny", "536177fc599f")],
)
def test_sets_stay_as_tables_know_them(name: str, golden: str) -> None:
    assert digest(STEP_SETS[name](0)) == golden


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_every_scenario_has_both_parts_within_its_bounds(seed: int) -> None:
    for name in ("steps", "untuned_steps"):
        for scenario in STEP_SETS[name](seed):
            batch = scenario.batch
            decodes, prompts = batch.parts
            assert 1 <= decodes.num_seqs <= 256 and decodes.max_query_len == 1
            assert min(batch.context_lens[: decodes.num_seqs]) >= 64 and decodes.max_seq_len <= 65536
            queries, contexts = (lens[decodes.num_seqs :] for lens in (batch.query_lens, batch.context_lens))
            if scenario.id.split("-")[1] == "chunks":
                assert 1 <= prompts.num_seqs <= 4 and min(queries) >= 256 and prompts.max_query_len <= 4096
            else:
                assert 2 <= prompts.num_seqs <= 16 and min(queries) >= 64 and queries == contexts
            assert prompts.max_seq_len <= 65536 and batch.num_query_tokens <= 8192
            assert batch.kv_bytes <= 4 << 30 and work(batch).flops <= 4e12
            assert is_held_out(batch) == (name == "untuned_steps")


@pytest.mark.parametrize("seed", range(3))
def test_steps_cover_shapes_and_kinds_by_their_shares(seed: int) -> None:
    scenarios = STEP_SETS["steps"](seed)
    shapes = Counter(shape_of(scenario.batch) for scenario in scenarios)
    assert shapes == {shape: 30 * weight for shape, weight in STEP_SHAPES.items()}
    assert set(shapes) <= set(SHAPES)
    kinds = Counter(scenario.id.split("-")[1] for scenario in scenarios)
    assert abs(kinds["prompts"] - 80) <= 1 and kinds.total() == 240
    chunks = [scenario.batch for scenario in scenarios if "-chunks-" in scenario.id]
    cached = [
        q < c for batch in chunks for q, c in zip(batch.query_lens, batch.context_lens, strict=True) if q > 1
    ]
    assert 0.35 < sum(cached) / len(cached) < 0.65
    decodes = [scenario.batch.parts.decodes for scenario in scenarios]
    assert min(part.num_seqs for part in decodes) < 8 and max(part.num_seqs for part in decodes) > 128
    assert (
        min(part.max_seq_len for part in decodes) < 1024 and max(part.max_seq_len for part in decodes) > 32768
    )
    untuned = STEP_SETS["untuned_steps"](seed)
    assert Counter(shape_of(s.batch) for s in untuned) == {s: 6 * weight for s, weight in STEP_SHAPES.items()}


def test_ids_and_batches_are_distinct_also_from_those_of_whole_batches() -> None:
    scenarios = [s for sets in (SETS, STEP_SETS) for draw in sets.values() for s in draw(0)]
    assert len({scenario.id for scenario in scenarios}) == len(scenarios)
    for draw in STEP_SETS.values():
        batches = {(s.batch.query_lens, s.batch.context_lens, shape_of(s.batch)) for s in draw(0)}
        assert len(batches) == len(draw(0))


def test_tiny_is_small_and_has_both_parts() -> None:
    for scenario in STEP_SETS["tiny"](5):
        assert scenario.batch.num_kv_tokens <= 80
        assert all(part.num_query_tokens for part in scenario.batch.parts)
