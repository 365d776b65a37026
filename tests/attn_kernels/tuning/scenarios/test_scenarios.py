"""Named scenario sets: what they cover, which bounds they keep, and that they stay as they were."""

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels.measure.batches import Batch, HeadLayout, ScoreOptions
from attn_kernels.measure.roofline import work
from attn_kernels.tuning.scenarios.scenario import (
    FEATURES,
    KINDS,
    Scenario,
    Shape,
    digest,
    kind_of,
    scenario_of,
    shape_of,
)
from attn_kernels.tuning.scenarios.serving import (
    DENSITY,
    FEW_CONTEXTS,
    FEW_DECODES,
    FEW_DECODES_SHAPES,
    JUDGING_SHAPES,
    ONE_KV_HEAD_SHAPES,
    OPTION_SHAPES,
    SETS,
    SHAPES,
    SHARES,
    Range,
    affordable,
    apportioned,
    common,
    few_decodes,
    is_held_out,
    one_kv_head,
    options,
)

NAMES = list(SETS)
few_seeds = settings(max_examples=10, deadline=None, derandomize=True, database=None)
MIB = 1 << 20


def lengths(batch: Batch) -> list[tuple[int, int]]:
    return list(zip(batch.query_lens, batch.context_lens, strict=True))


def test_features_are_those_of_a_batch() -> None:
    assert FEATURES[0] == "num_seqs" and FEATURES[-1] == "kv_element_size" and len(FEATURES) == 10
    assert all(tuple(scenario.batch.features) == FEATURES for scenario in SETS["tiny"](0))


@pytest.mark.parametrize("wrong", ["", "a b", "a,b", "-a", "a\n", "ä", "a" * 129])
def test_ids_that_tables_refuse_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="scenario id"):
        Scenario(wrong, Batch("", "decode", (1,), (1,)))


@pytest.mark.parametrize(
    ("queries", "contexts", "kind"),
    [
        ((1, 1), (1, 900), "decode"),
        ((1, 0), (9, 0), "decode"),
        ((5, 700), (5, 700), "prefill"),
        ((0, 700), (8, 700), "prefill"),
        ((2, 8), (5, 8), "spec"),
        ((1, 3), (9, 9), "spec"),
        ((9,), (10,), "chunk"),
        ((512, 64), (900, 64), "chunk"),
        ((1, 9), (5, 9), "mixed"),
        ((4, 300), (50, 600), "mixed"),
    ],
)
def test_kind_follows_from_lengths(queries: tuple[int, ...], contexts: tuple[int, ...], kind: str) -> None:
    assert kind_of(queries, contexts) == kind
    assert scenario_of("a", queries, contexts, Shape(HeadLayout(2, 1))).batch.kind == kind


@pytest.mark.parametrize(("queries", "contexts"), [((), ()), ((0,), (3,)), ((2,), (1,)), ((1,), (1, 1))])
def test_impossible_lengths_are_refused(queries: tuple[int, ...], contexts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        scenario_of("a", queries, contexts, Shape(HeadLayout(2, 1)))


def test_shapes_of_equal_kernels_are_equal() -> None:
    batch = Batch("", "decode", (1,), (1,), cache_dtype=torch.bfloat16)
    assert shape_of(batch) == shape_of(dataclasses.replace(batch, cache_dtype=None)) == Shape(batch.layout)
    assert len(set(map(str, SHAPES))) == len(SHAPES)
    assert str(Shape(HeadLayout(4, 2, 32), 64, torch.float16)) == "h4.2.32-p64-float16"
    local = Shape(HeadLayout(4, 2, 32), scores=ScoreOptions(window=128, softcap=50.0, sinks=True))
    assert str(local) == "h4.2.32-p16-window128-softcap50-sinks"
    assert shape_of(scenario_of("a", (1,), (200,), local).batch) == local


def test_digest_sees_every_change_but_order() -> None:
    scenarios = SETS["tiny"](0)
    first, *rest = scenarios
    batch = first.batch
    changed = [
        dataclasses.replace(first, id="other"),
        *(
            dataclasses.replace(first, batch=dataclasses.replace(batch, **change))
            for change in (
                {"query_lens": (2, 1, 1)},
                {"context_lens": (41, 7, 33)},
                {"layout": HeadLayout(4, 4, 32)},
                {"block_size": 32},
                {"dtype": torch.float16},
                {"cache_dtype": torch.float8_e4m3fn},
                {"scores": ScoreOptions(window=8)},
            )
        ),
    ]
    digests = [digest(scenarios), digest(rest), *(digest([other, *rest]) for other in changed)]
    assert len(set(digests)) == len(digests)
    assert all(len(text) == 12 and int(text, 16) >= 0 for text in digests)
    assert digest(scenarios[::-1]) == digest(scenarios)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("serving", "52f74dd5d4f8"),
        ("untuned", "7fd10fc197b4"),
        ("untuned_options", "2a1c18a0b46a"),
        ("other_heads", "1bc9cb10e144"),
        ("quick", "51c0fbabc23b"),
        ("tiny", "6723f8ba7c1e"),
    ],
)
def test_sets_stay_as_tables_know_them(name: str, golden: str) -> None:
    assert digest(SETS[name](0)) == golden


