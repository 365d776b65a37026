"""Rules that know the batch, and vLLM's fixed choice for it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels import Config
from attn_kernels.measure.batches import (
    Batch,
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
)
from attn_kernels.tuning.scenarios.scenario import shape_of
from attn_kernels.tuning.space import rules
from attn_kernels.tuning.space.space import Gpu, baselines, declared, reason_against, space_at

H100 = Gpu("sm_90", "nvidia", 232448, 132)
A100 = Gpu("sm_80", "nvidia", 166912, 108)
MI300X = Gpu("gfx942", "amd", 65536, 304)
CPU = Gpu("cpu", "cpu", 0, 3)
FP8 = torch.float8_e4m3fn
LAYOUTS = ["32/8/128", "8/1/128", "28/4/128", "32/32/128", "16/8/256", "32/1/128", "64/1/128", "128/1/128"]


@pytest.mark.parametrize("name, batch, reason", [
    ("naive_M1_T64_W4_S2", prefill(1, 1024), None),
    ("naive_M1_T64_W4_S2", prefill(4, 2048), rules.MULTIPLY_ADDS),
    ("segmented_M64_T64_N8_W4_S3", prefill(1, 8192), rules.PARTIALS),
    ("segmented_M64_T64_N4_W4_S3", prefill(1, 512), None),
    ("segmented_M64_T64_N4_W4_S3", prefill(4, 2048), rules.FILLED),
    ("segmented_M16_T64_N8_W4_S3", decode(128, 4096), None),  # 7.8 waves
    ("segmented_M16_T64_N8_W4_S3", decode(136, 4096), rules.FILLED),
    ("static_grid_M16_T64_N8_W4_S3_P2", decode(136, 4096), rules.FILLED),
    ("static_grid_M16_T64_W4_S3_P2", decode(136, 4096), None),
    ("qblock_M16_T64_W4_S3", decode(136, 4096), None),
    ("segmented_M16_T64_N16_W4_S3", decode(1, 512), None),
    ("segmented_M16_T64_N32_W4_S3", decode(1, 512), rules.SEGMENTS),
    ("qblock_M128_T64_W8_S3", decode(4, 4096), rules.EMPTY_TILES),
    ("qblock_M64_T64_W4_S3", decode(4, 4096), None),
    ("qblock_M128_T64_W8_S3", speculative(4, 8, 4096), None),
    ("qblock_M128_T64_W8_S3", mixed(8, 0.9, 4096, 512), None),
    ("prefix_prefill_M128_T64_W8_S3", decode(4, 4096), rules.EMPTY_TILES),
    ("split_M128_T64_W8_S3", decode(4, 4096), None),  # its decode kernel has tiles of its own
    ("split_M128_T64_W8_S3", speculative(4, 2, 4096), rules.EMPTY_TILES),
    ("qblock_M16_T64_W4_S3", prefill(4, 2048), rules.SMALL_TILES),
    ("qblock_M16_T32_W4_S3", prefill(4, 2048), None),  # vLLM's fixed choice
    ("qblock_M32_T64_W4_S3", prefill(4, 2048), None),
    ("qblock_M16_T64_W4_S3", chunked_prefill(1, 512, 8192), None),
    ("qblock_M16_T64_W4_S3", mixed(64, 0.5, 4096, 2048), None),  # small tiles may suit the decodes
])  # fmt: skip
def test_rules_of_a_scenario(name, batch, reason):
    assert reason_against(Config.parse(name), batch, H100) == reason


def test_one_long_sequence_beside_many_short_ones_keeps_segments():
    many = decode(400, 256)
    tail = Batch("tail", "decode", (1,) * 401, (*many.context_lens, 131072))
    config = Config.parse("segmented_M16_T64_N8_W4_S3")
    assert reason_against(config, many, H100) == rules.FILLED
    assert reason_against(config, tail, H100) is None


def test_reasons_can_be_counted():
    reasons = [value for name, value in vars(rules).items() if name.isupper() and isinstance(value, str)]
    assert len(reasons) == len(set(reasons)) == 13
    assert not [reason for reason in reasons if any(letter.isdigit() for letter in reason)]


@pytest.mark.parametrize("batch, layout, cache_dtype, expected", [
    (decode(16, 4096), "32/8/128", None, "segmented_M16_T16_N16_W4_S3"),  # 128 // 8 = 16
    (decode(17, 4096), "32/8/128", None, "qblock_M16_T32_W4_S3"),
    (decode(16, 4096), "32/8/128", FP8, "segmented_M16_T32_N16_W4_S3"),
    (decode(17, 4096), "32/8/128", FP8, "qblock_M16_T32_W4_S3"),
    (decode(4, 4096), "32/32/128", None, "segmented_M16_T16_N16_W4_S3"),
    (decode(5, 4096), "32/32/128", None, "qblock_M16_T32_W4_S3"),
    (decode(128, 512), "8/1/128", None, "segmented_M16_T16_N16_W4_S3"),
    (decode(40, 512), "12/3/128", None, "segmented_M16_T16_N16_W4_S3"),  # 42: 40 is nearer than 48
    (decode(41, 512), "12/3/128", None, "qblock_M16_T32_W4_S3"),
    (decode(4, 512), "40/20/128", None, "segmented_M16_T16_N16_W4_S3"),  # 6: the first of 4 and 8
    (decode(5, 512), "40/20/128", None, "qblock_M16_T32_W4_S3"),
    (decode(1, 512), "256/256/128", None, "segmented_M16_T16_N16_W4_S3"),  # no graph is smaller than 1
    (speculative(1, 2, 4096), "32/8/128", None, "qblock_M16_T32_W4_S3"),
    (prefill(1, 4096), "17/1/64", None, "qblock_M32_T32_W4_S3"),
    (decode(1, 4096), "128/1/64", None, "segmented_M128_T16_N16_W4_S3"),
])  # fmt: skip
def test_the_fixed_choice_of_vllm(batch, layout, cache_dtype, expected):
    batch = batch.at(layout=HeadLayout.parse(layout), cache_dtype=cache_dtype)
    assert str(baselines(batch)) == expected


lengths = st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, 100_000)), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    st.one_of(lengths, st.lists(st.tuples(st.just(1), st.integers(0, 100_000)), min_size=1, max_size=300)),
    st.sampled_from(LAYOUTS),
    st.sampled_from([None, FP8]),
    st.sampled_from([H100, A100, MI300X, CPU]),
)
def test_the_fixed_choice_is_declared_and_never_dropped(lens, layout, cache_dtype, gpu):
    queries = tuple(query for query, _ in lens)
    contexts = tuple(query + cached for query, cached in lens)
    batch = Batch("any", "any", queries, contexts, HeadLayout.parse(layout), cache_dtype=cache_dtype)
    fixed = baselines(batch, gpu.vendor)
    assert fixed in declared(gpu.vendor)
    assert reason_against(fixed, batch, gpu) is None
    space = space_at(shape_of(batch), gpu, [fixed])
    assert not space.dropped or gpu is MI300X  # whose shared memory may not hold it
