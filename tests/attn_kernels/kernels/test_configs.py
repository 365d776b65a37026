"""Configs as text, as what generated modules return, and which of them a variant accepts."""

from collections import namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import NAMES, make_config

from attn_kernels import Config
from attn_kernels.core.config import LETTERS, complete
from attn_kernels.kernels.registry import VARIANTS, check_config


@pytest.mark.parametrize(
    "config, text",
    [
        (Config("qblock", 64, 32), "qblock_M64_T32_W4_S2"),
        (Config("naive", 1, 128, num_warps=8, num_stages=1), "naive_M1_T128_W8_S1"),
        (Config("segmented", 16, 64, num_segments=8, num_stages=3), "segmented_M16_T64_N8_W4_S3"),
        (
            Config("static_grid", 16, 64, 8, 4, 3, 2, 1, 1, 96, 2, 16, 1),
            "static_grid_M16_T64_N8_W4_S3_P2_D1_B1_R96_E2_I16_G1",
        ),
        (Config("pod", 128, 64, num_stages=3, decode_tile=128), "pod_M128_T64_W4_S3_K128"),
    ],
)
def test_text(config, text):
    assert str(config) == text
    assert Config.parse(text) == config


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.builds(Config, st.from_regex(r"[a-z]+(_[a-z]+)*", fullmatch=True), *[st.integers(0, 999_999)] * 13))
def test_text_is_read_back(config):
    assert Config.parse(str(config)) == config


def test_every_parameter_has_a_letter():
    assert tuple(LETTERS) != () and {"variant", *LETTERS} == set(Config._fields)
    assert len(set(LETTERS.values())) == len(LETTERS)


@pytest.mark.parametrize("text", [
    "", "qblock", "qblock_M64", "qblock_T64_W4", "qblock_M64_T32_W4_S2_", "_M64_T32", "qblock_M64_T32_M64",
    "qblock_M64_T32_X1", "qblock_M64_T-2", "qblock_M64_T3.2", "qblock_m64_t32", "qblock_M64_T32\n",
    "QBLOCK_M64_T32", "qblock_M64_T", "qblock M64 T32", "qblock_M64_T9999999", "qblock_M64_T3\u0662",
])  # fmt: skip
def test_other_text_is_refused(text):
    with pytest.raises(ValueError) as caught:
        Config.parse(text)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(
        f"config {text!r}: expected such as qblock_M64_T32_W4_S2, of the letters M block_m,"
    )


def test_an_omitted_parameter_has_its_default():
    assert Config.parse("qblock_M64_T32") == Config("qblock", 64, 32)
    assert Config.parse("segmented_S3_N8_T32_M64") == Config(
        "segmented", 64, 32, num_segments=8, num_stages=3
    )


def test_a_generated_config_is_completed():
    Five = namedtuple("Five", "variant block_m tile_size num_warps num_stages")
    assert complete(Five("qblock", 64, 32, 8, 3)) == Config("qblock", 64, 32, num_warps=8, num_stages=3)
    Seven = namedtuple("Seven", (*Five._fields, "num_segments", "spare"))
    assert complete(Seven("segmented", 16, 32, 8, 3, 5, "ignored")) == Config(
        "segmented", 16, 32, num_segments=5, num_warps=8, num_stages=3
    )
    config = Config("naive", 1, 32, bypass_l1=1)
    assert complete(config) == config


@pytest.mark.parametrize("name, variant", VARIANTS.items())
def test_a_variant_accepts_its_samples_and_the_parameters_of_all(name, variant):
    for config in variant.samples:
        assert config.variant == variant.name == name
        check_config(config._replace(bypass_l1=1, max_registers=128, waves_per_eu=2, matrix_size=32))


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("name", ["num_segments", "programs_per_sm"])
def test_a_parameter_that_a_variant_lacks(variant, name):
    config = make_config(variant)._replace(**{name: 2})
    if name in VARIANTS[variant].parameters:
        check_config(config)
        return
    value = getattr(config, name)
    with pytest.raises(ValueError, match=f"^config.{name} is {value}, but {variant} has no such parameter$"):
        check_config(config)


BLOCK = "a power of two from 16 to 1024 is needed"


@pytest.mark.parametrize("name, value, needed", [
    ("block_m", 1, BLOCK), ("block_m", 48, BLOCK), ("block_m", 2048, BLOCK),
    ("tile_size", 0, BLOCK), ("tile_size", -16, BLOCK),
    ("num_warps", 3, "a power of two from 1 to 32 is needed"),
    ("num_warps", 64, "a power of two from 1 to 32 is needed"),
    ("num_stages", 0, "at least 1 is needed"),
    ("num_segments", 0, "1 to 1024 is needed"), ("num_segments", 1025, "1 to 1024 is needed"),
    ("programs_per_sm", 0, "1 to 32 is needed"),
    ("descriptors", 2, "0 or 1 is needed"),
    ("bypass_l1", 2, "0 or 1 is needed"),
    ("max_registers", 256, "0 to 255 is needed"),
    ("waves_per_eu", -1, "0 to 8 is needed"),
    ("matrix_size", 8, "0, 16 or 32 is needed"),
])  # fmt: skip
def test_impossible_parameters(name, value, needed):
    with pytest.raises(ValueError) as caught:
        check_config(Config("static_grid", 16, 16, num_segments=2)._replace(**{name: value}))
    assert str(caught.value) == f"config.{name} is {value}, but {needed}"


@pytest.mark.parametrize(
    "variant, message",
    [
        ("magic", "config.variant is 'magic', but the variants are: " + ", ".join(sorted(VARIANTS))),
        ("naive", "config.block_m is 16, but 1 is needed by naive"),
    ],
)
def test_impossible_variants(variant, message):
    with pytest.raises(ValueError) as caught:
        check_config(Config(variant, 16, 16))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "name, value", [("block_m", 32.0), ("num_stages", 2.5), ("tile_size", "16"), ("num_warps", True)]
)
def test_a_parameter_is_a_plain_int(name, value):
    good = Config("qblock", 32, 16)
    with pytest.raises(TypeError, match=f"^config.{name} is {value!r}, but a plain int is needed$"):
        check_config(good._replace(**{name: value}))
    check_config(complete(good))


@pytest.mark.parametrize("config", ["qblock_M16_T32", None, ["qblock", 16, 16]])
def test_objects_without_the_parameters_of_a_config(config):
    with pytest.raises(TypeError, match=r"^config is .*, but an object with variant, block_m and tile_size"):
        complete(config)