@pytest.mark.parametrize("name", NAMES)
def test_global_randomness_plays_no_part(name: str) -> None:
    random.seed(1)
    first = SETS[name](3)
    random.seed(2)
    assert SETS[name](3) == first


@given(seed=st.integers(-5, 10**6))
@few_seeds
def test_seeds_draw_other_batches_but_for_tiny(seed: int) -> None:
    for name in NAMES:
        one, other = ({tuple(lengths(s.batch)) for s in SETS[name](n)} for n in (seed, seed + 1))
        assert (one == other) == (name == "tiny")
        assert name == "tiny" or len(one & other) < len(one) / 10


@given(seed=st.integers(-5, 10**6))
@few_seeds
def test_ids_and_batches_are_distinct(seed: int) -> None:
    sets = [SETS[name](seed) for name in NAMES]
    every = [scenario for scenarios in sets for scenario in scenarios]
    assert len({scenario.id for scenario in every}) == len(every)
    for scenarios in sets:
        batches = {(s.batch.query_lens, s.batch.context_lens, shape_of(s.batch)) for s in scenarios}
        assert len(batches) == len(scenarios)
        assert all(scenario.id == scenario.batch.name for scenario in scenarios)


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_untuned_batches_are_in_no_other_set_at_any_seed(seed: int) -> None:
    """The sets are message apart by a batch's lengths alone, so that two seeds need not be compared."""
    for name in ("serving", "quick", "untuned", "untuned_options"):
        assert {is_held_out(scenario.batch) for scenario in SETS[name](seed)} == {name.startswith("untuned")}
    tiny = {tuple(lengths(scenario.batch)) for scenario in SETS["tiny"](seed)}
    assert not any(tuple(lengths(scenario.batch)) in tiny for scenario in SETS["untuned"](seed))


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_bounds_are_kept(seed: int) -> None:
    for scenario in (*SETS["serving"](seed), *SETS["untuned"](seed), *SETS["quick"](seed)):
        batch = scenario.batch
        assert batch.kv_bytes <= 4 << 30 and work(batch).flops <= 4e12 and batch.num_query_tokens <= 16384
        assert batch.max_seq_len <= 65536 and batch.num_seqs <= 256
        assert batch.kind == scenario.id.split("-")[1].removesuffix("_even").removesuffix("_few")
        if "part" in scenario.id.split("-"):
            check_part(batch)
        else:
            check_kind(batch)


def check_part(batch: Batch) -> None:
    """What docs/scenarios.md says of a mixed batch holds for each of its parts."""
    if batch.kind == "decode":
        assert set(batch.query_lens) == {1} and min(batch.context_lens) >= 64
    else:
        assert batch.num_seqs <= 16 and min(batch.query_lens) >= 16 and batch.num_query_tokens <= 8192


