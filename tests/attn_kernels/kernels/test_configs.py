"""Configs as text, as what generated modules return, and which of them a variant accepts."""

from collections import namedtuple

import pytest

from attn_kernels import Config
from attn_kernels.core.config import complete
from attn_kernels.kernels.registry import VARIANTS, check_config


@pytest.mark.parametrize(
    "config, text",
    [
        (Config("qblock", 64, 32), "qblock_M64_T32_W4_S2"),
        (Config("qblock", 128, 128, num_warps=8, num_stages=1), "qblock_M128_T128_W8_S1"),
        (Config("qblock", 16, 64, 4, 3, 1, 1, 96, 2, 16), "qblock_M16_T64_W4_S3_D1_B1_R96_E2_I16"),
        (Config("pod", 128, 64, num_stages=3), "pod_M128_T64_W4_S3"),
    ],
)
def test_text(config, text):
    """An omitted parameter has its default, and the order is free."""
    assert str(config) == text
    assert Config.parse(text) == config
    assert Config.parse("qblock_M64_T32") == Config("qblock", 64, 32)
    assert Config.parse("stream_k_S3_D1_T32_M64") == Config("stream_k", 64, 32, num_stages=3, tma=1)


@pytest.mark.parametrize("text", [
    "", "qblock", "qblock_M64", "qblock_T64_W4", "qblock_M64_T32_W4_S2_", "_M64_T32", "qblock_M64_T32_M64",
    "qblock_M64_T32_X1", "qblock_M64_T-2", "qblock_M64_T3.2", "qblock_m64_t32", "qblock_M64_T32\n",
    "QBLOCK_M64_T32", "qblock_M64_T", "qblock M64 T32", "qblock_M64_T9999999", "qblock_M64_T3\u0662",
])  # fmt: skip
def test_other_text_is_refused(text):
    with pytest.raises(ValueError) as caught:
        Config.parse(text)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"config {text!r}: ")


def test_a_generated_config_is_completed():
    Five = namedtuple("Five", "variant block_m tile_size num_warps num_stages")
    assert complete(Five("qblock", 64, 32, 8, 3)) == Config("qblock", 64, 32, num_warps=8, num_stages=3)
    Seven = namedtuple("Seven", (*Five._fields, "tma", "spare"))
    assert complete(Seven("stream_k", 16, 32, 8, 3, 1, "ignored")) == Config("stream_k", 16, 32, 8, 3, tma=1)
    config = Config("qblock", 64, 32, bypass_l1=1)
    assert complete(config) == config


@pytest.mark.parametrize("config", [
    config for variant in VARIANTS.values() for config in (*variant.samples, *variant.configs())
], ids=str)  # fmt: skip
def test_a_variant_accepts_its_samples_and_what_it_declares(config):
    check_config(config._replace(bypass_l1=1, max_registers=128, waves_per_eu=2, matrix_size=32))
    assert Config.parse(str(config)) == config


POD = Config("pod", 128, 64, num_stages=3)
DECODES = Config("stream_k", 16, 64, num_stages=2, tma=1)
PLAIN = Config("qblock", 16, 16)


@pytest.mark.parametrize("config, name, values", [
    (PLAIN, "block_m", (1, 8, 48, 2048)), (PLAIN, "tile_size", (0, -16)), (PLAIN, "num_warps", (3, 64)),
    (PLAIN, "num_stages", (0,)), (PLAIN, "matrix_size", (8,)), (PLAIN, "tma", (2,)),
    (PLAIN, "bypass_l1", (2,)), (PLAIN, "max_registers", (256,)), (PLAIN, "waves_per_eu", (-1, 9)),
    (POD, "block_m", (64,)), (POD, "tile_size", (32, 128)), (POD, "num_stages", (1,)),
    (POD, "tma", (1,)),
    (DECODES, "tile_size", (32,)), (DECODES, "num_stages", (1,)), (DECODES, "block_m", (128,)),
    (POD, "variant", ("magic",)),
])  # fmt: skip
def test_impossible_parameters_are_named(config, name, values):
    check_config(config)
    for value in values:
        with pytest.raises(ValueError, match=f"^config.{name} is {value!r}, but "):
            check_config(config._replace(**{name: value}))


@pytest.mark.parametrize(
    "name, value", [("block_m", 32.0), ("num_stages", 2.5), ("tile_size", "16"), ("num_warps", True)]
)
def test_a_parameter_is_a_plain_int(name, value):
    with pytest.raises(TypeError, match=f"^config.{name} is {value!r}, but"):
        check_config(Config("qblock", 32, 16)._replace(**{name: value}))
    for other in ("qblock_M16_T32", None, ["qblock", 16, 16]):
        with pytest.raises(TypeError, match=r"^config is "):
            complete(other)