def check_kind(batch: Batch) -> None:
    """What docs/scenarios.md says of the kinds."""
    pairs = lengths(batch)
    if batch.kind == "decode":
        assert min(batch.context_lens) >= 64
    elif batch.kind == "prefill":
        assert batch.num_seqs <= 16 and min(batch.query_lens) >= 64 and batch.max_query_len <= 16384
    elif batch.kind == "chunk":
        assert batch.num_seqs <= 8 and min(batch.query_lens) >= 256 and batch.max_query_len <= 4096
        assert all(context - query >= 256 for query, context in pairs)
    elif batch.kind == "spec":
        assert min(batch.query_lens) >= 2 and batch.max_query_len <= 8 and batch.num_seqs <= 128
    else:
        decodes = batch.query_lens.count(1)
        assert 0.5 <= decodes / batch.num_seqs <= 0.98
        assert set(batch.query_lens[:decodes]) == {1} and min(batch.query_lens[decodes:]) >= 16
        assert batch.num_query_tokens <= 8192


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_serving_covers_every_kind_in_every_shape(seed: int) -> None:
    scenarios = common(seed)
    shapes = Counter(shape_of(scenario.batch) for scenario in scenarios)
    assert shapes == {shape: DENSITY * weight for shape, weight in SHAPES.items()}
    assert len(scenarios) == 1080 and min(shapes.values()) >= 60
    cells = Counter((shape_of(scenario.batch), scenario.batch.kind) for scenario in scenarios)
    assert min(cells[shape, kind] for shape in SHAPES for kind in KINDS) >= 3
    kinds = Counter(drawn_kind(scenario) for scenario in scenarios)
    expected = {"decode": 486, "decode part": 81, "prompt part": 81}
    expected |= {"mixed": 54, "prefill": 162, "chunk": 130, "spec": 86}
    assert all(abs(kinds[kind] - count) <= 1 for kind, count in expected.items())


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_options_cover_head_sizes_fp8_caches_and_windows(seed: int) -> None:
    scenarios = options(seed)
    assert SETS["serving"](seed) == (*common(seed), *scenarios, *one_kv_head(seed), *few_decodes(seed))
    shapes = Counter(shape_of(scenario.batch) for scenario in scenarios)
    assert shapes == OPTION_SHAPES and not OPTION_SHAPES.keys() & SHAPES.keys()
    assert len(scenarios) == 236
    plain = {shape.layout.head_size for shape in shapes if shape.cache_dtype is None}
    assert {80, 96, 112, 160, 192} <= plain
    fp8 = {shape.layout.head_size for shape in {**SHAPES, **shapes} if shape.cache_dtype}
    assert fp8 == {64, 96, 128, 192, 256}
    kinds = Counter((shape_of(s.batch), s.batch.max_query_len > 1) for s in scenarios)
    assert min(kinds[shape, prompts] for shape in shapes for prompts in (False, True)) >= 4
    windows = [s.batch for s in (*scenarios, *SETS["untuned_options"](seed)) if s.batch.scores.window]
    assert all(batch.max_seq_len > batch.scores.window for batch in windows)


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_one_kv_head_adds_decodes_and_drafts(seed: int) -> None:
    scenarios = one_kv_head(seed)
    assert Counter(shape_of(scenario.batch) for scenario in scenarios) == ONE_KV_HEAD_SHAPES
    assert {scenario.batch.layout.num_kv_heads for scenario in scenarios} == {1}
    kinds = Counter(scenario.batch.kind for scenario in scenarios)
    assert kinds["decode"] > 3 * kinds["spec"] > 0 == kinds["prefill"] + kinds["chunk"] + kinds["mixed"]


@given(seed=st.integers(0, 10**6))
@few_seeds
def test_few_decodes_are_decodes_of_few_sequences_and_middle_contexts(seed: int) -> None:
    batches = [scenario.batch for scenario in few_decodes(seed)]
    assert Counter(map(shape_of, batches)) == FEW_DECODES_SHAPES
    assert {batch.kind for batch in batches} == {"decode"}
    assert all(1 <= batch.num_seqs <= FEW_DECODES.high for batch in batches)
    assert all(FEW_CONTEXTS.low <= batch.max_seq_len <= FEW_CONTEXTS.high for batch in batches)
    even = sum(len(set(batch.context_lens)) == 1 for batch in batches)
    assert abs(even - len(batches) / 2) <= 2  # a batch of one or two sequences may be even by chance


def drawn_kind(scenario: Scenario) -> str:
    """The kind as docs/scenarios.md lists it."""
    kind = scenario.batch.kind
    if "part" in scenario.id.split("-"):
        return "decode part" if kind == "decode" else "prompt part"
    return kind


@pytest.mark.parametrize("seed", range(4))
def test_serving_spans_its_ranges(seed: int) -> None:
    scenarios = [scenario.batch for scenario in SETS["serving"](seed)]
    decodes = [batch for batch in scenarios if batch.kind == "decode"]
    uneven = [batch for batch in decodes if len(set(batch.context_lens)) > 1]
    assert 0.6 < len(uneven) / len(decodes) < 0.75
    assert sum(batch.kv_bytes < MIB for batch in decodes) in range(1, len(decodes) // 6)
    assert min(batch.num_seqs for batch in decodes) == 1 and max(batch.num_seqs for batch in decodes) > 180
    longest = [batch.max_seq_len for batch in decodes]
    assert min(longest) < 128 and max(longest) > 32768
    mixed = [batch for batch in scenarios if batch.kind == "mixed"]
    assert any(all(q == c for q, c in lengths(batch) if q > 1) for batch in mixed)
    assert any(all(q < c for q, c in lengths(batch) if q > 1) for batch in mixed)
    assert sum(batch.num_query_tokens in (512, 1024, 2048, 4096, 8192) for batch in mixed) > len(mixed) / 4
    specs = [batch for batch in scenarios if batch.kind == "spec" and batch.num_seqs > 2]
    assert {len(set(batch.query_lens)) == 1 for batch in specs} == {True, False}


def test_untuned_quick_and_tiny_cover_what_they_say() -> None:
    untuned, quick, tiny = (SETS[name](0) for name in ("untuned", "quick", "tiny"))
    assert (len(untuned), len(quick), len(tiny)) == (48, 24, 8)
    shapes = Counter(shape_of(scenario.batch) for scenario in untuned)
    assert set(shapes) == set(SHAPES) and min(shapes.values()) >= 3
    assert all({scenario.batch.kind for scenario in some} == set(KINDS) for some in (untuned, quick, tiny))
    of_options = SETS["untuned_options"](0)
    assert len(of_options) == 48
    assert {shape_of(s.batch) for s in of_options} == {*OPTION_SHAPES, *JUDGING_SHAPES}
    assert Counter(shape_of(s.batch) for s in SETS["other_heads"](0)) == JUDGING_SHAPES
    assert len({shape_of(scenario.batch) for scenario in quick}) == 2
    assert all(scenario.batch.num_kv_tokens <= 80 for scenario in tiny)
    assert {scenario.batch.block_size for scenario in tiny} == {16}


@given(
    count=st.integers(1, 400),
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=11),
)
@few_seeds
def test_apportioning_gives_each_shape_and_kind_its_share(count: int, weights: list[int]) -> None:
    given_weights = dict(zip(SHAPES, weights, strict=False))
    cells = apportioned(count, given_weights, SHARES)
    assert cells.total() == count

    def near(counts: dict[object, int], shares: Sequence[tuple[object, float]]) -> bool:
        return all(abs(counts.get(key, 0) - share * count) < 2 for key, share in shares)

    shapes: Counter[object] = Counter()
    kinds: Counter[object] = Counter()
    for (shape, kind), cell in cells.items():
        shapes[shape] += cell
        kinds[kind] += cell
    total = sum(given_weights.values())
    assert near(shapes, [(shape, weight / total) for shape, weight in given_weights.items()])
    assert near(kinds, list(SHARES.items()))


def test_ranges_reach_both_ends_log_uniformly() -> None:
    contexts = Range(64, 65536)
    assert (contexts.at(0), contexts.at(0.5), contexts.at(1), contexts.at(1 - 2**-53)) == (
        64,
        2048,
        65536,
        65536,
    )
    assert Range(5, 5).at(0.3) == 5


def test_bounds_refuse_one_too_many() -> None:
    multi_head = Shape(HeadLayout(32, 32, 128))  # 16 KiB a token

    def fits(queries: list[int], contexts: list[int], shape: Shape = multi_head) -> bool:
        return affordable(scenario_of("a", queries, contexts, shape).batch)

    assert fits([1] * 4, [65536] * 4) and not fits([1] * 4, [65536] * 3 + [65537])
    small = Shape(HeadLayout(1, 1, 16))
    assert fits([16384], [16384], small) and not fits([16385], [16385], small)
    assert fits([16384], [16384]) and not fits([16384], [32768])
